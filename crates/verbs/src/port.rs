//! [`PortAttributes`]: the state, addresses and speed of a port.

use std::fmt;

use ibverbs_sys::ibv_port_state::{
    IBV_PORT_ACTIVE, IBV_PORT_ACTIVE_DEFER, IBV_PORT_ARMED, IBV_PORT_DOWN, IBV_PORT_INIT,
    IBV_PORT_NOP,
};
use ibverbs_sys::{
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_UNSPECIFIED, IBV_MTU_256,
    IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096, ibv_port_attr,
};

use crate::c_enum::{open_constants, open_enum};

/// `IBV_QPF_GRH_REQUIRED`, which the generated bindings lack: packets must carry a global route.
const GRH_REQUIRED: u8 = 1;

/// The attributes of a port (`struct ibv_port_attr`, ibv_query_port(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAttributes {
    /// The logical state. Data flows only in [`PortState::ACTIVE`].
    pub state: PortState,
    /// The largest MTU that the port supports.
    pub max_mtu: Mtu,
    /// The MTU that the port is set to: the upper bound for a queue pair's path MTU.
    pub active_mtu: Mtu,
    /// How many entries the GID table has, empty ones included.
    pub gid_table_len: u32,
    /// How many entries the P_Key table has.
    pub pkey_table_len: u16,
    /// The longest message, in bytes.
    pub max_message_size: u32,
    /// The port's local identifier in its subnet (InfiniBand only).
    pub lid: u16,
    /// The port has 2^lmc consecutive LIDs (InfiniBand only).
    pub lmc: u8,
    /// InfiniBand or Ethernet.
    pub link_layer: LinkLayer,
    /// The number of lanes as a code: see [`speed`](Self::speed).
    pub active_width: u8,
    /// The speed of a lane as a code: `active_speed_ex` if the driver fills it, which it does for
    /// XDR and faster, else `active_speed`.
    pub active_speed: u32,
    /// The physical state as a code of the InfiniBand specification (5 is "link up").
    pub physical_state: u8,
    /// Whether packets must carry a global route even within the subnet
    /// (`IBV_QPF_GRH_REQUIRED`).
    pub grh_required: bool,
    /// `IBV_PORT_*` capability bits, the second half. 0 when the library is too old to fill them.
    pub port_cap_flags2: u16,
}

impl PortAttributes {
    /// The port's data rate in Mb/s: lanes times the rate of a lane, after encoding from FDR on.
    /// None if the width or the speed is not known.
    ///
    /// [`Context::port_speed`](crate::Context::port_speed) asks the driver, which also knows of
    /// rates that are not such a product.
    pub fn speed(&self) -> Option<u64> {
        Some(lanes(self.active_width)? * lane_rate(self.active_speed)?)
    }
}

/// The number of lanes behind a width code.
fn lanes(width: u8) -> Option<u64> {
    match width {
        1 => Some(1),
        2 => Some(4),
        4 => Some(8),
        8 => Some(12),
        16 => Some(2),
        _ => None,
    }
}

/// The rate of one lane in Mb/s behind a speed code.
fn lane_rate(speed: u32) -> Option<u64> {
    match speed {
        1 => Some(2_500),     // SDR
        2 => Some(5_000),     // DDR
        4 => Some(10_000),    // QDR
        8 => Some(10_000),    // FDR10
        16 => Some(14_000),   // FDR
        32 => Some(25_000),   // EDR
        64 => Some(50_000),   // HDR
        128 => Some(100_000), // NDR
        256 => Some(200_000), // XDR
        _ => None,
    }
}

impl From<&ibv_port_attr> for PortAttributes {
    fn from(raw: &ibv_port_attr) -> Self {
        Self {
            state: PortState::from_raw(raw.state),
            max_mtu: Mtu::from_raw(raw.max_mtu),
            active_mtu: Mtu::from_raw(raw.active_mtu),
            gid_table_len: u32::try_from(raw.gid_tbl_len).unwrap_or(0),
            pkey_table_len: raw.pkey_tbl_len,
            max_message_size: raw.max_msg_sz,
            lid: raw.lid,
            lmc: raw.lmc,
            link_layer: LinkLayer::from_raw(raw.link_layer),
            active_width: raw.active_width,
            active_speed: match raw.active_speed_ex {
                0 => raw.active_speed.into(),
                extended => extended,
            },
            physical_state: raw.phys_state,
            grh_required: raw.flags & GRH_REQUIRED != 0,
            port_cap_flags2: raw.port_cap_flags2,
        }
    }
}

open_constants! {
    /// The logical state of a port (`enum ibv_port_state`).
    pub struct PortState(u32) {
        /// Not a state of its own: "no change" in requests.
        NOP = IBV_PORT_NOP,
        /// No link.
        DOWN = IBV_PORT_DOWN,
        /// The link is up, but the subnet manager has not configured the port.
        INIT = IBV_PORT_INIT,
        /// The subnet manager is configuring the port.
        ARMED = IBV_PORT_ARMED,
        /// Data can be sent and received.
        ACTIVE = IBV_PORT_ACTIVE,
        /// The link failed a moment ago and may come back.
        ACTIVE_DEFER = IBV_PORT_ACTIVE_DEFER,
    }
}

open_enum! {
    /// What the port is a port of (`link_layer` of `struct ibv_port_attr`).
    pub enum LinkLayer(u8) {
        /// The driver does not say; by convention InfiniBand.
        Unspecified = IBV_LINK_LAYER_UNSPECIFIED,
        /// InfiniBand: addressed by LID, or by GID across subnets.
        InfiniBand = IBV_LINK_LAYER_INFINIBAND,
        /// Ethernet (RoCE, iWARP): addressed by GID.
        Ethernet = IBV_LINK_LAYER_ETHERNET,
    }
}

/// A maximum transfer unit, as the code that verbs use for it (`enum ibv_mtu`).
///
/// Codes are ordered by size, so that the smaller of two MTUs is their minimum.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtu(u32);

impl Mtu {
    /// 256 bytes. (`IBV_MTU_256`)
    pub const MTU_256: Self = Self(IBV_MTU_256);
    /// 512 bytes. (`IBV_MTU_512`)
    pub const MTU_512: Self = Self(IBV_MTU_512);
    /// 1024 bytes: the largest that fits an Ethernet frame of 1500 bytes. (`IBV_MTU_1024`)
    pub const MTU_1024: Self = Self(IBV_MTU_1024);
    /// 2048 bytes. (`IBV_MTU_2048`)
    pub const MTU_2048: Self = Self(IBV_MTU_2048);
    /// 4096 bytes: the largest that InfiniBand knows. (`IBV_MTU_4096`)
    pub const MTU_4096: Self = Self(IBV_MTU_4096);

    /// The MTU with that code, whether it is known or not.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The code of the C interface.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The MTU of exactly that many bytes, none if there is no code for it.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(Self::MTU_256),
            512 => Some(Self::MTU_512),
            1024 => Some(Self::MTU_1024),
            2048 => Some(Self::MTU_2048),
            4096 => Some(Self::MTU_4096),
            _ => None,
        }
    }

    /// The size in bytes, none if the code is not known.
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            IBV_MTU_256..=IBV_MTU_4096 => Some(128 << self.0),
            _ => None,
        }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => write!(f, "{bytes}"),
            None => write!(f, "unknown({})", self.0),
        }
    }
}

impl fmt::Debug for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mtu({self})")
    }
}
