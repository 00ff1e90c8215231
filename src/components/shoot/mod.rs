//! The content of the cluster of a Shoot without workers: ManagedResources without a class in the namespace of its
//! control plane. The applier writes their objects to the Shoot. Names and manifests are a Go gardenlet's.

use serde_json::{Value, json};

use super::managed::Managed;
use super::{archive, cluster_identity};
use crate::format::yaml::{self, Dialect};

/// Permissions of the applier of all the others.
pub(crate) const RESOURCE_MANAGER: &str = "shoot-core-gardener-resource-manager";
/// Permissions of Gardener and of the project's members.
pub(crate) const GARDENER_ACCESS: &str = "shoot-core-gardeneraccess";
/// Namespace `kube-system`.
pub const NAMESPACES: &str = "shoot-core-namespaces";
/// Information for components and people about the Shoot.
pub(crate) const SYSTEM: &str = "shoot-core-system";
/// The identity of the cluster.
pub(crate) const CLUSTER_IDENTITY: &str = "shoot-core-cluster-identity";
/// Permissions of the kube-controller-manager.
pub(crate) const KUBE_CONTROLLER_MANAGER: &str = "shoot-core-kube-controller-manager";
/// Copies of the objects that the Shoot's extensions read in the seed.
pub(crate) const REFERENCED: &str = "referenced-resources";

/// Objects as one text.
fn emit(objects: &[Value]) -> String {
    let texts: Vec<String> = objects.iter().map(|object| yaml::emit(object, Dialect::V4)).collect();
    texts.join("---\n")
}

fn file(name: &str) -> String {
    archive::text(&format!("shoot/{name}.yaml"))
}

pub(crate) fn resource_manager(namespace: &str) -> Managed {
    let mut webhooks = archive::object("shoot/webhooks.yaml");
    // The kind has no namespace. Upstream writes one, so this keeps the checksum of the Secret equal.
    webhooks["metadata"]["namespace"] = json!(namespace);
    let manifests = format!("{}---\n{}", emit(&[webhooks]), file("resource-manager"));
    Managed::for_shoot(namespace, RESOURCE_MANAGER, false, &manifests)
}

pub(crate) fn gardener_access(namespace: &str) -> Managed {
    Managed::for_shoot(namespace, GARDENER_ACCESS, true, &file("gardener-access"))
}

pub(crate) fn namespaces(namespace: &str) -> Managed {
    Managed::for_shoot(namespace, NAMESPACES, true, &file("namespaces"))
}

pub(crate) fn kube_controller_manager(namespace: &str) -> Managed {
    Managed::for_shoot(namespace, KUBE_CONTROLLER_MANAGER, true, &file("kube-controller-manager"))
}

pub(crate) fn cluster_identity(namespace: &str, identity: &str) -> Managed {
    let mut map = archive::object("cluster_identity/config-map.yaml");
    map["data"][cluster_identity::NAME] = json!(identity);
    map["data"][cluster_identity::ORIGIN_KEY] = json!("shoot");
    Managed::for_shoot(namespace, CLUSTER_IDENTITY, false, &emit(&[map]))
}

/// [`SYSTEM`]: ConfigMap `shoot-info` with these entries, and the readers' ClusterRole with these rules. From
/// Kubernetes 1.33 on, a NetworkPolicy isolates namespace `kube-system`.
pub(crate) fn system(namespace: &str, info: &Value, minor: u64, rules: &[Value]) -> Managed {
    let metadata = json!({"name": "shoot-info", "namespace": "kube-system"});
    let mut objects =
        vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": info})];
    if minor >= 33 {
        objects.push(archive::object("shoot/deny-all.yaml"));
    }
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "gardener.cloud:system:read-only"}, "rules": rules,
    }));
    Managed::for_shoot(namespace, SYSTEM, false, &emit(&objects))
}

/// [`REFERENCED`], of class `seed`.
pub(crate) fn referenced(namespace: &str, copies: &[Value]) -> Managed {
    Managed::copies_in(namespace, REFERENCED, copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACE: &str = "shoot--p--s2";

    /// The ManagedResource, and its manifests.
    fn parts(managed: &Managed) -> (Value, String) {
        let golden = managed.golden();
        let (object, manifests) = golden.split_once("---\n# data.yaml.br\n").unwrap();
        (yaml::parse(object).unwrap(), manifests.trim_end().to_owned())
    }

    #[test]
    fn manifests_are_those_of_a_go_gardenlet() {
        let golden_system = include_str!("../../../tests/fixtures/components/shoot/system.yaml");
        let documents: Vec<Value> =
            golden_system.split("\n---\n").map(|document| yaml::parse(document).unwrap()).collect();
        let rules = documents[2]["rules"].as_array().unwrap();
        let identity = "shoot--p--s2-6fedff37-803d-40b4-80ba-66e284a593e8-lab-garden";
        macro_rules! golden {
            ($name:literal) => {
                include_str!(concat!("../../../tests/fixtures/components/shoot/", $name, ".yaml"))
            };
        }
        let table = [
            (resource_manager(NAMESPACE), false, golden!("gardener-resource-manager")),
            (gardener_access(NAMESPACE), true, golden!("gardeneraccess")),
            (namespaces(NAMESPACE), true, golden!("namespaces")),
            (kube_controller_manager(NAMESPACE), true, golden!("kube-controller-manager")),
            (cluster_identity(NAMESPACE, identity), false, golden!("cluster-identity")),
            (system(NAMESPACE, &documents[0]["data"], 34, rules), false, golden_system),
        ];
        for (managed, keep, golden) in table {
            let (object, manifests) = parts(&managed);
            assert_eq!(manifests, golden.trim_end(), "{}", managed.name);
            assert_eq!(object["metadata"]["namespace"], NAMESPACE);
            assert_eq!(object["metadata"]["labels"], json!({"origin": "gardener"}));
            let secret = &object["spec"]["secretRefs"][0]["name"];
            assert_eq!(
                object["spec"],
                json!({"injectLabels": {"shoot.gardener.cloud/no-cleanup": "true"}, "keepObjects": keep,
                    "secretRefs": [{"name": secret}]})
            );
            assert!(secret.as_str().unwrap().starts_with(&format!("managedresource-{}-", managed.name)));
        }
        let (_, old) = parts(&system(NAMESPACE, &json!({}), 32, &[]));
        assert!(!old.contains("NetworkPolicy"), "{old}");
    }

    #[test]
    fn without_references_the_copies_are_an_empty_secret() {
        let object = yaml::parse(&referenced(NAMESPACE, &[]).golden()).unwrap();
        // Like the golden object.
        assert_eq!(
            object,
            json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "metadata": {
                "annotations": {"reference.resources.gardener.cloud/secret-1503ea48": "referenced-resources-e3b0c442"},
                "name": "referenced-resources", "namespace": NAMESPACE},
                "spec": {"class": "seed", "forceOverwriteAnnotations": false, "keepObjects": false,
                    "secretRefs": [{"name": "referenced-resources-e3b0c442"}]}})
        );
    }
}
