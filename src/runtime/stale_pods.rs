//! Finds and deletes pods that will never run again (Gardener's `pkg/gardenlet/operation/care`).

use std::time::Duration;

use serde_json::Value;

use crate::api::core::POD;
use crate::api::meta::{Key, text};
use crate::base::clock::Timestamp;
use crate::format::time::parse_rfc3339;
use crate::kube::{Client, DeleteParams, Error, ListItem, ListParams, Propagation};
use crate::limits;

/// What to do about a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Stay,
    Delete,
    /// Delete it without waiting for its node.
    Force,
}

const TERMINATING_MAX: Duration = Duration::from_secs(300);
const STALE_REASONS: [&str; 4] = ["Evicted", "NodeAffinity", "NodeLost", "Preempting"];

/// Decides whether a pod will never run again (Gardener's `pkg/gardenlet/operation/care`, stale pods).
pub(crate) fn fate(pod: &Value, now: Timestamp) -> Fate {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    if let Ok(deleted) = parse_rfc3339(text(&metadata["deletionTimestamp"])) {
        return if now.since(deleted) > TERMINATING_MAX { Fate::Force } else { Fate::Stay };
    }
    let any =
        |list: &Value, is_it: &dyn Fn(&Value) -> bool| list.as_array().is_some_and(|l| l.iter().any(is_it));
    let reason = text(&status["reason"]);
    let is_stale = STALE_REASONS.iter().any(|stale| reason.contains(stale))
        || reason.starts_with("OutOf")
        || any(&status["conditions"], &|c| c["type"] == "DisruptionTarget" && c["status"] == "True");
    let is_over = matches!(text(&status["phase"]), "Succeeded" | "Failed");
    let of_replica_set = any(&metadata["ownerReferences"], &|owner| owner["kind"] == "ReplicaSet");
    if is_stale || (is_over && of_replica_set) { Fate::Delete } else { Fate::Stay }
}

/// Deletes the stale pods of a list. An empty namespace means all. Errors: a request fails, but not with "not
/// found". A pod that cannot be deleted does not keep others from being deleted.
pub(crate) fn delete(
    client: &Client,
    namespace: &str,
    params: &ListParams,
    now: Timestamp,
) -> Result<(), Error> {
    let (mut stale, mut room) = (Vec::new(), limits::STALE_PODS_BYTES_MAX);
    // One by one: together they would take most of the agent's memory.
    client.list_each::<Value>(&POD, namespace, params, &mut |item| match item {
        ListItem::Object(pod) => {
            let fate = fate(&pod, now);
            if fate != Fate::Stay {
                let field = |name: &str| text(&pod["metadata"][name]).to_owned();
                let found = (field("namespace"), field("name"), field("uid"), fate);
                let bytes = size_of_val(&found) + found.0.len() + found.1.len() + found.2.len();
                if let Some(left) = room.checked_sub(bytes) {
                    room = left;
                    stale.push(found);
                }
            }
        }
        ListItem::Undecodable(pod) => {
            let (key, err) = (pod.key.to_string(), pod.why.to_string());
            log::warn!(key = key.as_str(), err = err.as_str(); "Cannot read a pod; it is not deleted, even if it is stale");
        }
        ListItem::Restart => (room, _) = (limits::STALE_PODS_BYTES_MAX, stale.clear()),
    })?;
    let mut first = Ok(());
    for (namespace, name, uid, fate) in stale {
        let (namespace, name) = (namespace.as_str(), name.as_str());
        log::info!(namespace, name, forced = (fate == Fate::Force); "Deleting a stale pod");
        let mut params = DeleteParams { uid: Some(uid), ..DeleteParams::default() };
        if fate == Fate::Force {
            (params.grace_period_seconds, params.propagation) = (Some(0), Some(Propagation::Background));
        }
        match client.delete(&POD, &Key::new(namespace, name), &params) {
            Err(error) if !error.is_not_found() && !error.is_conflict() => first = first.and(Err(error)),
            _ => {}
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

    #[test]
    fn fates_of_pods() {
        let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "u"}]});
        let deleted = |seconds: i64| {
            let at = crate::format::time::rfc3339(Timestamp::from_unix(NOW.unix() - seconds));
            json!({"deletionTimestamp": at})
        };
        let table = [
            (json!({}), json!({"phase": "Running"}), Fate::Stay),
            (deleted(10), json!({"phase": "Running"}), Fate::Stay),
            (deleted(300), json!({"phase": "Failed", "reason": "Evicted"}), Fate::Stay),
            (deleted(301), json!({"phase": "Running"}), Fate::Force),
            (json!({}), json!({"phase": "Failed", "reason": "Evicted"}), Fate::Delete),
            (json!({}), json!({"phase": "Failed", "reason": "OutOfcpu"}), Fate::Delete),
            (json!({}), json!({"phase": "Failed", "reason": "Error"}), Fate::Stay),
            (json!({}), json!({"phase": "Succeeded"}), Fate::Stay),
            (owned.clone(), json!({"phase": "Succeeded"}), Fate::Delete),
            (owned.clone(), json!({"phase": "Failed"}), Fate::Delete),
            (owned, json!({"phase": "Pending"}), Fate::Stay),
            (
                json!({}),
                json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}),
                Fate::Delete,
            ),
            (
                json!({}),
                json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}),
                Fate::Stay,
            ),
        ];
        for (metadata, status, expected) in table {
            let pod = json!({"metadata": metadata, "status": status});
            assert_eq!(fate(&pod, NOW), expected, "{pod}");
        }
    }
}
