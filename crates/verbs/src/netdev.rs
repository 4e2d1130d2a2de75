//! [`Netdev`]: the network interface behind a GID.
//!
//! A GID of RoCE is the address of a network interface: the port's own, or one on top of it (VLAN,
//! bond, VXLAN). Equal addresses of different interfaces are different entries of the table, so the
//! interface says what verbs do not: whether packets get out, and how.

use std::fmt;
use std::fs;

use crate::sysfs::{Sysfs, read_number};

/// The network interface that a GID belongs to, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Netdev {
    /// Its number, as in if_nametoindex(3).
    pub index: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// Whether packets can leave through it: it was brought up, and what it stands on is up, too.
    /// None if the kernel does not tell.
    pub up: Option<bool>,
    /// What kind of interface it is. None if the kernel does not tell.
    pub kind: Option<NetdevKind>,
}

/// What kind of interface a [`Netdev`] is, as far as it matters to RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NetdevKind {
    /// An interface of its own: a port, a virtual function, a dummy.
    Plain,
    /// A bond: several ports with one address.
    Bond,
    /// A port that belongs to a bond. Its traffic is the bond's, also where it has an address.
    BondMember,
    /// A VLAN: its packets carry a tag.
    Vlan,
    /// A tunnel (VXLAN, GENEVE, IP in IP): it wraps packets of the kernel, but not those of RoCE.
    Tunnel,
}

impl Netdev {
    /// An interface of which only the name is known.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..Self::default()
        }
    }

    /// An interface of which only the number is known.
    pub fn numbered(index: u32) -> Self {
        Self {
            index: Some(index),
            ..Self::default()
        }
    }

    /// Whether the kernel would let an interface have this name (`dev_valid_name` of Linux). No
    /// such name leads out of a directory.
    pub fn is_name(name: &str) -> bool {
        (1..libc::IF_NAMESIZE).contains(&name.len())
            && !matches!(name, "." | "..")
            && !name
                .chars()
                .any(|c| matches!(c, '/' | ':' | '\0') || c.is_whitespace())
    }

    /// Reads state and kind, for which the name must be known.
    ///
    /// Nothing is taken from a sysfs that knows another number for the name: it shows the
    /// interfaces of another network namespace.
    pub(crate) fn describe(&mut self, sysfs: &Sysfs) {
        let Some(directory) = self.name.as_deref().and_then(|name| sysfs.interface(name)) else {
            return;
        };
        let number = read_number(&directory.join("ifindex"));
        if number.is_none() || number != self.index {
            return;
        }
        let text = |file: &str| fs::read_to_string(directory.join(file)).ok();
        self.up = is_up(
            read_number(&directory.join("flags")),
            text("operstate").as_deref().map(str::trim),
        );
        self.kind = match directory.join("bonding_slave").exists() {
            true => Some(NetdevKind::BondMember),
            false => {
                text("uevent").map(|uevent| kind(&uevent, read_number(&directory.join("type"))))
            }
        };
    }
}

impl fmt::Display for Netdev {
    /// The name, else the number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.index) {
            (Some(name), _) => f.pad(name),
            (None, Some(index)) => write!(f, "interface {index}"),
            (None, None) => f.pad("an unknown interface"),
        }
    }
}

/// Whether packets can leave (`operstate` is that of RFC 2863: `unknown` is said by drivers that
/// do not watch it, such as that of the loop-back interface).
fn is_up(flags: Option<u32>, state: Option<&str>) -> Option<bool> {
    if flags.is_some_and(|flags| flags & libc::IFF_UP.cast_unsigned() == 0) {
        return Some(false);
    }
    match state {
        Some("up") => Some(true),
        Some("down" | "lowerlayerdown" | "notpresent" | "dormant" | "testing") => Some(false),
        _ => flags.map(|_| true),
    }
}

/// What the files `uevent` and `type` (the hardware type of ARP) say.
fn kind(uevent: &str, hardware: Option<u32>) -> NetdevKind {
    const TUNNELS: [u16; 5] = [
        libc::ARPHRD_TUNNEL,
        libc::ARPHRD_TUNNEL6,
        libc::ARPHRD_SIT,
        libc::ARPHRD_IPGRE,
        823, // ARPHRD_IP6GRE, which libc lacks
    ];
    let device_type = uevent
        .lines()
        .find_map(|line| line.strip_prefix("DEVTYPE="));
    match device_type.map(str::trim) {
        Some("bond") => NetdevKind::Bond,
        Some("vlan") => NetdevKind::Vlan,
        Some("vxlan" | "geneve" | "wireguard") => NetdevKind::Tunnel,
        _ if hardware.is_some_and(|number| TUNNELS.iter().any(|&of| u32::from(of) == number)) => {
            NetdevKind::Tunnel
        }
        _ => NetdevKind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_lead_out_of_the_directory() {
        for good in ["eth0", "ens1f0np0.100", "bond0", "a", "fifteen-letters"] {
            assert!(Netdev::is_name(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "../../etc",
            "a/b",
            "eth 0",
            "eth0\0",
            "eth0:1",
            "sixteen-letters!",
        ] {
            assert!(!Netdev::is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn up_means_brought_up_and_with_a_carrier() {
        const UP: u32 = 0x1003;
        const DOWN: u32 = 0x1002;
        for (flags, state, up) in [
            (Some(UP), Some("up"), Some(true)),
            (Some(UP), Some("unknown"), Some(true)),
            (Some(UP), Some("down"), Some(false)),
            (Some(UP), Some("lowerlayerdown"), Some(false)),
            (Some(UP), Some("dormant"), Some(false)),
            (Some(DOWN), Some("down"), Some(false)),
            (Some(DOWN), Some("up"), Some(false)),
            (Some(UP), None, Some(true)),
            (Some(DOWN), None, Some(false)),
            (None, Some("up"), Some(true)),
            (None, Some("unknown"), None),
            (None, None, None),
        ] {
            assert_eq!(is_up(flags, state), up, "{flags:?} {state:?}");
        }
    }

    #[test]
    fn a_sysfs_of_another_namespace_is_not_believed() {
        let sysfs = Sysfs::default();
        let described = |index| {
            let mut netdev = Netdev {
                index: Some(index),
                ..Netdev::named("lo")
            };
            netdev.describe(&sysfs);
            netdev
        };
        // The loop-back interface is number 1 wherever there is a sysfs.
        let is_there = sysfs.root().join("class/net/lo/flags").exists();
        assert_eq!(described(1).up.is_some(), is_there);
        assert_eq!(described(7).up, None);
        assert_eq!(described(7).kind, None);
    }

    #[test]
    fn the_kind_is_told_by_uevent_and_hardware_type() {
        for (uevent, hardware, expected) in [
            ("INTERFACE=eth2\nIFINDEX=4\n", 1, NetdevKind::Plain),
            ("DEVTYPE=vlan\nINTERFACE=eth2.100\n", 1, NetdevKind::Vlan),
            ("DEVTYPE=bond\nINTERFACE=bond0\n", 1, NetdevKind::Bond),
            ("DEVTYPE=vxlan\nINTERFACE=vx0\n", 1, NetdevKind::Tunnel),
            ("INTERFACE=ip6tnl0\n", 769, NetdevKind::Tunnel),
            ("", 772, NetdevKind::Plain),
        ] {
            assert_eq!(kind(uevent, Some(hardware)), expected, "{uevent}");
        }
    }
}
