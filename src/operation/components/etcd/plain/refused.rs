//! A start of etcd-main that failed, because what its store has cannot be restored. The pod tells it (`gardenlet etcd start`) while its Shoot
//! is restored. Its backups are copied once more then, and another pod starts with them.

use std::fmt;

use serde_json::Value;

use super::super::Role;
use crate::api::core::POD;
use crate::api::meta::{Key, text};
use crate::format::view;
use crate::kube::{DeleteParams, Error, List, ListParams, Seed};
use crate::limits;

/// In what a pod tells: whether the snapshots in its store are the reason.
pub(crate) const UNUSABLE: &str = "unusable";

/// A pod that waits for its next start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RefusedStart {
    pod: Key,
    uid: String,
    /// The place of the snapshots, the reason and a remedy.
    why: String,
}

impl fmt::Display for RefusedStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, why, .. } = self;
        write!(
            f,
            "the etcd of pod {pod} does not start: {why}. Unless kube-apiserver has started since, the backups are copied from the \
             bucket of the old seed again"
        )
    }
}

/// `None` if the pod runs, is being deleted, or waits for another reason.
fn read(pod: &Value) -> Option<RefusedStart> {
    let (metadata, status) = (&pod["metadata"], &pod["status"]["containerStatuses"][0]);
    if !metadata["deletionTimestamp"].is_null() || !status["state"]["running"].is_null() {
        return None;
    }
    let ended = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
    let ended = ended.into_iter().find(|ended| ended.is_object())?;
    let told = view::json(text(&ended["message"]).trim().as_bytes()).ok()?;
    (told[UNUSABLE] == true).then(|| RefusedStart {
        pod: Key::new(text(&metadata["namespace"]), text(&metadata["name"])),
        uid: text(&metadata["uid"]).to_owned(),
        why: text(&told["error"]).to_owned(),
    })
}

fn pods(seed: &Seed, namespace: &str) -> Result<Vec<Value>, Error> {
    let params = ListParams {
        label_selector: format!("app=etcd-statefulset,role={}", Role::Main.as_str()),
        limit: limits::ROLLOUT_OBJECTS_MAX,
        ..ListParams::default()
    };
    let list: List<Value> = seed.list(&POD, namespace, &params)?;
    Ok(list.items)
}

/// The pod of etcd-main that cannot start with what its store has.
pub(crate) fn find(seed: &Seed, namespace: &str) -> Result<Option<RefusedStart>, Error> {
    Ok(pods(seed, namespace)?.iter().find_map(read))
}

/// The UID of the pod of etcd-main; empty without a pod.
pub(crate) fn pod(seed: &Seed, namespace: &str) -> Result<String, Error> {
    let pods = pods(seed, namespace)?;
    Ok(pods.first().map_or("", |pod| text(&pod["metadata"]["uid"])).to_owned())
}

/// Lets another pod start at once, instead of the one that cannot. Without such a pod, nothing is done.
pub(crate) fn replace(seed: &Seed, namespace: &str) -> Result<(), Error> {
    let Some(start) = find(seed, namespace)? else { return Ok(()) };
    let params = DeleteParams { uid: Some(start.uid), ..DeleteParams::default() };
    match seed.delete(&POD, &start.pod, &params) {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_start_is_refused_if_its_pod_says_so_and_does_not_run() {
        let told =
            |unusable: bool| json!({"error": "there is no snapshot", "unusable": unusable}).to_string();
        let ended = |message: String| json!({"terminated": {"exitCode": 1, "message": message}});
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let table = [
            (json!({"state": ended(told(true))}), true),
            (json!({"state": waits, "lastState": ended(told(true))}), true),
            // The newer end counts.
            (json!({"state": ended(String::new()), "lastState": ended(told(true))}), false),
            (json!({"state": {"running": {}}, "lastState": ended(told(true))}), false),
            // The store does not answer.
            (json!({"state": waits, "lastState": ended(told(false))}), false),
            (json!({"state": waits, "lastState": ended("killed".to_owned())}), false),
            (json!({"state": waits}), false),
            (Value::Null, false),
        ];
        let metadata = json!({"namespace": "n", "name": "etcd-main-0", "uid": "u"});
        for (status, expected) in table {
            let mut pod = json!({"metadata": metadata, "status": {"containerStatuses": [status]}});
            let found = read(&pod);
            assert_eq!(found.is_some(), expected, "{pod}");
            if let Some(start) = found {
                let words = "the etcd of pod n/etcd-main-0 does not start: there is no snapshot. Unless ";
                assert!(start.to_string().starts_with(words), "{start}");
            }
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            assert_eq!(read(&pod), None, "{pod}");
        }
    }
}
