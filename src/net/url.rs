//! The few URLs that the program handles: `scheme://[user[:password]@]host[:port][/path]`.

use std::fmt;

use crate::base::redact::{self, Secret};
use crate::format::address::authority;

/// A parsed URL. Formats without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// In lower case, such as `https`.
    pub(crate) scheme: String,
    /// User and password, percent-decoded.
    pub(crate) login: Option<(String, Secret<String>)>,
    /// Name or IP address in lower case; IPv6 without brackets.
    pub(crate) host: String,
    /// Port, or the default of the scheme.
    pub(crate) port: u16,
    /// Path without a trailing slash; empty or with a leading slash.
    pub(crate) path: String,
}

impl Url {
    /// Parses a URL with scheme and host. Errors: what is wrong with it, without the URL itself: it
    /// may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("URL without scheme")?;
        let scheme = scheme.to_ascii_lowercase();
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            "socks5" | "socks5h" => 1080,
            _ => return Err(format!("scheme {:?} is not supported", redact::url(&scheme))),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let path = tail.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').to_owned();
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(parse_login(login)?), address),
            None => (None, authority),
        };
        let (host, port) = split_host_port(address)?;
        if !acceptable_host(host) || path.bytes().any(|b| b <= b' ' || b >= 0x7f) {
            return Err("URL with an unusable host or path".to_owned());
        }
        let port =
            if port.is_empty() { default_port } else { port.parse().map_err(|_| "URL with a bad port")? };
        Ok(Self { scheme, login, host: host.to_ascii_lowercase(), port, path })
    }

    /// `host:port`, with brackets around IPv6.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// Scheme, host, port and path: the parts that requests and logs may show.
    pub fn base(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority(), self.path)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({})", self.base())
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port`; the port may be empty.
fn split_host_port(address: &str) -> Result<(&str, &str), String> {
    if let Some(rest) = address.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or("URL with an open bracket")?;
        if !port.is_empty() && !port.starts_with(':') {
            return Err("URL with text after the address".to_owned());
        }
        return Ok((host, port.trim_start_matches(':')));
    }
    let (host, port) = address.split_once(':').unwrap_or((address, ""));
    if port.contains(':') {
        return Err("IPv6 address without brackets".to_owned());
    }
    Ok((host, port))
}

fn acceptable_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b))
}

fn parse_login(text: &str) -> Result<(String, Secret<String>), String> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Ok((percent_decode(user)?, Secret::new(percent_decode(password)?)))
}

fn percent_decode(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next(), bytes.next()].map(|b| char::from(b.unwrap_or(0)).to_digit(16));
        let [Some(high), Some(low)] = digits else { return Err("URL with a bad escape".to_owned()) };
        out.push(u8::try_from(high * 16 + low).unwrap_or(0));
    }
    String::from_utf8(out).map_err(|_| "URL with a bad escape".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_split_into_their_parts() {
        let table = [
            ("https://Garden.example.org", "https://garden.example.org:443"),
            ("https://garden:6443/k8s/clusters/x/", "https://garden:6443/k8s/clusters/x"),
            ("http://[fd00::1]:8080/?q", "http://[fd00::1]:8080"),
            ("https://[::1]", "https://[::1]:443"),
            ("socks5h://proxy", "socks5h://proxy:1080"),
        ];
        for (text, base) in table {
            assert_eq!(Url::parse(text).unwrap().base(), base, "{text}");
        }
        let url = Url::parse("http://us%65r:p%40ss%3a@proxy:3128").unwrap();
        let (user, password) = url.login.clone().unwrap();
        assert_eq!((user.as_str(), password.expose().as_str()), ("user", "p@ss:"));
        assert!(!format!("{url:?}").contains("ss:"));
    }

    #[test]
    fn bad_urls_are_refused() {
        for text in [
            "",
            "host:1",
            "https://",
            "https://:443",
            "ftp://host",
            "https://a b",
            "https://h:99999",
            "https://h:x",
            "https://fd00::1",
            "https://[fd00::1",
            "https://[::1]x",
            "http://%zz@h",
            "https://h/\u{7f}",
            "https://h/\r\n",
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
    }
}
