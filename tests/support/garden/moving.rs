//! Shoots that move to another Seed: whether that Seed is ready for them, and a ShootState that nobody may delete meanwhile.

use gardenlet::api::gardener::{SHOOT, SHOOT_STATE};
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use serde_json::{Value, json};

use super::manager::Manager;
use crate::api::failure::Failure;
use crate::api::write::Patch;
use crate::json::{list, text};

const READY: &str = "ReadyForMigration";
const FINALIZER: &str = "core.gardener.cloud/shootstate";
/// What a Seed must be before Shoots move to it.
const CONDITIONS: [&str; 2] = ["GardenletReady", "SeedSystemComponentsHealthy"];

pub fn sync(manager: &Manager, seeds: &[Value]) -> Result<(), Failure> {
    for shoot in manager.cluster.list(&SHOOT, ALL_NAMESPACES)? {
        constrain(manager, &shoot, seeds)?;
        guard(manager, &shoot)?;
    }
    Ok(())
}

/// Sets the constraint from the binding until the Shoot has left.
fn constrain(manager: &Manager, shoot: &Value, seeds: &[Value]) -> Result<(), Failure> {
    let all = list(shoot, "/status/constraints");
    let present = all.iter().find(|constraint| constraint["type"] == READY);
    let (wanted, left) = (text(shoot, "/spec/seedName"), text(shoot, "/status/seedName"));
    let is_asked = !wanted.is_empty() && !left.is_empty() && wanted != left;
    let mut next: Vec<Value> = all.iter().filter(|constraint| constraint["type"] != READY).cloned().collect();
    if is_asked {
        let seed = |name: &str| seeds.iter().find(|seed| text(seed, "/metadata/name") == name);
        let (Some(source), Some(target)) = (seed(left), seed(wanted)) else { return Ok(()) };
        let (status, reason, message) = judge(source, target);
        // A change of the reason alone is not written.
        if present.is_some_and(|present| present["status"] == status) {
            return Ok(());
        }
        let now = manager.now();
        next.push(json!({"type": READY, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now, "lastUpdateTime": now}));
    } else if present.is_none() {
        return Ok(());
    }
    let patch = json!({"metadata": {"resourceVersion": shoot["metadata"]["resourceVersion"]},
        "status": {"constraints": next}});
    manager.cluster.patch(&SHOOT, &Key::of(shoot), "status", &Patch::Merge(patch)).map(drop)
}

/// Status, reason and message.
fn judge(source: &Value, target: &Value) -> (&'static str, &'static str, String) {
    if !text(target, "/metadata/deletionTimestamp").is_empty() {
        return ("False", "DestinationSeedInDeletion", "Seed is being deleted".to_owned());
    }
    match lack(source, target) {
        Some(why) => ("False", "DestinationSeedUnready", why),
        None => (
            "True",
            "DestinationSeedReady",
            "Destination seed cluster is ready for the shoot migration".to_owned(),
        ),
    }
}

/// What a Seed lacks to get Shoots of another one.
fn lack(source: &Value, target: &Value) -> Option<String> {
    let version = |seed| text(seed, "/status/gardener/version");
    let (there, here) = (version(target), version(source));
    if there.is_empty() || here.is_empty() {
        return Some("missing Gardener version information on source or destination seed".to_owned());
    }
    if there != here {
        return Some(format!("observing Gardener version not up to date ({there}/{here})"));
    }
    let (wanted, observed) = (&target["metadata"]["generation"], &target["status"]["observedGeneration"]);
    if observed.as_i64().unwrap_or(0) < wanted.as_i64().unwrap_or(0) {
        return Some(format!("observed generation outdated ({observed}/{wanted})"));
    }
    CONDITIONS.into_iter().find_map(|kind| {
        let Some(found) = list(target, "/status/conditions").iter().find(|found| found["type"] == kind)
        else {
            return Some(format!("condition {kind:?} is missing"));
        };
        let said = |field: &str| text(found, &format!("/{field}")).to_owned();
        let why = || {
            format!(
                "condition {kind:?} has invalid status {} (expected True) due to {}: {}",
                said("status"),
                said("reason"),
                said("message")
            )
        };
        (found["status"] != "True").then(why)
    })
}

/// Whether the ShootState of a Shoot must stay; none if it may have the finalizer or not.
fn must_stay(shoot: &Value) -> Option<bool> {
    let last = &shoot["status"]["lastOperation"];
    match text(last, "/type") {
        "Migrate" => Some(true),
        "Restore" => Some(last["state"] != "Succeeded"),
        "Reconcile" => Some(false),
        _ => None,
    }
}

fn guard(manager: &Manager, shoot: &Value) -> Result<(), Failure> {
    let Some(is_wanted) = must_stay(shoot) else { return Ok(()) };
    let key = Key::of(shoot);
    let Some(state) = manager.cluster.get(&SHOOT_STATE, &key)? else { return Ok(()) };
    let finalizers = list(&state, "/metadata/finalizers");
    if finalizers.iter().any(|finalizer| finalizer == FINALIZER) == is_wanted {
        return Ok(());
    }
    // No new finalizers after the deletion.
    if is_wanted && !text(&state, "/metadata/deletionTimestamp").is_empty() {
        return Ok(());
    }
    let mut next: Vec<Value> =
        finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    if is_wanted {
        next.push(FINALIZER.into());
    }
    let patch =
        json!({"metadata": {"finalizers": next, "resourceVersion": state["metadata"]["resourceVersion"]}});
    manager.cluster.patch(&SHOOT_STATE, &key, "", &Patch::Merge(patch)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_ready_with_the_same_version_and_good_conditions() {
        let good = || {
            json!({"metadata": {"generation": 2}, "status": {"gardener": {"version": "v1"}, "observedGeneration": 2,
                "conditions": [{"type": "GardenletReady", "status": "True"},
                    {"type": "SeedSystemComponentsHealthy", "status": "True"}]}})
        };
        let with = |pointer: &str, value: Value| {
            let mut seed = good();
            crate::json::set(&mut seed, pointer, value);
            seed
        };
        let bad = json!([{"type": "GardenletReady", "status": "False", "reason": "r", "message": "m"}]);
        let table = [
            (good(), "DestinationSeedReady", "ready"),
            (with("/metadata/deletionTimestamp", json!("x")), "DestinationSeedInDeletion", "being deleted"),
            (with("/status/gardener", Value::Null), "DestinationSeedUnready", "missing Gardener version"),
            (
                with("/status/gardener/version", json!("v2")),
                "DestinationSeedUnready",
                "not up to date (v2/v1)",
            ),
            (with("/metadata/generation", json!(3)), "DestinationSeedUnready", "outdated (2/3)"),
            (
                with("/status/conditions", json!([])),
                "DestinationSeedUnready",
                "\"GardenletReady\" is missing",
            ),
            (
                with("/status/conditions", bad),
                "DestinationSeedUnready",
                "invalid status False (expected True) due to r: m",
            ),
        ];
        for (target, reason, words) in table {
            let found = judge(&good(), &target);
            assert!(found.1 == reason && found.2.contains(words), "{found:?}");
        }
    }

    #[test]
    fn a_shoot_state_stays_until_the_shoot_is_restored() {
        let table = [
            ("Create", "Succeeded", None),
            ("Migrate", "Processing", Some(true)),
            ("Migrate", "Succeeded", Some(true)),
            ("Restore", "Error", Some(true)),
            ("Restore", "Succeeded", Some(false)),
            ("Reconcile", "Processing", Some(false)),
        ];
        for (kind, state, expected) in table {
            let shoot = json!({"status": {"lastOperation": {"type": kind, "state": state}}});
            assert_eq!(must_stay(&shoot), expected, "{kind} {state}");
        }
    }
}
