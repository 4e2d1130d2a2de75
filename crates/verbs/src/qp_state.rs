//! The states of a queue pair, and what each step between them is told.

use std::fmt;

use ibverbs_sys::ibv_qp_state::{
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE,
};
use ibverbs_sys::{ibv_qp_attr, ibv_qp_attr_mask};

use crate::access::Access;
use crate::address::AddressVector;
use crate::c_enum::open_constants;
use crate::port::Mtu;

open_constants! {
    /// The state of a queue pair (`enum ibv_qp_state`, ibv_modify_qp(3)).
    pub struct QueuePairState(u32) {
        /// New, or reset: nothing is queued and nothing happens.
        RESET = IBV_QPS_RESET,
        /// Receives can be posted.
        INIT = IBV_QPS_INIT,
        /// Messages are received.
        RTR = IBV_QPS_RTR,
        /// Messages are received and sent.
        RTS = IBV_QPS_RTS,
        /// The send queue is being drained.
        SQD = IBV_QPS_SQD,
        /// The send queue failed. Not for reliable connections.
        SQE = IBV_QPS_SQE,
        /// Failed, or moved here: everything queued is flushed.
        ERR = IBV_QPS_ERR,
    }
}

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

/// What one call of `ibv_modify_qp` is given: attributes, and which of them count.
pub(crate) struct Modification {
    pub(crate) raw: ibv_qp_attr,
    pub(crate) mask: ibv_qp_attr_mask,
}

impl Modification {
    /// Only the state.
    pub(crate) fn to_state(state: QueuePairState) -> Self {
        let raw = ibv_qp_attr {
            qp_state: state.raw(),
            ..Default::default()
        };
        Self {
            raw,
            mask: ibv_qp_attr_mask::IBV_QP_STATE,
        }
    }

    pub(crate) fn to_init(attributes: &InitAttributes) -> Self {
        let mut this = Self::to_state(QueuePairState::INIT);
        this.raw.port_num = attributes.port;
        this.raw.pkey_index = attributes.pkey_index;
        this.raw.qp_access_flags = attributes.access.bits();
        this.mask |= ibv_qp_attr_mask::IBV_QP_PORT
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
        this
    }

    pub(crate) fn to_rtr(attributes: &ReadyToReceive) -> Self {
        let mut this = Self::to_state(QueuePairState::RTR);
        this.raw.path_mtu = attributes.mtu.raw();
        this.raw.dest_qp_num = attributes.remote_qp;
        this.raw.rq_psn = attributes.remote_psn;
        this.raw.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
        this.raw.min_rnr_timer = attributes.min_rnr_timer;
        this.raw.ah_attr = attributes.address.to_raw();
        this.mask |= ibv_qp_attr_mask::IBV_QP_AV
            | ibv_qp_attr_mask::IBV_QP_PATH_MTU
            | ibv_qp_attr_mask::IBV_QP_DEST_QPN
            | ibv_qp_attr_mask::IBV_QP_RQ_PSN
            | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER;
        this
    }

    pub(crate) fn to_rts(attributes: &ReadyToSend) -> Self {
        let mut this = Self::to_state(QueuePairState::RTS);
        this.raw.sq_psn = attributes.psn;
        this.raw.timeout = attributes.timeout;
        this.raw.retry_cnt = attributes.retry_count;
        this.raw.rnr_retry = attributes.rnr_retry;
        this.raw.max_rd_atomic = attributes.max_rd_atomic;
        this.mask |= ibv_qp_attr_mask::IBV_QP_SQ_PSN
            | ibv_qp_attr_mask::IBV_QP_TIMEOUT
            | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
            | ibv_qp_attr_mask::IBV_QP_RNR_RETRY
            | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC;
        this
    }
}

impl ReadyToReceive {
    /// The first field whose value does not fit where it goes on the wire.
    pub(crate) fn problem(&self) -> Option<String> {
        let AddressVector {
            service_level,
            destination,
            ..
        } = self.address;
        let flow_label = destination.route().map_or(0, |route| route.flow_label);
        too_large("remote_qp", self.remote_qp, 0xff_ffff)
            .or_else(|| too_large("remote_psn", self.remote_psn, 0xff_ffff))
            .or_else(|| too_large("min_rnr_timer", self.min_rnr_timer.into(), 31))
            .or_else(|| too_large("service_level", service_level.into(), 15))
            .or_else(|| too_large("flow_label", flow_label, 0xf_ffff))
    }
}

impl ReadyToSend {
    /// The first field whose value does not fit where it goes on the wire.
    pub(crate) fn problem(&self) -> Option<String> {
        too_large("psn", self.psn, 0xff_ffff)
            .or_else(|| too_large("timeout", self.timeout.into(), 31))
            .or_else(|| too_large("retry_count", self.retry_count.into(), 7))
            .or_else(|| too_large("rnr_retry", self.rnr_retry.into(), 7))
    }
}

fn too_large(field: &str, value: u32, largest: u32) -> Option<String> {
    (value > largest).then(|| format!("{field} is {value:#x}, but at most {largest:#x} fits"))
}

/// A step between states that failed: where to, and with which attributes. For errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    to: QueuePairState,
    attributes: String,
}

impl Transition {
    pub(crate) fn new(to: QueuePairState, attributes: String) -> Self {
        Self { to, attributes }
    }

    /// The state that the queue pair was to enter.
    pub fn to(&self) -> QueuePairState {
        self.to
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to.fmt(f)?;
        if !self.attributes.is_empty() {
            write!(f, " ({})", self.attributes)?;
        }
        Ok(())
    }
}

impl fmt::Display for InitAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "port {}, P_Key index {}, {}",
            self.port, self.pkey_index, self.access
        )
    }
}

impl fmt::Display for ReadyToReceive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mtu,
            remote_qp,
            address,
            ..
        } = self;
        write!(
            f,
            "path MTU {mtu}, remote queue pair {remote_qp:#x}, {address}"
        )
    }
}

impl fmt::Display for ReadyToSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            timeout,
            retry_count,
            rnr_retry,
            max_rd_atomic,
            ..
        } = self;
        write!(
            f,
            "timeout {timeout}, retry count {retry_count}, RNR retry {rnr_retry}, "
        )?;
        write!(f, "max_rd_atomic {max_rd_atomic}")
    }
}
