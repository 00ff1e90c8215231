//! Shared parts of operations on a Shoot: facts about it ([`ShootView`]), the addresses of its API server, its Secrets and
//! their copies in the garden, its published keys; its ShootState ([`state`]); clients of its cluster, whether the agent
//! serves it, and the deletion of its content ([`cleaner`]).
//!
//! A flow calls these functions. They return at once, with "again" while they wait.

pub(crate) mod access;
pub mod addresses;
pub(crate) mod cleaner;
pub(crate) mod client;
mod discovery;
pub(crate) mod garden;
pub(crate) mod inside;
pub(crate) mod issuer;
pub(crate) mod kubelet;
pub(crate) mod namespace;
pub(crate) mod pools;
pub(crate) mod responsible;
pub(crate) mod rewrite;
pub mod rotation;
pub mod secrets;
pub(crate) mod served;
pub(crate) mod service;
pub mod state;
pub mod view;
pub(crate) mod wildcard;
pub(crate) mod window;

pub(crate) use addresses::Outside;
pub(crate) use responsible::{ShootMove, ShootSeeds};
pub(crate) use served::{ServedShoots, ServingState};
pub(crate) use view::{RotationPhase, ShootView, ShootViewSources};

use serde_json::Value;

use crate::api::gardener::has_workers;
use crate::api::meta::text;
use crate::extension::hosts::is_host_type;

/// Whether a Shoot has workers that this agent does not serve: their type of infrastructure is none of `host_types`, whose
/// nodes are hosts of the site.
pub(crate) fn has_foreign_workers(shoot: &Value, host_types: &[String]) -> bool {
    has_workers(shoot) && !is_host_type(text(&shoot["spec"]["provider"]["type"]), host_types)
}
