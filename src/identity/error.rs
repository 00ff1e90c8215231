//! Why there is no identity.

use std::fmt;

use crate::{kube, pki};

/// Why the agent has no identity, or no newer one.
#[derive(Debug)]
pub enum Error {
    /// A request to a cluster failed.
    Kube {
        /// What was tried, with its object.
        operation: String,
        /// The cause.
        source: kube::Error,
    },
    /// A kubeconfig cannot be used.
    Kubeconfig {
        /// Where it stands.
        place: String,
        /// The cause.
        source: kube::kubeconfig::Error,
    },
    /// A key, request or certificate.
    Pki(pki::Error),
    /// A Secret that must be there is not, or has no kubeconfig.
    NoKubeconfig {
        /// Where it was looked for.
        place: String,
        /// What the operator must do.
        remedy: &'static str,
    },
    /// A bootstrap credential led to nothing.
    Bootstrap {
        /// Where it stands.
        place: String,
        /// The cause.
        source: Box<Self>,
    },
    /// A certificate was due to be renewed, and was not.
    Renew {
        /// The cause.
        source: Box<Self>,
    },
    /// Nothing in the configuration says how to reach the garden.
    NotConfigured,
    /// The request was denied or could not be signed.
    Refused {
        /// Name of the CertificateSigningRequest.
        name: String,
        /// `denied`, `failed` or `replaced by another object`.
        how: &'static str,
        /// Reason and message of the condition.
        why: String,
    },
    /// Nobody approved the request in time.
    TimedOut {
        /// Name of the CertificateSigningRequest.
        name: String,
    },
}

impl Error {
    /// Wraps an error of the client with what was tried.
    pub fn kube(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Kube { operation, source }
    }
}

impl Error {
    /// Somebody has decided against the request.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::Bootstrap { source, .. } | Self::Renew { source } => source.is_refusal(),
            _ => false,
        }
    }

    /// The error of the client at the bottom, if it is one.
    pub fn cause(&self) -> Option<&kube::Error> {
        match self {
            Self::Kube { source, .. } => Some(source),
            Self::Bootstrap { source, .. } | Self::Renew { source } => source.cause(),
            _ => None,
        }
    }
}

impl From<pki::Error> for Error {
    fn from(source: pki::Error) -> Self {
        Self::Pki(source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kube { operation, .. } => f.write_str(operation),
            Self::Kubeconfig { place, .. } => write!(f, "read the kubeconfig in {place}"),
            Self::Pki(_) => f.write_str("make a certificate request"),
            Self::NoKubeconfig { place, remedy } => write!(f, "no kubeconfig in {place}: {remedy}"),
            Self::Bootstrap { place, .. } => write!(f, "with the bootstrap kubeconfig in {place}"),
            Self::Renew { .. } => f.write_str("renew the certificate"),
            Self::NotConfigured => f.write_str(
                "nothing says how to reach the garden: set gardenClientConnection.kubeconfig, or bootstrapKubeconfig \
                 and kubeconfigSecret",
            ),
            Self::Refused { name, how, why } => write!(f, "certificate request {name} was {how}: {why}"),
            Self::TimedOut { name } => write!(
                f,
                "certificate request {name} was not approved within 15 minutes; a new one is made, approve it with: \
                 kubectl certificate approve <name>"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kube { source, .. } => Some(source),
            Self::Kubeconfig { source, .. } => Some(source),
            Self::Pki(source) => Some(source),
            Self::Bootstrap { source, .. } | Self::Renew { source } => Some(&**source),
            _ => None,
        }
    }
}
