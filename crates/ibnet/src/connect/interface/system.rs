//! What network interfaces there are.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use super::choice::{Address, Interface, State};
use crate::device::prefix::mask_length;
use crate::error::Error;

/// All interfaces of this network namespace, in the system's order, also those that are down or
/// without an address.
pub(super) fn interfaces() -> Result<Vec<Interface>, Error> {
    let all = nix::ifaddrs::getifaddrs()
        .map_err(|errno| Error::system("listing the network interfaces", errno))?;
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in all {
        let name = &entry.interface_name;
        let index = interfaces.iter().position(|known| known.name == *name);
        let index = index.unwrap_or_else(|| {
            interfaces.push(Interface {
                name: name.clone(),
                state: state(entry.flags),
                addresses: Vec::new(),
            });
            interfaces.len() - 1
        });
        let prefix = entry.netmask.as_ref().and_then(mask_length);
        let address = entry.address.as_ref().and_then(socket_address);
        let address = address.map(|address| Address { address, prefix });
        interfaces[index].addresses.extend(address);
    }
    Ok(interfaces)
}

fn state(flags: InterfaceFlags) -> State {
    if !flags.contains(InterfaceFlags::IFF_UP) {
        State::Down
    } else if !flags.contains(InterfaceFlags::IFF_RUNNING) {
        State::NoCarrier
    } else {
        State::Running
    }
}

/// An IPv4 or IPv6 address, with port 0.
fn socket_address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::new(IpAddr::V4(v4.ip()), 0));
    }
    let v6 = storage.as_sockaddr_in6()?;
    Some(SocketAddr::V6(SocketAddrV6::new(
        v6.ip(),
        0,
        0,
        v6.scope_id(),
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_system_has_a_loop_back_interface() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|interface| interface.name == "lo").unwrap();
        assert_eq!(lo.state, State::Running, "{all:?}");
        let home: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let own = lo.addresses.iter().find(|own| own.address == home);
        assert_eq!(own.unwrap().prefix, Some(8), "{all:?}");
    }
}
