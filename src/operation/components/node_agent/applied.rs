//! Whether the nodes have applied what their pools have.
//!
//! Source: `WaitUntilOperatingSystemConfigUpdatedForAllWorkerPools`. Absent hosts are not waited for: one that is off for weeks must not hold up its
//! Shoot, and applies everything when it comes back.

use serde_json::Value;

use crate::api::core::NODE;
use crate::api::meta::{ALL_NAMESPACES, text};
use crate::base::sorted::SortedMap;
use crate::components::rollout::has_condition_ready;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::hosts::applied::{AppliedConfig, wanted};
use crate::kube::{Client, Error, ListParams};
use crate::limits;
use crate::osc::MANAGED_RESOURCE;
use crate::shoot::pools::{POOL, delay_max};

use super::super::super::times::{FIVE_SECONDS, THREE_MINUTES};
use super::super::super::work::Work;
use super::super::managed_resource::step_until_applied;
use super::super::step_without_server;

/// An error names so many nodes.
const TOLD_MAX: usize = 5;

/// The completion of a rotation drops the old CA. A node whose agent has not applied the new one would be locked out.
pub(super) fn wait_for_authorities(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if let Some(step) = step_without_server(work, attempt)? {
        return Ok(step);
    }
    let late = ask(work)?;
    Ok(match late.first() {
        None => TaskStep::Done,
        Some((node, _)) => TaskStep::again(
            FIVE_SECONDS,
            format!(
                "{} nodes have not applied the new CAs, among them {node}: its gardener-node-agent may wait until the host is drained; let the \
                 host leave, or join it again",
                late.len()
            ),
        ),
    })
}

/// Waits as long as agents of nodes may take. Errors: some have not applied the configuration of their pool by then.
pub(super) fn wait(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    if let Some(step) = step_until_applied(work, MANAGED_RESOURCE) {
        return Ok(step);
    }
    let why = match ask(work) {
        Ok(late) if late.is_empty() => return Ok(TaskStep::Done),
        Ok(late) => Failed::new(told(&late)),
        Err(why) => why,
    };
    // Agents begin when the change is in the Shoot.
    let told = *work.results.nodes_told.get().unwrap_or(&attempt.now);
    work.results.nodes_told.set(told);
    if attempt.now.saturating_sub(told) < delay_max(&work.shoot) + THREE_MINUTES {
        return Ok(TaskStep::again(FIVE_SECONDS, why));
    }
    Err(why)
}

/// The reasons of some nodes.
fn told(late: &[(String, String)]) -> String {
    let some: Vec<&str> = late.iter().take(TOLD_MAX).map(|(_, why)| why.as_str()).collect();
    let rest = late.len().saturating_sub(TOLD_MAX);
    let more = if rest > 0 { format!("; and {rest} more nodes") } else { String::new() };
    some.join("; ") + &more
}

/// Connects to the Shoot, and asks which nodes are late.
fn ask(work: &Work) -> Result<Vec<(String, String)>, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    Ok(late(&client)?)
}

/// The nodes that are ready and whose agents have not applied what their pool has, each with the reason.
fn late(client: &Client) -> Result<Vec<(String, String)>, Error> {
    let wanted = wanted(client)?;
    let params = ListParams { label_selector: POOL.to_owned(), ..ListParams::default() };
    client.list_kept(&NODE, ALL_NAMESPACES, &params, limits::SHOOT_NODES_MAX, &mut |node: Value| {
        Some((text(&node["metadata"]["name"]).to_owned(), lateness(&node, &wanted)?))
    })
}

/// Why a node is late. `wanted` has the checksum of each Secret. A node that names no Secret has no agent, and follows by other means.
fn lateness(node: &Value, wanted: &SortedMap<String, String>) -> Option<String> {
    let config = AppliedConfig::of(node)?;
    let wanted = wanted.get(&config.secret)?;
    config.lateness(text(&node["metadata"]["name"]), wanted).filter(|_| has_condition_ready(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;
    use crate::osc::{APPLIED, SECRET_NAME};

    #[test]
    fn a_node_that_is_there_is_late_if_its_agent_has_applied_something_else() {
        let wanted = SortedMap::from([("gardener-node-agent-a".to_owned(), "new".to_owned())]);
        let node = |secret: &Value, applied: &Value, ready: &str| {
            json!({"metadata": {"name": "n", "labels": {SECRET_NAME: secret}, "annotations": {APPLIED: applied}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}})
        };
        let of_a = json!("gardener-node-agent-a");
        let table = [
            (node(&of_a, &json!("new"), "True"), false),
            (node(&of_a, &json!("old"), "True"), true),
            (node(&of_a, &json!("old"), "Unknown"), false),
            (node(&of_a, &Value::Null, "True"), true),
            (node(&of_a, &Value::Null, "False"), false),
            (node(&Value::Null, &Value::Null, "True"), false),
            (node(&json!("gardener-node-agent-b"), &json!("old"), "True"), false),
        ];
        for (node, is_late) in table {
            assert_eq!(lateness(&node, &wanted).is_some(), is_late, "{node}");
        }
    }
}
