//! A queue pair: its attributes, its two queues, and how far each has come.

use std::collections::VecDeque;

use ibnet_verbs::WcStatus;
use ibnet_verbs::sys::{ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_state};

use super::handle::Handle;
use super::queue::{Queue, RecvWqe, SendWqe};
use super::slab::{ContextId, CqId, DeviceId, PdId, QpId};
use super::timers::Nanos;
use crate::spec::GidSlot;

/// The states of a reliable-connection queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpState {
    Reset = ibv_qp_state::IBV_QPS_RESET,
    Init = ibv_qp_state::IBV_QPS_INIT,
    Rtr = ibv_qp_state::IBV_QPS_RTR,
    Rts = ibv_qp_state::IBV_QPS_RTS,
    /// The send queue is drained: what was begun is finished, nothing new is begun.
    Sqd = ibv_qp_state::IBV_QPS_SQD,
    Error = ibv_qp_state::IBV_QPS_ERR,
}

impl QpState {
    pub(crate) fn from_raw(raw: u32) -> Option<Self> {
        [
            Self::Reset,
            Self::Init,
            Self::Rtr,
            Self::Rts,
            Self::Sqd,
            Self::Error,
        ]
        .into_iter()
        .find(|state| *state as u32 == raw)
    }

    /// Whether packets of the peer are taken.
    pub(crate) const fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd)
    }

    /// Whether packets are sent.
    pub(crate) const fn sends(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }
}

pub(crate) struct Qp {
    pub(crate) handle: Handle<ibv_qp>,
    pub(crate) number: u32,
    pub(crate) context: ContextId,
    pub(crate) device: DeviceId,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) capabilities: ibv_qp_cap,
    pub(crate) signal_all: bool,

    pub(crate) state: QpState,
    /// What the modifications so far have set.
    pub(crate) attributes: ibv_qp_attr,
    /// The own address, from RTR on, if it has a global route.
    pub(crate) source: Option<GidSlot>,
    pub(crate) ece: Option<ibv_ece>,
    /// How often it was reset: completions of before belong to no slot any more.
    pub(crate) epoch: u32,

    pub(crate) send: Queue<SendWqe>,
    pub(crate) recv: Queue<RecvWqe>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,

    /// Events about it that were taken and not yet acknowledged.
    pub(crate) unacknowledged_events: u32,
    /// Copies under way outside the lock, from it or to it.
    pub(crate) copies: u32,
    /// Whether it is in the list of queue pairs that may have something to do.
    pub(crate) is_queued: bool,
    /// Completions of its send and its receive queue may not be seen before those held back.
    pub(crate) released: [Nanos; 2],
}

/// How far the send queue has come. Each index counts requests since the last reset.
///
/// `completed` ≤ `acknowledged` ≤ `next` ≤ what was posted.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// The request that is sent next, or of which a part was placed.
    pub(crate) next: u64,
    /// Requests before this one were carried out by the peer, and it is known here.
    pub(crate) acknowledged: u64,
    /// Requests before this one have ended.
    pub(crate) completed: u64,
    /// The sequence number of the next packet.
    pub(crate) psn: u32,
    /// What is left to be placed of the request `next`.
    pub(crate) partial: Option<Partial>,
    /// Reads that the peer is serving, in order.
    pub(crate) reads: VecDeque<Read>,
    /// The peer refused the request `next`; the news is on its way.
    pub(crate) refused: Option<WcStatus>,
    /// The request `next` has failed or hangs: nothing after it is sent.
    pub(crate) is_halted: bool,
    /// A packet was lost or the peer was not ready: nothing happens before the timer.
    pub(crate) is_stalled: bool,
    /// Something was lost and nothing acknowledged since.
    pub(crate) has_lost: bool,
    /// The only timer that counts; 0 if none does.
    pub(crate) timer: u64,
    pub(crate) retries_left: u8,
    pub(crate) not_ready_left: u8,
    /// A copy is under way outside the lock.
    pub(crate) is_copying: bool,
    /// In SQD: an event is wanted when everything that was begun has ended.
    pub(crate) wants_drained: bool,
}

/// How far the receive queue has come.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    /// The sequence number of the packet that is expected.
    pub(crate) psn: u32,
    /// Receives before this one were consumed or flushed.
    pub(crate) taken: u64,
    /// Whether a packet of the peer has come.
    pub(crate) is_established: bool,
    /// The peer that was found last, and at which state of the network.
    pub(crate) route: Option<(u64, QpId)>,
}

/// A message of which only a part was placed.
#[derive(Debug)]
pub(crate) struct Partial {
    /// How often the peer was reset when it began.
    pub(crate) peer_epoch: u32,
    /// What is left, as offsets and lengths within the message, the next to be placed last. Empty
    /// pieces count: see [`super::place`].
    pub(crate) left: Vec<(usize, usize)>,
}

/// A read that the peer is serving.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) index: u64,
    pub(crate) partial: Option<Partial>,
}

impl Qp {
    /// The port that the queue pair is bound to, as an index. Set from INIT on.
    pub(crate) fn port(&self) -> usize {
        usize::from(self.attributes.port_num) - 1
    }

    /// The path MTU in bytes. Set from RTR on.
    pub(crate) fn mtu(&self) -> u32 {
        128 << self.attributes.path_mtu
    }

    /// Whether there is a request that has not ended.
    pub(crate) fn has_unfinished_sends(&self) -> bool {
        self.requester.completed < self.send.posted()
    }

    /// Whether everything that was begun has ended.
    pub(crate) fn is_drained(&self) -> bool {
        self.requester.completed == self.requester.next && self.requester.partial.is_none()
    }

    /// Whether there is a receive that was not consumed.
    pub(crate) fn has_receive(&self) -> bool {
        self.responder.taken < self.recv.posted()
    }

    /// Forgets everything that was queued, and starts counting anew.
    pub(crate) fn clear(&mut self) {
        self.epoch += 1;
        self.send.clear();
        self.recv.clear();
        self.requester = Requester::default();
        self.responder = Responder::default();
    }
}
