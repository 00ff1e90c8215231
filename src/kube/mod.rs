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
pub(crate) use client::WritePermit;
pub use client::{Client, Options};
pub(crate) use clients::Shoot;
pub use clients::{Applier, Garden, Seed};
pub use connection::{AuthorizationSource, Connection, InlineOrFile, ServerTrust};
pub use discovery::Discovery;
pub use error::Error;
pub use error::ErrorVerdict;
#[cfg(test)]
pub(crate) use error::StatusFailure;
pub(crate) use error::unless_absent;
pub(crate) use gate::{RequestGate, RequestGates};
pub(crate) use request::ListItem;
pub use request::UndecodableObject;
pub use request::{DeleteParams, List, ListParams, Method, Patch, Propagation, WatchParams};
pub(crate) use send::{ANSWERED, REACHABLE, RESPONSE_SECONDS};
pub use warm::WarmConnections;
pub use watch::{Watch, WatchEvent};
