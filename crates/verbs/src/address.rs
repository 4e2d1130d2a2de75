//! [`AddressVector`]: where a peer is.

use std::fmt;

use ibverbs_sys::{ibv_ah_attr, ibv_global_route};

use crate::gid::Gid;

/// The way to a peer (`struct ibv_ah_attr`, ibv_modify_qp(3)), by the first of the own local
/// identifiers and at any rate.
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
pub struct Destination {
    /// On InfiniBand, the local identifier of the peer, or of the router on the way to it. 0 with
    /// RoCE.
    pub lid: u16,
    /// The global route: with RoCE always; on InfiniBand to another subnet, or where the port
    /// demands it ([`PortAttributes::grh_required`](crate::PortAttributes::grh_required)).
    pub route: Option<GlobalRoute>,
}

impl Destination {
    /// A peer by RoCE.
    pub const fn global(route: GlobalRoute) -> Self {
        Self {
            lid: 0,
            route: Some(route),
        }
    }

    /// An InfiniBand peer, with a global route if there is one.
    pub const fn infiniband(lid: u16, route: Option<GlobalRoute>) -> Self {
        Self { lid, route }
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
        let Destination { lid, route } = self.destination;
        let grh = route.map(|route| ibv_global_route {
            dgid: route.dgid.to_raw(),
            flow_label: route.flow_label,
            sgid_index: route.sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        });
        ibv_ah_attr {
            port_num: self.port,
            sl: self.service_level,
            dlid: lid,
            is_global: grh.is_some().into(),
            grh: grh.unwrap_or_default(),
            ..Default::default()
        }
    }

    pub(crate) fn from_raw(raw: &ibv_ah_attr) -> Self {
        let route = (raw.is_global != 0).then(|| GlobalRoute {
            dgid: Gid::from_raw(&raw.grh.dgid),
            sgid_index: raw.grh.sgid_index,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            flow_label: raw.grh.flow_label,
        });
        Self {
            port: raw.port_num,
            service_level: raw.sl,
            destination: Destination {
                lid: raw.dlid,
                route,
            },
        }
    }
}

impl fmt::Display for AddressVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Destination { lid, route } = self.destination;
        write!(f, "port {}", self.port)?;
        if lid != 0 || route.is_none() {
            write!(f, ", to LID {lid:#x}")?;
        }
        match route {
            None => Ok(()),
            Some(route) => write!(f, ", GID index {}, to GID {}", route.sgid_index, route.dgid),
        }
    }
}
