//! What can go wrong between a manifest and an object in the cluster.

use std::fmt;

use crate::base::error::chain;
use crate::kube;
use crate::runtime::controller::Failure;

/// An operation of the applier that failed.
#[derive(Debug)]
pub enum Error {
    /// The server did not do what it was asked.
    Request(kube::Error),
    /// No server has this kind, at least not yet.
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// The kind.
        kind: String,
    },
    /// A manifest has no such field, and is no object without it.
    Incomplete(&'static str),
    /// A ManagedResource that is too large to be applied.
    TooLarge(String),
    /// An annotation has a value that means nothing.
    Annotation {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// A Secret with manifests could not be read.
    ReadSecret {
        /// Its name.
        name: String,
        /// Why; `None`: it does not exist.
        source: Option<kube::Error>,
    },
    /// An object could not be applied.
    Apply {
        /// `group/kind/namespace/name`.
        object: String,
        /// Why.
        source: Box<Error>,
    },
    /// The server called an update invalid, so the object was deleted, to be made anew.
    Recreate(kube::Error),
    /// Objects could not be deleted or released, or documents not be decoded; one sentence each.
    Several(Vec<String>),
}

impl Error {
    /// Whether somebody else changed the object in between.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Request(e) if e.is_conflict() || e.is_already_exists())
    }

    /// Whether the client sent nothing, for the lease or the server was not there: this says nothing about the object, and
    /// is not reported.
    pub fn is_postponed(&self) -> bool {
        match self {
            Self::Request(request) | Self::ReadSecret { source: Some(request), .. } => {
                request.postponed().is_some()
            }
            Self::Apply { source, .. } => source.is_postponed(),
            _ => false,
        }
    }

    /// The server cannot be reached, or does not answer.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Request(request) if request.verdict() == kube::Verdict::Unreachable)
    }

    /// The error with its causes in one line.
    pub fn text(&self) -> String {
        chain(self)
    }

    /// What the pool gets: a request's own error, which may say when to come again.
    pub fn into_failure(self) -> Failure {
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
    fn the_text_says_what_and_why_once() {
        let failure =
            kube::Failure { code: 422, reason: "Invalid".into(), message: "no".into(), ..Default::default() };
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
    fn a_request_that_was_not_sent_is_seen_through_what_was_tried() {
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
