//! The progress of the credential rotations: `status.credentials.rotation`.
//!
//! A rotation that clients must follow has two steps. The first adds new credentials beside the old ones, the second
//! drops the old ones. Each step starts with an operation of the Shoot and is done when that operation succeeds.

use serde_json::Value;

use crate::api::gardener::{OPERATION, has_ssh_access, has_workers};
use crate::api::meta::{annotation, text};
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::format::time::rfc3339;
use crate::operation::Operation;

const AUTHORITIES: &str = "certificateAuthorities";
const ACCOUNT_KEY: &str = "serviceAccountKey";
const ENCRYPTION_KEY: &str = "etcdEncryptionKey";
const OBSERVABILITY: &str = "observability";
const SSH_KEYPAIR: &str = "sshKeypair";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Start,
    /// Both steps in sequence.
    StartBoth,
    Complete,
    /// No client must follow, so there is one step.
    Once,
}

use Act::{Complete, Once, Start, StartBoth};

/// The meaning of the annotation's values.
const TABLE: &[(&str, &[(&str, Act)])] = &[
    (
        "rotate-credentials-start",
        &[
            (AUTHORITIES, Start),
            (ACCOUNT_KEY, Start),
            (ENCRYPTION_KEY, Start),
            (OBSERVABILITY, Once),
            (SSH_KEYPAIR, Once),
        ],
    ),
    (
        "rotate-credentials-complete",
        &[(AUTHORITIES, Complete), (ACCOUNT_KEY, Complete), (ENCRYPTION_KEY, Complete)],
    ),
    ("rotate-ca-start", &[(AUTHORITIES, Start)]),
    ("rotate-ca-complete", &[(AUTHORITIES, Complete)]),
    ("rotate-serviceaccount-key-start", &[(ACCOUNT_KEY, Start)]),
    ("rotate-serviceaccount-key-complete", &[(ACCOUNT_KEY, Complete)]),
    ("rotate-etcd-encryption-key", &[(ENCRYPTION_KEY, StartBoth)]),
    ("rotate-etcd-encryption-key-start", &[(ENCRYPTION_KEY, Start)]),
    ("rotate-etcd-encryption-key-complete", &[(ENCRYPTION_KEY, Complete)]),
    ("rotate-observability-credentials", &[(OBSERVABILITY, Once)]),
    ("rotate-ssh-keypair", &[(SSH_KEYPAIR, Once)]),
];

/// The steps that a value of the annotation requests; `None` if it does not belong to the start of an operation.
fn acts(value: &str) -> Option<&'static [(&'static str, Act)]> {
    if value.starts_with("rotate-rollout-workers=") || value.starts_with("rollout-workers=") {
        return Some(&[]);
    }
    let value = value.strip_suffix("-without-workers-rollout").unwrap_or(value);
    TABLE.iter().find(|(name, _)| *name == value).map(|(_, acts)| *acts)
}

/// The values of the annotation.
fn values(shoot: &Value) -> impl Iterator<Item = &str> {
    annotation(shoot, OPERATION).split(';').map(str::trim).filter(|value| !value.is_empty())
}

/// The annotation without the values that an operation has accepted; `None` if it has accepted none.
pub(super) fn rest(shoot: &Value) -> Option<String> {
    let left: Vec<&str> = values(shoot).filter(|value| acts(value).is_none()).collect();
    (left.len() < values(shoot).count()).then(|| left.join(";"))
}

fn phase<'a>(rotation: &'a Value, what: &str) -> &'a str {
    text(&rotation[what]["phase"])
}

/// The state of a Shoot's rotations after the start of an operation. Applying it twice changes nothing, because the
/// annotation outlives the old status for a moment.
pub(super) fn begun(shoot: &Value, now: Timestamp) -> Value {
    let credentials = &shoot["status"]["credentials"];
    let mut rotation = credentials["rotation"].clone();
    if rotation.is_null() {
        rotation = json!({});
    }
    let spec = &shoot["spec"]["kubernetes"];
    // From this version on, the second step starts automatically.
    let completes_itself = minor(text(&spec["version"])).is_some_and(|minor| minor >= 34);
    let key = &rotation[ENCRYPTION_KEY];
    if key["phase"] == "Prepared" && (completes_itself || key["autoCompleteAfterPrepared"] == true) {
        act(&mut rotation, ENCRYPTION_KEY, Complete, now);
    }
    for (what, mut wanted) in values(shoot).filter_map(acts).flatten().copied() {
        // Without nodes there is no such key.
        if what == SSH_KEYPAIR && !has_ssh_access(shoot) {
            continue;
        }
        if what == ENCRYPTION_KEY && wanted == Start && completes_itself {
            wanted = StartBoth;
        }
        act(&mut rotation, what, wanted, now);
    }
    if wants_another_provider(shoot) {
        act(&mut rotation, ENCRYPTION_KEY, StartBoth, now);
    }
    rotation
}

/// Whether the Shoot requests another encryption provider, which needs another key.
fn wants_another_provider(shoot: &Value) -> bool {
    let present = text(&shoot["status"]["credentials"]["encryptionAtRest"]["provider"]["type"]);
    let wanted = text(&shoot["spec"]["kubernetes"]["kubeAPIServer"]["encryptionConfig"]["provider"]["type"]);
    !present.is_empty() && !wanted.is_empty() && present != wanted
}

fn act(rotation: &mut Value, what: &str, act: Act, now: Timestamp) {
    let is_idle = matches!(phase(rotation, what), "" | "Completed");
    let is_prepared = phase(rotation, what) == "Prepared";
    let entry = &mut rotation[what];
    match act {
        Once => entry["lastInitiationTime"] = json!(rfc3339(now)),
        Start | StartBoth if is_idle => {
            remove(
                entry,
                &["lastInitiationFinishedTime", "lastCompletionTriggeredTime", "autoCompleteAfterPrepared"],
            );
            entry["phase"] = json!("Preparing");
            entry["lastInitiationTime"] = json!(rfc3339(now));
            if act == StartBoth {
                entry["autoCompleteAfterPrepared"] = json!(true);
            }
        }
        Complete if is_prepared => {
            entry["phase"] = json!("Completing");
            entry["lastCompletionTriggeredTime"] = json!(rfc3339(now));
        }
        // It is in progress; otherwise the garden would not have allowed it.
        _ => {}
    }
    if entry.is_null() {
        remove(rotation, &[what]);
    }
}

/// What pauses because the Shoot sleeps or comes from another seed. Upstream continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Paused {
    /// Nothing can be rewritten in it, and the old encryption key is still needed to read stored objects.
    keys: bool,
    /// The nodes of the site stay, and cannot follow before they lose the old CAs.
    completion_of_authorities: bool,
}

impl Paused {
    /// At the end of an operation. `shoot` has the status before that, and `is_hibernated` is the state now.
    pub(super) fn of(shoot: &Value, operation: Operation, is_hibernated: bool) -> Self {
        let slept = is_hibernated || shoot["status"]["hibernated"] == true;
        let was_out_of_reach = slept || operation == Operation::Restore;
        Self { keys: is_hibernated, completion_of_authorities: was_out_of_reach && has_workers(shoot) }
    }

    fn is(self, what: &str, phase: &str) -> bool {
        if what == AUTHORITIES { self.completion_of_authorities && phase == "Completing" } else { self.keys }
    }
}

/// Whether the completion of the rotation of CAs has paused, and goes on with the next reconciliation.
pub(super) fn is_completion_paused(shoot: &Value) -> bool {
    has_workers(shoot) && phase(&shoot["status"]["credentials"]["rotation"], AUTHORITIES) == "Completing"
}

/// The state of the rotations after a successful operation.
pub(super) fn done(rotation: &Value, paused: Paused, now: Timestamp) -> Value {
    let mut rotation = rotation.clone();
    for what in [AUTHORITIES, ACCOUNT_KEY, ENCRYPTION_KEY] {
        if paused.is(what, phase(&rotation, what)) {
            continue;
        }
        let next = match phase(&rotation, what) {
            // Without workers, nothing must be rolled out.
            "Preparing" | "PreparingWithoutWorkersRollout" | "WaitingForWorkersRollout" => "Prepared",
            "Completing" => "Completed",
            _ => continue,
        };
        let entry = &mut rotation[what];
        entry["phase"] = json!(next);
        if next == "Prepared" {
            entry["lastInitiationFinishedTime"] = json!(rfc3339(now));
        } else {
            remove(
                entry,
                &["lastInitiationFinishedTime", "lastCompletionTriggeredTime", "autoCompleteAfterPrepared"],
            );
            entry["lastCompletionTime"] = json!(rfc3339(now));
        }
    }
    for what in [OBSERVABILITY, SSH_KEYPAIR] {
        let entry = &mut rotation[what];
        // RFC 3339 in UTC sorts by time.
        if text(&entry["lastInitiationTime"]) > text(&entry["lastCompletionTime"]) {
            entry["lastCompletionTime"] = json!(rfc3339(now));
        }
        if entry.is_null() {
            remove(&mut rotation, &[what]);
        }
    }
    rotation
}

fn remove(object: &mut Value, names: &[&str]) {
    if let Some(map) = object.as_object_mut() {
        map.retain(|name, _| !names.contains(&name.as_str()));
    }
}

fn minor(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);
    const LATER: Timestamp = Timestamp::from_unix(1_767_225_660);

    const AWAKE: Paused = Paused { keys: false, completion_of_authorities: false };

    fn shoot(version: &str, asked: &str, rotation: &Value) -> Value {
        json!({
            "metadata": {"annotations": {"gardener.cloud/operation": asked}},
            "spec": {"kubernetes": {"version": version}},
            "status": {"credentials": {"rotation": rotation}},
        })
    }

    fn phases(rotation: &Value) -> Vec<String> {
        let map = rotation.as_object().unwrap();
        map.iter()
            .map(|(name, entry)| format!("{name} {}", text(&entry["phase"])).trim_end().to_owned())
            .collect()
    }

    /// Stored objects could not be rewritten, so the key that reads them must stay.
    #[test]
    fn key_rotations_pause_during_hibernation() {
        for phase in ["Preparing", "Completing"] {
            let entry = json!({"phase": phase, "lastInitiationTime": "2026-01-01T00:00:00Z"});
            let rotation = json!({(AUTHORITIES): entry, (ACCOUNT_KEY): entry, (ENCRYPTION_KEY): entry});
            let asleep = done(&rotation, Paused::of(&json!({}), Operation::Reconcile, true), LATER);
            assert_ne!(asleep[AUTHORITIES]["phase"], phase);
            assert_eq!((&asleep[ACCOUNT_KEY], &asleep[ENCRYPTION_KEY]), (&entry, &entry));
            assert_ne!(done(&rotation, AWAKE, LATER)[ENCRYPTION_KEY]["phase"], phase);
        }
    }

    /// Hosts that keep the old CAs would never get in again.
    #[test]
    fn cas_of_nodes_are_completed_only_by_a_reconciliation_that_begins_and_ends_awake() {
        let shoot = |workers: &Value, hibernated: bool| json!({"spec": {"provider": {"workers": workers}}, "status": {"hibernated": hibernated}});
        let (none, some) = (json!([]), json!([{"name": "a"}]));
        let table = [
            (&some, Operation::Reconcile, false, false, "Completed"),
            (&some, Operation::Reconcile, false, true, "Completing"),
            (&some, Operation::Reconcile, true, true, "Completing"),
            (&some, Operation::Reconcile, true, false, "Completing"),
            (&some, Operation::Restore, false, false, "Completing"),
            (&none, Operation::Reconcile, true, true, "Completed"),
            (&none, Operation::Restore, false, false, "Completed"),
        ];
        for (workers, operation, before, after, expected) in table {
            let paused = Paused::of(&shoot(workers, before), operation, after);
            let of = |phase: &str| {
                done(&json!({AUTHORITIES: {"phase": phase}}), paused, NOW)[AUTHORITIES]["phase"].clone()
            };
            assert_eq!(of("Completing"), expected, "{workers} {operation:?} {before} {after}");
            assert_eq!(of("Preparing"), "Prepared");
        }
    }

    #[test]
    fn steps_that_annotation_values_start() {
        let prepared = json!({AUTHORITIES: {"phase": "Prepared"}, ACCOUNT_KEY: {"phase": "Prepared"},
            ENCRYPTION_KEY: {"phase": "Prepared"}});
        let none = json!({});
        let table: &[(&str, &Value, &[&str])] = &[
            ("", &none, &[]),
            ("reconcile", &none, &[]),
            ("rotate-ssh-keypair", &none, &[]),
            (
                "rotate-credentials-start",
                &none,
                &[
                    "certificateAuthorities Preparing",
                    "etcdEncryptionKey Preparing",
                    "observability",
                    "serviceAccountKey Preparing",
                ],
            ),
            ("rotate-ca-start-without-workers-rollout", &none, &["certificateAuthorities Preparing"]),
            (
                "rotate-ca-start;rotate-serviceaccount-key-start",
                &none,
                &["certificateAuthorities Preparing", "serviceAccountKey Preparing"],
            ),
            ("rotate-ca-complete", &none, &[]),
            (
                "rotate-ca-complete",
                &prepared,
                &[
                    "certificateAuthorities Completing",
                    "etcdEncryptionKey Prepared",
                    "serviceAccountKey Prepared",
                ],
            ),
            (
                "rotate-credentials-complete",
                &prepared,
                &[
                    "certificateAuthorities Completing",
                    "etcdEncryptionKey Completing",
                    "serviceAccountKey Completing",
                ],
            ),
            (
                "rotate-ca-start",
                &prepared,
                &[
                    "certificateAuthorities Prepared",
                    "etcdEncryptionKey Prepared",
                    "serviceAccountKey Prepared",
                ],
            ),
            ("rotate-observability-credentials", &none, &["observability"]),
        ];
        for (asked, rotation, expected) in table {
            let shoot = shoot("1.33.5", asked, rotation);
            let begun = begun(&shoot, NOW);
            assert_eq!(phases(&begun), *expected, "{asked}");
            // After a crash between the writes of status and annotation.
            let mut again = shoot.clone();
            again["status"]["credentials"]["rotation"] = begun.clone();
            assert_eq!(phases(&super::begun(&again, LATER)), *expected, "{asked}");
        }
    }

    #[test]
    fn the_key_for_ssh_is_rotated_in_one_step_where_there_is_one() {
        let of = |asked: &str, provider: &Value| {
            let mut shoot = shoot("1.34.3", asked, &Value::Null);
            shoot["spec"]["provider"] = provider.clone();
            done(&begun(&shoot, NOW), AWAKE, LATER)[SSH_KEYPAIR].clone()
        };
        let workers = json!([{"name": "a"}]);
        let (open, closed) = (
            json!({"workers": workers}),
            json!({"workers": workers, "workersSettings": {"sshAccess": {"enabled": false}}}),
        );
        let rotated = json!({
            "lastInitiationTime": "2026-01-01T00:00:00Z", "lastCompletionTime": "2026-01-01T00:01:00Z"});
        for asked in ["rotate-ssh-keypair", "rotate-credentials-start"] {
            assert_eq!(of(asked, &open), rotated, "{asked}");
            assert_eq!(of(asked, &closed), Value::Null, "{asked}");
            assert_eq!(of(asked, &json!({})), Value::Null, "{asked}");
        }
        assert_eq!(of("rotate-ca-start", &open), Value::Null);
    }

    #[test]
    fn a_rotation_from_start_to_end() {
        let rotation = begun(&shoot("1.33.5", "rotate-ca-start", &Value::Null), NOW);
        let prepared = done(&rotation, AWAKE, LATER);
        let entry = json!({"phase": "Prepared", "lastInitiationTime": "2026-01-01T00:00:00Z",
            "lastInitiationFinishedTime": "2026-01-01T00:01:00Z"});
        assert_eq!(prepared, json!({AUTHORITIES: entry}));
        assert_eq!(done(&prepared, AWAKE, LATER), prepared);
        let completing = begun(&shoot("1.33.5", "rotate-ca-complete", &prepared), LATER);
        let completed = done(&completing, AWAKE, LATER);
        let entry = json!({"phase": "Completed", "lastInitiationTime": "2026-01-01T00:00:00Z",
            "lastCompletionTime": "2026-01-01T00:01:00Z"});
        assert_eq!(completed, json!({AUTHORITIES: entry}));
        assert_eq!(
            phases(&begun(&shoot("1.33.5", "rotate-ca-start", &completed), LATER)),
            ["certificateAuthorities Preparing"]
        );
    }

    #[test]
    fn the_second_step_of_the_encryption_key_may_be_automatic() {
        for (version, asked, is_alone) in [
            ("1.33.5", "rotate-etcd-encryption-key", true),
            ("1.33.5", "rotate-etcd-encryption-key-start", false),
            ("1.34.0", "rotate-etcd-encryption-key-start", true),
            ("v1.35.1", "rotate-credentials-start", true),
            ("1.33.5", "rotate-credentials-start", false),
        ] {
            let prepared = done(&begun(&shoot(version, asked, &Value::Null), NOW), AWAKE, NOW);
            assert_eq!(
                prepared[ENCRYPTION_KEY]["autoCompleteAfterPrepared"] == true,
                is_alone,
                "{version} {asked}"
            );
            let next = begun(&shoot(version, "", &prepared), LATER);
            let expected = if is_alone { "Completing" } else { "Prepared" };
            assert_eq!(phase(&next, ENCRYPTION_KEY), expected, "{version} {asked}");
        }
        let mut other = shoot("1.33.5", "", &Value::Null);
        other["spec"]["kubernetes"]["kubeAPIServer"] =
            json!({"encryptionConfig": {"provider": {"type": "aesgcm"}}});
        assert_eq!(begun(&other, NOW), json!({}));
        other["status"]["credentials"]["encryptionAtRest"] = json!({"provider": {"type": "aescbc"}});
        assert_eq!(phase(&begun(&other, NOW), ENCRYPTION_KEY), "Preparing");
    }

    #[test]
    fn remaining_annotation() {
        let table = [
            ("", None),
            ("reconcile", None),
            ("rotate-ca-start", Some("")),
            ("rotate-ca-start;maintain", Some("maintain")),
            ("force-in-place-update;rollout-workers=a,b", Some("force-in-place-update")),
            ("rotate-ca-start-without-workers-rollout;rotate-ssh-keypair", Some("")),
        ];
        for (asked, expected) in table {
            assert_eq!(rest(&shoot("1.33.5", asked, &Value::Null)).as_deref(), expected, "{asked}");
        }
    }
}
