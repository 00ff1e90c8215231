//! Which connection goes through which proxy: one policy for every socket, with the semantics of Go's `httpproxy`.

use std::fmt;

/// The proxy variables of the environment.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ProxyEnv {
    /// `HTTP_PROXY`.
    pub http_proxy: String,
    /// `HTTPS_PROXY`.
    pub https_proxy: String,
    /// `NO_PROXY`.
    pub no_proxy: String,
}

impl ProxyEnv {
    /// Reads the variables through `lookup`; capitals first, then small letters, as Go does.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let read = |name: &str| {
            let found = [name.to_owned(), name.to_lowercase()]
                .iter()
                .find_map(|n| lookup(n).filter(|v| !v.is_empty()));
            found.unwrap_or_default()
        };
        Self { http_proxy: read("HTTP_PROXY"), https_proxy: read("HTTPS_PROXY"), no_proxy: read("NO_PROXY") }
    }
}

impl fmt::Debug for ProxyEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Proxy URLs may hold passwords.
        f.debug_struct("ProxyEnv").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}
