//! How controllers run: informers fill stores and queues, one pool of workers empties the queues, a lease says who may
//! write. Nothing here knows what a seed or a chart is.

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
