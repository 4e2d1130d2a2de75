//! How long the prefix of an address of this host is: which network it belongs to.
#![forbid(unsafe_code)]

use std::net::IpAddr;

/// The length in bits of the network's prefix of the address in `gid`, if it is an address of
/// this network namespace.
pub(crate) fn prefix_length(gid: &ibnet_verbs::Gid) -> Option<u8> {
    let v6 = gid.to_ipv6();
    let wanted = v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4);
    let mut all = nix::ifaddrs::getifaddrs().ok()?;
    let mask = all.find_map(|entry| {
        let own = entry.address.as_ref().and_then(ip_of)?;
        (own == wanted).then_some(entry.netmask)
    })??;
    mask_length(&mask)
}

/// The length in bits of the prefix that a network's mask stands for.
pub(crate) fn mask_length(mask: &nix::sys::socket::SockaddrStorage) -> Option<u8> {
    match ip_of(mask)? {
        IpAddr::V4(mask) => contiguous(mask.to_bits().into(), 32),
        IpAddr::V6(mask) => contiguous(mask.to_bits(), 128),
    }
}

/// The number of leading ones of a mask of `width` bits, if nothing but zeros follows.
fn contiguous(mask: u128, width: u32) -> Option<u8> {
    let aligned = mask.checked_shl(128 - width)?;
    let length = aligned.leading_ones();
    let is_mask = length == 128 || aligned << length == 0;
    is_mask.then(|| u8::try_from(length).ok()).flatten()
}

fn ip_of(storage: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(IpAddr::V4(v4.ip()));
    }
    storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn prefixes_are_leading_ones() {
        for (mask, width, length) in [
            (0xffff_ff00, 32, Some(24)),
            (0xffff_ffff, 32, Some(32)),
            (0, 32, Some(0)),
            (0xff00_ff00, 32, None),
            (u128::MAX << 64, 128, Some(64)),
            (u128::MAX, 128, Some(128)),
            (1, 128, None),
        ] {
            assert_eq!(contiguous(mask, width), length, "{mask:x}");
        }
        let loop_back: std::net::Ipv4Addr = "127.0.0.1".parse().unwrap();
        let gid = ibnet_verbs::Gid::from(loop_back.to_ipv6_mapped());
        assert_eq!(prefix_length(&gid), Some(8));
        let foreign = "2001:db8::1234:5678".parse::<std::net::Ipv6Addr>().unwrap();
        assert_eq!(prefix_length(&ibnet_verbs::Gid::from(foreign)), None);
    }
}
