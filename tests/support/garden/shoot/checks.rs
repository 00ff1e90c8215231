//! Validation of a Shoot and of its changes.

use serde_json::Value;

use super::defaults::numbers;
use super::is_workerless;
use crate::api::failure::Failure;
use crate::api::rules::Write;
use crate::garden::rules::{FORCE_DELETION, OPERATION, refuse};
use crate::json::{entry, list, text};

/// Fields that a Shoot without workers must not have.
const NOT_WORKERLESS: [&str; 18] = [
    "secretBindingName",
    "credentialsBindingName",
    "addons",
    "networking.type",
    "networking.providerConfig",
    "networking.pods",
    "networking.nodes",
    "kubernetes.kubeScheduler",
    "kubernetes.kubeProxy",
    "kubernetes.kubelet",
    "kubernetes.clusterAutoscaler",
    "kubernetes.verticalPodAutoscaler",
    "provider.infrastructureConfig",
    "provider.controlPlaneConfig",
    "provider.workersSettings",
    "systemComponents",
    "maintenance.autoUpdate.machineImageVersion",
    "maintenance.autoRotation.credentials.sshKeypair",
];
const REQUIRED: [&str; 4] = ["region", "provider.type", "cloudProfile.name", "kubernetes.version"];
const PURPOSES: [&str; 5] = ["evaluation", "testing", "development", "infrastructure", "production"];
/// What does not change once it is set.
const FIXED: [&str; 8] = [
    "region",
    "provider.type",
    "networking.type",
    "networking.services",
    "networking.pods",
    "networking.nodes",
    "networking.ipFamilies",
    "exposureClassName",
];
const FORCIBLE: [&str; 5] = [
    "ERR_INFRA_UNAUTHENTICATED",
    "ERR_INFRA_UNAUTHORIZED",
    "ERR_INFRA_DEPENDENCIES",
    "ERR_CLEANUP_CLUSTER_RESOURCES",
    "ERR_CONFIGURATION_PROBLEM",
];

fn field<'a>(shoot: &'a Value, name: &str) -> Option<&'a Value> {
    let pointer = format!("/spec/{}", name.replace('.', "/"));
    shoot.pointer(&pointer).filter(|v| !v.is_null())
}

/// A Shoot by itself.
pub fn whole(shoot: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let refused = |field: &str, why: &str| Err(refuse(write, shoot, field, why));
    if text(shoot, "/metadata/name").contains("--") {
        return refused("metadata.name", "Invalid value: name may not contain two consecutive hyphens");
    }
    for name in REQUIRED {
        if field(shoot, name).and_then(Value::as_str).is_none_or(str::is_empty) {
            return refused(&format!("spec.{name}"), "Required value");
        }
    }
    if !is_workerless(shoot) {
        pools(shoot, write)?;
    }
    if let Some(name) = NOT_WORKERLESS.iter().find(|n| is_workerless(shoot) && field(shoot, n).is_some()) {
        let why = "Forbidden: this field should not be set for workerless Shoot clusters";
        return refused(&format!("spec.{name}"), why);
    }
    let purpose = text(shoot, "/spec/purpose");
    if !PURPOSES.contains(&purpose) {
        let why = format!("Unsupported value: {purpose:?}: supported values: {}", PURPOSES.join(", "));
        return refused("spec.purpose", &why);
    }
    window(shoot, write)
}

/// What a Shoot with workers needs.
fn pools(shoot: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let refused = |field: &str, why: &str| Err(refuse(write, shoot, field, why));
    if text(shoot, "/spec/networking/type").is_empty() {
        return refused("spec.networking.type", "Required value: must provide a networking type");
    }
    if ["secretBindingName", "credentialsBindingName"].iter().all(|name| field(shoot, name).is_none()) {
        let why = "Required value: must be set when secretBindingName is not set";
        return refused("spec.credentialsBindingName", why);
    }
    let workers = list(shoot, "/spec/provider/workers");
    for (index, worker) in workers.iter().enumerate() {
        let at = |field: &str| format!("spec.provider.workers[{index}].{field}");
        let name = text(worker, "/name");
        if name.is_empty() {
            return refused(&at("name"), "Required value");
        }
        if workers[..index].iter().any(|other| text(other, "/name") == name) {
            return refused(&at("name"), &format!("Duplicate value: {name:?}"));
        }
        if worker["minimum"].as_i64() > worker["maximum"].as_i64() {
            let why = "Forbidden: minimum value must not be greater than maximum value";
            return refused(&at("maximum"), why);
        }
        let own = text(worker, "/kubernetes/version");
        if let Some(why) = skew(own, text(shoot, "/spec/kubernetes/version")) {
            return refused(&at("kubernetes.version"), why);
        }
    }
    Ok(())
}

/// What is wrong with the version of a pool beside that of the control plane. Empty: it has none of its own.
pub(super) fn skew(own: &str, control_plane: &str) -> Option<&'static str> {
    let (nodes, servers) = (numbers(own), numbers(control_plane));
    if own.is_empty() {
        return None;
    }
    if nodes > servers {
        return Some(
            "Forbidden: worker group kubernetes version must not be higher than control plane version",
        );
    }
    let is_far = nodes.get(1).zip(servers.get(1)).is_some_and(|(nodes, servers)| *servers > nodes + 3);
    is_far.then_some(
        "Forbidden: worker group kubernetes version must be at most three minor versions behind control plane version",
    )
}

/// The window for maintenance lasts between thirty minutes and six hours.
fn window(shoot: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let at = |end: &str| minute(text(shoot, &format!("/spec/maintenance/timeWindow/{end}")));
    let at_field = |field: &str, why: &str| {
        Err(refuse(write, shoot, &format!("spec.maintenance.timeWindow{field}"), why))
    };
    let Some(begin) = at("begin") else {
        return at_field(".begin", "Invalid value: not of the form HHMMSS+ZZZZ");
    };
    let Some(end) = at("end") else { return at_field(".end", "Invalid value: not of the form HHMMSS+ZZZZ") };
    if !(30..=360).contains(&(end - begin).rem_euclid(1_440)) {
        return at_field("", "Invalid value: time window must last between 30m and 6h");
    }
    Ok(())
}

/// The minute of the day, in UTC, of a text like `220000+0100`.
fn minute(text: &str) -> Option<i32> {
    let number = |from: usize| text.get(from..from + 2)?.parse::<i32>().ok();
    let sign = match text.get(6..7)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let (hour, minute) = (number(0)?, number(2)?);
    let fits = text.len() == 11 && hour < 24 && minute < 60 && number(4)? < 60;
    fits.then_some(hour * 60 + minute - sign * (number(7)? * 60 + number(9)?))
}

/// A change of the object itself.
pub fn change(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    bound(old, new, write)?;
    if is_workerless(old) != is_workerless(new) {
        let why = match is_workerless(old) {
            true => "Forbidden: a workerless Shoot cannot get workers",
            false => "Forbidden: a Shoot with workers cannot become workerless",
        };
        return Err(refuse(write, new, "spec.provider.workers", why));
    }
    if let Some(name) = FIXED.iter().find(|n| field(old, n).is_some() && field(old, n) != field(new, n)) {
        let value = field(new, name).unwrap_or(&Value::Null);
        let why = format!("Invalid value: {value}: field is immutable");
        return Err(refuse(write, new, &format!("spec.{name}"), &why));
    }
    let version = |shoot: &Value| numbers(text(shoot, "/spec/kubernetes/version"));
    let (before, after) = (version(old), version(new));
    if after < before {
        let why = "Forbidden: kubernetes version downgrade is not supported";
        return Err(refuse(write, new, "spec.kubernetes.version", why));
    }
    if after.get(1).zip(before.get(1)).is_some_and(|(after, before)| *after > before + 1) {
        let why = "Forbidden: kubernetes version upgrade cannot skip a minor version";
        return Err(refuse(write, new, "spec.kubernetes.version", why));
    }
    forced(old, new, write)
}

/// The Seed changes only by the subresource, and stays.
fn bound(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let (before, after) = (text(old, "/spec/seedName"), text(new, "/spec/seedName"));
    let refused = |why: String| {
        let (kind, name) = (write.kind, text(new, "/metadata/name"));
        Err(Failure::forbidden(&kind.group, &kind.plural, name, &why))
    };
    if !before.is_empty() && after.is_empty() {
        return refused(format!("spec.seedName is already set to '{before}' and cannot be changed to 'nil'"));
    }
    if write.subresource.is_empty() && before != after {
        let before = if before.is_empty() { "nil" } else { before };
        return refused(format!(
            "spec.seedName '{before}' cannot be changed to '{after}' by patching the shoot, \
             please use the shoots/binding subresource"
        ));
    }
    Ok(())
}

/// The agent may let a Shoot go when nothing is left of it.
pub fn released(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let is_held = |shoot| list(shoot, "/metadata/finalizers").iter().any(|f| f == "gardener");
    let last = &new["status"]["lastOperation"];
    let is_over = last["type"] == "Delete" && last["state"] == "Succeeded" && last["progress"] == 100;
    let was_there = !text(new, "/status/technicalID").is_empty() && !last.is_null();
    if !is_held(old) || is_held(new) || is_over || !was_there {
        return Ok(());
    }
    let why =
        "finalizer \"gardener\" cannot be removed because shoot deletion has not completed successfully yet";
    Err(Failure::forbidden(&write.kind.group, &write.kind.plural, text(new, "/metadata/name"), why))
}

/// A deletion is forced only where it is stuck, and stays forced.
fn forced(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let is_forced = |shoot| entry(shoot, "/metadata/annotations", FORCE_DELETION) == Some("true");
    let why = match (is_forced(old), is_forced(new)) {
        (true, false) => "Forbidden: the annotation cannot be removed once it is set",
        (false, true) if text(new, "/metadata/deletionTimestamp").is_empty() => {
            "Forbidden: the annotation cannot be set while the Shoot has no deletionTimestamp"
        }
        (false, true) => {
            let mut codes = list(new, "/status/lastErrors").iter().flat_map(|e| list(e, "/codes"));
            if codes.any(|c| c.as_str().is_some_and(|c| FORCIBLE.contains(&c))) {
                return Ok(());
            }
            "Forbidden: the annotation cannot be set while no last error has a code that allows it"
        }
        _ => return Ok(()),
    };
    Err(refuse(write, new, &format!("metadata.annotations[{FORCE_DELETION}]"), why))
}

/// A change of the status.
pub fn status(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    for name in ["technicalID", "uid", "clusterIdentity"] {
        let at = |shoot| text(shoot, &format!("/status/{name}")).to_owned();
        if !at(old).is_empty() && at(old) != at(new) {
            let why = format!("Invalid value: {:?}: field is immutable", at(new));
            return Err(refuse(write, new, &format!("status.{name}"), &why));
        }
    }
    Ok(())
}

/// A change of the Seed.
pub fn binding(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    bound(old, new, write)?;
    if text(old, "/spec/seedName") == text(new, "/spec/seedName") {
        let why = "update of binding rejected, shoot is already assigned to the same seed";
        return Err(Failure::new(500, "", why));
    }
    if !text(old, "/metadata/deletionTimestamp").is_empty() {
        return Err(refuse(write, new, "spec.seedName", "Forbidden: the Shoot is marked for deletion"));
    }
    Ok(())
}

/// Credentials that a rotation is about.
fn rotated(operation: &str) -> &'static [&'static str] {
    match operation.trim_start_matches("rotate-") {
        o if o.starts_with("credentials-") => {
            &["certificateAuthorities", "serviceAccountKey", "etcdEncryptionKey"]
        }
        o if o.starts_with("ca-") => &["certificateAuthorities"],
        o if o.starts_with("serviceaccount-key-") => &["serviceAccountKey"],
        o if o.starts_with("etcd-encryption-key") => &["etcdEncryptionKey"],
        _ => &[],
    }
}

/// New operations: a rotation can start if none is in progress, and complete if one is prepared.
pub fn operations(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let known: Vec<&str> = super::generation::operations(old).collect();
    for operation in super::generation::operations(new).filter(|o| !known.contains(o)) {
        let field = format!("metadata.annotations[{OPERATION}]");
        if !is_known(operation) {
            let known: Vec<String> = KNOWN.iter().map(|o| format!("{o:?}")).collect();
            let why = format!("Unsupported value: {operation:?}: supported values: {}", known.join(", "));
            return Err(refuse(write, new, &field, &why));
        }
        if let Some(why) = forbidden(new, operation) {
            let why = format!("Forbidden: {operation}: {why}");
            return Err(refuse(write, new, &field, &why));
        }
    }
    Ok(())
}

/// All operations, in the order in which the server lists them.
const KNOWN: [&str; 20] = [
    "force-in-place-update",
    "maintain",
    "reconcile",
    "retry",
    "rollout-workers",
    "rotate-ca-complete",
    "rotate-ca-start",
    "rotate-ca-start-without-workers-rollout",
    "rotate-credentials-complete",
    "rotate-credentials-start",
    "rotate-credentials-start-without-workers-rollout",
    "rotate-etcd-encryption-key",
    "rotate-etcd-encryption-key-complete",
    "rotate-etcd-encryption-key-start",
    "rotate-observability-credentials",
    "rotate-rollout-workers",
    "rotate-serviceaccount-key-complete",
    "rotate-serviceaccount-key-start",
    "rotate-serviceaccount-key-start-without-workers-rollout",
    "rotate-ssh-keypair",
];

/// `rollout-workers` and its like name pools.
fn is_known(operation: &str) -> bool {
    KNOWN.contains(&operation.split('=').next().unwrap_or_default())
}

fn forbidden(shoot: &Value, operation: &str) -> Option<String> {
    let rotated = rotated(operation);
    if rotated.is_empty() {
        return None;
    }
    let phase = |name: &str| text(shoot, &format!("/status/credentials/rotation/{name}/phase"));
    if operation.ends_with("-complete") {
        // A key that completes by itself may have done so.
        let waits = |name: &&&str| match phase(name) {
            "Prepared" => false,
            "Completed" => **name != "etcdEncryptionKey" || rotated.len() == 1,
            _ => true,
        };
        return rotated.iter().find(waits).map(|name| format!("the rotation of {name} is not prepared"));
    }
    let last = &shoot["status"]["lastOperation"];
    let is_up = match text(last, "/type") {
        "Create" | "Restore" => last["state"] == "Succeeded",
        "Reconcile" => true,
        _ => false,
    };
    if !is_up || !text(shoot, "/metadata/deletionTimestamp").is_empty() {
        return Some("the Shoot was not created yet, or is about to go".to_owned());
    }
    let busy = rotated.iter().find(|name| !["", "Completed"].contains(&phase(name)));
    busy.map(|name| format!("the rotation of {name} is under way"))
}
