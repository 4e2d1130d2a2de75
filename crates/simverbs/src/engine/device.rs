//! A device and its ports, as they are at present.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ibnet_verbs::{Gid, GidType, LinkLayer};

use super::regions::Regions;
use crate::spec::{DeviceSpec, GidSlot, PortSpec};

pub(crate) struct Device {
    pub(crate) spec: DeviceSpec,
    /// In host byte order.
    pub(crate) guid: u64,
    pub(crate) system_guid: u64,
    pub(crate) is_removed: bool,
    pub(crate) ports: Vec<Port>,
    pub(crate) regions: Regions,
}

pub(crate) struct Port {
    pub(crate) spec: PortSpec,
    pub(crate) is_up: bool,
    pub(crate) lid: u16,
    /// The whole table, empty entries included.
    pub(crate) gids: Vec<GidSlot>,
    /// Set while the link loses everything.
    pub(crate) cut: Option<Cut>,
}

/// A link that loses everything, without either end being told.
pub(crate) struct Cut {
    /// Which cut it is: the timer of an earlier one does not end it.
    pub(crate) token: u64,
    /// How many messages it lost.
    pub(crate) lost: Arc<AtomicU64>,
}

impl Device {
    /// The port with that number, which counts from 1.
    pub(crate) fn port(&self, number: u8) -> Option<&Port> {
        self.ports.get(usize::from(number).checked_sub(1)?)
    }

    pub(crate) fn port_mut(&mut self, number: u8) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(number).checked_sub(1)?)
    }
}

impl Port {
    pub(crate) fn is_ethernet(&self) -> bool {
        self.spec.link_layer == LinkLayer::Ethernet
    }

    /// Whether packets to this LID arrive here.
    pub(crate) fn has_lid(&self, lid: u16) -> bool {
        let mask = (1_u16 << self.spec.lmc.min(7)) - 1;
        self.lid != 0 && lid & !mask == self.lid & !mask
    }

    /// Whether two ports would both get packets to a LID, if this one had `lid`.
    pub(crate) fn would_share_lid(&self, lid: u16, other: &Self) -> bool {
        let number = 1_u16 << self.spec.lmc.min(7);
        let mut own = lid..lid.saturating_add(number);
        !self.is_ethernet() && self.shares_network(other) && own.any(|lid| other.has_lid(lid))
    }

    pub(crate) fn has_gid(&self, gid: Gid, gid_type: GidType) -> bool {
        self.gids.iter().any(|slot| slot.holds(gid, gid_type))
    }

    /// Whether both are plugged into the same network.
    pub(crate) fn shares_network(&self, other: &Self) -> bool {
        self.spec.network == other.spec.network && self.is_ethernet() == other.is_ethernet()
    }

    /// The MTU that the port is set to, in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        // The builder refuses others.
        self.spec.active_mtu.bytes().unwrap_or(256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_all_lids_of_its_path_bits() {
        let port = |lid, lmc| Port {
            spec: PortSpec::infiniband().lid(lid, lmc),
            is_up: true,
            lid,
            gids: Vec::new(),
            cut: None,
        };
        assert!(port(8, 2).has_lid(8) && port(8, 2).has_lid(11));
        assert!(!port(8, 2).has_lid(12) && !port(8, 2).has_lid(7));
        assert!(port(5, 0).has_lid(5) && !port(5, 0).has_lid(4));
        assert!(!port(0, 0).has_lid(0));
    }
}
