//! Why a Seed cannot be reconciled.

use std::fmt;

use crate::flow::{TaskError, describe};
use crate::kube;

/// Upstream's text when the seed's namespace cannot be read, for any reason.
pub(crate) const GET_NAMESPACE: &str = "failed to get seed namespace in garden cluster";

/// Why a Seed cannot be reconciled now.
#[derive(Debug)]
pub(crate) enum Error {
    /// The seed's Kubernetes version is too old.
    Version(String),
    /// The garden has not created the seed's namespace.
    NoNamespace(String),
    /// Tasks of the flow failed.
    Tasks(Vec<TaskError>),
    Kube {
        /// What the agent tried.
        operation: &'static str,
        source: kube::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(
                    f,
                    "the Kubernetes version of the Seed cluster must be at least 1.32, but is {version}"
                )
            }
            // Upstream's text.
            Self::NoNamespace(name) => {
                write!(f, "{GET_NAMESPACE}: Namespace {name:?} not found")
            }
            Self::Tasks(errors) => f.write_str(&describe(errors)),
            Self::Kube { operation, .. } => f.write_str(operation),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kube { source, .. } => Some(source),
            _ => None,
        }
    }
}

pub(super) fn kube_error(operation: &'static str) -> impl FnOnce(kube::Error) -> Error {
    move |source| Error::Kube { operation, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::chain;

    #[test]
    fn errors_of_the_namespace_start_like_upstream() {
        let answered = |code, reason: &str, message: &str| {
            let failure = kube::StatusFailure {
                code,
                reason: reason.into(),
                message: message.into(),
                ..Default::default()
            };
            kube_error(GET_NAMESPACE)(kube::Error::Api(Box::new(failure)))
        };
        let table = [
            (Error::NoNamespace("seed-a".to_owned()), "Namespace \"seed-a\" not found"),
            (answered(403, "Forbidden", "not yours"), "403 Forbidden: not yours"),
            (answered(503, "ServiceUnavailable", "later"), "503 ServiceUnavailable: later"),
        ];
        for (error, words) in table {
            assert_eq!(chain(&error), format!("failed to get seed namespace in garden cluster: {words}"));
        }
    }
}
