//! The kube-controller-manager of a Shoot: Deployment, Service and PodDisruptionBudget.

use serde_json::Value;

use super::{apis, controller};
use crate::base::json::json;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::components::content::{CIPHER_SUITES, insert_before, name_volumes, switches};
use crate::format::semver::Version;
use crate::kube::{Error, Seed};
use crate::shoot::rotation::{CA_CLIENT, CA_KUBELET, SERVICE_ACCOUNT_KEY};
use crate::shoot::secrets::ShootSecrets;

mod nodes;
pub(crate) mod tasks;

/// The name of Deployment, Service and PodDisruptionBudget.
pub(crate) const NAME: &str = "kube-controller-manager";

/// The volume of its kubeconfig.
const KUBECONFIG: &str = "kubeconfig";
/// The folder of its manifests.
const FOLDER: &str = "kube_controller_manager";

/// Its certificate.
const SERVER: &str = "kube-controller-manager-server";

/// The input of the objects.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The namespace of the control plane.
    pub namespace: &'a str,
    /// `spec.kubernetes` of the Shoot.
    pub kubernetes: &'a Value,
    /// The version of Kubernetes.
    pub version: &'a str,
    /// The image of kube-controller-manager.
    pub image: &'a str,
    /// Replicas.
    pub replicas: i64,
    /// The ranges of Services.
    pub services: &'a [String],
    /// The names of Secrets by volume: `ca` is a bundle; `ca-client` and `service-account-key` are the present ones;
    /// `server` is the serving certificate.
    pub secrets: &'a SortedMap<&'static str, String>,
    /// The name of the generic kubeconfig's Secret.
    pub generic_kubeconfig: &'a str,
    /// The ranges of pods, of which each node gets a part. `None` without workers.
    pub pods: Option<&'a [String]>,
}

/// The names of Secrets by volume of the Deployment, without the kubeconfig.
pub fn volumes(made: &ShootSecrets) -> SortedMap<&'static str, String> {
    [
        (CA_KUBELET, made.current(CA_KUBELET)),
        ("ca", made.bundle("ca")),
        (CA_CLIENT, made.current(CA_CLIENT)),
        (SERVICE_ACCOUNT_KEY, made.current(SERVICE_ACCOUNT_KEY)),
        ("server", made.current(SERVER)),
    ]
    .map(|(volume, name)| (volume, name.to_owned()))
    .into()
}

/// Controllers that are useless without workers, with the minor version that introduced them.
const WITHOUT_WORKERS: [(&str, u64); 14] = [
    ("attachdetach", 0),
    ("cloud-node-lifecycle", 0),
    ("device-taint-eviction-controller", 33),
    ("endpoint", 0),
    ("ephemeral-volume", 0),
    ("nodeipam", 0),
    ("nodelifecycle", 0),
    ("persistentvolume-binder", 0),
    ("persistentvolume-expander", 0),
    ("podcertificaterequest-cleaner-controller", 34),
    ("podgroup-protection-controller", 36),
    ("pv-protection", 0),
    ("resourcepoolstatusrequest-controller", 36),
    ("ttl", 0),
];

/// Controllers of an API: disabled together with it.
const OF_APIS: [(&str, &[&str]); 4] = [
    ("apps/v1", &["daemonset", "deployment", "replicaset", "statefulset"]),
    ("autoscaling/v2", &["horizontalpodautoscaling"]),
    ("batch/v1", &["cronjob", "job", "ttl-after-finished"]),
    ("policy/v1", &["disruption"]),
];

/// The Deployment. Errors: a version is invalid, or a volume has no Secret or ConfigMap.
pub fn fill(input: &Input<'_>) -> Result<Value, String> {
    let mut object = controller::deployment(FOLDER, input.namespace, input.image, input.replicas);
    if input.pods.is_some() {
        let pod = &mut object["spec"]["template"]["spec"];
        let volume = json!({"name": CA_KUBELET, "secret": {"defaultMode": 416, "secretName": ""}});
        insert_before(&mut pod["volumes"], KUBECONFIG, volume);
        let mount = json!({"mountPath": nodes::CA_PATH, "name": CA_KUBELET});
        insert_before(&mut pod["containers"][0]["volumeMounts"], KUBECONFIG, mount);
    }
    name_volumes(&mut object, input.secrets)?;
    controller::set_source(&mut object, KUBECONFIG, input.generic_kubeconfig);
    let mut arguments = vec![
        format!("--cluster-name={}", input.namespace),
        format!("--controllers={}", controllers(input)?),
        format!("--service-cluster-ip-range={}", input.services.join(",")),
        CIPHER_SUITES.to_owned(),
    ];
    arguments.extend(switches("feature-gates", &input.kubernetes["kubeControllerManager"]["featureGates"]));
    arguments.extend(input.pods.into_iter().flat_map(|pods| nodes::arguments(input.kubernetes, pods)));
    controller::add_arguments(&mut object, arguments);
    Ok(object)
}

fn controllers(input: &Input<'_>) -> Result<String, String> {
    let &Input { version, kubernetes, pods, .. } = input;
    let parsed = Version::parse(version);
    let minor = parsed.map_err(|error| format!("version {version:?} of Kubernetes: {error}"))?.minor;
    let useless = WITHOUT_WORKERS.into_iter().filter(|(_, since)| pods.is_none() && minor >= *since);
    let mut off: SortedSet<&str> = useless.map(|(name, _)| name).collect();
    let switched = apis::switched(&kubernetes["kubeAPIServer"], pods.is_some());
    for (api, names) in OF_APIS {
        if switched[api] == false {
            off.extend(names);
        }
    }
    Ok(off
        .into_iter()
        .fold("*,bootstrapsigner,tokencleaner".to_owned(), |all, name| format!("{all},-{name}")))
}

/// The Service and the PodDisruptionBudget.
pub(crate) fn others(namespace: &str) -> [Value; 2] {
    controller::others(FOLDER, namespace)
}

/// Writes everything to the seed and keeps the container's live resource requests. Returns the Deployment.
/// Errors: a request fails.
pub fn deploy(seed: &Seed, namespace: &str, deployment: &Value) -> Result<Value, Error> {
    controller::write(seed, others(namespace), deployment)
}

#[cfg(test)]
mod tests;
