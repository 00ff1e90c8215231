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

/// Longer ones are replaced.
const DELAY_BYTES_MAX: usize = 32;

/// The name of a Node whose agent obeys a delay, and the delay that it has.
pub(crate) fn of(node: &Value) -> Option<(String, String)> {
    let has_agent = node["metadata"]["labels"][SECRET_NAME].is_string();
    let metadata = &node["metadata"];
    // Its host may have written anything.
    let delay = cut::head(annotation(node, DELAY), DELAY_BYTES_MAX);
    has_agent.then(|| (text(&metadata["name"]).to_owned(), delay.to_owned()))
}

/// The delays to write: the first node by name waits for nothing, and the others are spread over `longest`.
fn changes(mut nodes: Vec<(String, String)>, longest: Duration) -> Vec<(String, String)> {
    nodes.sort_unstable();
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
    let delays = (0..count).map(|number| duration::format(longest * number / count));
    let changed = nodes.into_iter().zip(delays).filter(|((_, old), new)| old != new);
    changed.map(|((name, _), delay)| (name, delay)).collect()
}

/// Writes the delays that have changed, because a node has come or gone. Errors: a request fails.
pub(crate) fn spread(client: &Client, nodes: Vec<(String, String)>, longest: Duration) -> Result<(), Error> {
    for (name, delay) in changes(nodes, longest) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {DELAY: delay}}}));
        client.patch_blindly(&NODE, &Key::cluster(name), &patch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_spread_by_name() {
        let of = |nodes: &[(&str, &str)], longest: u64| {
            let nodes = nodes.iter().map(|(name, delay)| ((*name).to_owned(), (*delay).to_owned())).collect();
            changes(nodes, Duration::from_secs(longest))
        };
        let pairs = |all: &[(&str, &str)]| {
            all.iter().map(|(name, delay)| ((*name).to_owned(), (*delay).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(of(&[], 300), []);
        assert_eq!(of(&[("a", "")], 300), pairs(&[("a", "0s")]));
        assert_eq!(of(&[("b", ""), ("a", "0s")], 300), pairs(&[("b", "2m30s")]));
        assert_eq!(of(&[("a", "0s"), ("b", "2m30s")], 300), []);
        assert_eq!(of(&[("a", "0s"), ("b", "2m30s")], 0), pairs(&[("b", "0s")]));
        assert_eq!(
            of(&[("c", ""), ("b", "2m30s"), ("a", "0s")], 300),
            pairs(&[("b", "1m40s"), ("c", "3m20s")])
        );
    }

    #[test]
    fn nodes_without_an_agent_have_no_delay() {
        let node =
            json!({"metadata": {"name": "n", "labels": {SECRET_NAME: "s"}, "annotations": {DELAY: "5s"}}});
        assert_eq!(of(&node), Some(("n".to_owned(), "5s".to_owned())));
        assert_eq!(of(&json!({"metadata": {"name": "n"}})), None);
    }
}
