//! The state of the machines of a Shoot: which machine belongs to which deployment. Another seed adopts the machines with it,
//! instead of making new ones.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

use super::collect::CollectError;
use super::content::Entry;
use crate::api::meta::{Resource, text};
use crate::base::json::json;
use crate::format::base64;
use crate::kube::{ListItem, ListParams, Seed};
use crate::limits;

/// The name and the type of the entry of a ShootState.
pub(super) const MACHINE_STATE: &str = "machine-state";

const GROUP: &str = "machine.sapcloud.io";
const DEPLOYMENT: Resource =
    Resource::new(GROUP, "v1alpha1", "MachineDeployment", "machinedeployments", true);
const SET: Resource = Resource::new(GROUP, "v1alpha1", "MachineSet", "machinesets", true);
const MACHINE: Resource = Resource::new(GROUP, "v1alpha1", "Machine", "machines", true);

/// The entry of the machines in a namespace. `None` if the seed has no such kinds, or the namespace has no machines.
pub(super) fn collect(seed: &Seed, namespace: &str) -> Result<Option<Entry>, CollectError> {
    let mut room = limits::MACHINE_STATE_BYTES_MAX;
    let Some(deployments) = list(seed, &DEPLOYMENT, namespace, &mut room)? else { return Ok(None) };
    let sets = list(seed, &SET, namespace, &mut room)?.unwrap_or_default();
    let machines = list(seed, &MACHINE, namespace, &mut room)?.unwrap_or_default();
    let state = state(&deployments, &sets, &machines);
    if state.is_empty() {
        return Ok(None);
    }
    let packed = pack(&json!({"machineDeployments": state})).map_err(|e| {
        CollectError::Unusable(format!("the state of the machines cannot be compressed: {e}"))
    })?;
    let value = json!({"name": MACHINE_STATE, "type": MACHINE_STATE, "data": {"state": packed}});
    Ok(Some(Entry::new(MACHINE_STATE, MACHINE_STATE, value)))
}

/// The objects of a kind, without what is not kept; `None` if the seed has no such kind. `room` is the number of bytes that are
/// left.
fn list(
    seed: &Seed,
    resource: &Resource,
    namespace: &str,
    room: &mut usize,
) -> Result<Option<Vec<Object>>, CollectError> {
    let (mut found, mut problem, begun) = (Vec::new(), None, *room);
    let listed =
        seed.list_each::<Value>(resource, namespace, &ListParams::default(), &mut |item| match item {
            ListItem::Object(object) => {
                let object = Object::of(&object);
                match room.checked_sub(object.kept.to_string().len()) {
                    Some(left) => {
                        *room = left;
                        found.push(object);
                    }
                    None => {
                        let max = limits::MACHINE_STATE_BYTES_MAX;
                        problem =
                            Some(format!("the machines of namespace {namespace} have more than {max} bytes"));
                    }
                }
            }
            ListItem::Undecodable(object) => {
                problem = Some(format!("{} {} cannot be read: {}", resource.kind, object.key, object.why));
            }
            ListItem::Restart => {
                found.clear();
                problem = None;
                *room = begun;
            }
        });
    match (listed, problem) {
        (Err(e), _) if e.is_not_found() => Ok(None),
        (Err(e), _) => Err(e.into()),
        (Ok(_), Some(why)) => Err(CollectError::Unusable(why)),
        (Ok(_), None) => Ok(Some(found)),
    }
}

/// An object of the machine-controller-manager, as far as it is kept.
struct Object {
    name: String,
    /// The object that it belongs to: its owner, or, without one, the name in its label.
    owner: String,
    replicas: i64,
    /// It is known to its provider, or it is a node of the Shoot.
    is_real: bool,
    kept: Value,
}

impl Object {
    fn of(object: &Value) -> Self {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let of_machines = |owner: &&Value| text(&owner["apiVersion"]).starts_with(GROUP);
        let owner = owners.into_iter().find(of_machines).map(|owner| &owner["name"]);
        let mut head = Map::new();
        for field in ["name", "namespace", "labels", "annotations"] {
            if !metadata[field].is_null() {
                head.insert(field.to_owned(), metadata[field].clone());
            }
        }
        Self {
            name: text(&metadata["name"]).to_owned(),
            owner: text(owner.unwrap_or(&metadata["labels"]["name"])).to_owned(),
            replicas: spec["replicas"].as_i64().unwrap_or_default(),
            is_real: metadata["labels"]["node"].is_string() || !text(&spec["providerID"]).is_empty(),
            kept: json!({"metadata": head, "spec": spec}),
        }
    }
}

/// The machines of each deployment that has a set. Machines that never became one are made again.
fn state(deployments: &[Object], sets: &[Object], machines: &[Object]) -> Map<String, Value> {
    let mut state = Map::new();
    for deployment in deployments {
        let sets: Vec<&Object> = sets.iter().filter(|set| set.owner == deployment.name).collect();
        if sets.is_empty() {
            continue;
        }
        let belongs =
            |owner: &str| owner == deployment.name.as_str() || sets.iter().any(|set| set.name == owner);
        let machines = machines.iter().filter(|machine| machine.is_real && belongs(&machine.owner));
        let mut entry = json!({"machineSets": sorted(sets.iter().copied())});
        if deployment.replicas != 0 {
            entry["replicas"] = json!(deployment.replicas);
        }
        let machines = sorted(machines);
        if !machines.is_empty() {
            entry["machines"] = json!(machines);
        }
        state.insert(deployment.name.clone(), entry);
    }
    state
}

fn sorted<'a>(objects: impl Iterator<Item = &'a Object>) -> Vec<&'a Value> {
    let mut all: Vec<&Object> = objects.collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.into_iter().map(|object| &object.kept).collect()
}

/// The same state gives the same text.
fn pack(state: &Value) -> io::Result<String> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(state.to_string().as_bytes())?;
    Ok(base64::encode(&packer.finish()?))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn object(name: &str, change: &dyn Fn(&mut Value)) -> Object {
        let mut object = json!({"metadata": {"name": name, "namespace": "n", "uid": "u", "labels": {"a": "b"}},
            "spec": {"x": name}, "status": {"phase": "Running"}});
        change(&mut object);
        Object::of(&object)
    }

    fn owned(by: &str) -> Value {
        json!([{"apiVersion": "apps/v1", "name": "other"}, {"apiVersion": "machine.sapcloud.io/v1alpha1", "name": by}])
    }

    #[test]
    fn machines_are_kept_by_deployment() {
        let labelled = |name: &'static str| {
            move |o: &mut Value| o["metadata"]["labels"] = json!({"name": name, "node": "n1"})
        };
        let by_owner = |by: &'static str, id: &'static str| {
            move |o: &mut Value| {
                o["metadata"]["ownerReferences"] = owned(by);
                o["spec"]["providerID"] = json!(id);
            }
        };
        let deployments = [
            object("d1", &|o| o["spec"]["replicas"] = json!(2)),
            object("d2", &|_| {}),
            object("no-set", &|_| {}),
        ];
        let sets = [object("s2", &labelled("d2")), object("s1", &by_owner("d1", ""))];
        let machines = [
            object("m3", &by_owner("s1", "lab:///3")),
            object("m1", &by_owner("s1", "lab:///1")),
            object("not-there-yet", &by_owner("s1", "")),
            object("by-label", &labelled("d1")),
            object("other", &by_owner("another", "lab:///4")),
        ];
        let found = Value::Object(state(&deployments, &sets, &machines));
        let names = |path: &str| -> Vec<&str> {
            let all = found.pointer(path).and_then(Value::as_array).into_iter().flatten();
            all.map(|object| text(&object["metadata"]["name"])).collect()
        };
        assert_eq!(found.as_object().unwrap().keys().collect::<Vec<_>>(), ["d1", "d2"]);
        assert_eq!(names("/d1/machineSets"), ["s1"]);
        assert_eq!(names("/d1/machines"), ["by-label", "m1", "m3"]);
        assert_eq!((&found["d1"]["replicas"], found["d2"].get("replicas")), (&json!(2), None));
        assert_eq!((names("/d2/machineSets"), found["d2"].get("machines")), (vec!["s2"], None));
        let expected = json!({"metadata": {"name": "m1", "namespace": "n", "labels": {"a": "b"}},
            "spec": {"x": "m1", "providerID": "lab:///1"}});
        assert_eq!(found["d1"]["machines"][1], expected);
        assert!(state(&[], &sets, &machines).is_empty());
    }

    #[test]
    fn it_is_packed_as_gzip_and_always_alike() {
        let state = json!({"machineDeployments": {"d": {"replicas": 1}}});
        let packed = pack(&state).unwrap();
        assert_eq!(packed, pack(&state).unwrap());
        let mut text = String::new();
        GzDecoder::new(base64::decode(packed.as_bytes()).unwrap().as_slice())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), state);
    }
}
