//! Which addresses are this network namespace's own.
//!
//! A GID table of RoCE is the device's, and may show addresses of every network namespace that
//! shares the device: of other containers, and of the host. Names and numbers of interfaces do not
//! tell them apart, because each namespace counts its own: `net1`, number 3, can be an interface of
//! every pod of a host. An address does.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::{io, ptr};

use crate::gid::Gid;

/// The GIDs that the interfaces of this thread's network namespace give to a device
/// (getifaddrs(3)): one for each address, and one for each MAC address, since the kernel makes the
/// link-local GID of a port from it whether IPv6 is enabled there or not.
///
/// None if the system does not tell any. Even a namespace without a network has its loop-back
/// interface.
pub(crate) fn of_this_namespace() -> Option<BTreeSet<Gid>> {
    let list = List::read()
        .inspect_err(|error| tracing::debug!(%error, "the own addresses are not known"))
        .ok()?;
    let gids: BTreeSet<Gid> = list.iter().filter_map(gid_of).collect();
    (!gids.is_empty()).then_some(gids)
}

/// The link-local GID of a MAC address (RFC 4291, appendix A; `make_default_gid` of Linux).
fn link_local(mac: [u8; 6]) -> Gid {
    let [a, b, c, d, e, f] = mac;
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Gid(gid)
}

/// The GID that comes of an entry of getifaddrs(3), if one does.
fn gid_of(entry: &libc::ifaddrs) -> Option<Gid> {
    let address = ptr::NonNull::new(entry.ifa_addr)?.as_ptr();
    // SAFETY: the address is part of a list that is alive, and has a family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type; the list need not align it.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let v4 = std::net::Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(Gid::from(v4.to_ipv6_mapped()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Gid::from(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        libc::AF_PACKET => {
            // SAFETY: as above.
            let link = unsafe { address.cast::<libc::sockaddr_ll>().read_unaligned() };
            let [a, b, c, d, e, f, ..] = link.sll_addr;
            (link.sll_halen == 6).then(|| link_local([a, b, c, d, e, f]))
        }
        _ => None,
    }
}

/// What getifaddrs(3) returned. Freed on drop.
struct List(*mut libc::ifaddrs);

impl List {
    fn read() -> io::Result<Self> {
        let mut first = ptr::null_mut();
        // SAFETY: the argument is a valid place for the list.
        match unsafe { libc::getifaddrs(&raw mut first) } {
            0 => Ok(Self(first)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        // SAFETY: the pointers of the list are null or valid until it is freed.
        std::iter::successors(unsafe { self.0.as_ref() }, |entry| unsafe {
            entry.ifa_next.as_ref()
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list came from getifaddrs and is freed once. Null is allowed.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_gives_the_kernels_default_gid() {
        let gid = link_local([0x08, 0x0b, 0x0c, 0x11, 0x22, 0x33]);
        assert_eq!(gid.to_string(), "fe80::a0b:cff:fe11:2233");
    }

    #[test]
    fn the_loop_back_interface_is_ours() {
        let own = of_this_namespace().unwrap_or_default();
        let loop_back = Gid::from(std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert!(own.contains(&loop_back), "{own:?}");
        // Its MAC address is zeros, in every namespace of Linux.
        assert!(own.contains(&link_local([0; 6])), "{own:?}");
        let foreign = Gid::from(
            "2001:db8::1"
                .parse::<Ipv6Addr>()
                .unwrap_or(Ipv6Addr::UNSPECIFIED),
        );
        assert!(!own.contains(&foreign));
    }
}
