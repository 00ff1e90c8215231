//! Errors between a reference and its chart, sorted by their remedy. No text contains credentials: neither those of
//! pull secrets nor those in URLs of redirects. Of a server's response, it contains only the error code.

use std::fmt;
use std::io;
use std::time::Duration;

use super::digest::Digest;
use super::manifest::ArtifactProblem;
use crate::net;

/// The remedy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PullVerdict {
    /// A retry may help.
    Retry,
    /// Somebody must change something outside: a Secret, a registry, a setting. There is no
    /// notification, so retry slowly.
    Configuration,
    /// Only another reference helps.
    Final,
}

impl PullVerdict {
    /// The label of a metric.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Configuration => "configuration",
            Self::Final => "final",
        }
    }
}

/// Why a chart is not available.
#[derive(Debug)]
pub enum Error {
    /// The reference cannot be used.
    Reference(&'static str),
    /// A request to a registry failed.
    Net {
        /// The host and the port.
        host: String,
        /// The cause.
        source: net::Error,
    },
    /// A registry answered with an unusable status.
    Status {
        /// The host and the port.
        host: String,
        /// The requested thing, such as `manifest 1.0.0`.
        what: String,
        /// The status.
        status: u16,
        /// The registry's error code, such as `MANIFEST_UNKNOWN`.
        code: Option<String>,
        /// When to retry, as requested by the registry.
        retry_after: Option<Duration>,
    },
    /// The registry requests credentials in a way that the agent cannot or must not answer.
    Challenge {
        /// The host and the port.
        host: String,
        /// What is wrong.
        why: String,
    },
    /// The registry requested a pause that is not over.
    Quiet {
        /// The host and the port.
        host: String,
    },
    /// A redirect that is not followed.
    Redirect {
        /// The host and the port.
        host: String,
        /// Why.
        why: &'static str,
    },
    /// Content that does not match its digest.
    Digest {
        /// Either `manifest` or `chart`.
        what: &'static str,
        /// The expected digest.
        expected: Digest,
        /// The digest of the received content.
        found: Digest,
    },
    /// Content that is shorter than announced: the connection ended early.
    Short {
        /// How many bytes were received.
        bytes: u64,
        /// How many bytes were announced.
        expected: u64,
    },
    /// Content that is larger than announced or allowed.
    Large {
        /// Either `manifest` or `chart`.
        what: &'static str,
        /// The limit.
        bytes_max: u64,
    },
    /// The manifest does not lead to a chart.
    Manifest {
        /// Why.
        problem: ArtifactProblem,
        /// The reference contains the digest: the content can never change.
        is_pinned: bool,
    },
    /// A layout directory has no such artifact.
    NotInLayout,
    /// Reading or writing a file failed.
    Disk {
        /// The operation.
        operation: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// No source has the chart.
    Sources(Vec<(String, Self)>),
    /// The maximum number of charts is being pulled.
    Busy,
    /// The agent is stopping.
    Stopped,
}

impl Error {
    /// The remedy.
    pub fn verdict(&self) -> PullVerdict {
        match self {
            Self::Reference(_) => PullVerdict::Final,
            Self::Net {
                source: net::Error::Tls(_) | net::Error::Request(_) | net::Error::Inside { .. },
                ..
            }
            | Self::Challenge { .. }
            | Self::Redirect { .. }
            | Self::Large { .. }
            | Self::NotInLayout => PullVerdict::Configuration,
            Self::Net { .. }
            | Self::Quiet { .. }
            | Self::Short { .. }
            | Self::Disk { .. }
            | Self::Digest { .. }
            | Self::Busy
            | Self::Stopped => PullVerdict::Retry,
            Self::Status { status: 408 | 425 | 429 | 500..=599, .. } => PullVerdict::Retry,
            Self::Status { .. } => PullVerdict::Configuration,
            Self::Manifest { problem: ArtifactProblem::NotAManifest, .. }
            | Self::Manifest { is_pinned: false, .. } => PullVerdict::Configuration,
            Self::Manifest { is_pinned: true, .. } => PullVerdict::Final,
            Self::Sources(all) => {
                all.iter().map(|(_, error)| error.verdict()).min().unwrap_or(PullVerdict::Retry)
            }
        }
    }

    pub(super) fn disk(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { operation, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference(why) => write!(f, "could not parse reference: {why}"),
            // Its text may be a URL with credentials.
            Self::Net { host, source: net::Error::Request(_) } => {
                write!(f, "registry {host}: a request cannot be sent")
            }
            Self::Net { host, source: net::Error::Inside { .. } } => {
                write!(f, "registry {host}: refused; if that is right, name the host under edge.registries")
            }
            Self::Net { host, .. } => write!(f, "registry {host}"),
            Self::Status { host, what, status, code, .. } => {
                write!(f, "registry {host} answers {status} for {what}")?;
                code.as_ref().map_or(Ok(()), |code| write!(f, " ({code})"))?;
                match status {
                    401 | 403 => f.write_str(": pullSecretRef is missing or does not allow it"),
                    _ => Ok(()),
                }
            }
            Self::Challenge { host, why } => write!(f, "registry {host}: {why}"),
            // Without the remaining time: a condition contains the text.
            Self::Quiet { host } => write!(f, "registry {host} asked for a pause that is not over"),
            Self::Redirect { host, why } => write!(f, "registry {host}: redirect refused: {why}"),
            Self::Digest { what, expected, found } => {
                write!(f, "the {what} has digest {found}, not {expected}")
            }
            Self::Short { bytes, expected } => {
                write!(f, "the chart ended after {bytes} of {expected} bytes")
            }
            Self::Large { what, bytes_max } => write!(f, "{what} larger than {bytes_max} bytes"),
            Self::Manifest { problem, .. } => problem.fmt(f),
            Self::NotInLayout => f.write_str("the layout directory has no such artifact"),
            Self::Disk { operation, .. } => f.write_str(operation),
            Self::Sources(all) => {
                f.write_str("no source has the chart")?;
                for (source, error) in all {
                    write!(f, "; {source}: {}", crate::base::error::chain(error))?;
                }
                Ok(())
            }
            Self::Busy => f.write_str("other charts are being pulled"),
            Self::Stopped => f.write_str("pulling was stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Net { source: net::Error::Request(_), .. } => None,
            Self::Net { source, .. } => Some(source),
            Self::Disk { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_to_do() {
        let host = || "r".to_owned();
        let status = |status| Error::Status {
            host: host(),
            what: "manifest 1".to_owned(),
            status,
            code: None,
            retry_after: None,
        };
        let net = |source| Error::Net { host: host(), source };
        let manifest = |problem, is_pinned| Error::Manifest { problem, is_pinned };
        let table = [
            (Error::Reference("x"), PullVerdict::Final),
            (net(net::Error::Timeout("x")), PullVerdict::Retry),
            (net(net::Error::Tls(net::TlsError::UnknownIssuer)), PullVerdict::Configuration),
            (status(429), PullVerdict::Retry),
            (status(503), PullVerdict::Retry),
            (status(404), PullVerdict::Configuration),
            (status(401), PullVerdict::Configuration),
            (manifest(ArtifactProblem::NoHelmLayer, true), PullVerdict::Final),
            (manifest(ArtifactProblem::NoHelmLayer, false), PullVerdict::Configuration),
            (manifest(ArtifactProblem::NotAManifest, true), PullVerdict::Configuration),
            (Error::Large { what: "chart", bytes_max: 1 }, PullVerdict::Configuration),
            (Error::Sources(vec![(host(), status(404)), (host(), status(500))]), PullVerdict::Retry),
            (Error::Sources(vec![(host(), status(404))]), PullVerdict::Configuration),
        ];
        for (error, expected) in table {
            assert_eq!(error.verdict(), expected, "{error}");
        }
    }

    #[test]
    fn no_url_reaches_a_text() {
        let source = net::Error::Request("https://r/x?signature=hunter2".to_owned());
        let error = Error::Net { host: "r".to_owned(), source };
        assert_eq!(crate::base::error::chain(&error), "registry r: a request cannot be sent");
        let nested = Error::Sources(vec![("mirror".to_owned(), error)]);
        assert!(!crate::base::error::chain(&nested).contains("hunter2"));
    }
}
