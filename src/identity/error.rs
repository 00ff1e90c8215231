//! Errors about the identity.

use std::fmt;

use crate::{kube, pki};

/// Why the agent has no identity, or cannot renew it.
#[derive(Debug)]
pub(crate) enum Error {
    /// A request to a cluster failed.
    Kube {
        /// The operation, with its object.
        operation: String,
        source: kube::Error,
    },
    /// A kubeconfig is unusable.
    Kubeconfig { place: String, source: kube::kubeconfig::Error },
    /// An error about a key, request or certificate.
    Pki(pki::Error),
    /// A required Secret does not exist, or has no kubeconfig.
    NoKubeconfig { place: String, remedy: &'static str },
    /// A bootstrap credential failed.
    Bootstrap { place: String, source: Box<Self> },
    /// A certificate could not be renewed in time.
    Renew { source: Box<Self> },
    /// The configuration does not say how to reach the garden.
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
    /// The request was not approved in time.
    TimedOut {
        /// Name of the CertificateSigningRequest.
        name: String,
    },
}

impl Error {
    /// Wraps an error of the client with its operation.
    pub(crate) fn kube(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Kube { operation, source }
    }
}

impl Error {
    /// Whether somebody denied the request.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::Bootstrap { source, .. } | Self::Renew { source } => source.is_refusal(),
            _ => false,
        }
    }

    /// The underlying error of the client, if there is one.
    pub(crate) fn cause(&self) -> Option<&kube::Error> {
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
            Self::Pki(_) => f.write_str("create a certificate request"),
            Self::NoKubeconfig { place, remedy } => write!(f, "no kubeconfig in {place}: {remedy}"),
            Self::Bootstrap { place, .. } => write!(f, "with the bootstrap kubeconfig in {place}"),
            Self::Renew { .. } => f.write_str("renew the certificate"),
            Self::NotConfigured => f.write_str(
                "the configuration does not say how to reach the garden: set gardenClientConnection.kubeconfig, or bootstrapKubeconfig \
                 and kubeconfigSecret",
            ),
            Self::Refused { name, how, why } => write!(f, "certificate request {name} was {how}: {why}"),
            Self::TimedOut { name } => write!(
                f,
                "certificate request {name} was not approved within 15 minutes; the agent creates a new one, approve it with: \
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
