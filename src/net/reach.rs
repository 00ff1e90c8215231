//! Limits how far into the network a connection may lead: an address that a stranger provides must not make the agent
//! call services that only this machine or its site can reach. The check uses the dialled address, whatever name was
//! written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::error::Error;

/// The reach of an address, the widest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum AddressZone {
    /// Anyone can reach it.
    World,
    Site,
    /// This machine or its link, where metadata services of clouds listen.
    Machine,
}

impl AddressZone {
    /// The zone of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, ..] = address.octets();
        if a == 0 || a == 127 || address.is_link_local() || address.is_multicast() || address.is_broadcast() {
            Self::Machine
        } else if address.is_private() || (a == 100 && (64..128).contains(&b)) {
            Self::Site
        } else {
            Self::World
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        let s = address.segments();
        let embedded = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Self::of_v4(Ipv4Addr::new(a, b, c, d))
        };
        match s {
            [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Self::Machine,
            // Mapped and compatible addresses, NAT64 and 6to4 embed an IPv4 address.
            [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
                embedded(high, low)
            }
            [0x2002, high, low, ..] => embedded(high, low),
            [0x64, 0xff9b, 1, ..] => Self::Site,
            _ if address.is_unicast_link_local() || address.is_multicast() => Self::Machine,
            _ if address.is_unique_local() || s[0] & 0xffc0 == 0xfec0 => Self::Site,
            _ => Self::World,
        }
    }

    /// The zone of a host as written, if it is an address in any form or the name of this machine.
    pub(crate) fn of_text(host: &str) -> Option<Self> {
        let host = host.strip_suffix('.').unwrap_or(host);
        if host == "localhost" || host.ends_with(".localhost") {
            return Some(Self::Machine);
        }
        let address = host.parse::<IpAddr>().ok().or_else(|| old_form(host).map(IpAddr::V4));
        address.map(Self::of)
    }
}

/// Parses an address as `inet_aton` and most resolvers do: one to four numbers, decimal, octal or hexadecimal; the last
/// one fills the remaining bytes.
fn old_form(host: &str) -> Option<Ipv4Addr> {
    let number = |text: &str| match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some("") => Some(0),
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8).ok(),
        None => text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?,
    };
    let numbers: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = numbers.split_last()?;
    let rest_bits = 32_u32.checked_sub(8 * u32::try_from(first.len()).ok()?)?;
    if rest_bits == 0 || u64::from(*last) >= 1 << rest_bits || first.iter().any(|n| *n > 255) {
        return None;
    }
    let shift = |address: u32, n: &u32| (address << 8) | n;
    let high = u64::from(first.iter().fold(0, shift)) << rest_bits;
    u32::try_from(high | u64::from(*last)).ok().map(Ipv4Addr::from)
}

/// The addresses to which a pool may connect, and has connected.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    max: AddressZone,
    /// The zone of the last connection without a proxy, plus one; 0 for none.
    seen: Arc<AtomicU8>,
}

impl Reach {
    /// Addresses up to this zone.
    pub(crate) fn up_to(max: AddressZone) -> Self {
        Self { max, seen: Arc::default() }
    }

    pub(crate) fn anywhere() -> Self {
        Self::up_to(AddressZone::Machine)
    }

    /// The zone of the last connection; `None` if a proxy made it, or there was none.
    pub(crate) fn seen(&self) -> Option<AddressZone> {
        let number = usize::from(self.seen.load(Ordering::Relaxed)).checked_sub(1)?;
        [AddressZone::World, AddressZone::Site, AddressZone::Machine].get(number).copied()
    }

    /// Checks an address before a connection to it.
    pub(super) fn judge(&self, host: &str, address: IpAddr) -> Result<(), Error> {
        self.allow(host, AddressZone::of(address), &address)
    }

    /// Checks a host before a request to a proxy. The proxy resolves names itself, so only the written
    /// host can be checked.
    pub(super) fn judge_text(&self, host: &str) -> Result<(), Error> {
        AddressZone::of_text(host).map_or(Ok(()), |zone| self.allow(host, zone, &host))
    }

    fn allow(&self, host: &str, zone: AddressZone, address: &dyn std::fmt::Display) -> Result<(), Error> {
        if zone > self.max {
            return Err(Error::Inside { host: host.to_owned(), address: address.to_string() });
        }
        Ok(())
    }

    /// Records an established connection.
    pub(super) fn note(&self, address: IpAddr) {
        let number = match AddressZone::of(address) {
            AddressZone::World => 1,
            AddressZone::Site => 2,
            AddressZone::Machine => 3,
        };
        self.seen.store(number, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_hosts_are_classified() {
        use AddressZone::{Machine, Site, World};
        let table = [
            ("localhost", Some(Machine)),
            ("localhost.", Some(Machine)),
            ("a.localhost", Some(Machine)),
            ("127.0.0.1", Some(Machine)),
            ("127.1", Some(Machine)),
            ("127.0.1", Some(Machine)),
            ("2130706433", Some(Machine)),
            ("0x7f000001", Some(Machine)),
            ("0x7f.1", Some(Machine)),
            ("017700000001", Some(Machine)),
            ("0177.0.0.01", Some(Machine)),
            ("0", Some(Machine)),
            ("169.254.169.254", Some(Machine)),
            ("255.255.255.255", Some(Machine)),
            ("::1", Some(Machine)),
            ("::", Some(Machine)),
            ("::ffff:127.0.0.1", Some(Machine)),
            ("::127.0.0.1", Some(Machine)),
            ("64:ff9b::7f00:1", Some(Machine)),
            ("2002:7f00:1::", Some(Machine)),
            ("fe80::1", Some(Machine)),
            ("10.0.0.1", Some(Site)),
            ("167772161", Some(Site)),
            ("172.16.1", Some(Site)),
            ("192.168.0.1", Some(Site)),
            ("100.64.0.1", Some(Site)),
            ("::ffff:a00:1", Some(Site)),
            ("fd00::1", Some(Site)),
            ("fec0::1", Some(Site)),
            ("64:ff9b:1::1", Some(Site)),
            ("192.0.2.1", Some(World)),
            ("100.128.0.1", Some(World)),
            ("172.32.0.1", Some(World)),
            ("2001:db8::1", Some(World)),
            ("64:ff9b::c000:201", Some(World)),
            ("registry.example.org", None),
            ("127.0.0.1.example.org", None),
            ("localhost.example.org", None),
            ("127.0.0.256", None),
            ("256.1", None),
            ("1.2.3.4.5", None),
            ("4294967296", None),
            ("0x", Some(Machine)),
            ("08", None),
            ("1..2", None),
            ("", None),
        ];
        for (host, expected) in table {
            assert_eq!(AddressZone::of_text(host), expected, "{host}");
        }
    }

    #[test]
    fn a_reach_is_limited() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let table = [
            (AddressZone::World, [true, false, false]),
            (AddressZone::Site, [true, true, false]),
            (AddressZone::Machine, [true, true, true]),
        ];
        for (max, expected) in table {
            let reach = Reach::up_to(max);
            let judged =
                ["192.0.2.1", "10.0.0.1", "127.0.0.1"].map(address).map(|a| reach.judge("h", a).is_ok());
            assert_eq!(judged, expected, "{max:?}");
            let written = ["192.0.2.1", "10.1", "localhost"].map(|host| reach.judge_text(host).is_ok());
            assert_eq!(written, expected, "{max:?}");
            assert!(reach.judge_text("registry.example.org").is_ok(), "who resolves a name knows");
            assert_eq!(reach.seen(), None);
            reach.note(address("10.0.0.1"));
            assert_eq!(reach.seen(), Some(AddressZone::Site));
        }
    }
}
