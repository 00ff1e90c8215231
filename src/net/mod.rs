//! Sockets, TLS and HTTP: the only place that names ureq and rustls. Everything that leaves the machine goes through
//! one dialer, one proxy policy and one set of limits.

pub mod dial;
pub mod error;
pub mod proxy;

pub use dial::{Dial, SystemDialer};
pub use error::Error;
pub use proxy::ProxyEnv;
