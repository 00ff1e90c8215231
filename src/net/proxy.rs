//! The proxy policy for every socket, with the semantics of Go's `httpproxy`.

use std::fmt;
use std::net::IpAddr;

use super::url::Url;

/// The proxy variables of the environment.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ProxyEnv {
    /// The value of variable `HTTP_PROXY`.
    pub(crate) http_proxy: String,
    /// The value of variable `HTTPS_PROXY`.
    pub(crate) https_proxy: String,
    /// The value of variable `NO_PROXY`.
    pub(crate) no_proxy: String,
}

impl ProxyEnv {
    /// Reads the variables through `lookup`; upper case first, then lower case, as Go does.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let read = |name: &str| {
            let names = [name.to_owned(), name.to_lowercase()];
            names.iter().find_map(|n| lookup(n).filter(|v| !v.is_empty())).unwrap_or_default()
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

/// Selects the proxy for each URL.
#[derive(Clone, Debug)]
pub enum ProxyPolicy {
    /// This proxy for everything: `proxy-url` of a kubeconfig.
    Fixed(Url),
    /// The proxy variables of the environment.
    Environment {
        /// The proxy for `http` URLs.
        http: Option<Url>,
        /// The proxy for `https` URLs.
        https: Option<Url>,
        /// Hosts that are reached directly.
        except: Exceptions,
    },
}

impl ProxyPolicy {
    /// No proxy for anything.
    pub fn none() -> Self {
        Self::Environment { http: None, https: None, except: Exceptions::default() }
    }

    /// The policy of the environment. Errors: the variable whose URL is unusable.
    pub fn from_env(env: &ProxyEnv) -> Result<Self, String> {
        let parse =
            |name: &str, text: &str| parse_proxy(text).map_err(|problem| format!("{name}: {problem}"));
        Ok(Self::Environment {
            http: parse("HTTP_PROXY", &env.http_proxy)?,
            https: parse("HTTPS_PROXY", &env.https_proxy)?,
            except: Exceptions::parse(&env.no_proxy),
        })
    }

    /// One proxy for everything; an empty text means no proxy. Errors: what is wrong with the URL.
    pub fn fixed(url: &str) -> Result<Self, String> {
        Ok(parse_proxy(url)?.map_or_else(Self::none, Self::Fixed))
    }

    /// The proxy for a URL; `None` to connect directly.
    pub(crate) fn proxy_for(&self, scheme: &str, host: &str, port: u16) -> Option<&Url> {
        match self {
            Self::Fixed(url) => Some(url),
            Self::Environment { http, https, except } => {
                let proxy = if scheme == "https" { https } else { http };
                proxy.as_ref().filter(|_| !except.matches(host, port))
            }
        }
    }
}

/// An address without a scheme is an HTTP proxy.
fn parse_proxy(text: &str) -> Result<Option<Url>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    url.map(Some)
}

/// `NO_PROXY`: names with their sub-domains, addresses, networks, each with an optional port; `*` for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exceptions {
    all: bool,
    rules: Vec<NoProxyRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NoProxyRule {
    Network { address: IpAddr, prefix_bits: u8 },
    Address { address: IpAddr, port: Option<u16> },
    Domain { suffix: String, itself: bool, port: Option<u16> },
}

impl Exceptions {
    /// Parses the list and skips meaningless entries.
    pub(crate) fn parse(list: &str) -> Self {
        let entries = list.split(',').map(|entry| entry.trim().to_ascii_lowercase());
        let mut out = Self::default();
        for entry in entries.filter(|entry| !entry.is_empty()) {
            if entry == "*" {
                return Self { all: true, rules: Vec::new() };
            }
            out.rules.extend(parse_rule(&entry));
        }
        out
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let host = host.trim().trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok().map(canonical);
        if host == "localhost" || address.is_some_and(|a| a.is_loopback()) || self.all {
            return true;
        }
        self.rules.iter().any(|rule| rule.matches(&host, address, port))
    }
}

impl NoProxyRule {
    fn matches(&self, host: &str, target: Option<IpAddr>, target_port: u16) -> bool {
        let port_fits = |port: &Option<u16>| port.is_none_or(|port| port == target_port);
        match self {
            Self::Network { address, prefix_bits } => {
                target.is_some_and(|target| in_network(target, *address, *prefix_bits))
            }
            Self::Address { address, port } => target == Some(*address) && port_fits(port),
            Self::Domain { suffix, itself, port } => {
                let name_fits = host.ends_with(suffix.as_str()) || (*itself && host == &suffix[1..]);
                name_fits && port_fits(port)
            }
        }
    }
}

fn parse_rule(entry: &str) -> Option<NoProxyRule> {
    if let Some((address, bits)) = entry.split_once('/') {
        let (address, prefix_bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        return (prefix_bits <= bits_max).then_some(NoProxyRule::Network { address, prefix_bits });
    }
    let (host, port) = split_port(entry)?;
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(NoProxyRule::Address { address: canonical(address), port });
    }
    let name = if host.starts_with("*.") { &host[1..] } else { host };
    let itself = !name.starts_with('.');
    let suffix = if itself { format!(".{name}") } else { name.to_owned() };
    (suffix.len() > 1).then_some(NoProxyRule::Domain { suffix, itself, port })
}

/// Splits an optional port off; a bare IPv6 address has none.
fn split_port(entry: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = entry.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return match port.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => Some((host, None)),
        };
    }
    match entry.split_once(':') {
        Some((_, port)) if port.contains(':') => Some((entry, None)),
        Some((host, port)) if !host.is_empty() => Some((host, Some(port.parse().ok()?))),
        Some(_) => None,
        None => Some((entry, None)),
    }
}

/// Converts IPv4-mapped IPv6 addresses to IPv4.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn in_network(target: IpAddr, network: IpAddr, prefix_bits: u8) -> bool {
    let same = |a: &[u8], b: &[u8]| {
        a.iter().zip(b).enumerate().all(|(index, (a, b))| {
            let bits = usize::from(prefix_bits).saturating_sub(index * 8).min(8);
            // The upper `bits` of the byte count.
            let mask = u8::try_from((0xff00_u16 >> bits) & 0xff).unwrap_or(0);
            a & mask == b & mask
        })
    };
    match (target, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(&a.octets(), &b.octets()),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(&a.octets(), &b.octets()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(no_proxy: &str, host: &str, port: u16) -> bool {
        Exceptions::parse(no_proxy).matches(host, port)
    }

    #[test]
    fn no_proxy_means_what_it_means_in_go() {
        let table = [
            ("", "example.org", 443, false),
            ("", "localhost", 443, true),
            ("", "127.0.0.1", 443, true),
            ("", "127.9.9.9", 443, true),
            ("", "::1", 443, true),
            ("", "localhost.example.org", 443, false),
            ("*", "example.org", 443, true),
            ("a.org, *", "example.org", 443, true),
            ("example.org", "example.org", 443, true),
            ("example.org", "EXAMPLE.ORG", 443, true),
            ("example.org", "api.example.org", 443, true),
            ("example.org", "badexample.org", 443, false),
            (".example.org", "example.org", 443, false),
            (".example.org", "api.example.org", 443, true),
            ("*.example.org", "example.org", 443, false),
            ("*.example.org", "a.b.example.org", 443, true),
            ("api*.example.org", "api1.example.org", 443, false),
            ("example.org:8443", "example.org", 443, false),
            ("example.org:8443", "api.example.org", 8443, true),
            (":443", "example.org", 443, false),
            ("10.0.0.0/8", "10.255.0.1", 443, true),
            ("10.0.0.0/8", "11.0.0.1", 443, false),
            ("10.1.2.128/25", "10.1.2.127", 443, false),
            ("10.1.2.128/25", "10.1.2.128", 443, true),
            ("10.0.0.0/33", "10.0.0.1", 443, false),
            ("0.0.0.0/0", "9.9.9.9", 443, true),
            ("0.0.0.0/0", "fd00::1", 443, false),
            ("fd00::/8", "fd12::1", 443, true),
            ("fd00::/8", "fe80::1", 443, false),
            ("10.0.0.1", "10.0.0.1", 443, true),
            ("10.0.0.1:6443", "10.0.0.1", 443, false),
            ("10.0.0.1:6443", "10.0.0.1", 6443, true),
            ("fd00::1", "fd00::1", 443, true),
            ("[fd00::1]:6443", "fd00::1", 6443, true),
            ("[fd00::1]:6443", "fd00::1", 443, false),
            ("10.0.0.1", "::ffff:10.0.0.1", 443, true),
            (" , x.org ,, y.org", "y.org", 443, true),
            ("10.0.0.0/8", "ten.example.org", 443, false),
        ];
        for (no_proxy, host, port, expected) in table {
            assert_eq!(direct(no_proxy, host, port), expected, "{no_proxy:?} {host}:{port}");
        }
    }

    #[test]
    fn the_scheme_chooses_the_proxy() {
        let env = ProxyEnv {
            http_proxy: "plain:3128".into(),
            https_proxy: "https://user:pw@secure".into(),
            no_proxy: "in.example.org".into(),
        };
        let policy = ProxyPolicy::from_env(&env).unwrap();
        let table = [
            ("http", "out.org", Some("http://plain:3128")),
            ("https", "out.org", Some("https://secure:443")),
            ("https", "in.example.org", None),
        ];
        for (scheme, host, expected) in table {
            let proxy = policy.proxy_for(scheme, host, 443).map(Url::base);
            assert_eq!(proxy.as_deref(), expected, "{scheme} {host}");
        }
        assert!(!format!("{env:?}{policy:?}").contains("pw"));
        assert!(ProxyPolicy::from_env(&ProxyEnv { https_proxy: "ftp://x".into(), ..env }).is_err());
        // The proxy of a kubeconfig has no exceptions.
        let fixed = ProxyPolicy::fixed("socks5://localhost:1").unwrap();
        assert!(fixed.proxy_for("https", "localhost", 443).is_some());
        assert!(ProxyPolicy::fixed("").unwrap().proxy_for("https", "a", 1).is_none());
    }

    #[test]
    fn capital_variables_win() {
        let env = ProxyEnv::from_lookup(|name| match name {
            "HTTPS_PROXY" => Some("big".to_owned()),
            "https_proxy" | "no_proxy" => Some("small".to_owned()),
            "NO_PROXY" => Some(String::new()),
            _ => None,
        });
        assert_eq!((env.https_proxy.as_str(), env.no_proxy.as_str()), ("big", "small"));
    }
}
