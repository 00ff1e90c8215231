//! The Kubernetes client: requests, typed errors, watches, kubeconfigs, discovery. It is independent of particular
//! kinds.
//!
//! A call has three layers: [`request`] builds it without IO, [`client`] sends it with a deadline, and the generic
//! methods of [`Client`] only decode.

pub mod bounds;
pub mod client;
pub mod clients;
pub mod connection;
pub mod discovery;
pub mod error;
mod gate;
pub mod in_cluster;
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
pub mod value;
mod warm;
pub mod watch;

pub use bounds::{Bounds, Permits};
pub use client::{Client, Options, Response, WritePermit};
pub use clients::{Applier, Garden, Seed, Shoot};
pub use connection::{AuthorizationSource, Connection, Identity, InlineOrFile, ServerTrust};
pub use discovery::Discovery;
pub use error::{Error, ErrorVerdict, StatusFailure};
pub use gate::{RequestGate, RequestGates};
pub use pages::SKIPPED;
pub use request::{
    DeleteParams, List, ListItem, ListMeta, ListParams, Method, Patch, Propagation, ServerVersion,
    UndecodableObject, WatchParams,
};
pub use send::{ANSWERED, REACHABLE, RESPONSE_SECONDS};
pub use warm::WarmConnections;
pub use watch::{Watch, WatchEvent, WatchHandle};
