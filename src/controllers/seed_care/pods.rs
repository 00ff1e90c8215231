//! Deletes stale pods.
//!
//! Upstream reads all pods of the seed in each round. They would be most of what an idle seed sends, so two smaller lists are
//! read here. Each round takes the pods that neither run nor are to run: whatever makes a pod stale ends it, too (eviction, a
//! node that refuses it, preemption), except `DisruptionTarget` on a pod that runs on because its deletion failed, which
//! Kubernetes takes back by itself. A pod that is being deleted may have any phase, and no selector finds it: for those the
//! metadata of all pods are read, once in five minutes, since they have more time than that.

use crate::base::clock::Timestamp;
use crate::kube::{Client, Error, ListParams};
use crate::runtime::stale_pods;

const NOT_OF_THE_CLUSTER: &str = "metadata.namespace!=kube-system";

/// Deletes the pods that will never run again.
///
/// # Errors
/// The client's, but not found. One pod that cannot be deleted does not protect the others.
pub(super) fn delete_over(client: &Client, now: Timestamp) -> Result<(), Error> {
    let field_selector = format!("status.phase!=Running,status.phase!=Pending,{NOT_OF_THE_CLUSTER}");
    stale_pods::delete(client, "", &ListParams { field_selector, ..ListParams::default() }, now)
}

/// Deletes the pods that have been going for too long.
///
/// # Errors
/// As [`delete_over`].
pub(super) fn delete_going(client: &Client, now: Timestamp) -> Result<(), Error> {
    let field_selector = NOT_OF_THE_CLUSTER.to_owned();
    stale_pods::delete(
        client,
        "",
        &ListParams { field_selector, metadata_only: true, ..ListParams::default() },
        now,
    )
}
