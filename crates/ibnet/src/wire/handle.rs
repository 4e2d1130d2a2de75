//! The handle that a listener gives away and a peer connects with.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use crate::error::Error;

/// Where a listener can be reached, and the cookie that proves that somebody was told.
///
/// A plain value of 64 bytes, position independent, that travels to the peer by whatever means the
/// application has (NCCL: its bootstrap network): as bytes, or as text, which is 128 hexadecimal digits.
/// Layout, all numbers big-endian:
///
/// | bytes | what |
/// |---|---|
/// | 0..4 | magic `IBNT` |
/// | 4 | version, 2 |
/// | 5 | address family, 4 or 6 |
/// | 6..8 | TCP port |
/// | 8..24 | address (an IPv4 address in the first four bytes) |
/// | 24..28 | IPv6 scope id |
/// | 28..44 | cookie |
/// | 44..64 | further addresses of the listener's host, as many as there is room for: each its family, 4 or 6, and 4 or 16 bytes; then zeros |
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    address: SocketAddr,
    cookie: Cookie,
    others: Others,
}

/// The secret of one listener: 128 random bits. Knowing it is what admits a peer.
pub(crate) type Cookie = [u8; 16];

const MAGIC: [u8; 4] = *b"IBNT";
const VERSION: u8 = 2;
/// Where the further addresses begin.
const OTHERS: usize = 44;

/// The further addresses as they travel.
type Others = [u8; Handle::SIZE - OTHERS];

impl Handle {
    /// Bytes of a handle on its way to the peer. NCCL allows 64 up to version 4 of its interface,
    /// 128 later (`NCCL_NET_HANDLE_MAXSIZE`).
    pub const SIZE: usize = 64;

    /// Of a listener at `address`, whose host has `others`, too: the first of them for which there is
    /// room are handed on.
    pub(crate) fn new(
        address: SocketAddr,
        cookie: Cookie,
        others: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        let mut places = Others::default();
        let mut used = 0;
        for ip in others {
            let (family, octets) = match ip {
                IpAddr::V4(v4) => (4, v4.octets().to_vec()),
                IpAddr::V6(v6) => (6, v6.octets().to_vec()),
            };
            if let Some(place) = places.get_mut(used..used + 1 + octets.len()) {
                place[0] = family;
                place[1..].copy_from_slice(&octets);
                used += place.len();
            }
        }
        Self {
            address,
            cookie,
            others: places,
        }
    }

    /// Where the listener waits.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Further addresses of the listener's host. It does not listen there: they are for those who look
    /// for the reason why it cannot be reached.
    pub fn other_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let mut rest = &self.others[..];
        std::iter::from_fn(move || {
            let (ip, after) = next_other(rest)?;
            rest = after;
            Some(ip)
        })
    }

    pub(crate) fn cookie(&self) -> &Cookie {
        &self.cookie
    }

    /// The handle as bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.address.port().to_be_bytes());
        match self.address {
            SocketAddr::V4(v4) => {
                bytes[5] = 4;
                bytes[8..12].copy_from_slice(&v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                bytes[5] = 6;
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_be_bytes());
            }
        }
        bytes[28..OTHERS].copy_from_slice(&self.cookie);
        bytes[OTHERS..].copy_from_slice(&self.others);
        bytes
    }

    /// Reads a handle from the first [`SIZE`](Self::SIZE) of `bytes`.
    ///
    /// # Errors
    /// [`Error::BadHandle`] unless every field is what [`to_bytes`](Self::to_bytes) could write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let bytes: &[u8; Self::SIZE] = bytes
            .first_chunk()
            .ok_or(Error::BadHandle("shorter than 64 bytes"))?;
        if bytes[..4] != MAGIC {
            return Err(Error::BadHandle("it does not begin with the magic number"));
        }
        if bytes[4] != VERSION {
            return Err(Error::BadHandle(
                "another version; both ends need the same release",
            ));
        }
        let field = |range: std::ops::Range<usize>| &bytes[range];
        let port = u16::from_be_bytes([bytes[6], bytes[7]]);
        if port == 0 {
            return Err(Error::BadHandle("port 0"));
        }
        let mut v6 = [0; 16];
        v6.copy_from_slice(field(8..24));
        let scope = u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
        let address = match bytes[5] {
            4 if v6[4..].iter().all(|byte| *byte == 0) && scope == 0 => {
                let v4 = Ipv4Addr::new(v6[0], v6[1], v6[2], v6[3]);
                SocketAddr::new(IpAddr::V4(v4), port)
            }
            6 => SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(v6), port, 0, scope)),
            _ => return Err(Error::BadHandle("unknown address family")),
        };
        if address.ip().is_unspecified() || address.ip().is_multicast() {
            return Err(Error::BadHandle("an address that nobody can be reached at"));
        }
        let mut cookie = Cookie::default();
        cookie.copy_from_slice(field(28..OTHERS));
        let mut rest = &bytes[OTHERS..];
        while let Some((_, after)) = next_other(rest) {
            rest = after;
        }
        if rest.iter().any(|byte| *byte != 0) {
            return Err(Error::BadHandle("rubbish after the last field"));
        }
        let mut others = Others::default();
        others.copy_from_slice(&bytes[OTHERS..]);
        Ok(Self {
            address,
            cookie,
            others,
        })
    }
}

/// Without the cookie: who reads a log need not be admitted.
impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The whole handle in hexadecimal digits, for the peer.
impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.to_bytes().into_iter();
        bytes.try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads what `Display` writes.
///
/// # Errors
/// [`Error::BadHandle`].
impl FromStr for Handle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits: Option<Vec<u32>> = text.trim().chars().map(|c| c.to_digit(16)).collect();
        let digits = digits.filter(|digits| digits.len() == 2 * Self::SIZE);
        let digits = digits.ok_or(Error::BadHandle("expected 128 hexadecimal digits"))?;
        let bytes = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
        Self::from_bytes(&bytes.collect::<Vec<_>>())
    }
}

/// The first of the further addresses, and what comes after it.
fn next_other(bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    let (family, rest) = bytes.split_first()?;
    match family {
        4 => {
            let (octets, rest) = rest.split_first_chunk::<4>()?;
            Some((IpAddr::from(*octets), rest))
        }
        6 => {
            let (octets, rest) = rest.split_first_chunk::<16>()?;
            Some((IpAddr::from(*octets), rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn handle(address: &str) -> Handle {
        with_others(address, &[])
    }

    fn with_others(address: &str, others: &[&str]) -> Handle {
        let others = others.iter().map(|ip| ip.parse().unwrap());
        Handle::new(address.parse().unwrap(), *b"0123456789abcdef", others)
    }

    #[test]
    fn further_addresses_are_handed_on_as_far_as_there_is_room() {
        let v4 = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
        for (others, arriving) in [
            (&[][..], &[][..]),
            (&v4[..], &v4[..4]),
            (&["2001:db8::1", "10.0.0.1"], &["2001:db8::1"]),
            (
                &["10.0.0.1", "2001:db8::1", "10.0.0.2"],
                &["10.0.0.1", "10.0.0.2"],
            ),
        ] {
            let bytes = with_others("10.1.2.3:4567", others).to_bytes();
            let read = Handle::from_bytes(&bytes).unwrap();
            let read: Vec<String> = read.other_addresses().map(|ip| ip.to_string()).collect();
            assert_eq!(read, arriving);
        }
        let mut cut = with_others("10.1.2.3:4567", &v4).to_bytes();
        cut[OTHERS + 15] = 6;
        assert!(Handle::from_bytes(&cut).is_err(), "16 bytes in place of 4");
    }

    #[test]
    fn handles_survive_the_journey() {
        for address in [
            "10.1.2.3:4567",
            "[2001:db8::1]:65535",
            "[fe80::1%7]:1",
            "127.0.0.1:80",
        ] {
            let original = handle(address);
            assert_eq!(Handle::from_bytes(&original.to_bytes()).unwrap(), original);
            assert_eq!(original.to_string().parse::<Handle>().unwrap(), original);
            // A larger buffer, as NCCL's of 128 bytes, is fine.
            let mut wide = [0xaa; 128];
            wide[..Handle::SIZE].copy_from_slice(&original.to_bytes());
            assert_eq!(Handle::from_bytes(&wide).unwrap(), original);
        }
    }

    #[test]
    fn a_text_is_128_digits() {
        let text = handle("10.1.2.3:4567").to_string();
        assert!(text.starts_with("49424e54") && text.len() == 128, "{text}");
        assert!(format!(" {text}\n").parse::<Handle>().is_ok());
        let long = format!("{text}00");
        for bad in [
            "",
            "0",
            "zz",
            "+1",
            "0102",
            "ä",
            &"0".repeat(128),
            &text[..126],
            &long,
        ] {
            assert!(bad.parse::<Handle>().is_err(), "{bad}");
        }
    }

    #[test]
    fn its_cookie_is_not_shown_in_logs() {
        assert_eq!(
            format!("{:?}", handle("10.1.2.3:4567")),
            "Handle { address: 10.1.2.3:4567, .. }"
        );
    }

    #[test]
    fn rubbish_is_refused() {
        // No content of a handle may lead to anything but an error.
        assert!(Handle::from_bytes(&[0xff; 128]).is_err());
        assert!(Handle::from_bytes(&[0; 64]).is_err());
        assert!(Handle::from_bytes(&handle("1.2.3.4:5").to_bytes()[..63]).is_err());
        let good = handle("10.1.2.3:4567").to_bytes();
        for position in (0..28).chain(OTHERS..Handle::SIZE) {
            let mut bad = good;
            bad[position] ^= 0xff;
            let accepted = Handle::from_bytes(&bad);
            let is_value = matches!(position, 6..12);
            assert_eq!(accepted.is_ok(), is_value, "byte {position} changed");
        }
        assert!(Handle::from_bytes(&handle("0.0.0.0:5").to_bytes()).is_err());
        assert!(Handle::from_bytes(&handle("1.2.3.4:0").to_bytes()).is_err());
        assert!(Handle::from_bytes(&handle("224.0.0.1:9").to_bytes()).is_err());
    }
}
