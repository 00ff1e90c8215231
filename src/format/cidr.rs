//! Address ranges: `10.0.0.0/8`, `fd00::/8`.

use std::net::IpAddr;

/// An address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    first: u128,
    prefix: u32,
    is_v4: bool,
}

impl Cidr {
    /// Parses `10.0.0.0/8` or `fd00::/8`. Bits beyond the prefix are ignored, as in Go.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let plain = !prefix.is_empty() && prefix.len() <= 3 && prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix = prefix.parse::<u32>().ok().filter(|_| plain)?;
        let (bits, is_v4) = match address.parse::<IpAddr>().ok()? {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, true),
            IpAddr::V6(ip) => (u128::from(ip), false),
        };
        let fits = prefix <= if is_v4 { 32 } else { 128 };
        fits.then_some(Self { first: bits & mask(prefix), prefix, is_v4 })
    }

    /// Whether it is an IPv4 range.
    pub(crate) const fn is_v4(self) -> bool {
        self.is_v4
    }

    /// The length of the prefix in bits.
    pub(crate) const fn prefix(self) -> u32 {
        self.prefix
    }

    /// The address at this offset from the first one.
    pub fn nth(self, distance: u32) -> IpAddr {
        if self.is_v4 {
            let bits = u32::try_from(self.first >> 96).unwrap_or_default();
            IpAddr::from(bits.wrapping_add(distance).to_be_bytes())
        } else {
            IpAddr::from(self.first.wrapping_add(u128::from(distance)).to_be_bytes())
        }
    }

    /// Whether the address is in the range.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let host = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self::parse(&format!("{address}/{host}"))
            .is_some_and(|one| self.overlaps(one) && self.prefix <= one.prefix)
    }

    /// Whether the two ranges have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        let common = mask(self.prefix.min(other.prefix));
        self.is_v4 == other.is_v4 && self.first & common == other.first & common
    }
}

fn mask(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_counted_from_the_first_one() {
        let nth = |range: &str, distance| Cidr::parse(range).unwrap().nth(distance).to_string();
        assert_eq!(nth("100.64.0.0/13", 1), "100.64.0.1");
        assert_eq!(nth("10.0.0.255/24", 10), "10.0.0.10");
        assert_eq!(nth("fd00:1::/108", 1), "fd00:1::1");
    }

    #[test]
    fn ranges_are_parsed_and_compared() {
        let table = [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/16", "10.1.0.0/16", false),
            ("10.0.0.1/16", "10.0.255.255/32", true),
            ("0.0.0.0/0", "10.0.0.0/8", true),
            ("fd00::/8", "fd12::/16", true),
            ("::/0", "10.0.0.0/8", false),
        ];
        for (a, b, overlap) in table {
            assert_eq!(Cidr::parse(a).unwrap().overlaps(Cidr::parse(b).unwrap()), overlap, "{a} {b}");
        }
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "a/8", "10.0.0.0/", "10.0.0.0/+8"] {
            assert_eq!(Cidr::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn addresses_are_found_in_their_range() {
        let table = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/16", "10.1.0.1", false),
            ("fd00::/8", "fd12::1", true),
            ("10.0.0.0/8", "fd12::1", false),
        ];
        for (range, address, expected) in table {
            let address = address.parse().unwrap();
            assert_eq!(Cidr::parse(range).unwrap().contains(address), expected, "{range} {address}");
        }
    }
}
