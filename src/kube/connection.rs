//! Address of an API server and our identity there. A [`Connection`] is cheap to clone and never formats a secret.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::kubeconfig::exec::ExecPlugin;
use crate::base::capped;
use crate::base::redact::{self, Secret};
use crate::limits;

/// Address of an API server and our identity there.
#[derive(Clone, PartialEq)]
pub struct Connection {
    /// `https://host[:port][/path]`.
    pub server: String,
    /// The trusted servers.
    pub trust: ServerTrust,
    /// Our identity.
    pub identity: Identity,
    /// The name that the server's certificate must have in place of the URL's host.
    pub tls_server_name: Option<String>,
    /// A proxy in place of the environment's; may hold a password.
    pub proxy_url: Option<Secret<String>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("server", &redact::url(&self.server))
            .field("trust", &self.trust)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection without identity that trusts the CAs of the system.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            trust: ServerTrust::System,
            identity: Identity::default(),
            tls_server_name: None,
            proxy_url: None,
        }
    }

    /// Why an attacker on the network could read or change requests, if so.
    pub(crate) fn weakness(&self) -> Option<&'static str> {
        let is_plain =
            self.server.trim_start().get(..7).is_some_and(|start| start.eq_ignore_ascii_case("http://"));
        match self.trust {
            _ if is_plain => Some("http:// sends everything in plain text, credentials included"),
            ServerTrust::Insecure => Some("insecure-skip-tls-verify accepts any server"),
            ServerTrust::System | ServerTrust::Bundle(_) => None,
        }
    }

    /// The same with other trust.
    #[must_use]
    pub fn with_trust(mut self, trust: ServerTrust) -> Self {
        self.trust = trust;
        self
    }

    /// The same with a bundle of PEM certificates as trust.
    #[must_use]
    pub fn with_ca(self, pem: impl Into<Vec<u8>>) -> Self {
        self.with_trust(ServerTrust::Bundle(InlineOrFile::inline(pem)))
    }

    /// The same with a client certificate in place of its identity.
    #[must_use]
    pub fn with_certificate(mut self, chain_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.identity = Identity {
            certificate: Some(Certificate {
                chain: InlineOrFile::inline(chain_pem),
                key: InlineOrFile::inline(key_pem),
            }),
            credentials: AuthorizationSource::None,
        };
        self
    }

    /// The same with a bearer token in place of its identity.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.identity = Identity {
            certificate: None,
            credentials: AuthorizationSource::Token(Secret::new(token.into())),
        };
        self
    }
}

/// The API servers that are trusted.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerTrust {
    /// The CAs of the system.
    System,
    /// Only these CAs; a PEM file is read again at each handshake.
    Bundle(InlineOrFile),
    /// Every server: `insecure-skip-tls-verify`.
    Insecure,
}

/// Our identity. Both parts may be present; the server decides which one counts.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Identity {
    /// A client certificate.
    pub certificate: Option<Certificate>,
    /// The source of the `Authorization` header.
    pub credentials: AuthorizationSource,
}

/// A client certificate; files are read again at each handshake.
#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    /// PEM, with the leaf first.
    pub chain: InlineOrFile,
    /// PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: InlineOrFile,
}

/// The source of the `Authorization` header.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum AuthorizationSource {
    /// No header.
    #[default]
    None,
    /// A bearer token.
    Token(Secret<String>),
    /// A file with a bearer token, read again each minute.
    TokenFile(PathBuf),
    /// User name and password.
    Basic {
        /// The user.
        username: String,
        /// The password.
        password: Secret<String>,
    },
    /// A program that prints credentials (token or client certificate).
    Exec(Arc<ExecPlugin>),
}

/// Bytes from the configuration or from a file. The debug format omits them.
#[derive(Clone, PartialEq)]
pub enum InlineOrFile {
    /// The bytes themselves.
    Inline(Arc<[u8]>),
    /// A file that is read when the bytes are needed.
    File(PathBuf),
}

impl InlineOrFile {
    /// Bytes in memory.
    pub(crate) fn inline(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Inline(bytes.into().into())
    }

    /// Loads the bytes. Errors: the error of the system if the file cannot be read, or if it is larger than a
    /// configuration file may be.
    pub fn load(&self) -> io::Result<Arc<[u8]>> {
        match self {
            Self::Inline(bytes) => Ok(Arc::clone(bytes)),
            Self::File(path) => Ok(read_small(path)?.into()),
        }
    }
}

impl fmt::Debug for InlineOrFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline([{} bytes])", bytes.len()),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

/// Reads a file up to the size limit of a configuration file.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    capped::read_file(path, limits::CONFIG_FILE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insecure_connections_are_reported() {
        let plain = Some("http:// sends everything in plain text, credentials included");
        let insecure = Some("insecure-skip-tls-verify accepts any server");
        let table = [
            ("https://garden", ServerTrust::System, None),
            ("https://garden", ServerTrust::Bundle(InlineOrFile::inline("x")), None),
            ("https://garden", ServerTrust::Insecure, insecure),
            ("http://garden", ServerTrust::System, plain),
            ("HTTP://garden", ServerTrust::Insecure, plain),
            ("h\u{e4}tte://g", ServerTrust::System, None),
        ];
        for (server, trust, expected) in table {
            assert_eq!(Connection::new(server).with_trust(trust).weakness(), expected, "{server}");
        }
    }
}
