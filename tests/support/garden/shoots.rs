//! Shoots: keeps a finalizer while they are bound, so that their extensions are not removed before them, and sets the label
//! with their status.

use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use serde_json::{Value, json};

use super::manager::Manager;
use crate::api::failure::Failure;
use crate::api::write::Patch;
use crate::json::{entry, list, text};

const FINALIZER: &str = "core.gardener.cloud/controllerregistration";
const STATUS: &str = "shoot.gardener.cloud/status";

pub fn sync(manager: &Manager) -> Result<(), Failure> {
    manager.cluster.list(&SHOOT, ALL_NAMESPACES)?.iter().try_for_each(|shoot| sync_one(manager, shoot))
}

fn sync_one(manager: &Manager, shoot: &Value) -> Result<(), Failure> {
    let finalizers = list(shoot, "/metadata/finalizers");
    let is_held = finalizers.iter().any(|f| f == FINALIZER);
    let is_wanted =
        text(shoot, "/metadata/deletionTimestamp").is_empty() && !text(shoot, "/spec/seedName").is_empty();
    let health = health(shoot);
    if is_held == is_wanted && entry(shoot, "/metadata/labels", STATUS) == Some(health) {
        return Ok(());
    }
    let mut next: Vec<Value> = finalizers.iter().filter(|f| *f != FINALIZER).cloned().collect();
    if is_wanted {
        next.insert(0, FINALIZER.into());
    }
    let patch = json!({"metadata": {"labels": {STATUS: health}, "finalizers": next,
        "resourceVersion": shoot["metadata"]["resourceVersion"]}});
    manager.cluster.patch(&SHOOT, &Key::of(shoot), "", &Patch::Merge(patch)).map(drop)
}

/// From best to worst.
const HEALTH: [&str; 4] = ["healthy", "progressing", "unknown", "unhealthy"];

/// The status of a Shoot, from its last operation, last errors and conditions.
fn health(shoot: &Value) -> &'static str {
    let operation = &shoot["status"]["lastOperation"];
    let without_errors = if list(shoot, "/status/lastErrors").is_empty() { 0 } else { 3 };
    let conditions = list(shoot, "/status/conditions").iter().map(|c| match text(c, "/status") {
        "True" => 0,
        "Progressing" => 1,
        "Unknown" => 2,
        _ => 3,
    });
    let worst = conditions.max().unwrap_or(0);
    let rank = match (text(operation, "/type"), text(operation, "/state")) {
        _ if operation.is_null() => 0,
        ("Delete", _) => without_errors,
        ("Create", state) if state != "Succeeded" => without_errors,
        (_, "Processing") => worst.max(without_errors),
        (_, "Succeeded") => worst,
        _ => 3,
    };
    HEALTH[rank]
}

#[test]
fn the_label_follows_the_status() {
    let operation = |kind: &str, state: &str| json!({"type": kind, "state": state});
    let conditions = |all: &[&str]| all.iter().map(|status| json!({"status": status})).collect::<Vec<_>>();
    let (none, some) = (json!([]), json!([{"description": "x"}]));
    let table = [
        (Value::Null, &none, vec!["False"], "healthy"),
        (operation("Create", "Pending"), &none, vec![], "healthy"),
        (operation("Create", "Processing"), &none, vec!["False"], "healthy"),
        (operation("Create", "Processing"), &some, vec!["True"], "unhealthy"),
        (operation("Create", "Succeeded"), &none, vec!["True"], "healthy"),
        (operation("Create", "Succeeded"), &none, vec!["True", "Progressing"], "progressing"),
        (operation("Reconcile", "Processing"), &none, vec!["Unknown", "Progressing"], "unknown"),
        (operation("Reconcile", "Processing"), &some, vec!["True"], "unhealthy"),
        (operation("Reconcile", "Succeeded"), &none, vec!["False", "True"], "unhealthy"),
        (operation("Reconcile", "Error"), &none, vec!["True"], "unhealthy"),
        (operation("Reconcile", "Failed"), &some, vec!["True"], "unhealthy"),
        (operation("Delete", "Processing"), &none, vec!["False"], "healthy"),
        (operation("Delete", "Error"), &some, vec!["True"], "unhealthy"),
    ];
    for (operation, errors, statuses, expected) in table {
        let shoot = json!({"status": {"lastOperation": operation, "lastErrors": errors, "conditions": conditions(&statuses)}});
        assert_eq!(health(&shoot), expected, "{shoot}");
    }
}
