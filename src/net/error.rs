//! What can go wrong between us and a server, sorted by whose fault it was.

use std::{fmt, io};

/// A request that got no usable response.
#[derive(Debug)]
pub enum Error {
    /// The URL, a header or another part of the request cannot be sent.
    Request(String),
    /// Name resolution, connecting, reading or writing.
    Io {
        /// What was being done, such as `connect to [::1]:6443`.
        operation: String,
        /// The system's error.
        source: io::Error,
    },
    /// A time limit passed; the text names the phase.
    Timeout(&'static str),
    /// The proxy refused or misbehaved.
    Proxy(String),
    /// The peer's certificate, ours, or the handshake.
    Tls(TlsError),
    /// The peer does not speak HTTP/1.1 as it should.
    Protocol(String),
    /// Something was larger than our limit.
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// The limit.
        bytes_max: usize,
    },
    /// The connection was shut down from our side.
    Closed,
}

/// Why TLS failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsError {
    /// No configured CA issued the certificate.
    UnknownIssuer,
    /// The certificate has expired by our clock; seconds since 1970.
    Expired {
        /// Our time.
        now_s: u64,
        /// Its `notAfter`.
        not_after_s: u64,
    },
    /// The certificate is not valid yet by our clock; seconds since 1970.
    NotYetValid {
        /// Our time.
        now_s: u64,
        /// Its `notBefore`.
        not_before_s: u64,
    },
    /// The certificate is for other names.
    WrongName(String),
    /// The peer's certificate cannot be used for another reason.
    BadCertificate(String),
    /// The peer refused our certificate, or wants one.
    Refused(String),
    /// What we were configured with cannot be used: CA, certificate or key.
    Material(String),
    /// Anything else in the handshake.
    Handshake(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownIssuer => f.write_str("the certificate was issued by none of the trusted CAs"),
            Self::Expired { now_s, not_after_s } => write!(
                f,
                "the certificate expired {} s ago, or our clock is fast",
                now_s.saturating_sub(*not_after_s)
            ),
            Self::NotYetValid { now_s, not_before_s } => write!(
                f,
                "the certificate becomes valid in {} s, or our clock is slow",
                not_before_s.saturating_sub(*now_s)
            ),
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

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
