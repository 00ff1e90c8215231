//! What another gardenlet has left in a seed that is permanently deleted: which ManagedResources are components of the
//! Seed, the order of their deletion, which objects are outside of ManagedResources, and which definitions were created
//! for them (Gardener's `reconciler_delete.go`).

use serde_json::Value;

use super::webhooks;
use crate::api::meta::{Key, Resource, text};
use crate::api::resources::GARDEN_NAMESPACE;

/// The label of the ManagedResources of a Seed's components.
pub(crate) const COMPONENTS: &str = "gardener.cloud/role=seed-system-component";
/// Istio's namespace, and the label that marks it as Gardener's.
pub(crate) const ISTIO: (&str, &str) = ("istio-system", "gardener.cloud/role=istio-system");
const OF_ISTIO: [&str; 2] = ["istio", "istio-system"];

/// Components that must outlive others, because they remove finalizers of the others' objects or serve them.
const AFTER: [(&str, &[&str]); 5] = [
    ("fluent-operator", &["fluent-bit", "fluent-operator-custom-resources"]),
    ("istio-basic-auth-server", &["plutono", "prometheus-aggregate"]),
    ("opentelemetry-operator", &["opentelemetry-collector"]),
    ("vali", &["fluent-operator-custom-resources"]),
    ("victoria-operator", &["victoria-logs"]),
];

/// Whether a component may be deleted while these are present.
pub(crate) fn may_go(name: &str, present: &[String]) -> bool {
    let others = AFTER.iter().find(|(waiting, _)| *waiting == name).map_or(&[][..], |(_, others)| others);
    !others.iter().any(|other| present.iter().any(|present| present == other))
}

/// Whether a component's ManagedResource may have this name and namespace.
pub(crate) fn is_place(key: &Key) -> bool {
    key.namespace == GARDEN_NAMESPACE || key.namespace == ISTIO.0 && OF_ISTIO.contains(&key.name.as_str())
}

/// Objects outside of ManagedResources, by kind and name in a namespace. The Deployment of gardener-resource-manager is
/// the last one: while it exists, others may be left.
pub(crate) const OBJECTS: [(Resource, &str, &[&str]); 7] = [
    (
        kind("autoscaling.k8s.io", "v1", "verticalpodautoscalers"),
        GARDEN_NAMESPACE,
        &["gardenlet-vpa", "gardener-resource-manager-vpa"],
    ),
    (
        kind("monitoring.coreos.com", "v1", "servicemonitors"),
        GARDEN_NAMESPACE,
        &["seed-gardener-resource-manager"],
    ),
    (kind("networking.istio.io", "v1beta1", "destinationrules"), "default", &["kube-apiserver-ingress"]),
    (kind("networking.istio.io", "v1beta1", "gateways"), GARDEN_NAMESPACE, &["kube-apiserver-ingress"]),
    (
        kind("networking.istio.io", "v1beta1", "virtualservices"),
        GARDEN_NAMESPACE,
        &["kube-apiserver-ingress"],
    ),
    (kind("policy", "v1", "poddisruptionbudgets"), GARDEN_NAMESPACE, &[webhooks::NAME]),
    (kind("", "v1", "services"), GARDEN_NAMESPACE, &[webhooks::NAME]),
];

const fn kind(group: &'static str, version: &'static str, plural: &'static str) -> Resource {
    Resource::new(group, version, "", plural, true)
}

/// Groups of the definitions that a gardenlet installs. The first two belong to Gardener alone.
const GROUPS: [&str; 15] = [
    "extensions.gardener.cloud",
    "resources.gardener.cloud",
    "autoscaling.gardener.cloud",
    "autoscaling.k8s.io",
    "druid.gardener.cloud",
    "extensions.istio.io",
    "fluentbit.fluent.io",
    "machine.sapcloud.io",
    "monitoring.coreos.com",
    "networking.istio.io",
    "opentelemetry.io",
    "operator.victoriametrics.com",
    "perses.dev",
    "security.istio.io",
    "telemetry.istio.io",
];
const GARDENERS: usize = 2;

/// Kinds whose objects a component creates by itself and leaves behind. They are deleted with their definition.
const OF_COMPONENTS: [&str; 1] = ["verticalpodautoscalercheckpoints"];

/// A definition that may have been created for a Seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Definition<'a> {
    pub(crate) plural: &'a str,
    pub(crate) group: &'a str,
    /// Only Gardener uses this group.
    pub(crate) is_gardeners: bool,
    /// Its objects have owners who need them.
    pub(crate) has_owners: bool,
}

/// Classifies a definition by its name. `None`: no gardenlet creates it.
pub(crate) fn definition(name: &str) -> Option<Definition<'_>> {
    let (plural, group) = name.split_once('.')?;
    let place = GROUPS.iter().position(|known| *known == group)?;
    Some(Definition {
        plural,
        group,
        is_gardeners: place < GARDENERS,
        has_owners: !OF_COMPONENTS.contains(&plural),
    })
}

/// Whether only a gardenlet, Go or Rust, has written the spec of an object, according to `metadata.managedFields`.
/// Without these fields, the answer is no.
pub(crate) fn is_made_by_gardenlet(managed_fields: &Value) -> bool {
    let entries = managed_fields.as_array().into_iter().flatten();
    let is_writer =
        |entry: &&Value| entry["subresource"].is_null() && entry["fieldsV1"].get("f:spec").is_some();
    let mut writers = entries.filter(is_writer).map(|entry| text(&entry["manager"])).peekable();
    writers.peek().is_some() && writers.all(|writer| writer == "gardenlet")
}

#[cfg(test)]
mod tests {
    use crate::base::sorted::SortedSet;

    use serde_json::json;

    use super::*;
    use crate::components::crds::{self, Foreign};

    #[test]
    fn operators_outlive_their_objects() {
        let table = [
            ("dependency-watchdog-weeder", &["fluent-bit"][..], true),
            ("fluent-operator", &["fluent-operator", "fluent-bit"], false),
            ("fluent-operator", &["fluent-operator", "vali"], true),
            ("victoria-operator", &["victoria-logs"], false),
            ("istio-basic-auth-server", &["plutono"], false),
            ("istio-basic-auth-server", &["prometheus-seed"], true),
        ];
        let named = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        for (name, present, expected) in table {
            assert_eq!(may_go(name, &named(present)), expected, "{name} {present:?}");
        }
        // No component waits for itself, and there is no cycle.
        for (name, others) in AFTER {
            assert!(others.iter().all(|other| may_go(other, &named(&[name]))), "{name}");
        }
    }

    #[test]
    fn where_components_are() {
        let table = [
            ("garden", "x", true),
            ("istio-system", "istio", true),
            ("istio-system", "x", false),
            ("a", "istio", false),
        ];
        for (namespace, name, expected) in table {
            assert_eq!(is_place(&Key::new(namespace, name)), expected, "{namespace}/{name}");
        }
    }

    #[test]
    fn definitions_of_a_seed_are_known_by_their_group() {
        let foreign = Foreign { is_garden: false, vpa: true, machines: true, etcd: true };
        for object in crds::all().chain(crds::foreign(foreign)) {
            let name = text(&object["metadata"]["name"]);
            let found = definition(name).unwrap();
            assert_eq!(found.group, text(&object["spec"]["group"]));
            let is_own = crds::all().any(|own| own["metadata"]["name"] == name);
            assert_eq!(found.is_gardeners, is_own, "{name}");
        }
        for name in ["gardens.operator.gardener.cloud", "things.example.org", "nothing", ""] {
            assert_eq!(definition(name), None, "{name}");
        }
        assert!(!definition("verticalpodautoscalercheckpoints.autoscaling.k8s.io").unwrap().has_owners);
        assert!(definition("verticalpodautoscalers.autoscaling.k8s.io").unwrap().has_owners);
        assert_eq!(GROUPS.iter().collect::<SortedSet<_>>().len(), GROUPS.len());
    }

    #[test]
    fn objects_of_other_writers_are_not_a_gardenlets() {
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
        let spec = json!({"f:spec": {"f:group": {}}});
        let mut status = entry("kube-apiserver", json!({"f:status": {}}));
        status["subresource"] = json!("status");
        let table = [
            (json!([entry("gardenlet", spec.clone()), status]), true),
            (
                json!([
                    entry("gardenlet", spec.clone()),
                    entry("kubectl-annotate", json!({"f:metadata": {}}))
                ]),
                true,
            ),
            (json!([entry("gardenlet", spec.clone()), entry("helm", spec.clone())]), false),
            (
                json!([
                    entry("kubectl-client-side-apply", spec.clone()),
                    entry("gardenlet", json!({"f:metadata": {}}))
                ]),
                false,
            ),
            (json!([]), false),
            (Value::Null, false),
        ];
        for (managed_fields, expected) in table {
            assert_eq!(is_made_by_gardenlet(&managed_fields), expected, "{managed_fields}");
        }
    }
}
