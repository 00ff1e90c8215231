//! How a Shoot leaves a seed: it depends on where its data are.
//!
//! A Shoot can be bound to another seed while this one still restores it. Until its data are here, this seed must not make keys, an etcd or a
//! snapshot of its own: those would take the place of the true ones. What is read here is the same after each
//! start of the agent, also in the middle of a migration.

use serde_json::Value;

use crate::api::meta::text;
use crate::backup::garden;
use crate::kube::{Error, Garden, Seed};
use crate::shoot::ShootSeeds;

use super::read::has_etcd;

/// How a Shoot leaves this seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Departure {
    /// With its keys and data, which are here.
    Whole,
    /// This seed has not taken its backups over: nothing of its data is here. What this seed has begun goes, and the backups
    /// go on to the next seed as they are.
    PassedOn,
    /// Not now: its data would be lost. A text for people, with the remedy.
    Blocked(String),
}

impl Departure {
    /// Why it cannot leave now.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        match self {
            Self::Blocked(why) => Some(why),
            Self::Whole | Self::PassedOn => None,
        }
    }
}

/// The entry with which this seed reads the backups in the bucket of the seed before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SourceEntry {
    Missing,
    /// The restored API server has not answered yet.
    There,
    /// It has answered, and the backups in the other bucket are being deleted.
    Leaving,
}

impl SourceEntry {
    fn of(entry: Option<&Value>) -> Self {
        match entry {
            None => Self::Missing,
            Some(entry) if entry["metadata"]["deletionTimestamp"].is_null() => Self::There,
            Some(_) => Self::Leaving,
        }
    }
}

/// What decides how a Shoot leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DepartureTrace<'a> {
    /// The bucket of the Shoot's BackupEntry; empty without an entry.
    bucket: &'a str,
    /// The seed of the Shoot's BackupEntry.
    entry_seed: &'a str,
    source: SourceEntry,
    /// The name of this seed.
    seed: &'a str,
    /// The bucket of this seed.
    own_bucket: &'a str,
    /// The seed to which the Shoot is bound.
    target: &'a str,
    /// Its last operation is a restoration that has not succeeded.
    is_restored_in_part: bool,
    /// The etcd with its data is here.
    has_etcd: bool,
}

fn decide(trace: DepartureTrace<'_>) -> Departure {
    let DepartureTrace { bucket, entry_seed, seed, target, .. } = trace;
    let is_elsewhere = !bucket.is_empty() && bucket != trace.own_bucket;
    match trace.source {
        SourceEntry::There => Departure::Blocked(format!(
            "the Shoot cannot leave seed {seed}, because it is not restored there yet, and its data are on the way from one bucket to \
             another: bind it to seed {seed} again; it can move on as soon as it is restored"
        )),
        SourceEntry::Leaving => Departure::Blocked(format!(
            "the Shoot cannot leave seed {seed} before the backups of the seed that it has left are deleted there: wait until its \
             BackupEntry whose name begins with source- is gone"
        )),
        SourceEntry::Missing if is_elsewhere && ![seed, target].contains(&entry_seed) => {
            Departure::Blocked(format!(
                "the Shoot cannot move to seed {target}, because seed {seed} has already given its BackupEntry to seed {entry_seed}: \
                 bind it to seed {entry_seed}; it can move on as soon as it is restored there"
            ))
        }
        SourceEntry::Missing if is_elsewhere => Departure::PassedOn,
        // It came back before it had left. Its keys may not all be here.
        SourceEntry::Missing if trace.is_restored_in_part && !trace.has_etcd => Departure::Blocked(format!(
            "the Shoot cannot leave seed {seed}, because it is not restored there yet: bind it to seed {seed} again; it can move on \
             as soon as it is restored"
        )),
        SourceEntry::Missing => Departure::Whole,
    }
}

fn is_restored_in_part(shoot: &Value) -> bool {
    let last = &shoot["status"]["lastOperation"];
    last["type"] == "Restore" && last["state"] != "Succeeded"
}

/// Finds out how a Shoot leaves the seed `own`, if it leaves it. Errors: a request fails.
pub(crate) fn look(garden: &Garden, seed: &Seed, shoot: &Value, own: &Value) -> Result<Departure, Error> {
    let (name, seeds) = (text(&own["metadata"]["name"]), ShootSeeds::of(shoot));
    if !seeds.is_leaving() || seeds.operates() != name {
        return Ok(Departure::Whole);
    }
    let entry = garden::entry(shoot).find(garden)?.unwrap_or_default();
    let source = garden::source_entry(shoot).find(garden)?;
    let is_restored_in_part = is_restored_in_part(shoot);
    Ok(decide(DepartureTrace {
        bucket: text(&entry["spec"]["bucketName"]),
        entry_seed: text(&entry["spec"]["seedName"]),
        source: SourceEntry::of(source.as_ref()),
        seed: name,
        own_bucket: text(&own["metadata"]["uid"]),
        target: text(&shoot["spec"]["seedName"]),
        is_restored_in_part,
        has_etcd: is_restored_in_part && has_etcd(seed, text(&shoot["status"]["technicalID"]))?,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Seed b, to which the Shoot came from seed a, and which it leaves for seed c.
    const TRACE: DepartureTrace<'_> = DepartureTrace {
        bucket: "of-b",
        entry_seed: "b",
        source: SourceEntry::Missing,
        seed: "b",
        own_bucket: "of-b",
        target: "c",
        is_restored_in_part: false,
        has_etcd: true,
    };

    /// The departure, and words of its obstacle.
    #[track_caller]
    fn leaves(trace: DepartureTrace<'_>, expected: Result<Departure, &str>) {
        let (found, trace) = (decide(trace), format!("{trace:?}"));
        match expected {
            Ok(expected) => assert_eq!(found, expected, "{trace}"),
            Err(words) => {
                assert!(found.obstacle().is_some_and(|why| why.contains(words)), "{trace}: {found:?}");
            }
        }
    }

    #[test]
    fn a_shoot_leaves_with_its_data_or_without_a_trace() {
        let partly = DepartureTrace { is_restored_in_part: true, ..TRACE };
        let reads = |bucket| DepartureTrace { bucket, source: SourceEntry::There, ..partly };
        let begun = DepartureTrace { bucket: "of-a", has_etcd: false, ..partly };
        let back = "bind it to seed b again";
        let table = [
            (TRACE, Ok(Departure::Whole)),
            // The restored API server has answered, and a later task fails.
            (partly, Ok(Departure::Whole)),
            // The migration has given the entry away.
            (DepartureTrace { entry_seed: "c", ..TRACE }, Ok(Departure::Whole)),
            // The Shoot never had backups.
            (DepartureTrace { bucket: "", entry_seed: "", ..TRACE }, Ok(Departure::Whole)),
            // Nothing is restored, as the restoration or the migration sees it.
            (begun, Ok(Departure::PassedOn)),
            (DepartureTrace { is_restored_in_part: false, ..begun }, Ok(Departure::PassedOn)),
            (DepartureTrace { target: "a", ..begun }, Ok(Departure::PassedOn)),
            (DepartureTrace { entry_seed: "c", ..begun }, Ok(Departure::PassedOn)),
            (DepartureTrace { entry_seed: "d", ..begun }, Err("bind it to seed d;")),
            (reads("of-a"), Err(back)),
            (reads("of-b"), Err(back)),
            // An earlier version has begun the migration.
            (DepartureTrace { is_restored_in_part: false, ..reads("of-b") }, Err(back)),
            (DepartureTrace { source: SourceEntry::Leaving, ..partly }, Err("wait until its BackupEntry")),
            // It came back to this seed, and leaves again before it is restored.
            (DepartureTrace { has_etcd: false, ..partly }, Err(back)),
            (DepartureTrace { has_etcd: false, ..TRACE }, Ok(Departure::Whole)),
        ];
        for (trace, expected) in table {
            leaves(trace, expected);
        }
    }

    #[test]
    fn a_restoration_is_not_whole_until_it_has_succeeded() {
        let table = [
            ("Restore", "Processing", true),
            ("Restore", "Error", true),
            ("Restore", "Failed", true),
            ("Restore", "Aborted", true),
            ("Restore", "Succeeded", false),
            ("Migrate", "Succeeded", false),
            ("Reconcile", "Error", false),
        ];
        for (kind, state, expected) in table {
            let shoot = json!({"status": {"lastOperation": {"type": kind, "state": state}}});
            assert_eq!(is_restored_in_part(&shoot), expected, "{kind} {state}");
        }
        let entry = |deleted: Value| json!({"metadata": {"name": "source-e", "deletionTimestamp": deleted}});
        assert_eq!(SourceEntry::of(None), SourceEntry::Missing);
        assert_eq!(SourceEntry::of(Some(&entry(Value::Null))), SourceEntry::There);
        assert_eq!(SourceEntry::of(Some(&entry(json!("2026-01-01T00:00:00Z")))), SourceEntry::Leaving);
    }
}
