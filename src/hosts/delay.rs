//! How long each agent of a node waits before it applies a change, so that not all hosts of a Shoot restart their kubelets at once.
//!
//! Source: `pkg/resourcemanager/controller/node/agentreconciliationdelay` of Gardener.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::NODE;
use crate::api::meta::{Key, annotation, text};
use crate::base::cut;
use crate::base::json::json;
use crate::format::duration;
use crate::kube::{Client, Error, Patch};
use crate::osc::SECRET_NAME;

/// The annotation of a Node with a duration in Go's notation.
const DELAY: &str = "node-agent.gardener.cloud/reconciliation-delay";

/// Delays that are longer than this are replaced.
const DELAY_BYTES_MAX: usize = 32;

/// The annotation of a Node that has no Machine: a Go gardenlet does not wait for one then.
const WITHOUT_MACHINE: &str = "node.machine.sapcloud.io/not-managed-by-mcm";

/// A Node whose agent obeys a delay.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DelayedNode {
    name: String,
    /// As written so far; empty if there is none.
    delay: String,
    has_no_machine: bool,
}

impl DelayedNode {
    /// None: the node has no agent.
    pub(crate) fn of(node: &Value) -> Option<Self> {
        let has_agent = node["metadata"]["labels"][SECRET_NAME].is_string();
        has_agent.then(|| Self {
            name: text(&node["metadata"]["name"]).to_owned(),
            // Its host may have written anything.
            delay: cut::head(annotation(node, DELAY), DELAY_BYTES_MAX).to_owned(),
            has_no_machine: annotation(node, WITHOUT_MACHINE) == "1",
        })
    }
}

/// The delays to write: the first node by name waits for nothing, and the others are spread over `longest`.
fn changes(mut nodes: Vec<DelayedNode>, longest: Duration) -> Vec<(String, String)> {
    nodes.sort_unstable();
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
    let delays = (0..count).map(|number| duration::format(longest * number / count));
    let changed =
        nodes.into_iter().zip(delays).filter(|(node, new)| node.delay != *new || !node.has_no_machine);
    changed.map(|(node, delay)| (node.name, delay)).collect()
}

/// Writes the delays that have changed, because a node has come or gone. Errors: a request fails.
pub(crate) fn spread(client: &Client, nodes: Vec<DelayedNode>, longest: Duration) -> Result<(), Error> {
    for (name, delay) in changes(nodes, longest) {
        let annotations = json!({DELAY: delay, WITHOUT_MACHINE: "1"});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        client.patch_blindly(&NODE, &Key::cluster(name), &patch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, delay: &str) -> DelayedNode {
        DelayedNode { name: name.to_owned(), delay: delay.to_owned(), has_no_machine: true }
    }

    #[test]
    fn delays_are_spread_by_name() {
        let of = |nodes: &[DelayedNode], longest: u64| changes(nodes.to_vec(), Duration::from_secs(longest));
        let pairs = |all: &[(&str, &str)]| {
            all.iter().map(|(name, delay)| ((*name).to_owned(), (*delay).to_owned())).collect::<Vec<_>>()
        };
        let (a, b) = (node("a", "0s"), node("b", "2m30s"));
        assert_eq!(of(&[], 300), []);
        assert_eq!(of(&[node("a", "")], 300), pairs(&[("a", "0s")]));
        assert_eq!(of(&[node("b", ""), a.clone()], 300), pairs(&[("b", "2m30s")]));
        assert_eq!(of(&[a.clone(), b.clone()], 300), []);
        assert_eq!(of(&[a.clone(), b.clone()], 0), pairs(&[("b", "0s")]));
        assert_eq!(of(&[node("c", ""), b, a.clone()], 300), pairs(&[("b", "1m40s"), ("c", "3m20s")]));
        let fresh = DelayedNode { has_no_machine: false, ..a };
        assert_eq!(of(&[fresh], 300), pairs(&[("a", "0s")]), "it does not say that it has no Machine");
    }

    #[test]
    fn nodes_without_an_agent_have_no_delay() {
        let known = json!({"metadata": {"name": "n", "labels": {SECRET_NAME: "s"},
            "annotations": {DELAY: "5s", WITHOUT_MACHINE: "1"}}});
        assert_eq!(DelayedNode::of(&known), Some(node("n", "5s")));
        assert_eq!(DelayedNode::of(&json!({"metadata": {"name": "n"}})), None);
    }
}
