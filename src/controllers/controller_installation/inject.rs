//! What the agent adds to the workloads of an extension: the name of the seed and, if the deployment asks for it, a
//! kubeconfig for the garden. Only objects of the groups `apps` and `batch` that name the extension's namespace get it;
//! they come out as from Kubernetes' own types ([`typed`]).

use std::fmt;

use serde_json::{Value, json};

use super::typed;
use crate::api::meta::text;
use crate::api::resources::REFERENCE_PREFIX;
use crate::base::sorted::SortedMap;
use crate::components::managed::sha256_hex;

/// Where the kubeconfig and its token are mounted.
pub(super) const MOUNT_PATH: &str = "/var/run/secrets/gardener.cloud/garden/generic-kubeconfig";
/// An object that says anything but `true` here gets no kubeconfig.
const LABEL: &str = "extensions.gardener.cloud/inject-garden-kubeconfig";
const KUBECONFIG_VARIABLE: &str = "GARDEN_KUBECONFIG";
const VOLUME: &str = "garden-kubeconfig";

/// What is added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Injection<'a> {
    /// The extension's namespace.
    pub(super) namespace: &'a str,
    /// `SEED_NAME`.
    pub(super) seed_name: &'a str,
    /// The kubeconfig, if it is added.
    pub(super) garden: Option<GardenAccess<'a>>,
}

/// Names of two Secrets.
#[derive(Clone, Copy, Debug)]
pub(super) struct GardenAccess<'a> {
    /// The one with the kubeconfig.
    pub(super) kubeconfig: &'a str,
    /// The one with the token.
    pub(super) token: &'a str,
}

/// Why nothing could be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// A kind of these groups without a pod template that is known, such as ReplicaSet (as upstream).
    Kind { kind: String, api_version: String },
    /// The object does not fit its type.
    Field { object: String, source: typed::Error },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { kind, api_version } => {
                write!(f, "environment cannot be injected into objects of kind {kind} in {api_version}")
            }
            Self::Field { object, .. } => f.write_str(object),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kind { .. } => None,
            Self::Field { source, .. } => Some(source),
        }
    }
}

/// A kind with a pod template.
struct Workload {
    api_version: &'static str,
    kind: &'static str,
    pod: &'static str,
    /// What gets the annotations about references, besides the object itself.
    annotated: &'static [&'static str],
}

const fn workload(api_version: &'static str, kind: &'static str) -> Workload {
    Workload { api_version, kind, pod: "/spec/template/spec", annotated: &["/spec/template"] }
}

const WORKLOADS: [Workload; 5] = [
    workload("apps/v1", "Deployment"),
    workload("apps/v1", "StatefulSet"),
    workload("apps/v1", "DaemonSet"),
    workload("batch/v1", "Job"),
    Workload {
        api_version: "batch/v1",
        kind: "CronJob",
        pod: "/spec/jobTemplate/spec/template/spec",
        annotated: &["/spec/jobTemplate", "/spec/jobTemplate/spec/template"],
    },
];

/// Whether one of the objects is a workload that wants the kubeconfig, in whatever namespace.
pub(super) fn wants_kubeconfig<'a>(mut objects: impl Iterator<Item = &'a Value>) -> bool {
    let is_workload = |object: &Value| {
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        (api_version, kind) == ("v1", "Pod")
            || WORKLOADS.iter().any(|w| (w.api_version, w.kind) == (api_version, kind))
    };
    objects.any(|object| is_workload(object) && is_enabled(object))
}

fn is_enabled(object: &Value) -> bool {
    object["metadata"]["labels"][LABEL].as_str().is_none_or(|value| value == "true")
}

/// Adds it, if the object is one that gets it; whether it is.
///
/// # Errors
/// [`Error`].
pub(super) fn inject(object: &mut Value, injection: Injection<'_>) -> Result<bool, Error> {
    let api_version = text(&object["apiVersion"]);
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if !matches!(group, "apps" | "batch") || object["metadata"]["namespace"] != injection.namespace {
        return Ok(false);
    }
    let kind = text(&object["kind"]);
    let workload = WORKLOADS.iter().find(|w| (w.api_version, w.kind) == (api_version, kind));
    let Some(workload) = workload else {
        return Err(Error::Kind { kind: kind.to_owned(), api_version: api_version.to_owned() });
    };
    *object = typed::round_trip(workload.kind, object).map_err(|source| {
        let object = format!("{kind} {}", text(&object["metadata"]["name"]));
        Error::Field { object, source }
    })?;
    if let Some(access) = injection.garden.filter(|_| is_enabled(object)) {
        inject_kubeconfig(object, workload, access);
    }
    if let Some(pod) = object.pointer_mut(workload.pod) {
        let variable = json!({"name": "SEED_NAME", "value": injection.seed_name});
        for_each_container(pod, |container| put(container, "env", &variable));
    }
    Ok(true)
}

/// Volume, mounts, variable, and the annotations that keep the kubeconfig from being collected as garbage.
fn inject_kubeconfig(object: &mut Value, workload: &Workload, access: GardenAccess<'_>) {
    let Some(pod) = object.pointer_mut(workload.pod) else { return };
    let mut has_one = false;
    for_each_container(pod, |container| {
        let variables = container["env"].as_array();
        has_one |= variables.into_iter().flatten().any(|v| v["name"] == KUBECONFIG_VARIABLE);
    });
    if has_one {
        return;
    }
    let source = |name: &str, key: &str| json!({"secret": {"items": [{"key": key, "path": key}], "name": name, "optional": false}});
    let sources = [source(access.kubeconfig, "kubeconfig"), source(access.token, "token")];
    let volume = json!({"name": VOLUME, "projected": {"defaultMode": 420, "sources": sources}});
    put(pod, "volumes", &volume);
    let mount = json!({"mountPath": MOUNT_PATH, "name": VOLUME, "readOnly": true});
    let variable = json!({"name": KUBECONFIG_VARIABLE, "value": format!("{MOUNT_PATH}/kubeconfig")});
    for_each_container(pod, |container| put(container, "volumeMounts", &mount));
    // References are counted before the variables are added: these refer to nothing.
    let references = references(pod);
    for_each_container(pod, |container| put(container, "env", &variable));
    for place in std::iter::once("").chain(workload.annotated.iter().copied()) {
        if let Some(owner) = object.pointer_mut(place) {
            annotate(&mut owner["metadata"], &references);
        }
    }
}

/// Old references go: what is no longer referred to may be collected.
fn annotate(metadata: &mut Value, references: &SortedMap<String, String>) {
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with(REFERENCE_PREFIX));
    }
    for (key, name) in references {
        metadata["annotations"][key] = json!(name);
    }
}

/// The Secrets and ConfigMaps that a pod uses, as annotations: containers (not those of the beginning), volumes, pull
/// secrets.
fn references(pod: &Value) -> SortedMap<String, String> {
    let mut found = SortedMap::new();
    let mut add = |kind: &str, reference: &Value, field: &str| {
        if reference.is_object() {
            let name = text(&reference[field]);
            let sum = &sha256_hex(name.as_bytes())[..8];
            found.insert(format!("{REFERENCE_PREFIX}{kind}-{sum}"), name.to_owned());
        }
    };
    for container in list(&pod["containers"]) {
        for source in list(&container["envFrom"]) {
            add("secret", &source["secretRef"], "name");
            add("configmap", &source["configMapRef"], "name");
        }
        for variable in list(&container["env"]) {
            add("secret", &variable["valueFrom"]["secretKeyRef"], "name");
            add("configmap", &variable["valueFrom"]["configMapKeyRef"], "name");
        }
    }
    for volume in list(&pod["volumes"]) {
        add("secret", &volume["secret"], "secretName");
        add("configmap", &volume["configMap"], "name");
        for source in list(&volume["projected"]["sources"]) {
            add("secret", &source["secret"], "name");
            add("configmap", &source["configMap"], "name");
        }
    }
    for secret in list(&pod["imagePullSecrets"]) {
        add("secret", secret, "name");
    }
    found
}

fn for_each_container(pod: &mut Value, mut visit: impl FnMut(&mut Value)) {
    for kind in ["initContainers", "containers"] {
        pod.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten().for_each(&mut visit);
    }
}

/// Puts an item into a list that is keyed by `name`: in the place of the first of its name, or at the end.
fn put(owner: &mut Value, list: &str, item: &Value) {
    match owner.get_mut(list).and_then(Value::as_array_mut) {
        Some(items) => match items.iter_mut().find(|present| present["name"] == item["name"]) {
            Some(present) => *present = item.clone(),
            None => items.push(item.clone()),
        },
        None => owner[list] = json!([item]),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::chain;

    const PLAIN: Injection<'_> = Injection { namespace: "extension-ci", seed_name: "edge-1", garden: None };
    const WITH_GARDEN: Injection<'_> = Injection {
        garden: Some(GardenAccess {
            kubeconfig: "generic-garden-kubeconfig-12345678",
            token: "garden-access-extension",
        }),
        ..PLAIN
    };

    fn deployment(namespace: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": namespace},
            "spec": {"template": {"spec": {
                "containers": [{"name": "a"}, {"name": "b", "env": [{"name": "SEED_NAME", "value": "x"}, {"name": "Y"}]}],
                "initContainers": [{"name": "i"}],
            }}},
        })
    }

    #[test]
    fn all_containers_of_the_extensions_namespace_get_the_name() {
        let mut object = deployment("extension-ci");
        inject(&mut object, PLAIN).unwrap();
        let pod = &object["spec"]["template"]["spec"];
        let set = json!({"name": "SEED_NAME", "value": "edge-1"});
        assert_eq!(pod["containers"][0]["env"], json!([set]));
        assert_eq!(pod["containers"][1]["env"], json!([set, {"name": "Y"}]));
        assert_eq!(pod["initContainers"][0]["env"], json!([set]));
        assert_eq!((&object["status"], &object["spec"]["strategy"]), (&json!({}), &json!({})));
        assert_eq!(pod.get("volumes"), None);
    }

    #[test]
    fn other_namespaces_and_groups_are_left_alone() {
        let untouched = [
            deployment("other"),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "extension-ci"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}),
            json!({"apiVersion": "apps.example.org/v1", "kind": "Deployment", "metadata": {"namespace": "extension-ci"}}),
        ];
        for before in untouched {
            let mut object = before.clone();
            inject(&mut object, WITH_GARDEN).unwrap();
            assert_eq!(object, before);
        }
    }

    #[test]
    fn what_cannot_be_changed_is_an_error() {
        let metadata = json!({"name": "x", "namespace": "extension-ci"});
        let mut wrong = deployment("extension-ci");
        wrong["spec"]["template"]["spec"]["containers"] = json!(["text"]);
        let table = [
            (
                json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}),
                "environment cannot be injected into objects of kind ReplicaSet in apps/v1",
            ),
            (
                json!({"apiVersion": "batch/v7", "kind": "Job", "metadata": metadata}),
                "environment cannot be injected into objects of kind Job in batch/v7",
            ),
            (wrong, "Deployment d: spec.template.spec.containers[0] must be a map, not text like this"),
        ];
        for (mut object, expected) in table {
            assert_eq!(chain(&inject(&mut object, PLAIN).unwrap_err()), expected);
        }
    }

    #[test]
    fn a_cron_job_has_its_template_deeper() {
        let mut object = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": "extension-ci"},
            "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}},
        });
        inject(&mut object, WITH_GARDEN).unwrap();
        let job = &object["spec"]["jobTemplate"];
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][1]["value"], "edge-1");
        let annotations = &object["metadata"]["annotations"];
        assert_eq!(annotations.as_object().unwrap().len(), 2);
        assert_eq!(&job["metadata"]["annotations"], annotations);
        assert_eq!(&job["spec"]["template"]["metadata"]["annotations"], annotations);
    }

    #[test]
    fn a_workload_gets_the_way_to_the_garden() {
        let mut object = deployment("extension-ci");
        object["metadata"]["annotations"] =
            json!({"reference.resources.gardener.cloud/secret-00000000": "old", "own": "1"});
        let pod = &mut object["spec"]["template"]["spec"];
        pod["volumes"] =
            json!([{"name": "garden-kubeconfig", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}]);
        pod["imagePullSecrets"] = json!([{"name": "pull"}]);
        pod["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "from"}}]);
        pod["initContainers"][0]["envFrom"] = json!([{"secretRef": {"name": "not counted"}}]);
        inject(&mut object, WITH_GARDEN).unwrap();
        let pod = &object["spec"]["template"]["spec"];
        let source = |name: &str, key: &str| json!({"secret": {"items": [{"key": key, "path": key}], "name": name, "optional": false}});
        let volume = json!({"name": "garden-kubeconfig", "projected": {"defaultMode": 420, "sources": [
            source("generic-garden-kubeconfig-12345678", "kubeconfig"), source("garden-access-extension", "token"),
        ]}});
        assert_eq!(pod["volumes"], json!([volume, {"name": "c", "configMap": {"name": "c"}}]));
        let mount = json!({"mountPath": "/var/run/secrets/gardener.cloud/garden/generic-kubeconfig",
            "name": "garden-kubeconfig", "readOnly": true});
        let variables = json!([
            {"name": "GARDEN_KUBECONFIG", "value": "/var/run/secrets/gardener.cloud/garden/generic-kubeconfig/kubeconfig"},
            {"name": "SEED_NAME", "value": "edge-1"},
        ]);
        for container in [&pod["containers"][0], &pod["initContainers"][0]] {
            assert_eq!((&container["volumeMounts"], &container["env"]), (&json!([mount]), &variables));
        }
        let prefix = "reference.resources.gardener.cloud";
        let expected: Value = [
            ("secret", "generic-garden-kubeconfig-12345678"),
            ("secret", "garden-access-extension"),
            ("secret", "pull"),
            ("secret", "from"),
            ("configmap", "c"),
        ]
        .into_iter()
        .map(|(kind, name)| (format!("{prefix}/{kind}-{}", &sha256_hex(name.as_bytes())[..8]), json!(name)))
        .collect();
        assert_eq!(object["spec"]["template"]["metadata"]["annotations"], expected);
        assert_eq!(object["metadata"]["annotations"]["own"], "1");
        assert_eq!(object["metadata"]["annotations"].as_object().unwrap().len(), 6);
    }

    #[test]
    fn who_does_not_want_the_kubeconfig_gets_none() {
        let labelled = |value: &str| {
            let mut object = deployment("extension-ci");
            object["metadata"]["labels"] =
                json!({"extensions.gardener.cloud/inject-garden-kubeconfig": value});
            object
        };
        let mut own = deployment("extension-ci");
        own["spec"]["template"]["spec"]["initContainers"][0]["env"] =
            json!([{"name": "GARDEN_KUBECONFIG", "value": "/mine"}]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        let other = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet"});
        let table = [
            (deployment("extension-ci"), true, true),
            (labelled("true"), true, true),
            (labelled("false"), false, false),
            (labelled(""), false, false),
            (own, true, false),
            // In other namespaces they count, and get nothing.
            (deployment("other"), true, false),
            (pod, true, false),
        ];
        for (mut object, wanted, gets) in table {
            assert_eq!(wants_kubeconfig([&other, &object].into_iter()), wanted, "{object}");
            inject(&mut object, WITH_GARDEN).unwrap();
            let volumes = object.pointer("/spec/template/spec/volumes");
            assert_eq!(volumes.is_some(), gets, "{object}");
        }
        assert!(!wants_kubeconfig([&other].into_iter()));
    }
}
