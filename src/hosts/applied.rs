//! What the agent of a node says it has applied.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::meta::{annotation, text};
use crate::base::cut;
use crate::base::sorted::SortedMap;
use crate::kube::{Client, Error, ListItem, ListParams};
use crate::limits;
use crate::osc::{APPLIED, CHECKSUM, SECRET_NAME};
use crate::shoot::pools::POOL;

/// Longer texts are no names of Secrets, and no checksums.
const BYTES_MAX: usize = 253;

/// The part of a Node that its agent and its kubelet write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AppliedConfig {
    /// The Secret that the agent reads.
    pub(crate) secret: String,
    /// The checksum of what it has applied; empty if it has applied nothing yet.
    applied: String,
}

impl AppliedConfig {
    /// None: the node has no agent.
    pub(crate) fn of(node: &Value) -> Option<Self> {
        let secret = node["metadata"]["labels"][SECRET_NAME].as_str()?;
        let own = |text: &str| cut::head(text, BYTES_MAX).to_owned();
        Some(Self { secret: own(secret), applied: own(annotation(node, APPLIED)) })
    }

    /// Why the node is behind its pool, in upstream's words. `wanted` is the checksum of the Secret.
    pub(crate) fn lateness(&self, node: &str, wanted: &str) -> Option<String> {
        let Self { applied, .. } = self;
        if applied == wanted {
            return None;
        }
        Some(if applied.is_empty() {
            format!(
                "the last successfully applied operating system config on node {node:?} hasn't been reported yet"
            )
        } else {
            format!(
                "the last successfully applied operating system config on node {node:?} is outdated (current: {applied}, desired: {wanted})"
            )
        })
    }
}

/// The checksum of each Secret with what the nodes of a pool apply, by its name. Errors: they cannot be listed.
pub(crate) fn wanted(client: &Client) -> Result<SortedMap<String, String>, Error> {
    checksums(client, |secret| text(&secret["metadata"]["name"]))
}

/// The same, by the name of the pool.
pub(crate) fn wanted_by_pool(client: &Client) -> Result<SortedMap<String, String>, Error> {
    checksums(client, |secret| text(&secret["metadata"]["labels"][POOL]))
}

fn checksums(client: &Client, key: fn(&Value) -> &str) -> Result<SortedMap<String, String>, Error> {
    let label_selector = "gardener.cloud/role=operating-system-config".to_owned();
    let params = ListParams { label_selector, metadata_only: true, ..ListParams::default() };
    let mut all = SortedMap::new();
    client.list_each::<Value>(&SECRET, "kube-system", &params, &mut |item| match item {
        ListItem::Object(secret) if all.len() < limits::SHOOT_NODES_MAX => {
            let checksum = cut::head(annotation(&secret, CHECKSUM), BYTES_MAX);
            all.insert(key(&secret).to_owned(), checksum.to_owned());
        }
        ListItem::Restart => all = SortedMap::new(),
        ListItem::Object(_) | ListItem::Undecodable(_) => {}
    })?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    #[test]
    fn an_agent_says_what_it_has_applied() {
        let of = |applied: &Value| {
            let node = json!({"metadata": {"labels": {SECRET_NAME: "s"}, "annotations": {APPLIED: applied}}});
            AppliedConfig::of(&node).unwrap().lateness("n", "new")
        };
        let start = "the last successfully applied operating system config on node \"n\"";
        assert_eq!(of(&json!("new")), None);
        assert_eq!(of(&json!("old")), Some(format!("{start} is outdated (current: old, desired: new)")));
        assert_eq!(of(&Value::Null), Some(format!("{start} hasn't been reported yet")));
        assert_eq!(AppliedConfig::of(&json!({"metadata": {}})), None, "no agent runs there");
    }
}
