//! What each step between the states of a queue pair is told.

use std::fmt;

use ibverbs_sys::{ibv_qp_attr, ibv_qp_attr_mask};

use crate::access::Access;
use crate::address::AddressVector;
use crate::port::Mtu;
use crate::qp_state::QueuePairState;

/// RESET to INIT: see [`QueuePair::to_init`](crate::QueuePair::to_init).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitAttributes {
    /// The port of the device, from 1.
    pub port: u8,
    /// The partition, as an index into the port's P_Key table.
    pub pkey_index: u16,
    /// What the peer may do through this queue pair: remote write, read and atomics.
    pub access: Access,
}

/// INIT to RTR: see [`QueuePair::to_rtr`](crate::QueuePair::to_rtr).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToReceive {
    /// The path MTU: the same on both ends, and no more than either port's active MTU.
    pub mtu: Mtu,
    /// The number of the peer's queue pair, 24 bits.
    pub remote_qp: u32,
    /// The sequence number of the first packet that the peer will send, 24 bits.
    pub remote_psn: u32,
    /// How many RDMA reads and atomics of the peer are served at once; at most the device's
    /// `max_qp_rd_atom`.
    pub max_dest_rd_atomic: u8,
    /// How long the peer is told to wait when no receive is posted, as a code from 0 to 31 of
    /// the InfiniBand specification (12 is 0.64 ms; 0 is the longest, 655.36 ms).
    pub min_rnr_timer: u8,
    /// Where the peer is.
    pub address: AddressVector,
}

/// RTR to RTS: see [`QueuePair::to_rts`](crate::QueuePair::to_rts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToSend {
    /// The sequence number of the first packet to be sent, 24 bits: what the peer was given as
    /// `remote_psn`.
    pub psn: u32,
    /// How long to wait for an acknowledgement: 4.096 µs · 2^n, from 0 (for ever) to 31.
    pub timeout: u8,
    /// How often to send again without an acknowledgement, up to 7.
    pub retry_count: u8,
    /// How often to send again when the peer has no receive posted, up to 6; 7 is for ever.
    pub rnr_retry: u8,
    /// How many RDMA reads and atomics are under way at once; at most the device's
    /// `max_qp_init_rd_atom` and the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
}

/// A step between states: the state that it leads to, with what must be told.
pub(crate) trait Step: fmt::Display {
    const TO: QueuePairState;
    /// Which attributes count, apart from the state.
    const MASK: ibv_qp_attr_mask;

    /// The attributes, apart from the state.
    fn attributes(&self) -> ibv_qp_attr;

    /// The fields, with the largest value that fits where they go on the wire.
    fn bounds(&self) -> Vec<(&'static str, u32, u32)> {
        Vec::new()
    }
}

impl Step for InitAttributes {
    const TO: QueuePairState = QueuePairState::INIT;
    const MASK: ibv_qp_attr_mask = ibv_qp_attr_mask(
        ibv_qp_attr_mask::IBV_QP_PORT.0
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX.0
            | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0,
    );

    fn attributes(&self) -> ibv_qp_attr {
        ibv_qp_attr {
            port_num: self.port,
            pkey_index: self.pkey_index,
            qp_access_flags: self.access.bits(),
            ..Default::default()
        }
    }
}

impl Step for ReadyToReceive {
    const TO: QueuePairState = QueuePairState::RTR;
    const MASK: ibv_qp_attr_mask = ibv_qp_attr_mask(
        ibv_qp_attr_mask::IBV_QP_AV.0
            | ibv_qp_attr_mask::IBV_QP_PATH_MTU.0
            | ibv_qp_attr_mask::IBV_QP_DEST_QPN.0
            | ibv_qp_attr_mask::IBV_QP_RQ_PSN.0
            | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
            | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0,
    );

    fn attributes(&self) -> ibv_qp_attr {
        ibv_qp_attr {
            path_mtu: self.mtu.raw(),
            dest_qp_num: self.remote_qp,
            rq_psn: self.remote_psn,
            max_dest_rd_atomic: self.max_dest_rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            ah_attr: self.address.to_raw(),
            ..Default::default()
        }
    }

    fn bounds(&self) -> Vec<(&'static str, u32, u32)> {
        let route = self.address.destination.route;
        let flow_label = route.map_or(0, |route| route.flow_label);
        vec![
            ("remote_qp", self.remote_qp, 0xff_ffff),
            ("remote_psn", self.remote_psn, 0xff_ffff),
            ("min_rnr_timer", self.min_rnr_timer.into(), 31),
            ("service_level", self.address.service_level.into(), 15),
            ("flow_label", flow_label, 0xf_ffff),
        ]
    }
}

impl Step for ReadyToSend {
    const TO: QueuePairState = QueuePairState::RTS;
    const MASK: ibv_qp_attr_mask = ibv_qp_attr_mask(
        ibv_qp_attr_mask::IBV_QP_SQ_PSN.0
            | ibv_qp_attr_mask::IBV_QP_TIMEOUT.0
            | ibv_qp_attr_mask::IBV_QP_RETRY_CNT.0
            | ibv_qp_attr_mask::IBV_QP_RNR_RETRY.0
            | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC.0,
    );

    fn attributes(&self) -> ibv_qp_attr {
        ibv_qp_attr {
            sq_psn: self.psn,
            timeout: self.timeout,
            retry_cnt: self.retry_count,
            rnr_retry: self.rnr_retry,
            max_rd_atomic: self.max_rd_atomic,
            ..Default::default()
        }
    }

    fn bounds(&self) -> Vec<(&'static str, u32, u32)> {
        vec![
            ("psn", self.psn, 0xff_ffff),
            ("timeout", self.timeout.into(), 31),
            ("retry_count", self.retry_count.into(), 7),
            ("rnr_retry", self.rnr_retry.into(), 7),
        ]
    }
}

impl fmt::Display for InitAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (port, index, access) = (self.port, self.pkey_index, self.access);
        write!(f, "port {port}, P_Key index {index}, {access}")
    }
}

impl fmt::Display for ReadyToReceive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mtu, qp, address) = (self.mtu, self.remote_qp, self.address);
        write!(f, "path MTU {mtu}, remote queue pair {qp:#x}, {address}")
    }
}

impl fmt::Display for ReadyToSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (timeout, retries, rnr) = (self.timeout, self.retry_count, self.rnr_retry);
        let reads = self.max_rd_atomic;
        write!(
            f,
            "timeout {timeout}, retry count {retries}, RNR retry {rnr}, max_rd_atomic {reads}"
        )
    }
}
