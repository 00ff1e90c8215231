//! What an administrator writes instead of a lost seed, and when nobody may. Pure.

use std::fmt;

use serde_json::Value;

use super::super::arguments::RescueArguments;
use crate::api::gardener::{BACKUP_ENTRY, SHOOT, has_workers};
use crate::api::meta::{Key, Resource, annotation, text};
use crate::backup::decide::check_bucket;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::extension::TIMESTAMP;
use crate::format::time::{parse_rfc3339, rfc3339};
use crate::operation::components::etcd::plain::moving::{ACCEPT_LOSS, SINCE_SNAPSHOT};
use crate::shoot::state;

const OF_SHOOT: &Resource = &SHOOT;
const OF_ENTRY: &Resource = &BACKUP_ENTRY;
/// The conditions of a seed that can take a Shoot.
const CONDITIONS: [&str; 2] = ["GardenletReady", "SeedSystemComponentsHealthy"];
/// The rotations that make keys of a ShootState.
const ROTATIONS: [&str; 3] = ["certificateAuthorities", "serviceAccountKey", "etcdEncryptionKey"];

/// What the garden has; null for what it does not have.
#[derive(Clone, Default)]
pub(super) struct GardenObjects {
    pub(super) shoot: Value,
    /// The Seed that is lost.
    pub(super) from: Value,
    /// The Lease of this Seed.
    pub(super) lease: Value,
    /// The Seed that is to restore the Shoot.
    pub(super) to: Value,
    pub(super) state: Value,
    /// The BackupEntry of the Shoot.
    pub(super) entry: Value,
    /// The BackupEntry with which the lost seed has itself restored the Shoot from another one.
    pub(super) source: Value,
    /// The BackupBucket with the snapshots.
    pub(super) bucket: Value,
    /// Why the credentials of the bucket cannot be read.
    pub(super) credentials: Option<String>,
}

/// A write to the garden.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PlannedWrite {
    /// What it does, in a few words.
    pub(super) what: &'static str,
    pub(super) resource: &'static Resource,
    /// Empty for the object itself.
    pub(super) subresource: &'static str,
    pub(super) key: Key,
    /// What changes in the object.
    pub(super) changes: Value,
}

impl fmt::Display for PlannedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, resource, subresource, key, changes } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(f, "{what}: update {}{slash}{subresource} {key} {changes}", resource.plural)
    }
}

/// What is to be written, and what is lost.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct RescuePlan {
    /// Empty if the other seed has the Shoot already.
    pub(super) writes: Vec<PlannedWrite>,
    pub(super) lost: Vec<String>,
}

/// Decides what is still to be written. Errors: everything that forbids it, each with its place and a remedy.
pub(super) fn plan(
    found: &GardenObjects,
    asked: &RescueArguments,
    now: Timestamp,
) -> Result<RescuePlan, Vec<String>> {
    let key = asked.shoot.to_string();
    let objects =
        [("Shoot", &key, &found.shoot), ("Seed", &asked.from, &found.from), ("Seed", &asked.to, &found.to)];
    let missing = objects.iter().filter(|(_, _, object)| object.is_null());
    let mut wrong: Vec<String> = missing
        .map(|(kind, name, _)| format!("{kind} {name}: the garden does not have it: correct the name"))
        .collect();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    if [&found.shoot["spec"], &found.shoot["status"]].iter().all(|part| part["seedName"] == *asked.to) {
        return Ok(RescuePlan::default());
    }
    for (place, why) in [
        (format!("Shoot {}", asked.shoot), shoot(found, asked)),
        (format!("Seed {}", asked.from), lost_seed(found)),
        (format!("Seed {}", asked.to), new_seed(found)),
        (format!("ShootState {}", asked.shoot), kept_state(&found.state)),
        (format!("BackupEntry {}", entry_name(found)), backups(found)),
        (format!("BackupBucket {}", text(&found.entry["spec"]["bucketName"])), bucket(found)),
    ] {
        wrong.extend(why.map(|why| format!("{place}: {why}")));
    }
    if wrong.is_empty() {
        Ok(RescuePlan { writes: writes(found, asked, now), lost: lost(found) })
    } else {
        Err(wrong)
    }
}

/// What is true of the Shoot, once there is nothing to write any more.
pub(super) fn ending(shoot: &Value, asked: &RescueArguments) -> String {
    let (RescueArguments { shoot: key, to, .. }, last) = (asked, &shoot["status"]["lastOperation"]);
    let (kind, state) = (text(&last["type"]), text(&last["state"]));
    match (kind, state) {
        ("Migrate", _) => {
            format!("Shoot {key} belongs to seed {to}, whose agent restores it. Watch its last operation.")
        }
        ("Restore", state) if state != "Succeeded" => format!(
            "Shoot {key} belongs to seed {to}, whose agent restores it: {kind} {state}. Watch its last operation."
        ),
        _ => format!(
            "Shoot {key} is on seed {to} already, and there is nothing to rescue: its last operation is {kind} {state}."
        ),
    }
}

pub(super) fn entry_name(found: &GardenObjects) -> String {
    let status = &found.shoot["status"];
    crate::backup::garden::entry_name(text(&status["technicalID"]), text(&status["uid"]))
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn shoot(found: &GardenObjects, asked: &RescueArguments) -> Option<String> {
    let present = text(&found.shoot["status"]["seedName"]);
    let why = match () {
        () if is_deleting(&found.shoot) => "it is being deleted, so no seed restores it: create a new one",
        () if has_workers(&found.shoot) => {
            "it has workers, and this version restores only Shoots without them"
        }
        () if present.is_empty() => "no seed has created it: it has nothing to restore",
        () if present != asked.from => {
            return Some(format!(
                "its control plane is on seed {present}: if that one is lost, name it with --from"
            ));
        }
        () => return None,
    };
    Some(why.to_owned())
}

fn condition<'a>(seed: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut all = seed["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == kind)
}

/// The status of a condition.
fn status<'a>(seed: &'a Value, kind: &str) -> &'a str {
    condition(seed, kind).map_or("missing", |condition| text(&condition["status"]))
}

/// The garden has noticed that the seed is silent, and it has been silent since then. Both times are the garden's,
/// because the clock of this machine may be wrong.
fn lost_seed(found: &GardenObjects) -> Option<String> {
    const REMEDY: &str =
        "if its agent works, bind the Shoot to the other seed, and it moves without a loss (docs/moving.md)";
    let ready = condition(&found.from, CONDITIONS[0]);
    if ready.is_none_or(|ready| ready["status"] != "Unknown") {
        return Some(format!(
            "its condition GardenletReady is {}, and the garden makes it Unknown once the agent is silent: wait a minute; {REMEDY}",
            status(&found.from, CONDITIONS[0])
        ));
    }
    let renewed = text(&found.lease["spec"]["renewTime"]);
    let since = ready.and_then(|ready| parse_rfc3339(text(&ready["lastTransitionTime"])).ok());
    let is_alive = parse_rfc3339(renewed).is_ok_and(|renewed| since.is_none_or(|since| renewed > since));
    if is_alive {
        return Some(format!("its Lease was renewed at {renewed}, so it is not lost: {REMEDY}"));
    }
    found.from["spec"]["backup"].is_null().then(|| {
        "it has no spec.backup, and the garden lets no Shoot move from such a Seed: if a bucket has snapshots of the Shoot, restore \
         the Seed from a backup of the garden"
            .to_owned()
    })
}

fn new_seed(found: &GardenObjects) -> Option<String> {
    let version = |seed: &Value| text(&seed["status"]["gardener"]["version"]).to_owned();
    let (old, new) = (version(&found.from), version(&found.to));
    if is_deleting(&found.to) {
        return Some("it is being deleted: name another one with --to".to_owned());
    }
    if found.to["spec"]["backup"].is_null() {
        return Some(
            "it has no spec.backup, so it cannot read the snapshots: configure it in seedConfig of its agent"
                .to_owned(),
        );
    }
    if let Some(kind) = CONDITIONS.into_iter().find(|kind| status(&found.to, kind) != "True") {
        return Some(format!("its condition {kind} is {}: repair it first", status(&found.to, kind)));
    }
    (old != new).then(|| {
        format!("its agent has version {new:?}, and that of the lost seed had {old:?}: both must be equal, so install that version there")
    })
}

fn kept_state(state: &Value) -> Option<String> {
    const REMEDY: &str =
        "without these keys it would be another cluster: restore the ShootState from a backup of the garden";
    if state.is_null() {
        return Some(format!("the garden does not have it; {REMEDY}"));
    }
    let lacks = state::lacking_keys(&state["spec"]);
    (!lacks.is_empty()).then(|| format!("it lacks {}; {REMEDY}", lacks.join(", ")))
}

fn backups(found: &GardenObjects) -> Option<String> {
    if found.entry.is_null() {
        return Some(
            "the garden does not have it: if the Shoot has snapshots, restore it from a backup of the garden"
                .to_owned(),
        );
    }
    if is_deleting(&found.entry) {
        return Some(
            "it is being deleted, and the snapshots with it: restore it from a backup of the garden"
                .to_owned(),
        );
    }
    let other = text(&found.source["spec"]["bucketName"]);
    (!found.source.is_null()).then(|| {
        format!(
            "the seed was lost while it restored the Shoot from BackupBucket {other}, so the newest snapshot may be there: compare both, \
             write the right one into spec.bucketName, and remove source-{} with its finalizers",
            text(&found.entry["metadata"]["name"])
        )
    })
}

fn bucket(found: &GardenObjects) -> Option<String> {
    match &found.bucket {
        // The entry is reported.
        Value::Null if found.entry.is_null() => None,
        Value::Null => Some("the garden does not have it: restore it from a backup of the garden".to_owned()),
        bucket => match check_bucket(bucket) {
            Ok(()) => found.credentials.clone(),
            Err(failed) => {
                Some(format!("{}: its seed cannot repair it any more, so correct its status", failed.text))
            }
        },
    }
}

/// In the order of a migration. The last one makes the other seed responsible, so everything else must be there.
fn writes(found: &GardenObjects, asked: &RescueArguments, now: Timestamp) -> Vec<PlannedWrite> {
    let (shoot, entry, now) = (&found.shoot, &found.entry, rfc3339(now));
    let said =
        format!("Seed {} is lost. An administrator has written this with gardenlet rescue.", asked.from);
    let migrated = json!({"type": "Migrate", "state": "Succeeded", "progress": 100, "description": said, "lastUpdateTime": now});
    let last = &entry["status"]["lastOperation"];
    let is_released =
        entry["status"]["seedName"].is_null() && last["type"] == "Migrate" && last["state"] == "Succeeded";
    let of_shoot = |what, subresource, changes| PlannedWrite {
        what,
        resource: OF_SHOOT,
        subresource,
        key: asked.shoot.clone(),
        changes,
    };
    let of_entry = |what, subresource, changes| PlannedWrite {
        what,
        resource: OF_ENTRY,
        subresource,
        key: Key::of(entry),
        changes,
    };
    let seed = json!({"spec": {"seedName": asked.to}});
    let accepted = json!({"metadata": {"annotations": {ACCEPT_LOSS: SINCE_SNAPSHOT}}});
    let released = json!({"status": {"seedName": null, "lastError": null, "lastOperation": migrated}});
    let left = json!({"status": {"seedName": asked.to, "lastErrors": null, "retryCycleStartTime": null,
        "lastOperation": migrated}});
    let all = [
        (
            shoot["spec"]["seedName"] != *asked.to,
            of_shoot("Bind the Shoot to the new seed", "binding", seed.clone()),
        ),
        // A released entry has a final snapshot, which lacks nothing.
        (
            !is_released && annotation(shoot, ACCEPT_LOSS).is_empty(),
            of_shoot("Accept the loss of what no snapshot has", "", accepted),
        ),
        (entry["spec"]["seedName"] != *asked.to, of_entry("Give the backups to the new seed", "", seed)),
        (!is_released, of_entry("Release the backups from the lost seed", "status", released)),
        (true, of_shoot("Let the new seed restore the Shoot", "status", left)),
    ];
    all.into_iter().filter_map(|(is_due, write)| is_due.then_some(write)).collect()
}

fn lost(found: &GardenObjects) -> Vec<String> {
    let written = annotation(&found.state, TIMESTAMP);
    let mut lost = vec![
        format!(
            "what was written to the Shoot after the last snapshot in bucket {}; the agent of the new seed tells when that was, in an \
             Event of the Shoot",
            text(&found.entry["spec"]["bucketName"])
        ),
        "Events in the Shoot".to_owned(),
        format!("states of extensions that are newer than the ShootState of {written}"),
    ];
    let rotations = &found.shoot["status"]["credentials"]["rotation"];
    let is_newer = |name: &&str| {
        let begun = parse_rfc3339(text(&rotations[*name]["lastInitiationTime"]));
        begun.is_ok_and(|begun| parse_rfc3339(written).is_ok_and(|written| begun > written))
    };
    lost.extend(ROTATIONS.into_iter().filter(is_newer).map(|name| {
        format!("the new keys of rotation {name}, which began after that; nobody can read what is encrypted with them")
    }));
    lost
}

#[cfg(test)]
mod tests {
    use super::super::super::arguments::ClusterOptions;
    use super::*;

    /// 2026-01-01T00:10:00Z.
    const NOW: Timestamp = Timestamp::from_unix(1_767_226_200);

    fn asked() -> RescueArguments {
        RescueArguments {
            shoot: Key::new("garden-p", "s1"),
            from: "edge-1".to_owned(),
            to: "edge-2".to_owned(),
            way: ClusterOptions::default(),
            is_confirmed: true,
        }
    }

    fn seed(name: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"backup": {"provider": "s3"}},
            "status": {"gardener": {"version": "v1.150.0"}, "conditions": [{"type": "GardenletReady", "status": ready,
                    "lastTransitionTime": "2026-01-01T00:09:10Z"},
                {"type": "SeedSystemComponentsHealthy", "status": "True"}]}})
    }

    fn found() -> GardenObjects {
        let key = |name: &&str| json!({"type": "secret", "labels": {"name": name}});
        let keys = ["ca", "ca-client", "kube-apiserver-etcd-encryption-key", "service-account-key"];
        GardenObjects {
            shoot: json!({"metadata": {"namespace": "garden-p", "name": "s1"}, "spec": {"seedName": "edge-1"},
                "status": {"seedName": "edge-1", "technicalID": "shoot--p--s1", "uid": "u",
                    "lastOperation": {"type": "Reconcile", "state": "Succeeded"}}}),
            from: seed("edge-1", "Unknown"),
            lease: json!({"spec": {"renewTime": "2026-01-01T00:09:00.000000Z"}}),
            to: seed("edge-2", "True"),
            state: json!({"metadata": {"annotations": {TIMESTAMP: "2026-01-01T00:00:00Z"}},
                "spec": {"gardener": keys.iter().map(key).collect::<Vec<_>>()}}),
            entry: json!({"metadata": {"namespace": "garden-p", "name": "shoot--p--s1--u"},
                "spec": {"bucketName": "b1", "seedName": "edge-1"},
                "status": {"seedName": "edge-1", "lastOperation": {"type": "Reconcile", "state": "Succeeded"}}}),
            bucket: json!({"metadata": {"name": "b1"}, "status": {"lastOperation": {"state": "Succeeded"}}}),
            ..GardenObjects::default()
        }
    }

    #[test]
    fn what_forbids_a_rescue_names_place_and_remedy() {
        type Change = fn(&mut GardenObjects);
        let table: [(Change, &str); 23] = [
            (|f| f.shoot = Value::Null, "Shoot garden-p/s1: the garden does not have it"),
            (|f| f.from = Value::Null, "Seed edge-1: the garden does not have it"),
            (|f| f.to = Value::Null, "Seed edge-2: the garden does not have it"),
            (
                |f| f.shoot["metadata"]["deletionTimestamp"] = json!("x"),
                "Shoot garden-p/s1: it is being deleted",
            ),
            (
                |f| f.shoot["spec"]["provider"] = json!({"workers": [{"name": "w"}]}),
                "Shoot garden-p/s1: it has workers",
            ),
            (|f| f.shoot["status"]["seedName"] = Value::Null, "Shoot garden-p/s1: no seed has created it"),
            (
                |f| f.shoot["status"]["seedName"] = json!("edge-3"),
                "Shoot garden-p/s1: its control plane is on seed edge-3",
            ),
            (
                |f| f.lease["spec"]["renewTime"] = json!("2026-01-01T00:09:11.000000Z"),
                "Seed edge-1: its Lease was renewed at 2026-01-01T00:09:11.000000Z",
            ),
            (|f| f.from = seed("edge-1", "True"), "Seed edge-1: its condition GardenletReady is True"),
            (|f| f.from["spec"]["backup"] = Value::Null, "Seed edge-1: it has no spec.backup"),
            (
                |f| f.from["status"]["conditions"] = Value::Null,
                "Seed edge-1: its condition GardenletReady is missing",
            ),
            (|f| f.to["metadata"]["deletionTimestamp"] = json!("x"), "Seed edge-2: it is being deleted"),
            (|f| f.to["spec"]["backup"] = Value::Null, "Seed edge-2: it has no spec.backup"),
            (|f| f.to = seed("edge-2", "False"), "Seed edge-2: its condition GardenletReady is False"),
            (
                |f| f.to["status"]["gardener"]["version"] = json!("v1.151.0"),
                "Seed edge-2: its agent has version \"v1.151.0\", and that of the lost seed had \"v1.150.0\"",
            ),
            (|f| f.state = Value::Null, "ShootState garden-p/s1: the garden does not have it"),
            (
                |f| drop(f.state["spec"]["gardener"].as_array_mut().unwrap().drain(1..3)),
                "ShootState garden-p/s1: it lacks ca-client, kube-apiserver-etcd-encryption-key; without these",
            ),
            (|f| f.entry = Value::Null, "BackupEntry shoot--p--s1--u: the garden does not have it"),
            (
                |f| f.entry["metadata"]["deletionTimestamp"] = json!("x"),
                "BackupEntry shoot--p--s1--u: it is being deleted",
            ),
            (
                |f| f.source = json!({"spec": {"bucketName": "b0"}}),
                "BackupEntry shoot--p--s1--u: the seed was lost while it restored the Shoot from BackupBucket b0",
            ),
            (|f| f.bucket = Value::Null, "BackupBucket b1: the garden does not have it"),
            (
                |f| f.bucket["status"]["lastOperation"]["state"] = json!("Error"),
                "BackupBucket b1: associated BackupBucket state is not Succeeded but Error: its seed",
            ),
            (|f| f.credentials = Some("no Secret".to_owned()), "BackupBucket b1: no Secret"),
        ];
        for (change, expected) in table {
            let mut found = found();
            change(&mut found);
            let wrong = plan(&found, &asked(), NOW).unwrap_err();
            assert!(wrong.len() == 1 && wrong[0].starts_with(expected), "{expected}: {wrong:?}");
        }
        let mut found = found();
        (found.state, found.to["spec"]) = (Value::Null, Value::Null);
        assert_eq!(plan(&found, &asked(), NOW).unwrap_err().len(), 2);
    }

    /// The first letters of what is written.
    fn letters(found: &GardenObjects) -> String {
        plan(found, &asked(), NOW)
            .unwrap()
            .writes
            .iter()
            .filter_map(|write| write.what.chars().next())
            .collect()
    }

    #[test]
    fn only_what_is_missing_is_written_and_the_responsibility_last() {
        type Change = fn(&mut GardenObjects);
        let table: [(Change, &str); 8] = [
            (|_| {}, "BAGRL"),
            // The seed was lost in a migration to the same seed, or to another one.
            (|f| f.shoot["spec"]["seedName"] = json!("edge-2"), "AGRL"),
            (|f| f.shoot["spec"]["seedName"] = json!("edge-3"), "BAGRL"),
            (|f| f.shoot["metadata"]["annotations"] = json!({ACCEPT_LOSS: "true"}), "BGRL"),
            (|f| f.entry["spec"]["seedName"] = json!("edge-2"), "BARL"),
            (
                |f| {
                    f.entry["spec"]["seedName"] = json!("edge-2");
                    f.entry["status"] = json!({"lastOperation": {"type": "Migrate", "state": "Succeeded"}});
                },
                "BL",
            ),
            (|f| f.entry["status"]["seedName"] = Value::Null, "BAGRL"),
            (
                |f| {
                    (f.shoot["spec"]["seedName"], f.shoot["status"]["seedName"]) =
                        (json!("edge-2"), json!("edge-2"));
                },
                "",
            ),
        ];
        for (change, expected) in table {
            let mut found = found();
            change(&mut found);
            assert_eq!(letters(&found), expected);
        }
    }

    #[test]
    fn the_end_says_what_is_true() {
        let table = [
            ("Migrate", "Succeeded", "belongs to seed edge-2, whose agent restores it. Watch"),
            ("Restore", "Processing", "whose agent restores it: Restore Processing. Watch"),
            ("Restore", "Failed", "whose agent restores it: Restore Failed. Watch"),
            ("Restore", "Succeeded", "is on seed edge-2 already, and there is nothing to rescue: its last"),
            ("Reconcile", "Error", "its last operation is Reconcile Error."),
        ];
        for (kind, state, words) in table {
            let shoot = json!({"status": {"lastOperation": {"type": kind, "state": state}}});
            let said = ending(&shoot, &asked());
            assert!(said.starts_with("Shoot garden-p/s1 ") && said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_plan_says_what_is_written_and_what_is_lost() {
        let mut found = found();
        let made = plan(&found, &asked(), NOW).unwrap();
        let lines: Vec<String> = made.writes.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines[0],
            "Bind the Shoot to the new seed: update shoots/binding garden-p/s1 {\"spec\":{\"seedName\":\"edge-2\"}}"
        );
        assert!(lines[1].ends_with(
            " {\"metadata\":{\"annotations\":{\"edge.gardenlet/accept-data-loss\":\"since-last-snapshot\"}}}"
        ));
        assert!(lines[3].contains("update backupentries/status garden-p/shoot--p--s1--u {"), "{}", lines[3]);
        assert!(
            made.lost.len() == 3 && made.lost[2].ends_with("ShootState of 2026-01-01T00:00:00Z"),
            "{:?}",
            made.lost
        );
        found.shoot["status"]["credentials"]["rotation"] = json!({
            "certificateAuthorities": {"lastInitiationTime": "2025-12-31T00:00:00Z"},
            "etcdEncryptionKey": {"lastInitiationTime": "2026-01-01T00:05:00Z"}});
        let lost = plan(&found, &asked(), NOW).unwrap().lost;
        assert!(lost.len() == 4 && lost[3].contains("etcdEncryptionKey"), "{lost:?}");
    }
}
