//! [`Netdev`]: the network interface behind a GID.
//!
//! A GID of RoCE is the address of a network interface: the port's own, or one on top of it (VLAN,
//! bond, VXLAN). Equal addresses of different interfaces are different entries of the table, so the
//! interface says what verbs do not: whether packets get out, and how.

use std::fmt;

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
}
