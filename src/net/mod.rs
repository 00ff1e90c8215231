//! Sockets, TLS and HTTP: the only place that uses ureq and rustls. All traffic that leaves the machine passes one
//! dialer, one proxy policy and one set of limits.

mod buffers;
mod client_auth;
pub(crate) mod dial;
pub(crate) mod error;
pub(crate) mod http;
pub mod login;
pub(crate) mod proxy;
mod reach;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
pub(crate) mod traffic;
pub(crate) mod trust;
mod tunnel;
pub(crate) mod url;
mod wire;

pub use dial::{Dial, SystemDialer};
pub use error::TlsError;
pub(crate) use error::{Error, Hop};
pub(crate) use http::Body;
pub use http::{ConnectionSettings, Http, HttpRequest, HttpResponse, RequestLimits};
pub use proxy::ProxyEnv;
pub use proxy::ProxyPolicy;
pub(crate) use reach::{AddressZone, Reach};
pub(crate) use traffic::DailyTraffic;
pub use traffic::Traffic;
pub(crate) use trust::AnonymousParty;
pub use trust::{CertificatePair, SystemCas, TlsParty, TrustedRoots};
pub use url::Url;

#[cfg(test)]
mod tests;
