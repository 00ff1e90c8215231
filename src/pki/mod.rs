//! Keys, certificate requests and certificates, as the garden and the Go programs read and write them.

mod any_key;
pub mod certificate;
pub mod issue;
pub(crate) mod key;
pub mod keys;
pub(crate) mod password;
mod prime;
pub mod request;
pub(crate) mod requested;

pub use any_key::AnyKey;
pub use certificate::Certificate;
pub use key::PrivateKey;

use std::fmt;

/// Why a key, request or certificate cannot be created or read.
#[derive(Debug)]
pub enum Error {
    /// A key could not be generated, read or used.
    Key(&'static str),
    /// The PEM text holds no block of this label.
    NoPem {
        /// The wanted label, such as `CERTIFICATE`.
        label: &'static str,
    },
    /// The content of the block does not match its label.
    Malformed {
        /// The kind of object.
        what: &'static str,
        /// The parser's words.
        reason: String,
    },
    /// The certificate, or the request for one, could not be signed.
    Sign(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(what) => f.write_str(what),
            Self::NoPem { label } => write!(f, "no PEM block {label} found"),
            Self::Malformed { what, reason } => write!(f, "read {what}: {reason}"),
            Self::Sign(reason) => write!(f, "sign: {reason}"),
        }
    }
}

impl std::error::Error for Error {}
