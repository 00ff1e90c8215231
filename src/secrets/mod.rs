//! The secrets manager: keys, certificates and tokens as Secrets, with the names and labels of Gardener's
//! `pkg/utils/secrets/manager`, so that the Go gardenlet and this program can continue with each other's Secrets.
//!
//! A [`SecretConfig`] describes the wanted content. [`SecretsManager`] decides without a server which Secret that is, its name,
//! whether it must be created, and who signs it. `make` creates the content of a new one. [`Secrets`] is the manager of
//! a namespace with a client; flows use this.
//!
//! Upstream finds a Secret by its name and takes it over, whatever its labels are; it sets the labels. So do we, except
//! for CAs: a CA without our labels, or whose key does not belong to its certificate, is an error that names it. It is
//! neither used nor replaced.

use std::error;
use std::fmt;

mod config;
mod hash;
pub mod labels;
mod make;
mod manager;
mod name;
mod session;
mod stored;

pub use config::{SecretConfig, TokenUser};
pub(crate) use make::kubeconfig;
pub(crate) use manager::SecretSet;
pub use manager::{Options, SecretsRotation, Signer};
#[cfg(test)]
pub(crate) use manager::{SecretStep, SecretsManager};
pub(crate) use session::KEY_AGAIN;
pub use session::{Secrets, SecretsLocation};
pub use stored::{SecretEntries, StoredSecret};

use crate::base::error::chain;
use crate::flow::Failed;
use crate::{kube, pki};

/// Why a Secret is not available.
#[derive(Debug)]
pub enum Error {
    /// The CA that must sign a certificate was not requested before.
    NoCa {
        /// Its configuration.
        ca: String,
    },
    /// A label is not a number.
    Label {
        /// The Secret.
        secret: String,
        /// The label.
        key: &'static str,
    },
    /// Several Secrets offer their data for one configuration.
    Lenders {
        /// The configuration.
        config: String,
        /// The Secrets.
        secrets: Vec<String>,
    },
    /// The content of a Secret does not match its name. Replacing it could break its users.
    Damaged {
        /// The Secret.
        secret: String,
        /// What is wrong with it.
        why: String,
    },
    /// A CA has the name of ours, but not our labels.
    Foreign {
        /// The Secret.
        secret: String,
        /// The missing labels, as arguments of `kubectl label`.
        labels: String,
    },
    /// Another program changes a Secret as soon as it is written.
    Unsettled {
        /// The configuration.
        config: String,
        /// The namespace.
        namespace: String,
    },
    /// A Secret could not be created.
    Make {
        /// The Secret.
        secret: String,
        /// The cause.
        source: pki::Error,
    },
    /// A request to the seed failed.
    Kube {
        /// What the agent tried, and the object.
        operation: String,
        /// The cause.
        source: kube::Error,
    },
}

impl Error {
    /// The same, with the namespace before the names of Secrets.
    fn within(mut self, namespace: &str) -> Self {
        let within = |secret: &mut String| *secret = format!("{namespace}/{secret}");
        match &mut self {
            Self::NoCa { .. } | Self::Unsettled { .. } | Self::Kube { .. } => {}
            Self::Lenders { secrets, .. } => secrets.iter_mut().for_each(within),
            Self::Label { secret, .. }
            | Self::Damaged { secret, .. }
            | Self::Foreign { secret, .. }
            | Self::Make { secret, .. } => within(secret),
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCa { ca } => write!(f, "there is no CA {ca:?} yet"),
            Self::Label { secret, key } => write!(
                f,
                "secret {secret}: label {key} is not a number; set it to seconds since 1970, or remove it"
            ),
            Self::Lenders { config, secrets } => {
                let label = labels::USE_DATA_FOR;
                write!(f, "secrets {} all have label {label}={config}; leave it on one", secrets.join(", "))
            }
            Self::Damaged { secret, why } => write!(
                f,
                "secret {secret} is damaged and stays as it is: {why}; restore it from a backup, or delete it to get a new one"
            ),
            Self::Foreign { secret, labels } => write!(
                f,
                "secret {secret} has the name of a CA of the secrets manager but not its labels, and stays as it is; label it \
                 with {labels} if it is to be that CA, or delete it to get a new one"
            ),
            Self::Unsettled { config, namespace } => write!(
                f,
                "another program changes the secret of {config} in namespace {namespace} as soon as it is written; \
                 find the program that manages it"
            ),
            Self::Make { secret, .. } => write!(f, "make secret {secret}"),
            Self::Kube { operation, .. } => f.write_str(operation),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Make { source, .. } => Some(source),
            Self::Kube { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match &error {
            Error::Kube { source, .. } => Self::request(chain(&error), source),
            _ => Self::new(chain(&error)),
        }
    }
}

#[cfg(test)]
mod tests;
