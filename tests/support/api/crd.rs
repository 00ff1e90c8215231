//! CustomResourceDefinitions: from the definition to a kind that is served.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::Kind;
use super::rules::{Rules, Write, strip};
use super::schema::Schema;
use super::store::{Id, State};
use super::table::printed;
use super::write::Patch;
use super::{Api, Target, User};
use crate::encoding::from_rfc3339;
use crate::json::{list, set, text};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Custom resources: without a status subresource the status is an ordinary field and counts as a change.
struct Custom {
    status: bool,
}

impl Rules for Custom {
    fn create(&self, _object: &mut Value, _write: &Write<'_>) -> Result<(), super::failure::Failure> {
        Ok(())
    }

    fn bumps_generation(&self, old: &Value, new: &Value) -> bool {
        strip(old) != strip(new) || (!self.status && old["status"] != new["status"])
    }
}

/// The kind that a definition describes.
pub fn kind_of(definition: &Value) -> Kind {
    let names = &definition["spec"]["names"];
    let versions = list(definition, "/spec/versions");
    let storage = versions.iter().find(|v| v["storage"] == true).map_or("", |v| text(v, "/name"));
    let namespaced = definition["spec"]["scope"] == "Namespaced";
    let (group, kind, plural) =
        (text(definition, "/spec/group"), text(names, "/kind"), text(names, "/plural"));
    let sub = |name: &str| versions.iter().any(|v| v["subresources"].get(name).is_some());
    let mut served =
        Kind::new(group, storage, kind, plural, namespaced).rules(Custom { status: sub("status") });
    text(names, "/singular").clone_into(&mut served.singular);
    served.short = list(names, "/shortNames").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    served.versions =
        versions.iter().filter(|v| v["served"] == true).map(|v| text(v, "/name").to_owned()).collect();
    served.status = sub("status");
    served.scale = sub("scale");
    served.generation = true;
    served.custom = true;
    served.definition = definition["metadata"]["generation"].as_i64().unwrap_or(0);
    let printed = |v: &Value| (text(v, "/name").to_owned(), printed(v));
    served.printed = versions.iter().map(printed).collect();
    served.is_in_all = list(names, "/categories").iter().any(|category| category == "all");
    served.schemas = versions.iter().map(schema_of).collect::<BTreeMap<_, _>>();
    served
}

fn schema_of(version: &Value) -> (String, Arc<Schema>) {
    (text(version, "/name").to_owned(), Arc::new(Schema(version["schema"]["openAPIV3Schema"].clone())))
}

/// Records the creator of a definition, as a server does for each object: the first word of the user agent.
pub fn name_maker(api: &Api, target: &Target, created: Value, agent: Option<&str>) -> Value {
    let name = text(&created, "/metadata/name");
    if (target.kind.group.as_str(), target.kind.plural.as_str()) != (GROUP, PLURAL) {
        return created;
    }
    let id = Id::new(GROUP, PLURAL, "", name);
    let manager = agent.unwrap_or_default().split('/').next().unwrap_or_default();
    api.store.write(|state| {
        let Some(mut object) = state.objects.get(&id).map(|object| Value::clone(object)) else {
            return created;
        };
        set(&mut object, "/metadata/managedFields", made_by(manager));
        Value::clone(&state.put(id, object))
    })
}

/// `metadata.managedFields` of a definition that one program has made.
pub fn made_by(manager: &str) -> Value {
    json!([
        {"manager": manager, "operation": "Update", "apiVersion": "apiextensions.k8s.io/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:group": {}}}},
        {"manager": "kube-apiserver", "operation": "Update", "apiVersion": "apiextensions.k8s.io/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}, "subresource": "status"},
    ])
}

fn is_established(definition: &Value) -> bool {
    list(definition, "/status/conditions").iter().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Brings the served kinds in line with the definitions: accepts names, establishes, updates, removes with all
/// instances. A definition is established after the delay of the server. True if some definition is not finished.
pub fn sync(api: &Api) -> bool {
    let mut waits = false;
    let now = api.clock.now();
    let definitions = api.store.all(GROUP, PLURAL, "");
    for definition in &definitions {
        if !text(definition, "/metadata/deletionTimestamp").is_empty() {
            remove_instances(api, definition);
            waits = true;
            continue;
        }
        let created = from_rfc3339(text(definition, "/metadata/creationTimestamp")).unwrap_or(now);
        let due = now >= created.plus(api.crd_delay);
        if !is_established(definition) && due {
            waits = true;
            api.store.write(|state| establish(state, definition, &api.now()));
        } else if is_established(definition) && !is_served(api, definition) {
            api.store.write(|state| state.kinds.add(kind_of(definition)));
        } else if !due {
            waits = true;
        }
    }
    let state = api.store.read();
    let gone: Vec<(String, String)> = state
        .kinds
        .all()
        .filter(|k| k.custom && !definitions.iter().any(|d| describes(d, &k.group, &k.plural)))
        .map(|k| (k.group.clone(), k.plural.clone()))
        .collect();
    drop(state);
    for (group, plural) in gone {
        api.store.write(|state| state.kinds.remove(&group, &plural));
    }
    waits
}

/// Whether the kind is served with the current generation of its definition.
fn is_served(api: &Api, definition: &Value) -> bool {
    let kind = api.kind(text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    kind.is_some_and(|k| k.definition == definition["metadata"]["generation"].as_i64().unwrap_or(0))
}

fn describes(definition: &Value, group: &str, plural: &str) -> bool {
    text(definition, "/spec/group") == group && text(definition, "/spec/names/plural") == plural
}

fn establish(state: &mut State, definition: &Value, now: &str) {
    let id = Id::new(GROUP, PLURAL, "", text(definition, "/metadata/name"));
    let unchanged = state.objects.get(&id).is_some_and(|o| **o == *definition);
    if !unchanged {
        return;
    }
    let mut new = definition.clone();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message});
    set(&mut new, "/metadata/finalizers", json!([CLEANUP]));
    set(&mut new, "/status/acceptedNames", definition["spec"]["names"].clone());
    set(
        &mut new,
        "/status/conditions",
        json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]),
    );
    state.kinds.add(kind_of(&new));
    state.put(id, new);
}

/// A definition that is being deleted waits for its instances, which are deleted with it.
fn remove_instances(api: &Api, definition: &Value) {
    let (group, plural) = (text(definition, "/spec/group"), text(definition, "/spec/names/plural"));
    let options = super::remove::Options::default();
    if let Some(kind) = api.kind(group, plural) {
        let instances = api.store.all(group, plural, "");
        for instance in &instances {
            let (namespace, name) = (text(instance, "/metadata/namespace"), text(instance, "/metadata/name"));
            if text(instance, "/metadata/deletionTimestamp").is_empty() {
                // Another thread may have deleted it.
                let _ = api.delete(&Target::new(kind.clone(), namespace, name), &options);
            }
        }
        if !api.store.all(group, plural, "").is_empty() {
            return;
        }
    }
    let definitions = api.kind(GROUP, PLURAL).unwrap();
    let target = Target::new(definitions, "", text(definition, "/metadata/name"));
    let left: Vec<&Value> =
        list(definition, "/metadata/finalizers").iter().filter(|f| *f != CLEANUP).collect();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": left}}));
    // Another thread may have finished it.
    let _ = api.patch(&target, &patch, &User::system());
}
