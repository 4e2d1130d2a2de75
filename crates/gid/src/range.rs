//! [`AddressRanges`]: in which networks an address must lie.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ibnet_verbs::Gid;

use crate::invalid::{InvalidRule, parts, plain_number};

/// How many bits of an IPv4-mapped address are the same for all.
const MAPPED_BITS: u8 = 96;

/// A range of addresses in CIDR notation: `10.1.0.0/16`, `fd00::/8`; a bare address is the range of
/// that one host.
///
/// The prefix length is strict: plain digits, at most 32 or 128. `/0` is every address *of that
/// family*. Bits behind the prefix do not count: `10.1.2.3/16` is `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    /// The first address, IPv4 mapped; all bits behind the prefix zero.
    first: Ipv6Addr,
    /// In bits of an IPv6 address.
    length: u8,
}

impl AddressRange {
    /// Whether the address in `gid` lies in the range.
    pub fn contains(&self, gid: &Gid) -> bool {
        let address = gid.to_ipv6();
        let is_v4 = address.to_ipv4_mapped().is_some();
        is_v4 == self.is_v4() && masked(address, self.length) == self.first
    }

    fn is_v4(&self) -> bool {
        self.length >= MAPPED_BITS && self.first.to_ipv4_mapped().is_some()
    }
}

impl FromStr for AddressRange {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let text = text.trim();
        let invalid = |expected: &str| InvalidRule::new(text, expected);
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let (address, shared, most) = match address.parse() {
            Ok(IpAddr::V4(v4)) => (v4.to_ipv6_mapped(), MAPPED_BITS, 32),
            Ok(IpAddr::V6(v6)) => (v6, 0, 128),
            Err(_) => {
                let expected = "an IP address, or a range like 10.1.0.0/16 or fd00::/8";
                return Err(invalid(expected));
            }
        };
        let length = match length.map(plain_number) {
            None => most,
            Some(Some(length)) if length <= most => length,
            Some(_) => {
                let expected = format!("a prefix length from 0 to {most} after the slash");
                return Err(invalid(&expected));
            }
        };
        let length = shared + length;
        if address.to_ipv4_mapped().is_some() && length < MAPPED_BITS {
            return Err(invalid("IPv4 ranges in the form 10.1.0.0/16"));
        }
        Ok(Self {
            first: masked(address, length),
            length,
        })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first.to_ipv4_mapped() {
            Some(v4) if self.is_v4() => write!(f, "{v4}/{}", self.length - MAPPED_BITS),
            _ => write!(f, "{}/{}", self.first, self.length),
        }
    }
}

/// The address with all bits behind the first `length` zero.
fn masked(address: Ipv6Addr, length: u8) -> Ipv6Addr {
    let behind = u32::from(128_u8.saturating_sub(length));
    // A shift by the whole width is what makes a mask of length 0.
    let mask = u128::MAX.checked_shl(behind).unwrap_or(0);
    (address.to_bits() & mask).into()
}

/// Several ranges, separated by commas. An address must lie in one of them; no ranges at all allow
/// every address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressRanges(pub Vec<AddressRange>);

impl AddressRanges {
    /// Whether the address in `gid` is allowed.
    pub fn allow(&self, gid: &Gid) -> bool {
        self.0.is_empty() || self.0.iter().any(|range| range.contains(gid))
    }
}

impl FromStr for AddressRanges {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        parts(text)
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for AddressRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, range) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn allows(ranges: &str, address: &str) -> bool {
        let gid = match address.parse().unwrap() {
            IpAddr::V4(v4) => Gid::from(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => Gid::from(v6),
        };
        ranges.parse::<AddressRanges>().unwrap().allow(&gid)
    }

    #[test]
    fn ranges_are_exact_to_the_bit() {
        // NCCL's mask is wrong for a prefix of one bit and for none.
        for (ranges, inside, outside) in [
            ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
            ("10.1.2.3/16", "10.1.0.0", "10.0.255.255"),
            ("128.0.0.0/1", "255.1.2.3", "127.255.255.255"),
            ("0.0.0.0/1", "127.1.2.3", "128.0.0.0"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("::/0", "2001:db8::1", "203.0.113.9"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
            ("10.1.2.2/31", "10.1.2.3", "10.1.2.4"),
            ("2001:db8::7", "2001:db8::7", "2001:db8::8"),
            ("fd00:1::/33", "fd00:1:7fff::1", "fd00:1:8000::1"),
            ("fd00::/127", "fd00::1", "fd00::2"),
            ("8000::/1", "fe80::1", "7fff::1"),
            ("10.1.0.0/16,10.3.0.0/16", "10.3.1.1", "10.2.1.1"),
            (" 10.1.0.0/16 , fd00::/8 ", "fd12::1", "fe80::1"),
            ("::ffff:10.1.0.0/112", "10.1.9.9", "10.2.0.0"),
        ] {
            assert!(allows(ranges, inside), "{ranges} holds {inside}");
            assert!(!allows(ranges, outside), "{ranges} does not hold {outside}");
        }
        assert!(allows("", "10.1.2.3") && allows(" ", "fe80::1"));
    }

    #[test]
    fn whatever_is_no_range_is_refused_and_named() {
        // Once "/-1" matched nothing, "/abc" everything; junk and a missing slash passed.
        for (text, token) in [
            ("10.0.0.0/-1", "10.0.0.0/-1"),
            ("10.0.0.0/abc", "10.0.0.0/abc"),
            ("10.0.0.0/", "10.0.0.0/"),
            ("10.0.0.0/33", "10.0.0.0/33"),
            ("10.0.0.0/256", "10.0.0.0/256"),
            ("10.0.0.0/+8", "10.0.0.0/+8"),
            ("10.0.0.0/08", "10.0.0.0/08"),
            ("10.0.0.0/8x", "10.0.0.0/8x"),
            ("10.0.0.0/8/8", "10.0.0.0/8/8"),
            ("fd00::/129", "fd00::/129"),
            ("10.0.0", "10.0.0"),
            ("10.0.0.0/8,nonsense", "nonsense"),
            ("10.0.0.0/8,,fd00::/8", ""),
            ("10.0.0.0/8,", ""),
            ("::ffff:10.0.0.0/95", "::ffff:10.0.0.0/95"),
            ("fe80::1%eth0", "fe80::1%eth0"),
        ] {
            let error = text.parse::<AddressRanges>().unwrap_err();
            assert_eq!(error.token, token, "{text}");
            assert!(!error.expected.is_empty());
        }
    }
}
