//! Errors of the client, sorted by their handling.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::kubeconfig;
use crate::limits;
use crate::net::{self, Hop};

/// How to handle an error. Callers match this, never codes or texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorVerdict {
    /// The object, or its kind, does not exist.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// Another writer changed the object, or a precondition failed: read it again.
    Conflict,
    /// The resourceVersion or the `continue` token is too old: list again.
    Gone,
    /// Not authenticated or not allowed.
    Denied,
    /// The server, or our own rate limit, requests a retry later.
    Throttled(Option<Duration>),
    /// No usable response, or the server failed: retry with backoff.
    Unreachable,
    /// The request is wrong; a retry cannot help.
    Invalid,
    /// The lease does not allow a write now. The request was not sent, so this is no information about the
    /// object or the server.
    Fenced,
}

/// A failed call.
#[derive(Debug)]
pub enum Error {
    /// The server answered with a failure status.
    Api(Box<StatusFailure>),
    /// No response came.
    Transport {
        /// Method and URL without its query.
        request: String,
        /// The cause.
        source: net::Error,
    },
    /// The response is not what the API promises: HTML from a proxy, half a document.
    Response {
        /// Method and URL without its query.
        request: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An object with an unexpected shape.
    Decode {
        /// What was decoded.
        what: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// Our credentials cannot be read.
    Credentials(kubeconfig::Error),
    /// The request cannot be built: a bad URL, an object without a name.
    Request(String),
    /// Our own rate limit would have delayed the call beyond its deadline.
    Limited,
    /// The lease does not allow this write now, for this reason.
    Fenced(String),
    /// Not sent: the server was unreachable a moment ago, or other requests still wait for its answer.
    Unsent {
        /// Method and URL without its query.
        request: String,
        /// The failure of the request that was sent.
        why: Arc<str>,
        /// When the next request may be sent.
        after: Duration,
    },
    /// The program is stopping, or our side closed the watch.
    Stopped,
}

impl Error {
    /// How to handle it.
    pub fn verdict(&self) -> ErrorVerdict {
        match self {
            Self::Api(failure) => failure.verdict(),
            Self::Transport { source: net::Error::TooLarge { .. } | net::Error::Request(_), .. } => {
                ErrorVerdict::Invalid
            }
            Self::Transport { .. }
            | Self::Response { .. }
            | Self::Credentials(_)
            | Self::Unsent { .. }
            | Self::Stopped => ErrorVerdict::Unreachable,
            Self::Fenced(_) => ErrorVerdict::Fenced,
            Self::Decode { .. } | Self::Request(_) => ErrorVerdict::Invalid,
            Self::Limited => ErrorVerdict::Throttled(None),
        }
    }

    /// If the client did not send the request: the delay before a retry. It does not count as a failed attempt.
    pub(crate) const fn postponed(&self) -> Option<Duration> {
        match self {
            Self::Fenced(_) => Some(limits::FENCED_AGAIN),
            Self::Unsent { after, .. } => Some(*after),
            _ => None,
        }
    }

    /// The status code, if the server answered with one.
    pub fn status_code(&self) -> Option<u16> {
        match self {
            Self::Api(failure) => Some(failure.code),
            _ => None,
        }
    }

    /// The server was unreachable: it has not seen the request.
    pub(crate) fn is_cut_off(&self) -> bool {
        matches!(self, Self::Transport { source, .. }
            if matches!(source.hop(), Hop::Proxy | Hop::Dns | Hop::Tcp | Hop::Tls))
    }

    /// The server received the request, but did not answer in time.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Transport { source: net::Error::Timeout(_), .. }) && !self.is_cut_off()
    }

    /// The answer exceeds a limit.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Self::Transport { source: net::Error::TooLarge { .. }, .. })
    }

    /// Our side closed the connection, because the client has a new one.
    pub(crate) fn is_closed_by_us(&self) -> bool {
        matches!(self, Self::Transport { source: net::Error::Closed, .. })
    }

    /// The failure that the server reported.
    pub(crate) fn failure(&self) -> Option<&StatusFailure> {
        match self {
            Self::Api(failure) => Some(failure),
            _ => None,
        }
    }

    /// The object, or its kind, does not exist.
    pub fn is_not_found(&self) -> bool {
        self.verdict() == ErrorVerdict::NotFound
    }

    /// The name is taken.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.verdict() == ErrorVerdict::AlreadyExists
    }

    /// Another writer changed the object, or a precondition failed.
    pub(crate) fn is_conflict(&self) -> bool {
        self.verdict() == ErrorVerdict::Conflict
    }

    /// The resourceVersion is too old.
    pub fn is_gone(&self) -> bool {
        self.verdict() == ErrorVerdict::Gone
    }

    /// Not authenticated or not allowed.
    pub fn is_denied(&self) -> bool {
        self.verdict() == ErrorVerdict::Denied
    }

    /// The SeedAuthorizer of the garden found no path from the object to our Seed: the object is gone, or
    /// another seed has it.
    pub(crate) fn is_unrelated(&self) -> bool {
        self.failure().is_some_and(StatusFailure::is_unrelated)
    }
}

/// A failure `Status`, or the information in a response without one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatusFailure {
    /// Method and URL without its query; empty for an event of a watch.
    pub(crate) request: String,
    /// The status code of the response.
    pub code: u16,
    /// Machine-readable reason, such as `AlreadyExists`.
    pub reason: String,
    /// The text is for people.
    pub message: String,
    /// Where to continue the list, in a 410 of a paged list.
    pub(crate) continue_token: String,
    /// The delay before a retry.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) details: StatusDetails,
}

/// `details` of a `Status`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StatusDetails {
    /// Name of the object.
    pub(crate) name: String,
    /// Kind or plural of the object.
    pub(crate) kind: String,
    pub(crate) causes: Vec<StatusCause>,
    /// The delay before a retry, in seconds.
    pub(crate) retry_after_seconds: u32,
}

/// One cause of a failure.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusCause {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub(crate) reason: String,
    /// The text is for people.
    pub(crate) message: String,
    /// Path of the field.
    pub(crate) field: String,
}

impl StatusFailure {
    /// How to handle it.
    pub(crate) fn verdict(&self) -> ErrorVerdict {
        match (self.code, self.reason.as_str()) {
            (404, _) => ErrorVerdict::NotFound,
            (409, "AlreadyExists") => ErrorVerdict::AlreadyExists,
            (409, _) => ErrorVerdict::Conflict,
            // In a watch, and behind some proxies, only the reason tells it.
            (410, _) | (_, "Expired" | "Gone") => ErrorVerdict::Gone,
            (401 | 403, _) => ErrorVerdict::Denied,
            (429, _) => ErrorVerdict::Throttled(self.retry_after),
            (503, _) if self.retry_after.is_some() => ErrorVerdict::Throttled(self.retry_after),
            (408, _) | (500.., _) => ErrorVerdict::Unreachable,
            (400..500, _) => ErrorVerdict::Invalid,
            _ => ErrorVerdict::Unreachable,
        }
    }

    /// Authorizers after the SeedAuthorizer add their reasons, each on a line of its own.
    fn is_unrelated(&self) -> bool {
        self.code == 403 && self.message.lines().any(|line| line.ends_with(": no relationship found"))
    }
}

impl fmt::Display for StatusFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.request.is_empty() {
            write!(f, "{}: ", self.request)?;
        }
        write!(f, "{}", self.code)?;
        if !self.reason.is_empty() {
            write!(f, " {}", self.reason)?;
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api(failure) => failure.fmt(f),
            Self::Transport { request, .. } => f.write_str(request),
            Self::Response { request, problem } => write!(f, "{request}: {problem}"),
            Self::Decode { what, .. } => write!(f, "decode {what}"),
            Self::Credentials(_) => f.write_str("credentials"),
            Self::Request(problem) => write!(f, "request cannot be sent: {problem}"),
            Self::Limited => f.write_str("our own rate limit delays the request past its deadline"),
            Self::Fenced(why) => f.write_str(why),
            Self::Unsent { request, why, .. } => write!(f, "{request}: {why}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Transport { source, .. } => Some(source),
            Self::Decode { source, .. } => Some(source),
            Self::Credentials(source) => Some(source),
            _ => None,
        }
    }
}

/// An absent object is not an error.
pub(crate) fn unless_absent<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
