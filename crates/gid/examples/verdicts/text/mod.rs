//! Tables as people send them: [`parse`] reads the lines that verdicts are printed as, and those of
//! `show_gids`, of `ibv_devinfo -v` and of sysfs.
#![allow(
    dead_code,
    reason = "each test program uses what it needs of what they share"
)]

mod devinfo;
mod parse;
mod sysfs;

use ibnet_gid::Entry;
use ibnet_verbs::{GidType, LinkLayer, NetdevKind};

pub(crate) use parse::parse;

/// The table of one port, as [`parse`] found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortTable {
    /// The device's name and the port. None if the text does not say.
    pub(crate) port: Option<(String, u8)>,
    /// As the text says; else InfiniBand if all entries are, and Ethernet if not.
    pub(crate) link_layer: LinkLayer,
    /// The entries, in the order of the text.
    pub(crate) entries: Vec<Entry>,
}

impl PortTable {
    /// The line that begins the table of a port: `mlx5_0:1 Ethernet`. The link layer alone if the
    /// port has no name.
    pub(crate) fn title(&self) -> String {
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
