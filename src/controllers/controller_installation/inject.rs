//! What the agent adds to the workloads of an extension: the name of the seed and, if the deployment asks for it, a
//! kubeconfig for the garden. Only objects of the groups `apps` and `batch` in the extension's namespace are changed.
//! The result has the form that Kubernetes' own types give it ([`typed`]).

use std::fmt;

use serde_json::Value;

use super::typed;
use crate::api::meta::text;
use crate::api::resources::REFERENCE_PREFIX;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::components::managed::sha256_hex;

/// The mount path of the kubeconfig and its token.
pub(super) const MOUNT_PATH: &str = "/var/run/secrets/gardener.cloud/garden/generic-kubeconfig";
/// An object whose label has a value other than `true` gets no kubeconfig.
const LABEL: &str = "extensions.gardener.cloud/inject-garden-kubeconfig";
const KUBECONFIG_VARIABLE: &str = "GARDEN_KUBECONFIG";
const VOLUME: &str = "garden-kubeconfig";

#[derive(Clone, Copy, Debug)]
pub(super) struct Injection<'a> {
    pub(super) namespace: &'a str,
    /// The value of variable `SEED_NAME`.
    pub(super) seed_name: &'a str,
    /// The kubeconfig, if it is added.
    pub(super) garden: Option<GardenAccess<'a>>,
}

/// The names of two Secrets.
#[derive(Clone, Copy, Debug)]
pub(super) struct GardenAccess<'a> {
    /// The Secret with the kubeconfig.
    pub(super) kubeconfig: &'a str,
    /// The Secret with the token.
    pub(super) token: &'a str,
}

/// Why the injection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Error {
    /// A kind of these groups without a known pod template, such as ReplicaSet (as in upstream).
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
    /// The paths that get the reference annotations, besides the object itself.
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

/// Whether one of the objects is a workload that gets the kubeconfig, in any namespace.
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

/// Changes the object if it is a workload of the extension, and returns whether it is.
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

/// Adds volume, mounts, variable, and the annotations that protect the kubeconfig from garbage collection.
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
    // Collect the references before adding the variables, which refer to nothing.
    let references = references(pod);
    for_each_container(pod, |container| put(container, "env", &variable));
    for place in std::iter::once("").chain(workload.annotated.iter().copied()) {
        if let Some(owner) = object.pointer_mut(place) {
            annotate(&mut owner["metadata"], &references);
        }
    }
}

/// Removes old references, so that objects without references can be garbage-collected.
fn annotate(metadata: &mut Value, references: &SortedMap<String, String>) {
    if let Some(annotations) = metadata["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with(REFERENCE_PREFIX));
    }
    for (key, name) in references {
        metadata["annotations"][key] = json!(name);
    }
}

/// The Secrets and ConfigMaps that a pod uses, as annotations: containers (not init containers), volumes, pull secrets.
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

/// Puts an item into a list keyed by `name`: it replaces the first item with its name, or is appended.
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
    fn objects_that_cannot_be_changed_are_errors() {
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
    fn the_template_of_a_cron_job_is_nested_deeper() {
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
    fn a_workload_gets_access_to_the_garden() {
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
    fn a_workload_can_opt_out_of_the_kubeconfig() {
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
            // In other namespaces they count, but are not changed.
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
