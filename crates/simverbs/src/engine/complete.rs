//! The ends of requests: acknowledged, failed, flushed.

use ibnet_verbs::sys::ibv_wc_opcode::{IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_SEND};
use ibnet_verbs::{EventType, WcStatus};

use super::State;
use super::cq::{Side, Success};
use super::qp::QpState;
use super::queue::Opcode;
use super::slab::QpId;
use crate::trace::TraceEvent;

impl State {
    /// An acknowledgement arrives, or the news that the peer refused a request; or it is lost.
    pub(crate) fn take_acknowledgement(&mut self, id: QpId) {
        // Once something was lost, only a peer that is still there can acknowledge again.
        let arrives = match self.qps[id].requester.has_lost {
            true => self.route(id).map(|_| ()),
            false => self.is_acknowledged(id),
        };
        if let Err(reason) = arrives {
            self.lose(id, reason);
            return;
        }
        let requester = &mut self.qps[id].requester;
        if let Some(status) = requester.refused.take() {
            let index = requester.next;
            requester.acknowledged = index;
            self.fail(id, index, status);
            return;
        }
        // One acknowledgement may stand for several requests. When all is done at once, it does.
        let outstanding = requester.next - requester.acknowledged;
        let through = match self.is_stepped() {
            true => 1 + self.random.below(outstanding),
            false => outstanding,
        };
        let through = self.qps[id].requester.acknowledged + through;
        self.acknowledge(id, through);
    }

    /// It is known that the peer carried out all requests before `through`.
    pub(crate) fn acknowledge(&mut self, id: QpId, through: u64) {
        let qp = &mut self.qps[id];
        let requester = &mut qp.requester;
        requester.acknowledged = requester.acknowledged.max(through);
        requester.retries_left = qp.attributes.retry_cnt;
        requester.has_lost = false;
        if self.trace.is_some() {
            let (qp, requests) = (qp.number, qp.requester.acknowledged);
            self.record(TraceEvent::Acknowledged { qp, requests });
        }
        self.finish_sends(id);
    }

    /// A request fails. It ends so once all before it have ended.
    pub(crate) fn fail(&mut self, id: QpId, index: u64, status: WcStatus) {
        let qp = &mut self.qps[id];
        qp.send.get_mut(index).failure = Some(status);
        qp.requester.is_halted = true;
        self.finish_sends(id);
    }

    /// The peer refuses the request that is next, and goes to ERR. The news is on its way.
    pub(crate) fn refuse(
        &mut self,
        id: QpId,
        status: WcStatus,
        event: EventType,
        receive: Option<WcStatus>,
    ) {
        self.counters.refused += 1;
        let number = self.qps[id].number;
        tracing::debug!(qp = number, %status, "the peer refuses a request");
        self.record(TraceEvent::Refused { qp: number, status });
        let Ok(peer) = self.route(id) else { return };
        if let Some(status) = receive {
            self.fail_receive(peer, status);
        }
        let requester = &mut self.qps[id].requester;
        requester.is_halted = true;
        if peer == id {
            // There is no way for the news to go: the queue pair knows, and fails with it.
            let index = requester.next;
            requester.acknowledged = index;
            self.fail(id, index, status);
        } else {
            requester.refused = Some(status);
        }
        self.enter_error(peer);
        self.raise_on_qp(peer, event);
    }

    /// Ends requests in order, as far as it is known how they end.
    fn finish_sends(&mut self, id: QpId) {
        loop {
            let qp = &mut self.qps[id];
            if !qp.state.sends() || !qp.has_unfinished_sends() {
                break;
            }
            let index = qp.requester.completed;
            let wqe = qp.send.get(index);
            let (head, failure) = (wqe.head, wqe.failure);
            let is_read = head.opcode == Opcode::Read;
            let is_done = index < qp.requester.acknowledged && (!is_read || wqe.is_read);
            if failure.is_none() && !is_done {
                break;
            }
            let reports = head.is_signaled || qp.signal_all;
            qp.requester.completed += 1;
            match failure {
                Some(status) => {
                    self.complete_failed(id, Side::Send, index, head.wr_id, status);
                    self.enter_error(id);
                }
                None if reports => {
                    let success = Success {
                        opcode: match head.opcode {
                            Opcode::Write | Opcode::WriteWithImmediate => IBV_WC_RDMA_WRITE,
                            Opcode::Send | Opcode::SendWithImmediate => IBV_WC_SEND,
                            Opcode::Read => IBV_WC_RDMA_READ,
                        },
                        byte_len: if is_read { head.length as u32 } else { 0 },
                        ..Success::default()
                    };
                    self.complete(id, Side::Send, index, head.wr_id, success);
                }
                None => {}
            }
        }
        self.report_drained(id);
    }

    /// In SQD: tells that everything that was begun has ended, if that was asked for.
    pub(crate) fn report_drained(&mut self, id: QpId) {
        let qp = &mut self.qps[id];
        if qp.state == QpState::Sqd && qp.requester.wants_drained && qp.is_drained() {
            qp.requester.wants_drained = false;
            self.raise_on_qp(id, EventType::SQ_DRAINED);
        }
    }

    /// Moves a queue pair to ERR: what is queued will be flushed, and packets of the peer are
    /// dropped from now on. Whether it was not there already.
    pub(crate) fn enter_error(&mut self, id: QpId) -> bool {
        let qp = &mut self.qps[id];
        if matches!(qp.state, QpState::Error | QpState::Reset) {
            return false;
        }
        qp.state = QpState::Error;
        qp.requester.timer = 0;
        self.network_changed();
        self.record_state(id);
        self.enqueue(id);
        true
    }

    /// In ERR: flushes the oldest request of a queue.
    pub(crate) fn flush(&mut self, id: QpId, side: Side) {
        let qp = &mut self.qps[id];
        let (index, wr_id) = match side {
            Side::Send => {
                let index = qp.requester.completed;
                qp.requester.completed += 1;
                (index, qp.send.get(index).head.wr_id)
            }
            Side::Recv => {
                let index = qp.responder.taken;
                qp.responder.taken += 1;
                (index, qp.recv.get(index).wr_id)
            }
        };
        self.complete_failed(id, side, index, wr_id, WcStatus::WR_FLUSH_ERR);
    }
}
