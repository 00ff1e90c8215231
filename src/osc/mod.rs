//! The operating system of a node, as an `OperatingSystemConfig` describes it: which units and files it has. Pure.
//!
//! A pool has two of these objects. The first one ([`init`]) brings gardener-node-agent onto a new machine; an extension makes user data of it.
//! The second one ([`original`]) is what that agent applies: it finds it in a Secret of the Shoot ([`agent_secret`]).
//!
//! Names, paths, options and the key of a pool are upstream's, because its programs and the webhooks of extensions look for them
//! (`pkg/component/extensions/operatingsystemconfig`). The scripts are this project's own.

mod agent;
mod connection;
mod content;
mod in_place;
mod kubelet;
mod labels;
mod parts;
mod pool;
mod secret;
mod sysctl;
mod worker;

/// What the user data of a machine has in place of its bootstrap token, as upstream.
pub(crate) const TOKEN_PLACEHOLDER: &str = "<<BOOTSTRAP_TOKEN>>";
/// What it has in place of the name of the machine.
pub(crate) const NAME_PLACEHOLDER: &str = "<<MACHINE_NAME>>";

pub(crate) use agent::VERSION as AGENT_VERSION;
pub(crate) use connection::connection_of;
pub(crate) use in_place::drained_changes;
pub(crate) use kubelet::{NOT_READY, memory_reserved};
pub(crate) use labels::SECRET_NAME;
pub(crate) use parts::{NodeImages, NodeSources, init, original};
pub(crate) use pool::NodePool;
pub(crate) use secret::{APPLIED, CHECKSUM, MANAGED_RESOURCE, PoolConfig, agent_secret, referenced};
pub(crate) use worker::worker_pool;
