//! Deletes stale pods.
//!
//! Upstream reads all pods of the seed in each round. They would be most of what an idle seed sends, so two smaller lists are
//! read here. Each round takes the pods that neither run nor are to run: whatever makes a pod stale ends it, too (eviction, a
//! node that refuses it, preemption), except `DisruptionTarget` on a pod that runs on because its deletion failed, which
//! Kubernetes takes back by itself. A pod that is being deleted may have any phase, and no selector finds it: for those the
//! metadata of all pods are read, once in five minutes, since they have more time than that.

use serde_json::Value;

use crate::api::core::POD;
use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::kube::{Client, DeleteParams, Error, ListItem, ListParams, Propagation};

use super::decide::{Fate, fate};

const NOT_OF_THE_CLUSTER: &str = "metadata.namespace!=kube-system";

/// Deletes the pods that will never run again.
///
/// # Errors
/// The client's, but not found. One pod that cannot be deleted does not protect the others.
pub(super) fn delete_over(client: &Client, now: Timestamp) -> Result<(), Error> {
    let field_selector = format!("status.phase!=Running,status.phase!=Pending,{NOT_OF_THE_CLUSTER}");
    delete(client, &ListParams { field_selector, ..ListParams::default() }, now)
}

/// Deletes the pods that have been going for too long.
///
/// # Errors
/// As [`delete_over`].
pub(super) fn delete_going(client: &Client, now: Timestamp) -> Result<(), Error> {
    let field_selector = NOT_OF_THE_CLUSTER.to_owned();
    delete(client, &ListParams { field_selector, metadata_only: true, ..ListParams::default() }, now)
}

fn delete(client: &Client, params: &ListParams, now: Timestamp) -> Result<(), Error> {
    let mut stale = Vec::new();
    // One after the other: all together they would be most of the agent's memory.
    client.list_each::<Value>(&POD, "", params, &mut |item| match item {
        ListItem::Object(pod) => {
            let fate = fate(&pod, now);
            if fate != Fate::Stay {
                let field = |name: &str| text(&pod["metadata"][name]).to_owned();
                stale.push((field("namespace"), field("name"), field("uid"), fate));
            }
        }
        ListItem::Undecodable(_) => {}
        ListItem::Restart => stale.clear(),
    })?;
    let mut first = Ok(());
    for (namespace, name, uid, fate) in stale {
        let (namespace, name) = (namespace.as_str(), name.as_str());
        log::info!(namespace, name, forced = (fate == Fate::Force); "Deleting a stale pod");
        let mut params = DeleteParams { uid: Some(uid), ..DeleteParams::default() };
        if fate == Fate::Force {
            (params.grace_period_seconds, params.propagation) = (Some(0), Some(Propagation::Background));
        }
        match client.delete(&POD, namespace, name, &params) {
            Err(error) if !error.is_not_found() && !error.is_conflict() => first = first.and(Err(error)),
            _ => {}
        }
    }
    first
}
