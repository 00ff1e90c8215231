//! What the operations on a Shoot share: what is known of it ([`View`]), under which addresses its API server is reached, which
//! Secrets it has, and what of them, and of its keys, is copied into the garden; clients of its cluster, whether the agent serves
//! it, and what is deleted in it before it goes ([`cleaner`]).
//!
//! A flow calls the acts; they return at once, and say "again" where they wait.

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
pub use secrets::Made;
pub use served::{Served, Standing};
pub use view::{Dns, Phase, Rotated, Rotations, Sources, View};
