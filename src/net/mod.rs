//! Sockets, TLS and HTTP: the only place that uses ureq and rustls. All traffic that leaves the machine passes one
//! dialer, one proxy policy and one set of limits.

mod buffers;
mod client_auth;
pub mod dial;
pub mod error;
pub mod http;
pub mod login;
pub mod proxy;
mod reach;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
pub mod traffic;
pub mod trust;
mod tunnel;
pub mod url;
mod wire;

pub use dial::{Dial, SystemDialer};
pub use error::{Error, Hop, TlsError};
pub use http::{Body, ConnectionSettings, Http, HttpRequest, HttpResponse, RequestLimits};
pub use proxy::{ProxyEnv, ProxyPolicy};
pub use reach::{AddressZone, Reach};
pub use traffic::{DailyTraffic, Traffic};
pub use trust::{AnonymousParty, CertificatePair, SystemCas, TlsParty, TrustedRoots};
pub use url::Url;

#[cfg(test)]
mod tests;
