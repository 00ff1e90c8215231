//! How addresses are written, and which of them no client can reach.

use std::fmt::Display;
use std::net::IpAddr;

/// `host:port`, with brackets around IPv6.
pub(crate) fn authority(host: &str, port: impl Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Why no client outside of this host reaches the address; `None` if a client may.
pub(crate) fn flaw(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    let (is_documentation, is_link_local) = match address {
        IpAddr::V4(it) => (it.is_documentation(), it.is_link_local()),
        IpAddr::V6(it) => {
            let [first, second, ..] = it.segments();
            let is_documentation =
                first == 0x2001 && second == 0x0db8 || first == 0x3fff && second >> 12 == 0;
            (is_documentation, it.is_unicast_link_local())
        }
    };
    let is_broadcast = matches!(address, IpAddr::V4(it) if it.is_broadcast() || it.octets()[0] == 0);
    match () {
        () if is_documentation => Some("is reserved for documentation"),
        () if address.is_unspecified() => Some("means any address"),
        () if address.is_loopback() => Some("is a loopback address, which each host has"),
        () if address.is_multicast() => Some("is a multicast address"),
        () if is_link_local => Some("is a link-local address, which no router forwards"),
        () if is_broadcast => Some("is no address of a host"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_has_brackets_beside_a_port() {
        let table = [
            ("2001:db8::1", "[2001:db8::1]:80"),
            ("192.0.2.1", "192.0.2.1:80"),
            ("a.example.org", "a.example.org:80"),
        ];
        for (host, expected) in table {
            assert_eq!(authority(host, 80), expected);
        }
    }

    #[test]
    fn flaws_are_named() {
        let table = [
            ("192.0.2.10", "documentation"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.255", "documentation"),
            ("::ffff:192.0.2.10", "documentation"),
            ("2001:db8::1", "documentation"),
            ("3fff::1", "documentation"),
            ("3fff:fff:ffff::1", "documentation"),
            ("3fff:1000::1", ""),
            ("2001:db9::1", ""),
            ("0.0.0.0", "any address"),
            ("::", "any address"),
            ("0.1.2.3", "no address of a host"),
            ("255.255.255.255", "no address of a host"),
            ("127.0.0.1", "loopback"),
            ("::1", "loopback"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("169.254.1.1", "link-local"),
            ("fe80::1", "link-local"),
            ("10.0.0.1", ""),
            ("192.0.3.1", ""),
            ("8.8.8.8", ""),
            ("fd00::1", ""),
        ];
        for (address, expected) in table {
            let flaw = flaw(address.parse().unwrap());
            assert_eq!(flaw.is_some(), !expected.is_empty(), "{address}: {flaw:?}");
            assert!(flaw.unwrap_or_default().contains(expected), "{address}: {flaw:?}");
        }
    }
}
