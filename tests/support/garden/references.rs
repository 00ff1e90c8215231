//! What objects of a garden refer to, as vertices of the resource graph.

use serde_json::Value;

use super::graph::Vertex;
use super::requests;
use crate::json::{list, text};

/// A Secret, ConfigMap, WorkloadIdentity or InternalSecret. `namespace` replaces that of the reference.
fn referred(reference: Option<&Value>, namespace: Option<&str>) -> Option<Vertex> {
    let reference = reference?;
    let plural = match (text(reference, "/apiVersion"), text(reference, "/kind")) {
        ("v1", "Secret") => "secrets",
        ("v1", "ConfigMap") => "configmaps",
        ("security.gardener.cloud/v1alpha1", "WorkloadIdentity") => "workloadidentities",
        ("core.gardener.cloud/v1beta1", "InternalSecret") => "internalsecrets",
        _ => return None,
    };
    let namespace = namespace.unwrap_or(text(reference, "/namespace"));
    Some(Vertex::new(plural, namespace, text(reference, "/name")))
}

fn credentials(object: &Value, pointer: &str) -> Option<Vertex> {
    referred(object.pointer(pointer), None).filter(|v| v.plural != "configmaps")
}

/// A vertex if the object has a name there.
fn named(object: &Value, pointer: &str, plural: &'static str, namespace: &str) -> Option<Vertex> {
    let name = text(object, pointer);
    (!name.is_empty()).then(|| Vertex::new(plural, namespace, name))
}

fn resources(object: &Value, pointer: &str, namespace: &str) -> Vec<Vertex> {
    let all = list(object, pointer).iter();
    all.filter_map(|r| referred(r.get("resourceRef"), Some(namespace))).collect()
}

/// What has an edge to an object.
pub fn of(plural: &str, object: &Value) -> Vec<Vertex> {
    let namespace = text(object, "/metadata/namespace");
    match plural {
        "seeds" => of_seed(object),
        "shoots" => of_shoot(object, namespace),
        "backupbuckets" => {
            let secret = &object["status"]["generatedSecretRef"];
            let generated = named(secret, "/name", "secrets", text(secret, "/namespace"));
            credentials(object, "/spec/credentialsRef").into_iter().chain(generated).collect()
        }
        "backupentries" => named(object, "/spec/bucketName", "backupbuckets", "").into_iter().collect(),
        "controllerinstallations" => {
            let registration = named(object, "/spec/registrationRef/name", "controllerregistrations", "");
            let deployment = named(object, "/spec/deploymentRef/name", "controllerdeployments", "");
            registration.into_iter().chain(deployment).collect()
        }
        "controllerdeployments" => of_deployment(object),
        "secretbindings" => {
            let at = text(object, "/secretRef/namespace");
            named(object, "/secretRef/name", "secrets", at).into_iter().collect()
        }
        "credentialsbindings" => credentials(object, "/credentialsRef").into_iter().collect(),
        "managedseeds" => {
            let backup = credentials(object, "/spec/gardenlet/config/seedConfig/spec/backup/credentialsRef");
            backup.into_iter().chain([Vertex::new("seeds", "", text(object, "/metadata/name"))]).collect()
        }
        "gardenlets" => {
            let chart = &object["spec"]["deployment"]["helm"]["ociRepository"];
            let backup = credentials(object, "/spec/config/seedConfig/spec/backup/credentialsRef");
            let of_chart = ["/caBundleSecretRef/name", "/pullSecretRef/name"];
            let of_chart = of_chart.into_iter().filter_map(|p| named(chart, p, "secrets", namespace));
            backup.into_iter().chain(of_chart).collect()
        }
        _ => Vec::new(),
    }
}

/// To what an object has an edge.
pub fn outgoing(plural: &str, object: &Value) -> Vec<Vertex> {
    let namespace = text(object, "/metadata/namespace");
    let seeds = |pointers: &[&str]| -> Vec<Vertex> {
        pointers.iter().filter_map(|p| named(object, p, "seeds", "")).collect()
    };
    match plural {
        "shoots" => seeds(&["/spec/seedName", "/status/seedName"]),
        "backupentries" => {
            let mut all = seeds(&["/spec/seedName", "/status/seedName"]);
            let owners = list(object, "/metadata/ownerReferences").iter();
            let mut shoots = owners.filter(|o| o["kind"] == "Shoot");
            all.extend(shoots.next().map(|o| Vertex::new("shoots", namespace, text(o, "/name"))));
            all
        }
        "backupbuckets" | "bastions" => seeds(&["/spec/seedName"]),
        "controllerinstallations" => seeds(&["/spec/seedRef/name"]),
        "gardenlets" if !text(object, "/metadata/name").starts_with("self-hosted-shoot-") => {
            seeds(&["/metadata/name"])
        }
        "projects" => named(object, "/spec/namespace", "namespaces", "").into_iter().collect(),
        "managedseeds" => {
            let shoot = named(object, "/spec/shoot/name", "shoots", namespace);
            shoot.into_iter().chain(seeds(&["/metadata/name"])).collect()
        }
        "certificatesigningrequests" => {
            requests::seed_of(object).map(|s| Vertex::new("seeds", "", &s)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn of_seed(seed: &Value) -> Vec<Vertex> {
    let name = text(seed, "/metadata/name");
    let mut all = vec![
        Vertex::new("namespaces", "", &format!("seed-{name}")),
        Vertex::new("configmaps", "kube-system", "cluster-identity"),
        Vertex::new("leases", "gardener-system-seed-lease", name),
    ];
    let single = [
        "/spec/backup/credentialsRef",
        "/spec/dns/provider/credentialsRef",
        "/spec/dns/internal/credentialsRef",
    ];
    all.extend(single.iter().filter_map(|p| credentials(seed, p)));
    all.extend(list(seed, "/spec/dns/defaults").iter().filter_map(|d| credentials(d, "/credentialsRef")));
    all.extend(resources(seed, "/spec/resources", "garden"));
    all
}

fn of_deployment(deployment: &Value) -> Vec<Vertex> {
    let chart = &deployment["helm"]["ociRepository"];
    // Upstream reads the other resources only of deployments with such a chart.
    if chart.is_null() {
        return Vec::new();
    }
    let of_chart = ["/pullSecretRef/name", "/caBundleSecretRef/name"];
    let mut all: Vec<Vertex> =
        of_chart.into_iter().filter_map(|p| named(chart, p, "secrets", "garden")).collect();
    for resource in list(deployment, "/resources") {
        let plural = match text(resource, "/resourceRef/kind") {
            "Secret" => "secrets",
            "ConfigMap" => "configmaps",
            _ => continue,
        };
        all.extend(named(resource, "/resourceRef/name", plural, "garden"));
    }
    all
}

/// What the agent copies for the owner of a Shoot: resource, and the end of the names.
pub const COPIES: [(&str, &[&str]); 3] = [
    ("secrets", &[".ca-cluster", ".ssh-keypair", ".ssh-keypair.old", ".monitoring"]),
    ("internalsecrets", &[".ca-client"]),
    ("configmaps", &[".ca-cluster", ".ca-kubelet"]),
];

fn of_shoot(shoot: &Value, namespace: &str) -> Vec<Vertex> {
    let name = text(shoot, "/metadata/name");
    let mut all = vec![Vertex::new("namespaces", "", namespace), Vertex::new("shootstates", namespace, name)];
    for (plural, ends) in COPIES {
        all.extend(ends.iter().map(|end| Vertex::new(plural, namespace, &format!("{name}{end}"))));
    }
    all.extend(named(shoot, "/spec/secretBindingName", "secretbindings", namespace));
    all.extend(named(shoot, "/spec/credentialsBindingName", "credentialsbindings", namespace));
    all.extend(named(shoot, "/spec/exposureClassName", "exposureclasses", ""));
    all.extend(if text(shoot, "/spec/cloudProfile/kind") == "NamespacedCloudProfile" {
        named(shoot, "/spec/cloudProfile/name", "namespacedcloudprofiles", namespace)
    } else {
        named(shoot, "/spec/cloudProfile/name", "cloudprofiles", "")
    });
    let server = &shoot["spec"]["kubernetes"]["kubeAPIServer"];
    let maps = [
        "/auditConfig/auditPolicy/configMapRef/name",
        "/structuredAuthentication/configMapName",
        "/structuredAuthorization/configMapName",
    ];
    all.extend(maps.into_iter().filter_map(|p| named(server, p, "configmaps", namespace)));
    let kubeconfigs = list(server, "/structuredAuthorization/kubeconfigs").iter();
    all.extend(kubeconfigs.filter_map(|k| named(k, "/secretName", "secrets", namespace)));
    let providers = list(shoot, "/spec/dns/providers").iter();
    all.extend(providers.filter_map(|p| referred(p.get("credentialsRef"), Some(namespace))));
    all.extend(resources(shoot, "/spec/resources", namespace));
    all
}
