//! Errors between the agent and a server, sorted by their origin.

use std::time::Duration;
use std::{fmt, io};

use super::tls;
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::format::duration::rough;
use crate::format::time::rfc3339;

/// A request that got no usable response.
#[derive(Debug)]
pub enum Error {
    /// The URL, a header or another part of the request cannot be sent.
    Request(String),
    /// A name has no address, or no resolver answers.
    Lookup {
        /// The name.
        host: String,
        /// The error of the system.
        source: io::Error,
    },
    /// An address is unreachable.
    Connect {
        /// The host and the port.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The connection must not lead to this address.
    Inside {
        /// The host as it was written.
        host: String,
        /// Its address, if known.
        address: String,
    },
    /// A read or write failed.
    Io {
        /// The operation, such as `read the response`.
        operation: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A time limit passed; the text names the phase.
    Timeout(&'static str),
    /// The proxy refused or misbehaved.
    Proxy(String),
    /// The peer's certificate, our certificate, or the handshake.
    Tls(TlsError),
    /// The peer violates HTTP/1.1.
    Protocol(String),
    /// Data exceeded our limit.
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// The limit.
        bytes_max: usize,
    },
    /// Our side shut the connection down.
    Closed,
}

/// The phases of connecting, as [`Error::Timeout`] names them.
pub(super) const CONNECT: &str = "connect";
pub(super) const HANDSHAKE: &str = "TLS handshake";

/// The steps from here to a server, in order. Every step before the hop of an error succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hop {
    /// Our configuration: URL, CA, certificate, key.
    Configuration,
    /// The proxy, and the connection to it.
    Proxy,
    /// The name lookup of the server.
    Dns,
    /// A connection to its address.
    Tcp,
    /// The TLS handshake.
    Tls,
    Certificate,
    Identity,
    Http,
}

/// Why TLS failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsError {
    /// No configured CA issued the certificate.
    UnknownIssuer,
    /// A configured CA has the issuer's name but another key.
    BadSignature,
    /// The certificate has expired by our clock; times in seconds since 1970.
    Expired {
        /// The time of our clock.
        now_s: u64,
        /// Its `notAfter`.
        not_after_s: u64,
    },
    /// The certificate is not valid yet by our clock; times in seconds since 1970.
    NotYetValid {
        /// The time of our clock.
        now_s: u64,
        /// Its `notBefore`.
        not_before_s: u64,
    },
    /// The certificate is for other names.
    WrongName(String),
    /// The peer's certificate is unusable for another reason.
    BadCertificate(String),
    /// The peer refused our certificate, or requires one.
    Refused(String),
    /// The configured CA, certificate or key is unusable.
    Material(String),
    /// Any other failure of the handshake.
    Handshake(String),
}

/// The rough difference of two times, and both times.
fn apart(at_s: u64, now_s: u64) -> (String, String, String) {
    let text = |s: u64| rfc3339(Timestamp::from_unix(i64::try_from(s).unwrap_or(i64::MAX)));
    // The day is enough: the text should not change with each attempt.
    (rough(Duration::from_secs(at_s.abs_diff(now_s))), text(at_s), text(now_s)[..10].to_owned())
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIssuer => f.write_str("the certificate was issued by none of the trusted CAs"),
            Self::BadSignature => {
                f.write_str("the trusted CA of that name has another key, or an RSA key below 2048 bits")
            }
            Self::Expired { now_s, not_after_s } => {
                let (by, at, now) = apart(*not_after_s, *now_s);
                write!(
                    f,
                    "the peer's certificate expired at {at}, or our clock, which shows {now}, is {by} or more ahead"
                )
            }
            Self::NotYetValid { now_s, not_before_s } => {
                let (by, at, now) = apart(*not_before_s, *now_s);
                write!(
                    f,
                    "our clock, which shows {now}, is {by} or more behind: the peer's certificate is valid from {at} on"
                )
            }
            Self::WrongName(text) | Self::BadCertificate(text) | Self::Material(text) => f.write_str(text),
            Self::Refused(text) => write!(f, "the peer refused our certificate: {text}"),
            Self::Handshake(text) => write!(f, "handshake: {text}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(text) => write!(f, "request cannot be sent: {text}"),
            Self::Lookup { host, .. } => write!(f, "look up {host}"),
            Self::Connect { address, .. } => write!(f, "connect to {address}"),
            Self::Inside { host, address } if host == address => {
                write!(f, "{host} is an address inside of a private network or of this machine")
            }
            Self::Inside { host, address } => {
                write!(f, "{host} has the address {address}, inside of a private network or of this machine")
            }
            Self::Io { operation, .. } => f.write_str(operation),
            Self::Timeout(phase) => write!(f, "timeout: {phase}"),
            Self::Proxy(text) => write!(f, "proxy: {text}"),
            Self::Tls(error) => write!(f, "tls: {error}"),
            Self::Protocol(text) => write!(f, "protocol: {text}"),
            Self::TooLarge { what, bytes_max } => write!(f, "{what} larger than {bytes_max} bytes"),
            Self::Closed => f.write_str("connection shut down"),
        }
    }
}

impl Error {
    /// Recovers the cause that was wrapped in an `io::Error`.
    pub(crate) fn from_io(operation: &str, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(error) => match error.downcast::<ureq::Error>() {
                Ok(ureq) => Self::from_ureq(ureq),
                Err(error) => match error.downcast::<rustls::Error>() {
                    Ok(rustls) => Self::Tls(tls::classify(&rustls)),
                    Err(source) => Self::Io { operation: operation.to_owned(), source },
                },
            },
        }
    }

    /// The step that failed.
    pub(crate) fn hop(&self) -> Hop {
        match self {
            Self::Request(_) | Self::Inside { .. } | Self::Tls(TlsError::Material(_)) => Hop::Configuration,
            Self::Proxy(_) => Hop::Proxy,
            Self::Lookup { .. } => Hop::Dns,
            Self::Connect { .. } => Hop::Tcp,
            Self::Tls(TlsError::Refused(_)) => Hop::Identity,
            Self::Tls(TlsError::Handshake(_)) => Hop::Tls,
            Self::Tls(_) => Hop::Certificate,
            Self::Timeout(phase) => phase_hop(phase),
            Self::Io { operation, .. } => phase_hop(operation),
            Self::Protocol(_) | Self::TooLarge { .. } | Self::Closed => Hop::Http,
        }
    }

    /// Attributes errors on the way to the proxy, or in it, to the proxy.
    pub(super) fn of_proxy(self, authority: &str) -> Self {
        match self {
            Self::Proxy(_) | Self::Inside { .. } | Self::Closed => self,
            other => Self::Proxy(format!("{authority}: {}", chain(&other))),
        }
    }

    pub(super) fn from_ureq(error: ureq::Error) -> Self {
        match error {
            ureq::Error::Io(error) => Self::from_io("exchange with the server", error),
            ureq::Error::Timeout(phase) => Self::Timeout(phase_name(phase)),
            ureq::Error::Rustls(error) => Self::Tls(tls::classify(&error)),
            ureq::Error::LargeResponseHeader(_, bytes_max) => {
                Self::TooLarge { what: "headers of the response", bytes_max }
            }
            ureq::Error::Other(error) => match error.downcast::<Self>() {
                Ok(ours) => *ours,
                Err(other) => Self::Protocol(other.to_string()),
            },
            ureq::Error::BadUri(text) => Self::Request(text),
            ureq::Error::Http(error) => Self::Request(error.to_string()),
            other => Self::Protocol(other.to_string()),
        }
    }

    /// The peer closed the connection instead of answering, as it may do with an idle one.
    pub(super) fn is_hang_up(&self) -> bool {
        use io::ErrorKind as K;
        let hang_ups = [K::UnexpectedEof, K::ConnectionReset, K::ConnectionAborted, K::BrokenPipe];
        matches!(self, Self::Io { source, .. } if hang_ups.contains(&source.kind()))
    }
}

fn phase_hop(phase: &str) -> Hop {
    match phase {
        CONNECT => Hop::Tcp,
        HANDSHAKE => Hop::Tls,
        _ => Hop::Http,
    }
}

const fn phase_name(phase: ureq::Timeout) -> &'static str {
    use ureq::Timeout as T;
    match phase {
        T::Connect | T::Resolve => CONNECT,
        T::PerRead => "silence of the server",
        T::PerWrite | T::SendRequest | T::SendBody => "send the request",
        T::RecvResponse => "wait for the response",
        _ => "whole request",
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lookup { source, .. } | Self::Connect { source, .. } | Self::Io { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_say_whose_clock_may_be_wrong() {
        let table = [
            (
                TlsError::Expired { now_s: 1_767_484_800, not_after_s: 1_767_225_600 },
                "the peer's certificate expired at 2026-01-01T00:00:00Z, or our clock, which shows 2026-01-04, is 3 days or \
                 more ahead",
            ),
            (
                TlsError::NotYetValid { now_s: 100, not_before_s: 1_767_225_600 },
                "our clock, which shows 1970-01-01, is 20454 days or more behind: the peer's certificate is valid from \
                 2026-01-01T00:00:00Z on",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn an_error_says_how_far_we_came() {
        let io = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let tls = Error::Tls;
        let table = [
            (Error::Request(String::new()), Hop::Configuration),
            (tls(TlsError::Material(String::new())), Hop::Configuration),
            (Error::Connect { address: "p:1".to_owned(), source: io() }.of_proxy("p:1"), Hop::Proxy),
            (Error::Lookup { host: String::new(), source: io() }, Hop::Dns),
            (Error::Connect { address: String::new(), source: io() }, Hop::Tcp),
            (Error::Timeout(CONNECT), Hop::Tcp),
            (Error::Timeout(HANDSHAKE), Hop::Tls),
            (tls(TlsError::Handshake(String::new())), Hop::Tls),
            (tls(TlsError::UnknownIssuer), Hop::Certificate),
            (tls(TlsError::Expired { now_s: 2, not_after_s: 1 }), Hop::Certificate),
            (tls(TlsError::Refused(String::new())), Hop::Identity),
            (Error::Timeout("whole request"), Hop::Http),
            (Error::from_io("read", io()), Hop::Http),
            (Error::from_io(HANDSHAKE, io()), Hop::Tls),
        ];
        for (error, hop) in table {
            assert_eq!(error.hop(), hop, "{error:?}");
        }
        // A classified error passes through the layers below.
        let lookup = io::Error::other(Error::Lookup { host: "h".to_owned(), source: io() });
        assert_eq!(Error::from_io("connect", lookup).hop(), Hop::Dns);
        let proxy = Error::Connect { address: "p:1".to_owned(), source: io() }.of_proxy("p:1");
        assert_eq!(proxy.to_string(), "proxy: p:1: connect to p:1: connection refused");
    }
}
