//! What a Shoot needs to move to another seed, as far as this account may read it. The garden compares both Seeds before a
//! move begins.

use serde_json::Value;

use crate::api::gardener::SEED;
use crate::api::meta::{Key, text};
use crate::base::error::chain;
use crate::config::Settings;
use crate::config::control_plane::EtcdMode;
use crate::kube::Garden;
use crate::shoot::{ShootMove, ShootSeeds};

/// What to do about a difference between two Seeds.
pub(super) const REMEDY: &str =
    "let the gardenlets of both seeds report the same version, and give both Seeds spec.backup";
/// What to do if the other Seed was not read.
pub(super) const BY_HAND: &str =
    "compare status.gardener.version and spec.backup of both Seeds with an account that may read Seeds";
/// What a move needs at least.
const NEEDS: &str = "both Seeds need spec.backup with an extension for its provider, a server that speaks S3 and that both seeds reach, and \
    edge.etcd.snapshots with store S3 (Directory is not enough), or an etcd-druid";

/// How a Shoot moves, as this seed sees it.
pub(super) fn of<'a>(shoot: &'a Value, seed: &str) -> Option<ShootMove<'a>> {
    let last = &shoot["status"]["lastOperation"];
    ShootSeeds::of(shoot).moves(seed, text(&last["type"]), text(&last["state"]))
}

/// The other seed of a Shoot whose move has not begun.
pub(super) fn awaited<'a>(shoot: &'a Value, seed: &str) -> Option<&'a str> {
    let last = &shoot["status"]["lastOperation"];
    // One that has succeeded is the migration of the seed before.
    let has_begun = last["type"] == "Migrate" && last["state"] != "Succeeded";
    match of(shoot, seed) {
        Some(ShootMove::To(other) | ShootMove::From(other)) if !has_begun => Some(other),
        _ => None,
    }
}

/// Reads the other Seed, and compares both: what keeps the Shoot from moving. Errors: it was not read, with the reason.
pub(super) fn compare(garden: &Garden, own: &Value, other: &str) -> Result<Vec<String>, String> {
    match garden.find::<Value>(&SEED, &Key::cluster(other)) {
        Ok(Some(found)) => Ok(obstacles([own, &found])),
        Ok(None) => Ok(vec![format!("the garden has no Seed {other}")]),
        Err(error) => Err(format!("Seed {other} cannot be read: {}", chain(&error))),
    }
}

/// The garden compares the texts of the versions.
fn obstacles(seeds: [&Value; 2]) -> Vec<String> {
    let name = |seed: &Value| text(&seed["metadata"]["name"]).to_owned();
    let without_backup = seeds.iter().filter(|seed| seed["spec"]["backup"].is_null());
    let mut found: Vec<String> =
        without_backup.map(|seed| format!("Seed {} has no spec.backup", name(seed))).collect();
    let [one, other] = seeds.map(|seed| text(&seed["status"]["gardener"]["version"]));
    if one != other || one.is_empty() {
        let [first, second] = seeds.map(name);
        found.push(format!(
            "status.gardener.version is {one:?} in Seed {first} and {other:?} in Seed {second}, and must be equal"
        ));
    }
    found
}

/// What the configuration and the Seed of this agent lack for a move of a Shoot.
pub(super) fn lacks(seed: &Value, settings: &Settings, moves: Option<ShootMove<'_>>) -> Option<String> {
    let has_backup = seed["spec"]["backup"].is_object();
    let etcd = &settings.edge.etcd;
    let has_bucket = etcd.snapshots.as_ref().is_some_and(|kept| kept.directory.is_none());
    // A druid restores from the bucket of the Seed, whatever speaks there.
    let restores = has_bucket || etcd.mode == EtcdMode::Druid;
    match moves {
        None if !has_backup => Some(format!("it cannot move to another seed, because this Seed has no spec.backup: {NEEDS}")),
        Some(ShootMove::From(_)) if !restores => Some(
            "its data cannot be restored here: edge.etcd.snapshots of this configuration needs store S3 (Directory is not enough)"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config;
    use crate::config::control_plane::EtcdSnapshots;

    fn seed(name: &str, version: &str, backup: &Value) -> Value {
        json!({"metadata": {"name": name}, "spec": {"backup": backup}, "status": {"gardener": {"version": version}}})
    }

    #[test]
    fn both_versions_and_missing_backups_are_named() {
        let backup = &json!({"provider": "local"});
        let versions =
            "status.gardener.version is \"v1.150.0\" in Seed a and \"v1.149.1\" in Seed b, and must be equal";
        let table = [
            (seed("b", "v1.150.0", backup), vec![]),
            (seed("b", "v1.149.1", backup), vec![versions]),
            (seed("b", "v1.149.1", &Value::Null), vec!["Seed b has no spec.backup", versions]),
        ];
        for (other, expected) in table {
            assert_eq!(obstacles([&seed("a", "v1.150.0", backup), &other]), expected, "{other}");
        }
        // The garden does not take two unknown versions for equal ones.
        assert_eq!(obstacles([&seed("a", "", backup), &seed("b", "", backup)]).len(), 1);
    }

    #[test]
    fn the_seeds_are_compared_until_the_move_begins() {
        let shoot = |wanted: &str, present: &str, kind: &str| {
            let status = json!({"seedName": present, "lastOperation": {"type": kind}});
            json!({"spec": {"seedName": wanted}, "status": status})
        };
        let table = [
            (shoot("b", "a", "Reconcile"), Some("b")),
            (shoot("a", "b", "Restore"), Some("b")),
            (shoot("b", "a", "Migrate"), None),
            (shoot("a", "a", "Migrate"), None),
            (shoot("a", "a", "Reconcile"), None),
        ];
        for (shoot, expected) in table {
            assert_eq!(awaited(&shoot, "a"), expected, "{shoot}");
        }
        // The seed before has let it go, and it is bound to a third one.
        let mut goes_on = shoot("b", "a", "Migrate");
        goes_on["status"]["lastOperation"]["state"] = json!("Succeeded");
        assert_eq!(awaited(&goes_on, "a"), Some("b"));
    }

    #[test]
    fn what_a_move_needs_at_least_is_said() {
        let text = include_str!("../../packaging/systemd/config.yaml");
        let mut settings = config::load(text, "config.yaml").unwrap().settings;
        let kept = |directory: Option<&str>| {
            let directory = directory.map(str::to_owned);
            Some(EtcdSnapshots { directory, keep: 7, schedule: None, image: None })
        };
        let (without, with) = (seed("a", "v1", &Value::Null), seed("a", "v1", &json!({})));
        let (to, from) = (Some(ShootMove::To("b")), Some(ShootMove::From("b")));
        let table = [
            (None, &without, None, "this Seed has no spec.backup: both Seeds need"),
            (kept(None), &with, None, ""),
            (None, &with, to, ""),
            (None, &with, from, "needs store S3 (Directory is not enough)"),
            (kept(Some("/backup")), &with, from, "cannot be restored here"),
            (kept(None), &with, from, ""),
            // It restores what it has, or a task says what it lacks.
            (None, &with, Some(ShootMove::Here), ""),
        ];
        for (kept, seed, moves, expected) in table {
            settings.edge.etcd.snapshots = kept;
            let found = lacks(seed, &settings, moves).unwrap_or_default();
            assert!(
                found.contains(expected) && found.is_empty() == expected.is_empty(),
                "{moves:?}: {found}"
            );
        }
        (settings.edge.etcd.snapshots, settings.edge.etcd.mode) = (None, EtcdMode::Druid);
        assert_eq!(lacks(&with, &settings, from), None);
    }
}
