//! What can go wrong between a manifest and an object in the cluster.

use std::fmt;

use crate::base::error::chain;
use crate::kube;
use crate::runtime::controller::ReconcileFailure;

/// An operation of the applier that failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The server refused or failed a request.
    Request(kube::Error),
    /// No server serves this kind, at least not yet.
    UnknownKind {
        /// The group and the version.
        api_version: String,
        kind: String,
    },
    /// A required field is missing in a manifest.
    Incomplete(&'static str),
    /// A ManagedResource that is too large to apply.
    TooLarge(String),
    /// An annotation has an invalid value.
    Annotation { name: &'static str, value: String },
    /// A Secret with manifests could not be read.
    ReadSecret {
        name: String,
        /// The cause; `None` if it does not exist.
        source: Option<kube::Error>,
    },
    /// An object could not be applied.
    Apply {
        /// `group/kind/namespace/name`.
        object: String,
        source: Box<Error>,
    },
    /// The server considered an update invalid, so the object was deleted and will be created again.
    Recreate(kube::Error),
    /// Objects could not be deleted or released, or documents not be decoded; one sentence each.
    Several(Vec<String>),
}

impl Error {
    /// Whether another client changed the object in between.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Request(e) if e.is_conflict() || e.is_already_exists())
    }

    /// Whether the client did not send the request, because of the lease or an unavailable server. This says nothing
    /// about the object and is not reported.
    pub(crate) fn is_postponed(&self) -> bool {
        match self {
            Self::Request(request) | Self::ReadSecret { source: Some(request), .. } => {
                request.postponed().is_some()
            }
            Self::Apply { source, .. } => source.is_postponed(),
            _ => false,
        }
    }

    /// The server is unreachable, or does not answer.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Request(request) if request.verdict() == kube::ErrorVerdict::Unreachable)
    }

    /// The error with its causes in one line.
    pub(crate) fn text(&self) -> String {
        chain(self)
    }

    /// The failure for the pool: the request's own error, which may contain a retry delay.
    pub(crate) fn into_failure(self) -> ReconcileFailure {
        match self {
            Self::Request(request) => request.into(),
            other => other.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(source) => source.fmt(f),
            Self::UnknownKind { api_version, kind } => {
                write!(f, "no matches for kind {kind:?} in version {api_version:?}")
            }
            Self::Incomplete(field) => write!(f, "not an object: {field} is missing"),
            Self::TooLarge(why) => write!(f, "nothing was applied or deleted: {why}"),
            Self::Annotation { name, value } => {
                write!(f, "annotation {name} has the unknown value {value:?}")
            }
            Self::ReadSecret { name, source: None } => write!(f, "secret {name:?} does not exist"),
            Self::ReadSecret { name, .. } => write!(f, "read secret {name:?}"),
            Self::Apply { object, .. } => write!(f, "error during apply of object {object:?}"),
            Self::Recreate(_) => f.write_str("deleted to be created again after an invalid update"),
            Self::Several(problems) => f.write_str(&problems.join("; ")),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(source) => source.source(),
            Self::ReadSecret { source, .. } => {
                source.as_ref().map(|e| e as &(dyn std::error::Error + 'static))
            }
            Self::Recreate(source) => Some(source),
            Self::Apply { source, .. } => match &**source {
                Self::Request(request) => Some(request),
                other => Some(other),
            },
            _ => None,
        }
    }
}

impl From<kube::Error> for Error {
    fn from(source: kube::Error) -> Self {
        Self::Request(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_operation_and_cause_once() {
        let failure = kube::StatusFailure {
            code: 422,
            reason: "Invalid".into(),
            message: "no".into(),
            ..Default::default()
        };
        let request = Error::Request(kube::Error::Api(Box::new(failure.clone())));
        assert_eq!(request.text(), "422 Invalid: no");
        let apply = Error::Apply { object: "/Secret/a/b".into(), source: Box::new(request) };
        assert_eq!(apply.text(), "error during apply of object \"/Secret/a/b\": 422 Invalid: no");
        assert!(!apply.is_conflict());
        let read = Error::ReadSecret { name: "s".into(), source: Some(kube::Error::Api(Box::new(failure))) };
        assert_eq!(read.text(), "read secret \"s\": 422 Invalid: no");
        assert_eq!(Error::Several(vec!["a".into(), "b".into()]).text(), "a; b");
    }

    #[test]
    fn an_unsent_request_is_found_among_the_causes() {
        let fenced = || kube::Error::Fenced("not ours".to_owned());
        let read = |source| Error::ReadSecret { name: "s".into(), source };
        let apply = |source| Error::Apply { object: "o".into(), source: Box::new(source) };
        let table = [
            ("alone", Error::Request(fenced()), true),
            ("of a Secret", read(Some(fenced())), true),
            ("of an object", apply(Error::Request(fenced())), true),
            ("a Secret that is not there", read(None), false),
            ("refused by the server", read(Some(kube::Error::Api(Box::default()))), false),
            ("words", Error::Several(Vec::new()), false),
        ];
        for (name, error, expected) in table {
            assert_eq!(error.is_postponed(), expected, "{name}");
            assert_eq!(error.into_failure().postponed().is_some(), expected, "{name}");
        }
    }
}
