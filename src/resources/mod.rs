//! The embedded applier of ManagedResources: what gardener-resource-manager does with them in a seed.
//!
//! A ManagedResource names Secrets with manifests; the applier keeps the cluster as they say, and reports in three
//! conditions. It works only for class `seed`, with the client type `Applier`, and only while the lease that
//! gardener-resource-manager itself uses is held (`Context::may_write`). What is recorded in `status.resources` is exact, so
//! that the real program can take over at any time.
//!
//! The way of the data: `reconcile` reads the ManagedResource and its Secrets live, `decode` makes objects of them,
//! `order` sorts them, `removal` says what happens to objects that left the set, `merge` makes of a desired and a live
//! object the one to write, `unchanged` saves writes that would change nothing. `health` and `progress` look at applied
//! objects, `garbage` at Secrets and ConfigMaps that nothing refers to any more. Only `reconcile`, `remove`, `check` and
//! `garbage` talk to a server; the rest is pure.

mod decode;
mod error;
mod health;
mod merge;
pub mod names;
mod object;
mod order;
mod progress;
mod reference;
mod removal;
mod status;
mod trigger;
mod unchanged;

pub use error::Error;
pub use trigger::{
    Watched, WatchedCondition, WatchedSpec, WatchedStatus, reads_secret, wants_apply, wants_check,
};
