//! Decides what to do for a Bastion from its extension object in the seed. Pure.
//!
//! Source: `pkg/gardenlet/controller/bastion`. Two differences: a success that an extension reported before the present
//! request does not count, and a failed extension is triggered again once per [`ASK_AGAIN`].

use std::time::Duration;

use serde_json::Value;

use crate::api::gardener::OPERATION;
use crate::api::meta::{annotation, text};
use crate::api::patch::difference;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::extension::{TIMESTAMP, UnreadyReason, check, last_error, problem};
use crate::flow::Failed;
use crate::format::base64;
use crate::format::time::parse_rfc3339;

/// How long an extension may take to start.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);
/// How often a failed extension is triggered again.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// The progress of the extension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It is still working.
    Pending,
    /// It has not started for too long.
    Unheard,
    Failed(Failed),
    /// It has done what the object describes.
    Succeeded,
}

/// The actions to take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BastionPlan {
    /// Whether to write the object and to trigger the extension.
    pub(super) asks: bool,
    /// The state to report.
    pub(super) state: State,
    /// When to check again, whether or not the object changes.
    pub(super) again: Option<Duration>,
}

/// Decides; see the module. `object` is the extension object, `spec` its desired spec.
pub(super) fn plan(object: Option<&Value>, spec: &Value, now: Timestamp) -> BastionPlan {
    let pending = BastionPlan { asks: false, state: State::Pending, again: None };
    let asked = BastionPlan { asks: true, again: Some(BEGINS_WITHIN), ..pending.clone() };
    let Some(object) = object else { return asked };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        let finalizers: Vec<&str> = finalizers.map(text).collect();
        let why = format!(
            "it was deleted in the seed: the agent creates it again after the deletion; finalizers that hold it: {}",
            if finalizers.is_empty() { "none".to_owned() } else { finalizers.join(", ") }
        );
        return BastionPlan { state: State::Failed(Failed::new(why)), ..pending };
    }
    if difference(&object["spec"], spec).is_some() {
        return asked;
    }
    let last = &object["status"]["lastOperation"];
    let stamp = annotation(object, TIMESTAMP);
    let requested = parse_rfc3339(stamp).ok();
    if requested.is_none() && !stamp.is_empty() {
        // Another client has written it, and it is unknown which request the extension has seen.
        return asked;
    }
    let age = requested.map_or(Duration::MAX, |at| now.since(at));
    if annotation(object, OPERATION) == "reconcile" || last.is_null() {
        let left = BEGINS_WITHIN.saturating_sub(age);
        return match (left, annotation(object, OPERATION)) {
            (Duration::ZERO, "") => BastionPlan { asks: true, state: State::Unheard, again: Some(ASK_AGAIN) },
            (Duration::ZERO, _) => BastionPlan { state: State::Unheard, ..pending },
            _ => BastionPlan { again: Some(left), ..pending },
        };
    }
    let updated = parse_rfc3339(text(&last["lastUpdateTime"])).unwrap_or_default();
    let state = text(&last["state"]);
    // A finished extension refers to the request that it handled, and reports soon.
    let lags = || match BEGINS_WITHIN.saturating_sub(age) {
        Duration::ZERO => {
            let why = check(object).err().map(UnreadyReason::into_failed).unwrap_or_default();
            let text = format!("{}: look at the log of the extension, and at its clock", why.text);
            BastionPlan { state: State::Failed(Failed { text, ..why }), ..pending.clone() }
        }
        left => BastionPlan { again: Some(left), ..pending.clone() },
    };
    // Times in the status have no fractions.
    if requested.is_some_and(|at| updated < Timestamp::from_unix(at.unix())) {
        return if state == "Processing" { pending } else { lags() };
    }
    if state == "Failed" {
        let left = ASK_AGAIN.saturating_sub(age);
        let again = Some(if left.is_zero() { ASK_AGAIN } else { left });
        return BastionPlan { asks: left.is_zero(), state: State::Failed(why(object, state)), again };
    }
    if state == "Error" || !object["status"]["lastError"].is_null() {
        return BastionPlan { state: State::Failed(why(object, state)), ..pending };
    }
    match (check(object), state) {
        (Ok(()), _) => BastionPlan { state: State::Succeeded, ..pending },
        (Err(_), "Succeeded") => lags(),
        (Err(_), _) => pending,
    }
}

/// The error that an extension reports, or a text with its state.
fn why(object: &Value, state: &str) -> Failed {
    last_error(object).unwrap_or_else(|| Failed::new(format!("extension state is not Succeeded but {state}")))
}

/// The spec of the extension object. Errors: the Bastion is incomplete.
pub(super) fn spec_of(bastion: &Value) -> Result<Value, Failed> {
    let spec = &bastion["spec"];
    let missing = |field: &str, remedy: &str| problem(format!("spec.{field} is empty: {remedy}"));
    let provider = text(&spec["providerType"]);
    if provider.is_empty() {
        return Err(missing("providerType", "the garden sets it from the Shoot, so update the Bastion once"));
    }
    let key = text(&spec["sshPublicKey"]);
    if key.is_empty() {
        return Err(missing("sshPublicKey", "make another Bastion with the public key of its user"));
    }
    let blocks = spec["ingress"].as_array().into_iter().flatten();
    let ingress: Vec<Value> = blocks.map(|policy| json!({"ipBlock": policy["ipBlock"]})).collect();
    let script = base64::encode(user_data(key).as_bytes());
    Ok(json!({"type": provider, "userData": script, "ingress": ingress}))
}

/// The script that the machine runs when it starts: its user may log in with the key and has all permissions.
pub(super) fn user_data(key: &str) -> String {
    let quoted = key.replace('\'', r"'\''");
    format!(
        r#"#!/bin/bash -eu
user=gardener
home=/home/$user
if ! id $user; then
  useradd -m -U $user
fi
mkdir -p $home/.ssh
printf '%s\n' '{quoted}' > $home/.ssh/authorized_keys
chown $user:$user $home/.ssh/authorized_keys
printf '%s\n' "$user ALL=(ALL) NOPASSWD:ALL" > /etc/sudoers.d/99-gardener-user
# Distributions name the service differently.
systemctl start sshd || systemctl start ssh
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_700);
    const ASKED: &str = "2026-01-01T00:01:30.5Z";

    fn wanted() -> Value {
        json!({"type": "lab", "userData": "eA==", "ingress": []})
    }

    /// A correct object whose extension was triggered ten seconds ago.
    fn object() -> Value {
        json!({"metadata": {"generation": 1, "annotations": {TIMESTAMP: ASKED}}, "spec": wanted(),
            "status": {"observedGeneration": 1,
                "lastOperation": {"type": "Create", "state": "Succeeded", "lastUpdateTime": "2026-01-01T00:01:35Z"}}})
    }

    /// Name, changes of the object; whether the extension is triggered, the state, when to check again.
    type Row = (&'static str, Vec<(&'static str, Value)>, bool, State, Option<Duration>);

    #[test]
    fn what_is_to_be_done() {
        let s = Duration::from_secs;
        let failed = |text: &str, codes: &[&str]| {
            let codes = codes.iter().map(|code| (*code).to_owned()).collect();
            State::Failed(Failed { codes, ..Failed::new(text) })
        };
        let long_ago = "2026-01-01T00:00:00Z";
        let asked = "/metadata/annotations/gardener.cloud~1timestamp";
        let operation = "/metadata/annotations/gardener.cloud~1operation";
        let state = "/status/lastOperation/state";
        let last = "/status/lastOperation";
        let updated = "/status/lastOperation/lastUpdateTime";
        let lags =
            |why: &str| failed(&format!("{why}: look at the log of the extension, and at its clock"), &[]);
        let error = json!({"description": "no quota", "codes": ["ERR_INFRA_QUOTA_EXCEEDED"]});
        let quota = || failed("error during reconciliation: no quota", &["ERR_INFRA_QUOTA_EXCEEDED"]);
        let gave_up = || failed("extension state is not Succeeded but Failed", &[]);
        let table: Vec<Row> = vec![
            ("right", vec![], false, State::Succeeded, None),
            (
                "goes",
                vec![
                    ("/metadata/deletionTimestamp", json!(ASKED)),
                    ("/metadata/finalizers", json!(["a", "b"])),
                ],
                false,
                failed(
                    "it was deleted in the seed: the agent creates it again after the deletion; finalizers that hold it: a, b",
                    &[],
                ),
                None,
            ),
            ("another type", vec![("/spec/type", json!("x"))], true, State::Pending, Some(s(30))),
            ("another key", vec![("/spec/userData", json!("eQ=="))], true, State::Pending, Some(s(30))),
            ("an extra field", vec![("/spec/class", json!("x"))], true, State::Pending, Some(s(30))),
            (
                "not picked up",
                vec![(operation, json!("reconcile"))],
                false,
                State::Pending,
                Some(Duration::from_millis(20_500)),
            ),
            (
                "not picked up for long",
                vec![(operation, json!("reconcile")), (asked, json!(long_ago))],
                false,
                State::Unheard,
                None,
            ),
            (
                "picked up, nothing recorded",
                vec![(last, Value::Null)],
                false,
                State::Pending,
                Some(Duration::from_millis(20_500)),
            ),
            (
                "nothing recorded for long",
                vec![(last, Value::Null), (asked, json!(long_ago))],
                true,
                State::Unheard,
                Some(s(60)),
            ),
            (
                "not triggered",
                vec![(last, Value::Null), (asked, Value::Null)],
                true,
                State::Unheard,
                Some(s(60)),
            ),
            ("at work", vec![(state, json!("Processing"))], false, State::Pending, None),
            (
                "older than the request",
                vec![(asked, json!("2026-01-01T00:01:36Z"))],
                false,
                State::Pending,
                Some(s(26)),
            ),
            (
                "at work, and older than the request",
                vec![(asked, json!("2026-01-01T00:01:36Z")), (state, json!("Processing"))],
                false,
                State::Pending,
                None,
            ),
            (
                "older than the request for long",
                vec![(asked, json!(long_ago)), (updated, json!("2025-12-31T23:00:00Z"))],
                false,
                lags("last operation is older than the request for it"),
                None,
            ),
            (
                "another generation",
                vec![("/metadata/generation", json!(2))],
                false,
                State::Pending,
                Some(Duration::from_millis(20_500)),
            ),
            (
                "another generation for long",
                vec![("/metadata/generation", json!(2)), (asked, json!(long_ago))],
                false,
                lags("observed generation outdated (1/2)"),
                None,
            ),
            ("asked at no time", vec![(asked, json!("yesterday"))], true, State::Pending, Some(s(30))),
            ("an error", vec![("/status/lastError", error.clone())], false, quota(), None),
            (
                "tries again after an error",
                vec![("/status/lastError", error), (state, json!("Processing"))],
                false,
                quota(),
                None,
            ),
            (
                "an error without description",
                vec![(state, json!("Error"))],
                false,
                failed("extension state is not Succeeded but Error", &[]),
                None,
            ),
            (
                "gave up",
                vec![(state, json!("Failed"))],
                false,
                gave_up(),
                Some(Duration::from_millis(50_500)),
            ),
            (
                "failed long ago",
                vec![(state, json!("Failed")), (asked, json!(long_ago))],
                true,
                gave_up(),
                Some(s(60)),
            ),
        ];
        for (name, changes, asks, state, again) in table {
            let mut object = object();
            for (pointer, value) in changes {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                object.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
            }
            assert_eq!(plan(Some(&object), &wanted(), NOW), BastionPlan { asks, state, again }, "{name}");
        }
        let first = BastionPlan { asks: true, state: State::Pending, again: Some(s(30)) };
        assert_eq!(plan(None, &wanted(), NOW), first);
    }

    #[test]
    fn the_spec_for_the_extension() {
        let mut bastion = json!({"spec": {"providerType": "lab", "sshPublicKey": "ssh-ed25519 AAAA me",
            "ingress": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"]}}]}});
        let expected = json!({"type": "lab", "userData": base64::encode(user_data("ssh-ed25519 AAAA me").as_bytes()),
            "ingress": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"]}}]});
        assert_eq!(spec_of(&bastion), Ok(expected));
        bastion["spec"]["ingress"] = Value::Null;
        assert_eq!(spec_of(&bastion).unwrap()["ingress"], json!([]));
        for field in ["providerType", "sshPublicKey"] {
            let mut poor = bastion.clone();
            poor["spec"][field] = Value::Null;
            let failed = spec_of(&poor).unwrap_err();
            assert!(failed.text.starts_with(&format!("spec.{field} is empty: ")), "{failed}");
            assert_eq!(failed.codes, [crate::extension::CONFIGURATION_PROBLEM]);
        }
    }
}
