//! The Kubernetes client: requests, typed errors, watches, kubeconfigs, discovery. It is independent of particular
//! kinds.
//!
//! A call has three layers: [`request`] builds it without IO, [`client`] sends it with a deadline, and the generic
//! methods of [`Client`] only decode.

pub(crate) mod bounds;
pub mod client;
pub(crate) mod clients;
pub mod connection;
pub(crate) mod discovery;
pub(crate) mod error;
mod gate;
pub(crate) mod in_cluster;
pub mod kubeconfig;
mod limiter;
mod list;
#[cfg(test)]
mod mutation;
mod pages;
pub mod request;
mod send;
mod session;
mod split;
mod status;
pub(crate) mod value;
mod warm;
pub(crate) mod watch;

pub(crate) use bounds::Permits;
pub(crate) use client::Permit;
pub use client::{Client, Options};
pub(crate) use clients::Shoot;
pub use clients::{Applier, Garden, Seed};
pub use connection::{Connection, Credentials, Material, Trust};
pub use discovery::Discovery;
pub use error::Error;
#[cfg(test)]
pub(crate) use error::Failure;
pub use error::Verdict;
pub(crate) use gate::{Gate, Gates};
pub(crate) use request::ListItem;
pub use request::Undecodable;
pub use request::{DeleteParams, List, ListParams, Method, Patch, Propagation, WatchParams};
pub(crate) use send::{ANSWERED, REACHABLE, RESPONSE_SECONDS};
pub use warm::Warm;
pub use watch::{Watch, WatchEvent};
