//! Whether the nodes have applied what a prepared rotation of CAs gives them.

use serde_json::Value;

use crate::api::core::{NODE, SECRET};
use crate::api::meta::{ALL_NAMESPACES, annotation, text};
use crate::base::sorted::SortedMap;
use crate::components::rollout::has_condition_ready;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::ListParams;
use crate::osc::{APPLIED, CHECKSUM};
use crate::shoot::pools::POOL;

use super::super::super::times::FIVE_SECONDS;
use super::super::super::work::Work;
use super::super::step_without_server;

/// The completion drops the old CA. A node whose agent has not applied the new one would be locked out. Nodes that are not ready are not
/// waited for, and nodes without an agent follow by other means.
pub(super) fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if let Some(step) = step_without_server(work, attempt)? {
        return Ok(step);
    }
    let client = work.env.connector.connect(work.plane())?;
    let label_selector = "gardener.cloud/role=operating-system-config".to_owned();
    let params = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
    let (mut wanted, mut nodes) = (SortedMap::new(), Vec::new());
    client.list_all::<Value>(&SECRET, "kube-system", &params, &mut |secret| {
        let pool = text(&secret["metadata"]["labels"][POOL]).to_owned();
        wanted.insert(pool, annotation(&secret, CHECKSUM).to_owned());
    })?;
    client.list_all::<Value>(&NODE, ALL_NAMESPACES, &ListParams::default(), &mut |node| {
        nodes.extend(late(&node, &wanted));
    })?;
    Ok(match nodes.first() {
        None => TaskStep::Done,
        Some(node) => TaskStep::again(
            FIVE_SECONDS,
            format!(
                "{} nodes have not applied the new CAs, among them {node}: its gardener-node-agent may wait until the host is drained; let the \
                 host leave, or join it again",
                nodes.len()
            ),
        ),
    })
}

/// The name of a node that has applied something else than its pool has.
fn late(node: &Value, wanted: &SortedMap<String, String>) -> Option<String> {
    let applied = annotation(node, APPLIED);
    let wanted = wanted.get(text(&node["metadata"]["labels"][POOL]))?;
    let is_late = has_condition_ready(node) && !applied.is_empty() && applied != wanted;
    is_late.then(|| text(&node["metadata"]["name"]).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn a_node_is_late_if_its_agent_has_applied_something_else() {
        let wanted = SortedMap::from([("a".to_owned(), "new".to_owned())]);
        let node = |pool: &str, applied: &Value, ready: &str| {
            json!({"metadata": {"name": "n", "labels": {POOL: pool}, "annotations": {APPLIED: applied}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let table = [
            (node("a", &json!("new"), "True"), false),
            (node("a", &json!("old"), "True"), true),
            (node("a", &json!("old"), "Unknown"), false),
            (node("a", &Value::Null, "True"), false),
            (node("b", &json!("old"), "True"), false),
        ];
        for (node, expected) in table {
            assert_eq!(late(&node, &wanted).is_some(), expected, "{node}");
        }
    }
}
