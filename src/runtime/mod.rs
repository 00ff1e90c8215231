//! The runtime of controllers: informers fill stores and queues, one pool of workers empties the queues, a lease grants
//! the right to write. Nothing here depends on seeds or charts.

pub(crate) mod alike;
pub mod controller;
pub mod events;
pub mod fence;
pub(crate) mod group;
pub(crate) mod health;
pub(crate) mod informer;
pub(crate) mod leader;
pub(crate) mod marks;
pub(crate) mod pool;
pub(crate) mod queue;
pub mod source;
pub(crate) mod stale_pods;
pub(crate) mod store;
pub mod write;
