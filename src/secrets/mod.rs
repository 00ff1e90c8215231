//! The secrets manager: keys, certificates and tokens as Secrets, under the names and labels of Gardener's
//! `pkg/utils/secrets/manager`, so that the Go gardenlet goes on with them and this program with its.
//!
//! A [`Config`] says what is wanted. [`Manager`] decides, without a server: which Secret that is, what it is called, whether it
//! has to be made, who signs it. `make` fills a new one.

use std::fmt;

mod config;
mod hash;
pub mod labels;
mod make;
mod manager;
mod name;

pub use config::{Config, TokenUser};
pub use make::Data;
pub use manager::{Manager, Options, Plan, Rotation, Set, Signer, Step, Stored};

/// Why a Secret cannot be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// A certificate is to be signed by a CA that nobody asked for before.
    NoCa {
        /// Its configuration.
        ca: String,
    },
    /// A label that should hold a number.
    Label {
        /// The Secret.
        secret: String,
        /// The label.
        key: &'static str,
    },
    /// Several Secrets ask to lend their data to one configuration.
    Lenders {
        /// The configuration.
        config: String,
        /// The Secrets.
        secrets: Vec<String>,
    },
    /// A Secret that is not what its name says. To replace it could break whatever uses it.
    Damaged {
        /// The Secret.
        secret: String,
        /// What is wrong with it.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCa { ca } => write!(f, "there is no CA {ca:?} yet"),
            Self::Label { secret, key } => write!(f, "secret {secret:?}: label {key} is no number"),
            Self::Lenders { config, secrets } => {
                let label = labels::USE_DATA_FOR;
                write!(f, "secrets {} all have label {label}={config}; leave it on one", secrets.join(", "))
            }
            Self::Damaged { secret, why } => write!(
                f,
                "secret {secret:?} is damaged and stays as it is: {why}; restore it from a backup, or delete it to have a new one made"
            ),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests;
