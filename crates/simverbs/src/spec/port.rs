//! [`PortSpec`]: a port as the builder is told.

use ibnet_verbs::{LinkLayer, Mtu};

use super::gid::GidSlot;

/// How many lanes a port has (`active_width`, by the codes of the InfiniBand specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// One lane.
    X1 = 1,
    /// Four lanes.
    X4 = 2,
    /// Eight lanes.
    X8 = 4,
    /// Twelve lanes.
    X12 = 8,
    /// Two lanes.
    X2 = 16,
}

/// How fast a lane is (`active_speed`, by the codes of the InfiniBand specification).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LaneSpeed {
    /// 2.5 Gb/s.
    Sdr = 1,
    /// 5 Gb/s.
    Ddr = 2,
    /// 10 Gb/s.
    Qdr = 4,
    /// 10 Gb/s, in FDR's encoding.
    Fdr10 = 8,
    /// 14 Gb/s.
    Fdr = 16,
    /// 25 Gb/s.
    Edr = 32,
    /// 50 Gb/s.
    Hdr = 64,
    /// 100 Gb/s.
    Ndr = 128,
    /// 200 Gb/s. Does not fit `active_speed`, so that only `active_speed_ex` has it, which the
    /// exported `ibv_query_port` does not fill.
    Xdr = 256,
}

/// A port, to be given to [`DeviceSpec::ports`](crate::DeviceSpec::ports).
///
/// Ports of the same [`network`](Self::network) reach each other, whichever device they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    pub(crate) link_layer: LinkLayer,
    pub(crate) network: u32,
    pub(crate) up: bool,
    pub(crate) lid: Option<u16>,
    pub(crate) lmc: u8,
    pub(crate) gids: Option<Vec<GidSlot>>,
    pub(crate) gid_table_len: usize,
    pub(crate) pkeys: Vec<u16>,
    pub(crate) active_mtu: Mtu,
    pub(crate) max_mtu: Mtu,
    pub(crate) max_message: u32,
    pub(crate) width: Width,
    pub(crate) lane_speed: LaneSpeed,
    pub(crate) speed: Option<u64>,
    pub(crate) grh_required: bool,
}

impl PortSpec {
    /// An Ethernet port at 100 Gb/s with an MTU of 1024 bytes. Unless told otherwise its GID table
    /// has, as usual, a link-local and an IPv4 address with RoCE version 1 and 2 each (indices 0
    /// to 3), the IPv4 address being 10.network.x.y, different for each port of the fabric.
    pub fn roce() -> Self {
        Self {
            link_layer: LinkLayer::Ethernet,
            active_mtu: Mtu::MTU_1024,
            ..Self::infiniband()
        }
    }

    /// An InfiniBand port at 100 Gb/s with an MTU of 4096 bytes. Unless told otherwise its LID is
    /// the next free one of its network, and its GID the link-local one of its GUID.
    pub fn infiniband() -> Self {
        Self {
            link_layer: LinkLayer::InfiniBand,
            network: 0,
            up: true,
            lid: None,
            lmc: 0,
            gids: None,
            gid_table_len: 16,
            pkeys: vec![0xffff],
            active_mtu: Mtu::MTU_4096,
            max_mtu: Mtu::MTU_4096,
            max_message: 1 << 30,
            width: Width::X4,
            lane_speed: LaneSpeed::Edr,
            speed: None,
            grh_required: false,
        }
    }

    /// Which network the port is plugged into: a subnet, a rail. 0 if not said. Ports of different
    /// networks or link layers cannot reach each other.
    #[must_use]
    pub fn network(mut self, network: u32) -> Self {
        self.network = network;
        self
    }

    /// The port starts without a link.
    #[must_use]
    pub fn down(mut self) -> Self {
        self.up = false;
        self
    }

    /// The local identifier (InfiniBand), and how many of its low bits are path bits.
    #[must_use]
    pub fn lid(mut self, lid: u16, lmc: u8) -> Self {
        self.lid = Some(lid);
        self.lmc = lmc;
        self
    }

    /// The GID table, from index 0. The rest of it is empty.
    #[must_use]
    pub fn gids(mut self, gids: impl IntoIterator<Item = GidSlot>) -> Self {
        let gids: Vec<_> = gids.into_iter().collect();
        self.gid_table_len = self.gid_table_len.max(gids.len());
        self.gids = Some(gids);
        self
    }

    /// How many entries the GID table has, empty ones included (16 if not said).
    #[must_use]
    pub fn gid_table_len(mut self, length: usize) -> Self {
        self.gid_table_len = length;
        self
    }

    /// The P_Key table, in host byte order. If not said it has one entry, the default 0xffff.
    #[must_use]
    pub fn pkeys(mut self, pkeys: impl IntoIterator<Item = u16>) -> Self {
        self.pkeys = pkeys.into_iter().collect();
        self
    }

    /// The MTU that the port is set to, and the largest that it supports.
    #[must_use]
    pub fn mtu(mut self, active: Mtu, max: Mtu) -> Self {
        self.active_mtu = active;
        self.max_mtu = max;
        self
    }

    /// The longest message in bytes (`max_msg_sz`, 1 GiB if not said).
    #[must_use]
    pub fn max_message(mut self, bytes: u32) -> Self {
        self.max_message = bytes;
        self
    }

    /// Lanes and their rate, as ibv_query_port(3) reports them.
    #[must_use]
    pub fn lanes(mut self, width: Width, speed: LaneSpeed) -> Self {
        self.width = width;
        self.lane_speed = speed;
        self
    }

    /// The effective rate in Mb/s, as ibv_query_port_speed(3) reports it: a multiple of 100. If
    /// not said, that verb fails with `EOPNOTSUPP`, and callers fall back to the lanes.
    #[must_use]
    pub fn speed(mut self, megabits: u64) -> Self {
        self.speed = Some(megabits);
        self
    }

    /// Packets must carry a global route even within the subnet (`IBV_QPF_GRH_REQUIRED`): queue
    /// pairs without one cannot be moved to RTR.
    #[must_use]
    pub fn grh_required(mut self) -> Self {
        self.grh_required = true;
        self
    }
}
