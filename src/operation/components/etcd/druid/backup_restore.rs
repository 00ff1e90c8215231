//! What the agent asks of etcd-backup-restore, which runs beside the etcd-main of an etcd-druid: the last snapshot before a Shoot moves,
//! and whether there are data after it has moved. It answers without credentials at the Service of etcd-main.

use std::time::Duration;

use serde_json::Value;

use super::super::super::super::work::Work;
use crate::api::meta::text;
use crate::base::error::chain;
use crate::flow::{Failed, TaskStep};
use crate::kube;
use crate::kube::request::ApiRequest;
use crate::shoot::service::ServiceServer;

/// One request may hold a worker for a minute. A snapshot that takes longer goes on without it, and the next request waits for it.
const SERVER: ServiceServer = ServiceServer {
    service: "etcd-main-client",
    port: 8080,
    ca: "ca-etcd-bundle",
    timeout: Duration::from_secs(60),
};
/// How soon it is asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// The revision of an etcd in which nothing was ever written.
const FIRST_REVISION: i64 = 1;

fn ask(work: &Work, path: &str) -> Result<Value, Failed> {
    let client = work.env.connector.of_service(work.plane(), &SERVER)?;
    client.fetch(&ApiRequest::get(path)).map_err(|error| refusal(work.plane(), &error))
}

/// Whose fault it is: the server's, or that of the way to it.
fn refusal(namespace: &str, error: &kube::Error) -> Failed {
    let remedy = match error {
        kube::Error::Transport { .. } => {
            "the gardenlet must reach the cluster addresses of Services, as a pod of the seed or on one of its nodes"
        }
        _ => "see the log of container backup-restore of pod etcd-main-0",
    };
    let ServiceServer { service, port, .. } = SERVER;
    let at = format!("Service {namespace}/{service}, port {port}");
    Failed::new(format!("ask etcd-backup-restore at {at}: {}: {remedy}", chain(error)))
}

/// Takes a snapshot that the other seed recognizes as the last one. If nothing was written since the last final one, etcd-backup-restore takes no second one.
pub(crate) fn take_final(work: &Work) -> TaskStep {
    match ask(work, "/snapshot/full?final=true") {
        Ok(taken) if taken["isFinal"] == true => {
            let (shoot, snapshot) = (work.view.name.as_str(), text(&taken["snapName"]));
            log::info!(shoot, snapshot; "Took the last snapshot of a Shoot that moves");
            TaskStep::Done
        }
        Ok(taken) => {
            TaskStep::again(AGAIN, format!("etcd-backup-restore took no final snapshot; it answered {taken}"))
        }
        Err(failed) => TaskStep::again(AGAIN, failed),
    }
}

/// Whether the restored etcd-main has data. Errors: it began empty.
pub(crate) fn check_data(work: &Work) -> Result<TaskStep, Failed> {
    match ask(work, "/snapshot/latest").map(|latest| has_data(&latest)) {
        Ok(Some(true)) => Ok(TaskStep::Done),
        Ok(None) => Ok(TaskStep::again(AGAIN, "etcd-backup-restore knows no snapshot yet")),
        Err(failed) => Ok(TaskStep::again(AGAIN, failed)),
        Ok(Some(false)) => Err(Failed::new(format!(
            "etcd-main of namespace {} has begun empty: there were no backups to copy, and no API server starts with it; bring the \
             backups into the bucket of the old seed, and delete Etcd etcd-main, which is then restored; or annotate the Shoot with \
             {}=true to accept what is lost",
            work.plane(),
            super::super::plain::moving::ACCEPT_LOSS
        ))),
    }
}

/// From the newest snapshots. `None` while there are none: the first one is taken soon after the start.
fn has_data(latest: &Value) -> Option<bool> {
    let full = latest["fullSnapshot"]["lastRevision"].as_i64()?;
    let has_deltas = latest["deltaSnapshots"].as_array().is_some_and(|all| !all.is_empty());
    Some(full > FIRST_REVISION || has_deltas)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_etcd_is_known_by_its_first_snapshot() {
        let table = [
            (json!({"fullSnapshot": null, "deltaSnapshots": null}), None),
            (json!({"fullSnapshot": {"lastRevision": 1}, "deltaSnapshots": null}), Some(false)),
            (json!({"fullSnapshot": {"lastRevision": 1}, "deltaSnapshots": []}), Some(false)),
            (
                json!({"fullSnapshot": {"lastRevision": 1}, "deltaSnapshots": [{"lastRevision": 9}]}),
                Some(true),
            ),
            (json!({"fullSnapshot": {"lastRevision": 2_000}, "deltaSnapshots": null}), Some(true)),
        ];
        for (latest, expected) in table {
            assert_eq!(has_data(&latest), expected, "{latest}");
        }
    }

    #[test]
    fn a_refusal_names_place_and_remedy() {
        let lost =
            kube::Error::Response { request: "GET /".to_owned(), problem: "half an answer".to_owned() };
        let failed = refusal("shoot--p--s2", &lost).text;
        assert!(
            failed
                .starts_with("ask etcd-backup-restore at Service shoot--p--s2/etcd-main-client, port 8080: ")
        );
        assert!(failed.ends_with("see the log of container backup-restore of pod etcd-main-0"), "{failed}");
    }
}
