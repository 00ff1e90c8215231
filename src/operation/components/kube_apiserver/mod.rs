//! The kube-apiserver of a Shoot: Deployment, Service, PodDisruptionBudget, and the ConfigMaps and
//! Secrets that it reads, as the Go gardenlet writes them. `docs/differences.md` lists the differences and their
//! reasons.

use serde_json::Value;

use super::server_addition::ServerAddition;
use crate::api::core::{CONFIG_MAP, DEPLOYMENT, POD_DISRUPTION_BUDGET, SECRET, SERVICE};
use crate::api::meta::Resource;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::apply::{Keep, apply, apply_keeping};
use crate::components::archive;
use crate::components::content::{self, push};
use crate::components::exposure::KUBE_APISERVER;
use crate::components::managed::Managed;
use crate::kube::{Error, Seed};
use crate::shoot::rotation::{CA_CLIENT, CA_KUBELET, SERVICE_ACCOUNT_KEY, STATIC_TOKEN};
use crate::shoot::secrets::ShootSecrets;
use crate::shoot::wildcard::Wildcard;

mod arguments;
mod encryption;
mod references;
mod settings;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;

pub use encryption::{Encryption, KeyOrder, encryption};
pub(crate) use references::read;
pub use references::{Texts, references};

/// The name of Deployment, Service and PodDisruptionBudget.
pub(crate) const NAME: &str = KUBE_APISERVER;

/// The volume of the certificate for a wildcard domain.
const WILDCARD: &str = "tls-sni-0";
const WILDCARD_PATH: &str = "/srv/kubernetes/tls-sni/0";

/// The certificate with which it authenticates to kubelets.
const KUBELET_CERTIFICATE: &str = "kube-apiserver-kubelet";
/// The volume of that certificate.
const KUBELET_CLIENT: &str = "kubelet-client";
const KUBELET_CLIENT_PATH: &str = "/srv/kubernetes/apiserver-kubelet";
const CA_KUBELET_PATH: &str = "/srv/kubernetes/ca-kubelet";

/// The input of the objects.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The namespace of the control plane.
    pub namespace: &'a str,
    /// `spec.kubernetes` of the Shoot.
    pub kubernetes: &'a Value,
    /// The image of kube-apiserver.
    pub image: &'a str,
    /// Replicas; see [`replicas`].
    pub replicas: i64,
    /// The ranges of Services.
    pub services: &'a [String],
    /// The host name that clients outside the seed use.
    pub external_hostname: &'a str,
    /// The issuer of ServiceAccount tokens if the garden serves their keys. It wins over the Shoot's own issuer.
    pub managed_issuer: Option<&'a str>,
    /// The seed's certificate for a wildcard domain, if there is one.
    pub wildcard: Option<&'a Wildcard>,
    /// Argument `--advertise-address`; set only if the internal and the external domain are both managed.
    pub advertise_address: Option<&'a str>,
    /// Whether it writes the endpoints of the Service `kubernetes` in its cluster. If it does not, it does not check that
    /// its address is of the family of `services` (`validation.go` of Kubernetes).
    pub writes_endpoints: bool,
    /// The token of user `health-check`.
    pub health_check_token: &'a str,
    /// The names of Secrets by volume: `ca`, `ca-client`, `ca-front-proxy`, `service-account-key-bundle` and
    /// `ca-etcd` are bundles, `service-account-key` is the present key. The others are `static-token`,
    /// `kube-aggregator`, `etcd-client` and `server`.
    pub secrets: &'a SortedMap<&'static str, String>,
    /// The Secret from [`encryption`].
    pub encryption: &'a Value,
    /// The texts that [`read`] found in the garden.
    pub texts: &'a Texts,
    /// What other components add to the pod so that it reaches nodes. `None` without workers.
    pub nodes: Option<&'a [ServerAddition]>,
}

/// The objects for the seed; the Deployment is the last one.
#[derive(Clone, PartialEq, Debug)]
pub struct Objects(pub Vec<(Resource, Value)>);

/// All objects except the Service. Errors: the invalid setting of the Shoot, and the reason.
pub fn fill(input: &Input<'_>) -> Result<Objects, String> {
    let &Input { namespace, kubernetes, texts, .. } = input;
    let settings =
        settings::fill(&settings::Given { namespace, kubernetes, texts, has_nodes: input.nodes.is_some() })?;
    let mut names = input.secrets.clone();
    let mut objects = Vec::new();
    for (volume, resource, object) in settings {
        names.insert(volume, content::name(&object).to_owned());
        objects.push((resource, object));
    }
    names.insert("etcd-encryption-secret", content::name(input.encryption).to_owned());
    names.extend(input.wildcard.map(|wildcard| (WILDCARD, wildcard.secret.clone())));
    objects.push((SECRET, input.encryption.clone()));
    let mut pdb = archive::object("kube_apiserver/pdb.yaml");
    pdb["metadata"]["namespace"] = json!(input.namespace);
    objects.push((POD_DISRUPTION_BUDGET, pdb));
    objects.extend(input.nodes.into_iter().flatten().flat_map(|addition| addition.objects.clone()));
    objects.push((DEPLOYMENT, deployment(input, &names)?));
    Ok(Objects(objects))
}

/// The names of Secrets by volume of the Deployment. Those of volumes for nodes are empty without workers.
pub fn volumes(made: &ShootSecrets) -> SortedMap<&'static str, String> {
    [
        (CA_KUBELET, made.bundle(CA_KUBELET)),
        (KUBELET_CLIENT, made.current(KUBELET_CERTIFICATE)),
        ("ca", made.bundle("ca")),
        (CA_CLIENT, made.bundle(CA_CLIENT)),
        ("ca-front-proxy", made.bundle("ca-front-proxy")),
        ("ca-etcd", made.bundle("ca-etcd")),
        ("service-account-key-bundle", made.bundle(SERVICE_ACCOUNT_KEY)),
        (SERVICE_ACCOUNT_KEY, made.current(SERVICE_ACCOUNT_KEY)),
        ("static-token", made.current(STATIC_TOKEN)),
        ("kube-aggregator", made.current("kube-aggregator")),
        ("etcd-client", made.current("etcd-client")),
        ("server", made.current(NAME)),
    ]
    .map(|(volume, name)| (volume, name.to_owned()))
    .into()
}

/// Checks that settings can be built from a Shoot's `spec.kubernetes` and the texts that [`read`] found.
/// Errors: the invalid setting of the Shoot, and the reason.
pub(crate) fn check(kubernetes: &Value, texts: &Texts) -> Result<(), String> {
    settings::fill(&settings::Given { namespace: "", kubernetes, texts, has_nodes: false }).map(drop)
}

fn deployment(input: &Input<'_>, names: &SortedMap<&str, String>) -> Result<Value, String> {
    let mut object = archive::object("kube_apiserver/deployment.yaml");
    object["metadata"]["namespace"] = json!(input.namespace);
    object["spec"]["replicas"] = json!(input.replicas);
    let pod = &mut object["spec"]["template"]["spec"];
    let (volume, path) = ("authorization-kubeconfigs", settings::AUTHORIZATION_KUBECONFIGS);
    let has_webhooks = names.contains_key(volume);
    if has_webhooks {
        push(&mut pod["volumes"], json!({"name": volume, "secret": {"defaultMode": 420, "secretName": ""}}));
    }
    if input.wildcard.is_some() {
        let secret = json!({"defaultMode": 0o640, "secretName": ""});
        push(&mut pod["volumes"], json!({"name": WILDCARD, "secret": secret}));
    }
    if input.nodes.is_some() {
        add_kubelet_access(pod);
    }
    let container = &mut pod["containers"][0];
    let mounts = &mut container["volumeMounts"];
    if input.wildcard.is_some() {
        push(mounts, json!({"mountPath": WILDCARD_PATH, "name": WILDCARD, "readOnly": true}));
    }
    if has_webhooks {
        push(mounts, json!({"mountPath": path, "name": volume, "readOnly": true}));
    }
    container["image"] = json!(input.image);
    let header = json!([{"name": "Authorization", "value": format!("Bearer {}", input.health_check_token)}]);
    for probe in ["livenessProbe", "readinessProbe"] {
        container[probe]["httpGet"]["httpHeaders"] = header.clone();
    }
    if let Some(arguments) = container["args"].as_array_mut() {
        arguments.extend(arguments::of(input).into_iter().map(Value::String));
    }
    content::name_volumes(&mut object, names)?;
    let pod = &mut object["spec"]["template"]["spec"];
    for addition in input.nodes.into_iter().flatten() {
        addition.add_to(pod);
    }
    content::annotate_references(&mut object);
    Ok(object)
}

/// The files with which the server verifies kubelets and authenticates to them.
fn add_kubelet_access(pod: &mut Value) {
    let volumes = [(CA_KUBELET, 420, CA_KUBELET_PATH), (KUBELET_CLIENT, 416, KUBELET_CLIENT_PATH)];
    for (name, mode, path) in volumes {
        push(&mut pod["volumes"], json!({"name": name, "secret": {"defaultMode": mode, "secretName": ""}}));
        push(&mut pod["containers"][0]["volumeMounts"], json!({"mountPath": path, "name": name}));
    }
}

/// The Service inside the seed. It exists before the Deployment.
pub(crate) fn service(namespace: &str) -> Value {
    let mut service = archive::object("kube_apiserver/service.yaml");
    service["metadata"]["namespace"] = json!(namespace);
    service
}

/// The permissions of the API server at the kubelets, which ask it.
fn permissions(namespace: &str) -> Managed {
    let text = archive::text("kube_apiserver/permissions.yaml");
    Managed::for_shoot(namespace, "shoot-core-kube-apiserver", false, &text)
}

/// The number of replicas. A running server keeps its number even if the Shoot is to be hibernated, because the
/// hibernation needs the server until its last step. A server that is off stays off if the Shoot is to be hibernated,
/// and gets one replica otherwise.
pub(crate) fn replicas(live: Option<i64>, is_hibernated: bool) -> i64 {
    match live {
        Some(live) if live > 0 => live,
        _ => i64::from(!is_hibernated),
    }
}

/// Writes [`service`] to the seed. Errors: a request fails.
pub fn deploy_service(seed: &Seed, namespace: &str) -> Result<Value, Error> {
    apply(seed, &SERVICE, &service(namespace))
}

/// Writes the objects of [`fill`] to the seed and keeps the container's live resource requests. Returns the
/// Deployment. Errors: a request fails.
pub fn deploy(seed: &Seed, objects: &Objects) -> Result<Value, Error> {
    let mut last = Value::Null;
    for (resource, object) in &objects.0 {
        let is_workload = *resource == DEPLOYMENT;
        last = apply_keeping(seed, resource, object, Keep { resources: is_workload })?;
    }
    Ok(last)
}

/// A ConfigMap or a Secret of one volume.
type Setting = (&'static str, Resource, Value);

fn config_map(volume: &'static str, object: Value) -> Setting {
    (volume, CONFIG_MAP, object)
}
