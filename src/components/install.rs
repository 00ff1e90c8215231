//! Installs CRDs step by step: each step writes what differs and returns what is still missing. No step waits.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::crd::CUSTOM_RESOURCE_DEFINITION;
use crate::api::meta::{CLUSTER_SCOPED, Key};
use crate::base::json::json;
use crate::kube::{Error, ErrorVerdict, Patch, Seed};

/// When to check definitions again that were not ready. An API server takes a fraction of a second to serve a new kind.
pub(crate) const AGAIN: Duration = Duration::from_millis(500);
/// When to check definitions again that are not ready for a long time: each check reads all definitions.
pub(crate) const AGAIN_MAX: Duration = Duration::from_secs(8);

const NAMES_ACCEPTED: &str = "NamesAccepted";

/// Groups that belong to Gardener alone: the agent resets their definitions to its own. Definitions of other groups
/// stay as they are found.
const OWN_GROUPS: [&str; 2] = ["extensions.gardener.cloud", "resources.gardener.cloud"];

/// The write that a definition needs.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Action {
    /// The definition is missing.
    Create,
    /// A JSON merge patch. It contains the resourceVersion on which the decision is based.
    Patch(Value),
    /// The definition is right, belongs to another owner, or is being deleted.
    Nothing,
}

/// Why a definition cannot be used yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pending {
    /// Another client wrote it between our read and our write.
    Changed,
    /// It is being deleted, with all its objects.
    Terminating,
    /// The API server has not set a condition yet.
    Unknown(&'static str),
    /// The API server refuses it, for example because of a name conflict.
    Refused {
        /// Type of the condition.
        condition: &'static str,
        /// The API server's message.
        message: String,
    },
    /// Another owner installed it, and it does not fit.
    Unsuitable(String),
}

impl Pending {
    /// Whether it stays so until a person acts.
    pub(crate) fn needs_a_person(&self) -> bool {
        match self {
            // `Established` is briefly False for each new definition.
            Self::Refused { condition, .. } => *condition == NAMES_ACCEPTED,
            Self::Unsuitable(_) => true,
            Self::Changed | Self::Terminating | Self::Unknown(_) => false,
        }
    }
}

/// A definition that cannot be used yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Name of the definition.
    pub(crate) crd: String,
    /// What it waits for.
    pub(crate) why: Pending,
}

/// The progress of an installation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// All kinds are served.
    Done,
    /// Call again after [`AGAIN`].
    Again(Vec<Waiting>),
}

/// Creates and updates definitions, and reports which of them the API server does not serve yet.
/// Errors: the first call that fails, other than by another writer's change. The definitions before it
/// are written by then.
pub fn ensure(seed: &Seed, crds: impl IntoIterator<Item = Value>) -> Result<Step, Error> {
    let mut waiting = Vec::new();
    for desired in crds {
        let name = text(&desired, "/metadata/name");
        let state = match write(seed, name, &desired) {
            Ok(live) => established(&live).and_then(|()| suitable(&live, &desired)),
            Err(e) if matches!(e.verdict(), ErrorVerdict::AlreadyExists | ErrorVerdict::Conflict) => {
                Err(Pending::Changed)
            }
            Err(e) => return Err(e),
        };
        if let Err(why) = state {
            waiting.push(Waiting { crd: name.to_owned(), why });
        }
    }
    Ok(if waiting.is_empty() { Step::Done } else { Step::Again(waiting) })
}

/// Creates or updates one definition and returns the server's version of it.
fn write(seed: &Seed, name: &str, desired: &Value) -> Result<Value, Error> {
    let key = Key::cluster(name);
    let existing: Option<Value> = seed.find(&CUSTOM_RESOURCE_DEFINITION, &key)?;
    match (decide(existing.as_ref(), desired), existing) {
        (Action::Patch(patch), _) => seed.patch(&CUSTOM_RESOURCE_DEFINITION, &key, &Patch::Merge(patch)),
        (Action::Nothing, Some(existing)) => Ok(existing),
        (Action::Create | Action::Nothing, _) => {
            seed.create(&CUSTOM_RESOURCE_DEFINITION, CLUSTER_SCOPED, desired)
        }
    }
}

/// Decides what to write for an existing object. Labels and annotations of other writers stay. The spec is replaced
/// entirely, as in Gardener's own CRD deployer, so that fields of a newer or older version do not remain.
pub(crate) fn decide(existing: Option<&Value>, desired: &Value) -> Action {
    let Some(existing) = existing else { return Action::Create };
    let foreign = !OWN_GROUPS.contains(&text(desired, "/spec/group"));
    if foreign || existing.pointer("/metadata/deletionTimestamp").is_some() {
        return Action::Nothing;
    }
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        let missing = missing_entries(&existing["metadata"][field], &desired["metadata"][field]);
        if !missing.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(missing));
        }
    }
    let spec = difference(&existing["spec"], &desired["spec"]);
    if metadata.is_empty() && spec.is_none() {
        return Action::Nothing;
    }
    metadata.insert("resourceVersion".to_owned(), existing["metadata"]["resourceVersion"].clone());
    let mut patch = json!({ "metadata": metadata });
    if let Some(spec) = spec {
        patch["spec"] = spec;
    }
    Action::Patch(patch)
}

/// Whether the API server serves the kind: its names are accepted and it is established.
/// Errors: what is missing.
pub fn established(crd: &Value) -> Result<(), Pending> {
    if crd.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(Pending::Terminating);
    }
    for condition in [NAMES_ACCEPTED, "Established"] {
        let found = crd["status"]["conditions"].as_array().into_iter().flatten();
        let Some(found) = found.into_iter().find(|c| c["type"] == condition) else {
            return Err(Pending::Unknown(condition));
        };
        match found["status"].as_str() {
            Some("True") => {}
            Some("False") => {
                return Err(Pending::Refused { condition, message: text(found, "/message").to_owned() });
            }
            _ => return Err(Pending::Unknown(condition)),
        }
    }
    Ok(())
}

/// Whether a definition, regardless of its owner, serves what the agent and the extensions need. Errors: what
/// is missing, and the remedy.
fn suitable(live: &Value, desired: &Value) -> Result<(), Pending> {
    let versions = |crd: &Value, flag: &str| -> Vec<String> {
        let all = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = all.iter().filter(|version| version[flag] == true);
        named.map(|version| text(version, "/name").to_owned()).collect()
    };
    let served = versions(live, "served");
    let missing = versions(desired, "storage").into_iter().find(|version| !served.contains(version));
    let lacks = match (missing, text(live, "/spec/scope"), text(desired, "/spec/scope")) {
        (Some(version), ..) => format!("does not serve {version}"),
        (None, live, desired) if live != desired => format!("has scope {live} and not {desired}"),
        _ => return Ok(()),
    };
    Err(Pending::Unsuitable(format!(
        "belongs to another program and {lacks}: update it, or delete it if it has no objects, and the agent \
         installs its own"
    )))
}

/// Entries of a map that are missing or have another value.
fn missing_entries(existing: &Value, desired: &Value) -> Map<String, Value> {
    let wanted = desired.as_object().into_iter().flatten();
    wanted.filter(|(k, v)| existing.get(k) != Some(v)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The JSON merge patch (RFC 7386) that turns one value into another; `None` if they are equal. The wanted
/// value contains no nulls.
fn difference(existing: &Value, desired: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (existing, desired) else {
        return (existing != desired).then(|| desired.clone());
    };
    let mut patch: Map<String, Value> =
        from.keys().filter(|k| !to.contains_key(*k)).map(|k| (k.clone(), Value::Null)).collect();
    for (key, value) in to {
        let change = from.get(key).map_or_else(|| Some(value.clone()), |old| difference(old, value));
        patch.extend(change.map(|c| (key.clone(), c)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("was changed by another client"),
            Self::Terminating => f.write_str("is being deleted"),
            Self::Unknown(condition) => write!(f, "has no condition {condition} yet"),
            Self::Refused { condition, message } => {
                write!(f, "condition {condition} is False: {message}")?;
                if self.needs_a_person() {
                    f.write_str(": another definition has this name; delete one of the two")?;
                }
                Ok(())
            }
            Self::Unsuitable(why) => f.write_str(why),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.crd, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": "things.extensions.gardener.cloud", "labels": { "a": "1" } },
            "spec": {
                "group": "extensions.gardener.cloud",
                "names": { "kind": "Thing", "plural": "things" },
                "versions": [{ "name": "v1alpha1", "served": true }],
            },
        })
    }

    /// What a server returns for an object that we created: more metadata, and a status.
    fn live() -> Value {
        let mut crd = desired();
        crd["metadata"]["resourceVersion"] = json!("7");
        crd["metadata"]["uid"] = json!("u");
        crd["status"] = json!({ "storedVersions": ["v1alpha1"] });
        crd
    }

    fn live_with(pointer: &str, value: Value) -> Value {
        let mut crd = live();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        crd.pointer_mut(parent).unwrap()[key] = value;
        crd
    }

    #[test]
    fn writes_only_what_differs() {
        let rv = || json!({ "resourceVersion": "7" });
        let table = [
            ("same", live(), Action::Nothing),
            ("label of others", live_with("/metadata/labels/b", json!("2")), Action::Nothing),
            (
                "annotation of others",
                live_with("/metadata/annotations", json!({ "b": "2" })),
                Action::Nothing,
            ),
            (
                "label lost",
                live_with("/metadata/labels", json!({ "b": "2" })),
                Action::Patch(json!({ "metadata": { "labels": { "a": "1" }, "resourceVersion": "7" } })),
            ),
            (
                "label changed",
                live_with("/metadata/labels/a", json!("0")),
                Action::Patch(json!({ "metadata": { "labels": { "a": "1" }, "resourceVersion": "7" } })),
            ),
            (
                "field of another version",
                live_with("/spec/names/shortNames", json!(["t"])),
                Action::Patch(json!({ "metadata": rv(), "spec": { "names": { "shortNames": null } } })),
            ),
            (
                "field changed",
                live_with("/spec/names/kind", json!("Thin")),
                Action::Patch(json!({ "metadata": rv(), "spec": { "names": { "kind": "Thing" } } })),
            ),
            (
                "lists are replaced as a whole",
                live_with("/spec/versions", json!([{ "name": "v1alpha1", "served": false }])),
                Action::Patch(json!({
                    "metadata": rv(),
                    "spec": { "versions": [{ "name": "v1alpha1", "served": true }] },
                })),
            ),
            (
                "being deleted",
                live_with("/metadata/deletionTimestamp", json!("2026-01-02T03:04:05Z")),
                Action::Nothing,
            ),
        ];
        for (name, existing, action) in table {
            assert_eq!(decide(Some(&existing), &desired()), action, "{name}");
        }
        assert_eq!(decide(None, &desired()), Action::Create);
    }

    #[test]
    fn leaves_groups_of_others_alone() {
        let mut theirs = desired();
        theirs["spec"]["group"] = json!("monitoring.coreos.com");
        assert_eq!(decide(None, &theirs), Action::Create);
        assert_eq!(decide(Some(&live_with("/spec/names/kind", json!("Else"))), &theirs), Action::Nothing);
    }

    #[test]
    fn established_needs_both_conditions() {
        let condition =
            |kind: &str, status: &str| json!({ "type": kind, "status": status, "message": "taken" });
        let table = [
            (json!(null), Err(Pending::Unknown("NamesAccepted"))),
            (json!([condition("NamesAccepted", "True")]), Err(Pending::Unknown("Established"))),
            (
                json!([condition("NamesAccepted", "Unknown"), condition("Established", "True")]),
                Err(Pending::Unknown("NamesAccepted")),
            ),
            (
                json!([condition("Established", "False"), condition("NamesAccepted", "False")]),
                Err(Pending::Refused { condition: "NamesAccepted", message: "taken".to_owned() }),
            ),
            (json!([condition("Established", "True"), condition("NamesAccepted", "True")]), Ok(())),
        ];
        for (conditions, expected) in table {
            let crd = live_with("/status/conditions", conditions.clone());
            assert_eq!(established(&crd), expected, "{conditions}");
        }

        let mut deleting = live_with("/metadata/deletionTimestamp", json!("2026-01-02T03:04:05Z"));
        deleting["status"]["conditions"] =
            json!([condition("Established", "True"), condition("NamesAccepted", "True")]);
        assert_eq!(established(&deleting), Err(Pending::Terminating));
    }

    #[test]
    fn waiting_reads_as_a_sentence() {
        let why =
            Pending::Refused { condition: "NamesAccepted", message: "\"mr\" is already in use".to_owned() };
        let waiting = Waiting { crd: "managedresources.resources.gardener.cloud".to_owned(), why };
        assert_eq!(
            waiting.to_string(),
            "managedresources.resources.gardener.cloud condition NamesAccepted is False: \"mr\" is already in use: \
             another definition has this name; delete one of the two"
        );
        assert!(waiting.why.needs_a_person());
        let installing = Pending::Refused { condition: "Established", message: "installing".to_owned() };
        assert_eq!(installing.to_string(), "condition Established is False: installing");
        assert!(!installing.needs_a_person());
    }

    #[test]
    fn a_definition_of_others_must_serve_what_is_needed() {
        let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        let definition =
            |scope: &str, versions: &[Value]| json!({"spec": {"scope": scope, "versions": versions}});
        let ours = [version("v1beta2", true, false), version("v1", true, true)];
        let desired = definition("Namespaced", &ours);
        let remedy = "update it, or delete it if it has no objects, and the agent installs its own";
        let table = [
            (desired.clone(), None),
            (definition("Namespaced", &[version("v1", true, false), version("v2", true, true)]), None),
            (
                definition("Namespaced", &[version("v1beta1", true, true), version("v1beta2", true, false)]),
                Some("does not serve v1"),
            ),
            (definition("Namespaced", &[version("v1", false, true)]), Some("does not serve v1")),
            (definition("Cluster", &ours), Some("has scope Cluster and not Namespaced")),
        ];
        for (live, lacks) in table {
            let expected = lacks.map(|lacks| {
                let why = format!("belongs to another program and {lacks}: {remedy}");
                assert!(Pending::Unsuitable(why.clone()).needs_a_person());
                Pending::Unsuitable(why)
            });
            assert_eq!(suitable(&live, &desired).err(), expected, "{live}");
        }
    }
}
