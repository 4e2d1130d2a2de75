//! [`AddressVector`]: where a peer is.

use std::fmt;

use ibverbs_sys::{ibv_ah_attr, ibv_global_route};

use crate::gid::Gid;

/// The way to a peer (`struct ibv_ah_attr`, ibv_modify_qp(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// The local port, from 1.
    pub port: u8,
    /// The service level, 0 to 15. With RoCE the priority of the VLAN tag.
    pub service_level: u8,
    /// The address of the peer.
    pub destination: Destination,
}

/// The address of a peer: local, global, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// In the same InfiniBand subnet, without a global route header.
    Lid {
        /// The peer's local identifier.
        lid: u16,
        /// Which of the 2^lmc local identifiers of the own port to send from.
        src_path_bits: u8,
        /// A cap on the rate, as an `IBV_RATE_*` code; 0 for none.
        static_rate: u8,
    },
    /// By GID only: RoCE.
    Global(GlobalRoute),
    /// InfiniBand with a global route header: to another subnet, or where the port demands it
    /// ([`PortAttributes::grh_required`](crate::PortAttributes::grh_required)).
    LidAndGlobal {
        /// The local identifier of the peer, or of the router on the way to it.
        lid: u16,
        /// Which of the 2^lmc local identifiers of the own port to send from.
        src_path_bits: u8,
        /// A cap on the rate, as an `IBV_RATE_*` code; 0 for none.
        static_rate: u8,
        /// The global route.
        route: GlobalRoute,
    },
}

impl Destination {
    /// An InfiniBand peer, with a global route if there is one; default path bits and rate.
    pub const fn infiniband(lid: u16, route: Option<GlobalRoute>) -> Self {
        match route {
            None => Self::Lid {
                lid,
                src_path_bits: 0,
                static_rate: 0,
            },
            Some(route) => Self::LidAndGlobal {
                lid,
                src_path_bits: 0,
                static_rate: 0,
                route,
            },
        }
    }

    /// The global route, if there is one.
    pub const fn route(&self) -> Option<&GlobalRoute> {
        match self {
            Self::Lid { .. } => None,
            Self::Global(route) | Self::LidAndGlobal { route, .. } => Some(route),
        }
    }
}

/// The global part of an address (`struct ibv_global_route`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalRoute {
    /// The peer's GID.
    pub dgid: Gid,
    /// The own GID, as an index into the table of the local port.
    pub sgid_index: u8,
    /// How many routers a packet may pass.
    pub hop_limit: u8,
    /// The traffic class. With RoCE version 2 the DSCP and ECN bits of the IP header.
    pub traffic_class: u8,
    /// The flow label, 20 bits. With RoCE version 2 the UDP source port is made from it.
    pub flow_label: u32,
}

impl AddressVector {
    pub(crate) fn to_raw(self) -> ibv_ah_attr {
        let mut raw = ibv_ah_attr {
            port_num: self.port,
            sl: self.service_level,
            ..Default::default()
        };
        match self.destination {
            Destination::Global(_) => {}
            Destination::Lid {
                lid,
                src_path_bits,
                static_rate,
            }
            | Destination::LidAndGlobal {
                lid,
                src_path_bits,
                static_rate,
                ..
            } => {
                raw.dlid = lid;
                raw.src_path_bits = src_path_bits;
                raw.static_rate = static_rate;
            }
        }
        if let Some(route) = self.destination.route() {
            raw.is_global = 1;
            raw.grh = ibv_global_route {
                dgid: route.dgid.to_raw(),
                flow_label: route.flow_label,
                sgid_index: route.sgid_index,
                hop_limit: route.hop_limit,
                traffic_class: route.traffic_class,
            };
        }
        raw
    }

    pub(crate) fn from_raw(raw: &ibv_ah_attr) -> Self {
        let (lid, src_path_bits, static_rate) = (raw.dlid, raw.src_path_bits, raw.static_rate);
        let route = GlobalRoute {
            dgid: Gid::from_raw(&raw.grh.dgid),
            sgid_index: raw.grh.sgid_index,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            flow_label: raw.grh.flow_label,
        };
        let destination = match (raw.is_global != 0, lid) {
            (false, _) => Destination::Lid {
                lid,
                src_path_bits,
                static_rate,
            },
            (true, 0) => Destination::Global(route),
            (true, _) => Destination::LidAndGlobal {
                lid,
                src_path_bits,
                static_rate,
                route,
            },
        };
        Self {
            port: raw.port_num,
            service_level: raw.sl,
            destination,
        }
    }
}

impl fmt::Display for AddressVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}", self.port)?;
        match self.destination {
            Destination::Global(_) => {}
            Destination::Lid { lid, .. } | Destination::LidAndGlobal { lid, .. } => {
                write!(f, ", to LID {lid:#x}")?;
            }
        }
        match self.destination.route() {
            None => Ok(()),
            Some(route) => write!(f, ", GID index {}, to GID {}", route.sgid_index, route.dgid),
        }
    }
}
