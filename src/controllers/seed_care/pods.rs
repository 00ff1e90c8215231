//! Deletes stale pods.
//!
//! Upstream reads all pods of the seed in each reconciliation. That would be most of an idle seed's traffic, so the
//! agent reads two smaller lists. Each reconciliation lists the pods that are neither running nor pending, because
//! every cause of stale pods also ends them (eviction, a node that rejects the pod, preemption). The exception is
//! `DisruptionTarget` on a pod that still runs because its deletion failed; Kubernetes reverts that itself. A pod that
//! is being deleted may have any phase, and no selector finds it. For these, the metadata of all pods is read every
//! five minutes, which is soon enough.

use crate::base::clock::Timestamp;
use crate::kube::{Client, Error, ListParams};
use crate::runtime::stale_pods;

const NOT_OF_THE_CLUSTER: &str = "metadata.namespace!=kube-system";

/// Deletes the pods that will never run again. Errors: a request fails, but not with "not found". A pod that
/// cannot be deleted does not keep others from being deleted.
pub(super) fn delete_over(client: &Client, now: Timestamp) -> Result<(), Error> {
    let field_selector = format!("status.phase!=Running,status.phase!=Pending,{NOT_OF_THE_CLUSTER}");
    stale_pods::delete(client, "", &ListParams { field_selector, ..ListParams::default() }, now)
}

/// Deletes the pods that have been terminating for too long. Errors: like [`delete_over`].
pub(super) fn delete_going(client: &Client, now: Timestamp) -> Result<(), Error> {
    let field_selector = NOT_OF_THE_CLUSTER.to_owned();
    stale_pods::delete(
        client,
        "",
        &ListParams { field_selector, metadata_only: true, ..ListParams::default() },
        now,
    )
}
