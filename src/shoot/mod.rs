//! Shared parts of operations on a Shoot: facts about it ([`ShootView`]), the addresses of its API server, its Secrets and
//! their copies in the garden, its published keys; clients of its cluster, whether the agent serves it, and the
//! deletion of its content ([`cleaner`]).
//!
//! A flow calls these functions. They return at once, with "again" while they wait.

pub mod access;
pub mod addresses;
pub mod cleaner;
pub mod client;
pub mod garden;
pub mod inside;
pub mod issuer;
pub mod namespace;
pub mod rewrite;
pub mod rotation;
pub mod secrets;
pub mod served;
pub mod state;
pub mod view;
pub mod wildcard;
pub mod window;

pub use addresses::Outside;
pub use secrets::ShootSecrets;
pub use served::{ServedShoots, ServingState};
pub use view::{Dns, Rotated, RotationPhase, Rotations, ShootView, ShootViewSources};
