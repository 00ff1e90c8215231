//! Errors that keep an agent from starting.

use std::fmt;

use crate::base::state;
use crate::kube;

/// Why the agent cannot start. A problem that may resolve itself is not in this list.
#[derive(Debug)]
pub enum Error {
    /// The state directory.
    State(state::Error),
    /// The kubeconfig or ServiceAccount of a cluster cannot be used.
    Kubeconfig {
        /// Garden or seed.
        cluster: &'static str,
        /// Where the connection is configured.
        place: String,
        /// The cause.
        source: kube::kubeconfig::Error,
    },
    /// Neither a kubeconfig nor a pod.
    NoSeed,
    /// A client cannot be created.
    Client(kube::Error),
    /// A listener or a thread cannot be created.
    System {
        /// What the agent tried.
        operation: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The file that overwrites images.
    Images(String),
    /// The program does not support this configuration.
    Unsupported(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(_) => f.write_str("open the state directory"),
            Self::Kubeconfig { cluster, place, .. } => write!(f, "read the {cluster}'s kubeconfig {place}"),
            Self::NoSeed => f.write_str(
                "the configuration does not say how to reach the seed: run in a pod of the seed, or set seedClientConnection.kubeconfig or KUBECONFIG",
            ),
            Self::Client(_) => f.write_str("make a client"),
            Self::System { operation, .. } => f.write_str(operation),
            Self::Images(why) => f.write_str(why),
            Self::Unsupported(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::State(source) => Some(source),
            Self::Kubeconfig { source, .. } => Some(source),
            Self::Client(source) => Some(source),
            Self::System { source, .. } => Some(source),
            Self::NoSeed | Self::Images(_) | Self::Unsupported(_) => None,
        }
    }
}
