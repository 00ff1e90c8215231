//! Whether the API server reaches the kubelets of the nodes.

use serde_json::Value;

use crate::api::core::NODE;
use crate::api::meta::{ALL_NAMESPACES, text};
use crate::components::rollout::has_condition_ready;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::kube::ListParams;
use crate::shoot::kubelet;

use super::super::super::times::FIVE_SECONDS;
use super::super::super::work::Work;

/// Asks the kubelet of each node that is ready, through the API server. Without such a node there is nothing to reach: hosts
/// may join much later.
pub(super) fn wait(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let client = work.env.connector.connect(work.plane())?;
    let mut ready = Vec::new();
    client.list_all::<Value>(&NODE, ALL_NAMESPACES, &ListParams::default(), &mut |node| {
        if has_condition_ready(&node) {
            ready.push(text(&node["metadata"]["name"]).to_owned());
        }
    })?;
    if ready.is_empty() {
        return Ok(TaskStep::Done);
    }
    let mut why = String::new();
    for node in &ready {
        match kubelet::ask(&client, node) {
            Ok(()) => return Ok(TaskStep::Done),
            Err(reason) => {
                why = format!("the API server cannot reach the kubelet of node {node}: {reason}");
            }
        }
    }
    Ok(TaskStep::again(FIVE_SECONDS, why))
}
