//! An etcd that an etcd-druid runs: an Etcd object like the one that Gardener's own gardenlet writes. The long test runs have a real
//! etcd-druid.

use std::time::Duration;

use serde_json::Value;

use super::{Input, Role};
use crate::api::core::VALIDATING_WEBHOOK_CONFIGURATION;
use crate::api::gardener::OPERATION;
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata, Resource, annotation, text};
use crate::api::patch::difference;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::extension::TIMESTAMP;
use crate::flow::{Failed, TaskStep};
use crate::format::time::rfc3339_nanos;
use crate::kube::{Error, ListParams, Patch, Seed};
use crate::runtime::write;

pub(crate) mod backup_restore;
pub mod copy;

/// Objects of an etcd-druid.
pub const ETCD: Resource = Resource::new("druid.gardener.cloud", "v1alpha1", "Etcd", "etcds", true);

/// Whether an Etcd object exists: then a druid runs the etcd.
pub(crate) fn runs(seed: &Seed, key: &Key) -> Result<bool, Error> {
    Ok(seed.find::<Metadata>(&ETCD, key)?.is_some())
}

/// The suffix of the names of a druid's webhooks.
const WEBHOOKS: &str = ".druid.gardener.cloud";
/// Fields that a druid or an operator owns once the object exists.
const KEPT: [&str; 5] = [
    "/spec/storageCapacity",
    "/spec/storageClass",
    "/spec/etcd/defragmentationSchedule",
    "/spec/backup/fullSnapshotSchedule",
    "/spec/etcd/resources",
];

/// A place for the backups of an etcd, as a druid finds it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackupStore {
    /// The type of the provider, as the Seed or the BackupEntry names it.
    pub provider: String,
    /// The name of the bucket.
    pub container: String,
    /// The path in it.
    pub prefix: String,
    /// The Secret of the namespace with the credentials.
    pub secret: &'static str,
}

impl BackupStore {
    fn spec(&self) -> Value {
        let Self { provider, container, prefix, secret } = self;
        json!({"provider": provider, "container": container, "prefix": prefix, "secretRef": {"name": secret}})
    }
}

/// What a druid does with an etcd at which time. The schedules are those of cron.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EtcdUpkeep {
    /// When it is defragmented.
    pub defragmentation: String,
    /// When a full backup is taken.
    pub full_backup: String,
    /// Where backups are stored, if they are.
    pub store: Option<BackupStore>,
}

/// Writes the object and triggers a reconciliation if anything in it differs. Fields that a druid or its
/// definition adds stay. Errors: a request fails.
pub fn deploy(seed: &Seed, input: &Input<'_>, upkeep: &EtcdUpkeep, now: Timestamp) -> Result<Value, Error> {
    let key = Key::new(input.namespace, input.role.name());
    let mut desired = fill(input, upkeep);
    let request = |object: &mut Value| {
        let annotations = &mut object["metadata"]["annotations"];
        annotations[OPERATION] = json!("reconcile");
        annotations[TIMESTAMP] = json!(rfc3339_nanos(now));
    };
    let Some(live) = seed.find::<Value>(&ETCD, &key)? else {
        request(&mut desired);
        return seed.create(&ETCD, &key.namespace, &desired);
    };
    match change(&live, desired) {
        None => Ok(live),
        Some(mut patch) => {
            request(&mut patch);
            seed.patch(&ETCD, &key, &Patch::Merge(patch))
        }
    }
}

/// Sets the number of replicas and triggers a reconciliation. A missing object already has none.
pub(crate) fn scale(
    seed: &Seed,
    namespace: &str,
    role: Role,
    replicas: i64,
    now: Timestamp,
) -> Result<(), Error> {
    let key = Key::new(namespace, role.name());
    let live: Option<Value> = seed.find(&ETCD, &key)?;
    if live.is_none_or(|live| live["spec"]["replicas"] == replicas) {
        return Ok(());
    }
    let annotations = json!({OPERATION: "reconcile", TIMESTAMP: rfc3339_nanos(now)});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}});
    seed.patch::<Value>(&ETCD, &key, &Patch::Merge(patch)).map(drop)
}

/// The patch for the live object.
fn change(live: &Value, mut desired: Value) -> Option<Value> {
    keep(&mut desired, live);
    let mut wanted = live.clone();
    overlay(&mut wanted, desired);
    difference(live, &wanted)
}

/// Sets the desired fields and leaves all others.
fn overlay(live: &mut Value, desired: Value) {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            for (key, value) in desired {
                overlay(live.entry(key).or_insert(Value::Null), value);
            }
        }
        (live, desired) => *live = desired,
    }
}

/// Checks once whether a druid has reconciled the object. Errors: a request fails. An error that the druid
/// reports leads to another check, because the druid may recover.
pub(crate) fn wait(seed: &Seed, namespace: &str, role: Role) -> Result<TaskStep, Failed> {
    let key = Key::new(namespace, role.name());
    let live: Option<Value> = seed.find(&ETCD, &key)?;
    let name = format!("Etcd {key}");
    Ok(match live.map(|live| unready(&live)) {
        None => TaskStep::again(AGAIN, format!("{name} is not there")),
        Some(None) => TaskStep::Done,
        Some(Some(why)) => TaskStep::again(AGAIN, format!("{name} {why}")),
    })
}

/// Asks the druid to delete an etcd. A druid refuses a deletion without the annotation. Errors: a request
/// fails. A missing object or kind is no error.
pub fn delete(seed: &Seed, key: &Key) -> Result<(), Error> {
    let patch = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    match seed.patch_blindly(&ETCD, key, &Patch::Merge(patch)) {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => write::delete(seed, &ETCD, key).map(drop),
    }
}

/// How often a druid's object is checked.
const AGAIN: Duration = Duration::from_secs(5);

/// Why an object is not ready.
fn unready(etcd: &Value) -> Option<String> {
    let status = &etcd["status"];
    if let Some(error) = status["lastErrors"].as_array().and_then(|errors| errors.first()) {
        return Some(format!("has failed: {}", text(&error["description"])));
    }
    if status["observedGeneration"] != etcd["metadata"]["generation"]
        || !annotation(etcd, OPERATION).is_empty()
    {
        return Some("was not reconciled yet: an etcd-druid of the seed does that".to_owned());
    }
    if etcd["spec"]["replicas"] == 0 {
        return None;
    }
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let is_updated = conditions.any(|c| c["type"] == "AllMembersUpdated" && c["status"] == "True");
    match (status["ready"] == true, is_updated) {
        (false, _) => Some("is not ready".to_owned()),
        (true, false) => Some("has members that are not updated yet".to_owned()),
        (true, true) => None,
    }
}

/// Whether a druid has made the object: a StatefulSet, for example.
pub(crate) fn has_made(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().any(|owner| owner["kind"] == *ETCD.kind)
}

/// What is wrong with a running etcd.
pub(crate) fn health(etcd: &Value) -> Result<(), String> {
    let status = &etcd["status"];
    let errors = status["lastErrors"].as_array().into_iter().flatten();
    let errors: Vec<&str> = errors.map(|error| text(&error["description"])).collect();
    let told = if errors.is_empty() { String::new() } else { format!(" ({})", errors.join("; ")) };
    if status["ready"] != true {
        return Err(format!("etcd is not ready yet{told}"));
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let backup = conditions.into_iter().find(|condition| condition["type"] == "BackupReady");
    match backup.filter(|backup| backup["status"] != "True") {
        None => Ok(()),
        Some(backup) => Err(format!(
            "condition BackupReady is {}: {}{told}",
            text(&backup["status"]),
            text(&backup["message"])
        )),
    }
}

/// The Etcd object for these inputs.
pub(crate) fn fill(input: &Input<'_>, upkeep: &EtcdUpkeep) -> Value {
    let mut etcd = input.manifest("etcd/druid/etcd.yaml", &[]);
    let spec = &mut etcd["spec"];
    spec["replicas"] = json!(input.replicas);
    spec["storageCapacity"] = json!(input.volume.size);
    if let Some(class) = &input.volume.storage_class {
        spec["storageClass"] = json!(class);
    }
    spec["etcd"]["defragmentationSchedule"] = json!(upkeep.defragmentation);
    spec["etcd"]["resources"]["requests"] = input.role.requests();
    spec["backup"]["tls"] = spec["etcd"]["clientUrlTls"].clone();
    spec["backup"]["resources"]["requests"] = match input.role {
        Role::Main => json!({"cpu": "20m", "memory": "80Mi"}),
        Role::Events => json!({"cpu": "10m", "memory": "40Mi"}),
    };
    if let Some(store) = &upkeep.store {
        spec["backup"]["store"] = store.spec();
        spec["backup"]["fullSnapshotSchedule"] = json!(upkeep.full_backup);
        spec["backup"]["deltaSnapshotPeriod"] = json!("5m0s");
        spec["backup"]["deltaSnapshotMemoryLimit"] = json!("100Mi");
    }
    match input.role {
        Role::Main => {
            spec["annotations"] = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"});
        }
        Role::Events => {
            let annotation = "resources.druid.gardener.cloud/allow-unhealthy-pod-eviction";
            etcd["metadata"]["annotations"][annotation] = json!("");
        }
    }
    etcd
}

/// Keeps fields that stay unchanged once the object exists.
fn keep(desired: &mut Value, live: &Value) {
    for path in KEPT {
        let Some((parent, key)) = path.rsplit_once('/') else { continue };
        let Some(parent) = desired.pointer_mut(parent).and_then(Value::as_object_mut) else { continue };
        match live.pointer(path) {
            Some(value) => parent.insert(key.to_owned(), value.clone()),
            // Backups may begin later.
            None if key == "fullSnapshotSchedule" => None,
            None => parent.remove(key),
        };
    }
}

/// Whether the agent's objects may have a druid's labels: the webhook of an existing druid refuses writes of
/// other clients to them. Errors: a request fails.
pub fn may_label(seed: &Seed) -> Result<bool, Error> {
    let mut is_guarded = false;
    let mut see = |found: Value| is_guarded |= guards(&found);
    seed.list_all(&VALIDATING_WEBHOOK_CONFIGURATION, ALL_NAMESPACES, &ListParams::default(), &mut see)?;
    Ok(!is_guarded)
}

fn guards(configuration: &Value) -> bool {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    webhooks.into_iter().any(|webhook| text(&webhook["name"]).ends_with(WEBHOOKS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::archive;
    use crate::config::control_plane::EtcdVolume;
    use crate::operation::components::etcd::tests::input;

    fn upkeep(defragmentation: &str) -> EtcdUpkeep {
        EtcdUpkeep { defragmentation: defragmentation.to_owned(), ..EtcdUpkeep::default() }
    }

    #[test]
    fn is_as_in_the_golden_files() {
        let main = EtcdVolume { storage_class: None, size: "25Gi".to_owned() };
        let events = EtcdVolume { storage_class: Some("local".to_owned()), size: "2Gi".to_owned() };
        let inputs = [input(Role::Main, &main), input(Role::Events, &events)];
        let all = inputs.map(|input| fill(&input, &upkeep("38 12 * * *")));
        let golden = include_str!("../../../../../tests/fixtures/components/etcd-druid.yaml");
        assert_eq!(archive::golden(&all), golden);
    }

    #[test]
    fn fields_set_at_creation_stay() {
        let volume = EtcdVolume { storage_class: Some("fast".to_owned()), size: "50Gi".to_owned() };
        let mut desired = fill(&input(Role::Main, &volume), &upkeep("1 2 * * *"));
        let mut live = desired.clone();
        live["spec"]["etcd"]["heartbeatDuration"] = json!("1s");
        live["status"] = json!({"ready": true});
        assert_eq!(change(&live, desired.clone()), None);
        live["spec"]["replicas"] = json!(0);
        assert_eq!(change(&live, desired.clone()), Some(json!({"spec": {"replicas": 1}})));

        let spec = json!({"storageCapacity": "25Gi", "etcd": {"defragmentationSchedule": "38 12 * * *",
            "resources": {"requests": {"cpu": "1"}}}, "backup": {"fullSnapshotSchedule": "3 4 * * *"}});
        keep(&mut desired, &json!({"spec": spec}));
        let spec = &desired["spec"];
        assert_eq!((&spec["storageCapacity"], spec.get("storageClass")), (&json!("25Gi"), None));
        assert_eq!(spec["etcd"]["defragmentationSchedule"], "38 12 * * *");
        assert_eq!(spec["etcd"]["resources"]["requests"], json!({"cpu": "1"}));
        assert_eq!(spec["backup"]["fullSnapshotSchedule"], "3 4 * * *");
    }

    #[test]
    fn backups_have_a_store_and_a_schedule_that_stays() {
        let volume = EtcdVolume { storage_class: None, size: "25Gi".to_owned() };
        let store = BackupStore {
            provider: "local".to_owned(),
            container: "b".to_owned(),
            prefix: "e/etcd-main".to_owned(),
            secret: "etcd-backup",
        };
        let upkeep =
            EtcdUpkeep { full_backup: "3 4 * * *".to_owned(), store: Some(store), ..upkeep("1 2 * * *") };
        let input = input(Role::Main, &volume);
        let (mut desired, without) = (fill(&input, &upkeep), fill(&input, &EtcdUpkeep::default()));
        let store = json!({"provider": "local", "container": "b", "prefix": "e/etcd-main",
            "secretRef": {"name": "etcd-backup"}});
        let added = json!({"spec": {"backup": {"store": store, "fullSnapshotSchedule": "3 4 * * *",
            "deltaSnapshotPeriod": "5m0s", "deltaSnapshotMemoryLimit": "100Mi"}}});
        assert_eq!(change(&without, desired.clone()), Some(added), "an object of an older version");
        keep(&mut desired, &json!({"spec": {"backup": {"fullSnapshotSchedule": "5 6 * * *"}}}));
        assert_eq!(desired["spec"]["backup"]["fullSnapshotSchedule"], "5 6 * * *");
    }

    #[test]
    fn a_druid_is_known_by_its_webhook() {
        let named = |name: &str| json!({"webhooks": [{"name": "a.example.org"}, {"name": name}]});
        assert!(guards(&named("etcdcomponents.webhooks.druid.gardener.cloud")));
        assert!(!guards(&named("validation.extensions.gardener.cloud")));
        assert!(!guards(&json!({"metadata": {"name": "a"}})));
    }

    #[test]
    fn a_druid_owns_what_it_has_made() {
        let owned =
            |kind: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "name": "etcd-main"}]}});
        assert!(has_made(&owned("Etcd")));
        assert!(!has_made(&owned("EtcdCopyBackupsTask")));
        assert!(!has_made(&json!({"metadata": {"name": "etcd-main"}})));
    }

    #[test]
    fn an_etcd_of_a_druid_is_healthy_with_its_backups() {
        let table = [
            (json!({}), Err("etcd is not ready yet")),
            (json!({"ready": true}), Ok(())),
            (json!({"ready": true, "conditions": [{"type": "BackupReady", "status": "True"}]}), Ok(())),
            (
                json!({"ready": true, "conditions": [{"type": "BackupReady", "status": "False", "message": "no bucket"}]}),
                Err("condition BackupReady is False: no bucket"),
            ),
            (
                json!({"ready": false, "lastErrors": [{"description": "one"}, {"description": "two"}]}),
                Err("etcd is not ready yet (one; two)"),
            ),
        ];
        for (status, expected) in table {
            assert_eq!(health(&json!({"status": status})), expected.map_err(str::to_owned), "{status}");
        }
    }

    #[test]
    fn what_a_druid_has_done() {
        let etcd = |status: Value| json!({"metadata": {"generation": 2}, "status": status});
        let updated = |status: &str| json!([{"type": "AllMembersUpdated", "status": status}]);
        let mut asked = etcd(json!({"observedGeneration": 2, "ready": true}));
        asked["metadata"]["annotations"][OPERATION] = json!("reconcile");
        let mut off = etcd(json!({"observedGeneration": 2, "ready": false}));
        off["spec"]["replicas"] = json!(0);
        let table = [
            (off, None),
            (etcd(json!({"observedGeneration": 2, "ready": true, "conditions": updated("True")})), None),
            (
                etcd(json!({"observedGeneration": 2, "ready": true, "conditions": updated("False")})),
                Some("members that are not updated"),
            ),
            (etcd(json!({"observedGeneration": 2, "ready": true})), Some("members that are not updated")),
            (etcd(json!({"observedGeneration": 1, "ready": true})), Some("not reconciled yet")),
            (asked, Some("not reconciled yet")),
            (etcd(json!({"observedGeneration": 2, "ready": false})), Some("is not ready")),
            (etcd(json!({"lastErrors": [{"description": "no room"}]})), Some("has failed: no room")),
        ];
        for (etcd, expected) in table {
            match (unready(&etcd), expected) {
                (None, None) => {}
                (Some(why), Some(words)) => assert!(why.contains(words), "{why}"),
                (found, _) => panic!("{etcd}: {found:?}"),
            }
        }
    }
}
