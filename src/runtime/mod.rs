//! The runtime of controllers: informers fill stores and queues, one pool of workers empties the queues, a lease grants
//! the right to write. Nothing here depends on seeds or charts.

pub mod alike;
pub mod controller;
pub mod events;
pub mod fence;
pub mod group;
pub mod health;
pub mod informer;
pub mod leader;
pub mod marks;
pub mod pool;
pub mod queue;
pub mod source;
pub mod stale_pods;
pub mod store;
pub mod write;
