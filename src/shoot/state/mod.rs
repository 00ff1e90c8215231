//! ShootStates: the part of a Shoot that cannot be recreated, its keys and the states of its extensions, as the garden keeps
//! it (Gardener's `pkg/utils/gardener/shootstate`). A ShootState has the name of its Shoot.
//!
//! [`collect`] reads the content from a seed. The controller `shoot_state` writes it periodically. A migration calls [`persist`],
//! which ends only when the garden has everything, and a restoration on another seed reads it back: [`needed`],
//! [`create_secrets`], [`extension_state`], [`create_resources`].

mod collect;
mod compare;
mod content;
mod machines;
mod persist;
mod restore;
mod stored;

pub(crate) use collect::{CollectionScope, ControlPlanePlace, SELECTOR, collect};
pub(crate) use content::{CollectedState, StateDigest, digest, machines_of};
pub use persist::{persist, verify};
pub use restore::{create_resources, create_secrets, extension_state};
pub(crate) use stored::lacking_keys;
pub use stored::{ShootState, delete, find, needed};
