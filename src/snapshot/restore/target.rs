//! The etcd to which deltas are applied, over its JSON gateway.

use super::apply::DeltaTarget;
use crate::api::meta::text;
use crate::limits;
use crate::snapshot::delta::{DeltaEvent, DeltaStep};
use crate::snapshot::error::Error;
use crate::snapshot::gateway::EtcdGateway;

/// After so many bytes of changes, old revisions are removed: their space is used again.
const CLEAN_UP_BYTES: usize = 64 << 20;

/// An etcd that nobody else uses.
#[derive(Debug)]
pub(super) struct EtcdTarget {
    gateway: EtcdGateway,
    /// How much was written since the last clean-up.
    written: usize,
}

impl EtcdTarget {
    pub(super) const fn new(gateway: EtcdGateway) -> Self {
        Self { gateway, written: 0 }
    }

    /// The revision of its last change.
    pub(super) fn revision(&self) -> Result<u64, Error> {
        Ok(self.gateway.status()?.revision)
    }

    /// Removes old revisions up to this one, if many were written. A watch cannot begin before the restoration anyway.
    pub(super) fn clean_up(&mut self, revision: u64) -> Result<(), Error> {
        if self.written < CLEAN_UP_BYTES {
            return Ok(());
        }
        self.written = 0;
        let body = format!("{{\"revision\":\"{revision}\"}}");
        let doing = "remove old revisions from etcd";
        self.gateway.ask("kv/compaction", body.as_bytes(), doing, limits::SNAPSHOT_ANSWER_BYTES_MAX).map(drop)
    }
}

impl DeltaTarget for EtcdTarget {
    fn apply(&mut self, step: &DeltaStep) -> Result<Option<u64>, Error> {
        let doing = "apply a revision to etcd";
        let body = transaction(&step.events);
        self.written = self.written.saturating_add(body.len());
        // It describes each change, in some hundred bytes.
        let bytes_max = limits::SNAPSHOT_ANSWER_BYTES_MAX + step.events.len() * 512;
        let answer = self.gateway.ask("kv/txn", &body, doing, bytes_max)?;
        let revision = text(&answer["header"]["revision"]).parse();
        let why = || "its answer has no revision".to_owned();
        let revision = revision.map_err(|_| Error::Refused { doing: doing.to_owned(), why: why() })?;
        Ok((answer["succeeded"] == true).then_some(revision))
    }
}

/// The request that makes these changes, without their leases, if each key is in the state that the change follows. etcd-backup-restore
/// does not compare it.
fn transaction(events: &[DeltaEvent]) -> Vec<u8> {
    let bytes =
        events.iter().map(|event| 300 + 3 * event.key.len() + event.value.as_ref().map_or(0, String::len));
    let mut body = Vec::with_capacity(bytes.sum());
    body.extend_from_slice(b"{\"compare\":[");
    let mut is_first = true;
    for event in events {
        let mut compare = |target: &str, result: &str, field: &str, number: u64| {
            body.extend_from_slice(if std::mem::take(&mut is_first) { b"{\"key\":" } else { b",{\"key\":" });
            quote(&mut body, &event.key);
            let rest = format!(",\"target\":\"{target}\",\"result\":\"{result}\",\"{field}\":\"{number}\"}}");
            body.extend_from_slice(rest.as_bytes());
        };
        match (&event.value, event.version) {
            (None, _) => compare("VERSION", "GREATER", "version", 0),
            // It does not say it.
            (Some(_), 0) => {}
            (Some(_), version) => {
                compare("VERSION", "EQUAL", "version", version - 1);
                if version > 1 {
                    compare("CREATE", "EQUAL", "create_revision", event.created);
                }
            }
        }
    }
    body.extend_from_slice(b"],\"success\":[");
    for (place, event) in events.iter().enumerate() {
        body.extend_from_slice(if place == 0 { b"" } else { b"," });
        let begin: &[u8] = match event.value {
            Some(_) => b"{\"requestPut\":{\"key\":",
            None => b"{\"requestDeleteRange\":{\"key\":",
        };
        body.extend_from_slice(begin);
        quote(&mut body, &event.key);
        if let Some(value) = &event.value {
            body.extend_from_slice(b",\"value\":");
            quote(&mut body, value);
        }
        body.extend_from_slice(b"}}");
    }
    body.extend_from_slice(b"]}");
    body
}

fn quote(to: &mut Vec<u8>, text: &str) {
    // A vector takes everything.
    let _ = serde_json::to_writer(to, text);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_transaction_compares_what_the_changes_follow() {
        let event = |key: &str, value: Option<&str>, created, version| DeltaEvent {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            created,
            version,
        };
        let body = |events: &[DeltaEvent]| serde_json::from_slice::<Value>(&transaction(events)).unwrap();
        let created = json!({"compare": [{"key": "YQ==", "target": "VERSION", "result": "EQUAL", "version": "0"}],
            "success": [{"requestPut": {"key": "YQ==", "value": "MQ=="}}]});
        assert_eq!(body(&[event("YQ==", Some("MQ=="), 5, 1)]), created);
        let changed = json!({"compare": [
                {"key": "YQ==", "target": "VERSION", "result": "EQUAL", "version": "2"},
                {"key": "YQ==", "target": "CREATE", "result": "EQUAL", "create_revision": "5"},
                {"key": "Yg==", "target": "VERSION", "result": "GREATER", "version": "0"}],
            "success": [{"requestPut": {"key": "YQ==", "value": ""}}, {"requestDeleteRange": {"key": "Yg=="}}]});
        assert_eq!(body(&[event("YQ==", Some(""), 5, 3), event("Yg==", None, 0, 0)]), changed);
        let unknown = json!({"compare": [], "success": [{"requestPut": {"key": "a\n\"", "value": "MQ=="}}]});
        assert_eq!(body(&[event("a\n\"", Some("MQ=="), 0, 0)]), unknown);
    }
}
