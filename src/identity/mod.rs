//! The agent's identity in the garden: from a bootstrap token to a client certificate, its renewal, and the kubeconfig
//! Secret in the seed that holds it.
//!
//! Nothing here blocks a thread while it waits: each part is a `step()` that returns when to call it again.

pub mod bootstrap;
pub mod cleanup;
pub mod csr;
pub mod error;
pub mod issue;
pub mod rotation;
pub mod secret;
pub mod trial;

pub use error::Error;
