//! Tables as text: how an entry is written, in verdicts and in files.
//!
//! A table that someone reports is what an error needs most, so that it can be read again:
//! [`parse`] takes the lines that [`Verdict`](crate::Verdict) prints, and those of `show_gids`, of
//! `ibv_devinfo -v` and of sysfs.

mod devinfo;
mod parse;
mod sysfs;

use std::fmt;

use ibnet_verbs::{Gid, GidType, LinkLayer, Netdev, NetdevKind};

use crate::Entry;

pub use parse::{InvalidLine, parse};

/// The table of one port, as [`parse`] found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTable {
    /// The device's name and the port. None if the text does not say.
    pub port: Option<(String, u8)>,
    /// As the text says; else InfiniBand if all entries are, and Ethernet if not.
    pub link_layer: LinkLayer,
    /// The entries, in the order of the text.
    pub entries: Vec<Entry>,
}

impl PortTable {
    /// The line that begins the table of a port: `mlx5_0:1 Ethernet`. The link layer alone if the
    /// port has no name.
    pub fn title(&self) -> String {
        let link_layer = match self.link_layer {
            LinkLayer::Ethernet => ETHERNET.to_owned(),
            LinkLayer::InfiniBand | LinkLayer::Unspecified => INFINIBAND.to_owned(),
            LinkLayer::Unknown(raw) => format!("link-layer-{raw}"),
        };
        match &self.port {
            Some((name, port)) => format!("{name}:{port} {link_layer}"),
            None => link_layer,
        }
    }
}

/// A type as sysfs and `ibv_devinfo` name it. None if they do not know it.
fn kernels_type(text: &str) -> Option<GidType> {
    match text {
        "IB/RoCE v1" | "RoCE v1" => Some(GidType::RoceV1),
        "RoCE v2" => Some(GidType::RoceV2),
        _ => None,
    }
}

/// The names of the link layers.
const ETHERNET: &str = "Ethernet";
const INFINIBAND: &str = "InfiniBand";

/// The words for what is remarkable about an interface.
const DOWN: &str = "down";
const KINDS: [(&str, NetdevKind); 4] = [
    ("bond", NetdevKind::Bond),
    ("slave", NetdevKind::BondMember),
    ("vlan", NetdevKind::Vlan),
    ("tunnel", NetdevKind::Tunnel),
];

/// An entry without its index: `RoCEv2 10.1.2.3 on eth2.100 (vlan, down)`. Nothing if nothing of it
/// is known.
pub(crate) struct Content<'a>(pub(crate) &'a Entry);

impl fmt::Display for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry {
            gid,
            gid_type,
            netdev,
            unreadable,
            ..
        } = self.0;
        let is_unknown = gid.is_zero() && gid_type.is_none() && netdev.is_none();
        if is_unknown && unreadable.is_some() {
            return Ok(());
        }
        write!(f, "{} {}", TypeName(*gid_type), Address(*gid))?;
        match netdev {
            Some(netdev) => write!(f, " on {netdev}{}", Remarks(netdev)),
            None => Ok(()),
        }
    }
}

/// The name of a type: one word.
pub(crate) struct TypeName(pub(crate) Option<GidType>);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(GidType::InfiniBand) => f.write_str("InfiniBand"),
            Some(GidType::RoceV1) => f.write_str("RoCEv1"),
            Some(GidType::RoceV2) => f.write_str("RoCEv2"),
            Some(GidType::Unknown(raw)) => write!(f, "type-{raw}"),
            None => f.write_str("type-unknown"),
        }
    }
}

/// The address in a GID: IPv4 where it is mapped.
pub(crate) struct Address(pub(crate) Gid);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.to_ipv6().to_ipv4_mapped() {
            Some(v4) => v4.fmt(f),
            None => self.0.fmt(f),
        }
    }
}

/// What is remarkable about an interface, in brackets. Nothing if nothing is.
pub(crate) struct Remarks<'a>(pub(crate) &'a Netdev);

impl fmt::Display for Remarks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = KINDS
            .iter()
            .find(|(_, kind)| Some(*kind) == self.0.kind)
            .map(|(word, _)| *word);
        let down = (self.0.up == Some(false)).then_some(DOWN);
        match (kind, down) {
            (None, None) => Ok(()),
            (Some(one), None) | (None, Some(one)) => write!(f, " ({one})"),
            (Some(kind), Some(down)) => write!(f, " ({kind}, {down})"),
        }
    }
}
