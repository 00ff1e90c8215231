//! The agent's identity in the garden: from a bootstrap token to a client certificate, its renewal, and the kubeconfig
//! Secret in the seed that holds it.
//!
//! Nothing here blocks a thread while it waits: each part is a `step()` that returns when to call it again.

pub(crate) mod bootstrap;
pub(crate) mod cleanup;
pub(crate) mod csr;
pub(crate) mod error;
pub(crate) mod issue;
pub(crate) mod rotation;
pub(crate) mod secret;
pub(crate) mod trial;

pub(crate) use error::Error;
