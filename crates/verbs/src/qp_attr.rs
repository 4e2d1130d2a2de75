//! What a queue pair is made with, what it was granted, and what it is at present.

use std::fmt;

use ibverbs_sys::{ibv_qp_attr, ibv_qp_cap};

use crate::access::Access;
use crate::address::AddressVector;
use crate::cq::CompletionQueue;
use crate::device_attr::DeviceAttributes;
use crate::port::Mtu;
use crate::qp_state::QueuePairState;

/// What to make a reliable-connection queue pair with (`struct ibv_qp_init_attr`,
/// ibv_create_qp(3)).
#[derive(Clone, Copy, Debug)]
pub struct QueuePairOptions<'a> {
    /// Where completions of the send queue go.
    pub send_cq: &'a CompletionQueue,
    /// Where completions of the receive queue go. May be the same.
    pub recv_cq: &'a CompletionQueue,
    /// How many send requests can be outstanding.
    pub max_send_wr: u32,
    /// How many receive requests can be outstanding.
    pub max_recv_wr: u32,
    /// How many scatter/gather elements a send request can have.
    pub max_send_sge: u32,
    /// How many scatter/gather elements a receive request can have.
    pub max_recv_sge: u32,
    /// How many bytes can be posted inline. No device attribute says what the limit is; a device
    /// refuses to make the queue pair if this is more.
    pub max_inline: u32,
    /// Whether every send request completes visibly, as if each were
    /// [`signaled`](crate::SendRequest::signaled).
    pub signal_all: bool,
}

impl<'a> QueuePairOptions<'a> {
    /// `depth` requests of one element in each direction, whose completions all go to `cq`; nothing
    /// inline, and signalled only where it is asked for.
    pub fn new(cq: &'a CompletionQueue, depth: u32) -> Self {
        Self {
            send_cq: cq,
            recv_cq: cq,
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
            signal_all: false,
        }
    }

    /// The same, with each size cut to what the device can do at most.
    #[must_use]
    pub fn clamp_to(self, device: &DeviceAttributes) -> Self {
        Self {
            max_send_wr: self.max_send_wr.min(device.max_qp_wr),
            max_recv_wr: self.max_recv_wr.min(device.max_qp_wr),
            max_send_sge: self.max_send_sge.min(device.max_sge),
            max_recv_sge: self.max_recv_sge.min(device.max_sge),
            ..self
        }
    }
}

impl fmt::Display for QueuePairOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} send requests of {} elements and {} inline bytes, {} receive requests of {} \
             elements",
            self.max_send_wr,
            self.max_send_sge,
            self.max_inline,
            self.max_recv_wr,
            self.max_recv_sge
        )
    }
}

/// What a queue pair was granted (`struct ibv_qp_cap`), which may be more than was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// How many send requests can be outstanding.
    pub max_send_wr: u32,
    /// How many receive requests can be outstanding.
    pub max_recv_wr: u32,
    /// How many scatter/gather elements a send request can have.
    pub max_send_sge: u32,
    /// How many scatter/gather elements a receive request can have.
    pub max_recv_sge: u32,
    /// How many bytes can be posted inline.
    pub max_inline: u32,
}

impl From<&ibv_qp_cap> for Capabilities {
    fn from(raw: &ibv_qp_cap) -> Self {
        Self {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline: raw.max_inline_data,
        }
    }
}

/// The present attributes of a queue pair (`struct ibv_qp_attr`, ibv_query_qp(3)).
///
/// Those that belong to a later state than the present one mean nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairAttributes {
    /// The state.
    pub state: QueuePairState,
    /// What the queue pair was granted.
    pub capabilities: Capabilities,
    /// What the peer may do. From INIT on.
    pub access: Access,
    /// The partition, as an index into the port's P_Key table. From INIT on.
    pub pkey_index: u16,
    /// The local port. From INIT on.
    pub port: u8,
    /// The path MTU. From RTR on.
    pub mtu: Mtu,
    /// The number of the peer's queue pair. From RTR on.
    pub remote_qp: u32,
    /// Where the peer is. From RTR on.
    pub address: AddressVector,
    /// The next packet expected from the peer, where the driver tells. From RTR on.
    pub receive_psn: u32,
    /// How many reads and atomics of the peer are served at once. From RTR on.
    pub max_dest_rd_atomic: u8,
    /// How long the peer is told to wait when no receive is posted. From RTR on.
    pub min_rnr_timer: u8,
    /// The next packet to be sent, where the driver tells. From RTS on.
    pub send_psn: u32,
    /// How long to wait for an acknowledgement. From RTS on.
    pub timeout: u8,
    /// How often to send again without an acknowledgement. From RTS on.
    pub retry_count: u8,
    /// How often to send again when the peer has no receive posted. From RTS on.
    pub rnr_retry: u8,
    /// How many reads and atomics are under way at once. From RTS on.
    pub max_rd_atomic: u8,
}

impl From<&ibv_qp_attr> for QueuePairAttributes {
    fn from(raw: &ibv_qp_attr) -> Self {
        Self {
            state: QueuePairState::from_raw(raw.qp_state),
            capabilities: Capabilities::from(&raw.cap),
            access: Access::from_bits_retain(raw.qp_access_flags),
            pkey_index: raw.pkey_index,
            port: raw.port_num,
            mtu: Mtu::from_raw(raw.path_mtu),
            remote_qp: raw.dest_qp_num,
            address: AddressVector::from_raw(&raw.ah_attr),
            receive_psn: raw.rq_psn,
            max_dest_rd_atomic: raw.max_dest_rd_atomic,
            min_rnr_timer: raw.min_rnr_timer,
            send_psn: raw.sq_psn,
            timeout: raw.timeout,
            retry_count: raw.retry_cnt,
            rnr_retry: raw.rnr_retry,
            max_rd_atomic: raw.max_rd_atomic,
        }
    }
}
