//! Carrying out the messages of a queue pair, one after the other.

use ibnet_verbs::WcStatus;
use ibnet_verbs::sys::ibv_wc_opcode::{IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM};

use super::State;
use super::cq::{Side, Success};
use super::message::{PSN_MASK, Plan, Stop};
use super::place::{CopyJob, Direction, Placed};
use super::qp::{Partial, Read};
use super::queue::Opcode;
use super::slab::QpId;
use crate::faults::{Stage, WorkFault};
use crate::trace::TraceEvent;

impl State {
    /// Gets ahead with the request that is next. Gives a copy to make, if that is to be done
    /// outside the lock.
    pub(crate) fn deliver(&mut self, id: QpId) -> Option<CopyJob> {
        if self.faults.is_any_armed() && !self.look_for_faults(id) {
            return None;
        }
        let plan = match self.admit_message(id) {
            Ok(plan) => plan,
            Err(stop) => {
                self.stop(id, stop);
                return None;
            }
        };
        if plan.head.opcode == Opcode::Read {
            // The peer serves it now; its data comes in another lane.
            self.qps[id].requester.reads.push_back(Read {
                index: plan.index,
                partial: None,
            });
            self.finish_message(id, &plan);
            return None;
        }
        let partial = self.qps[id].requester.partial.take();
        match self.place(id, Direction::Out, &plan, partial) {
            Placed::All => self.finish_message(id, &plan),
            Placed::Part(partial) => {
                self.record_part(id, plan.head.wr_id, &partial);
                self.qps[id].requester.partial = Some(partial);
            }
            Placed::Aside => return Some(self.begin_copy(id, Direction::Out, plan)),
        }
        None
    }

    /// What faults do to the request that is next, when it comes up for the first time. False if
    /// it goes no further.
    fn look_for_faults(&mut self, id: QpId) -> bool {
        let qp = &mut self.qps[id];
        let index = qp.requester.next;
        let wqe = qp.send.get_mut(index);
        if wqe.is_seen {
            return true;
        }
        wqe.is_seen = true;
        let has_rkey = !wqe.head.opcode.is_send() && wqe.head.length > 0;
        let fault = self.fault_of_work(id, has_rkey);
        let qp = &mut self.qps[id];
        match fault {
            None => true,
            Some(WorkFault::FlipRkey) => {
                let bit = self.random.below(32);
                qp.send.get_mut(index).head.rkey ^= 1 << bit;
                true
            }
            Some(WorkFault::Fail(status, Stage::CarriedOut)) => {
                qp.send.get_mut(index).fails_after = Some(status);
                true
            }
            Some(WorkFault::Fail(status, Stage::NotSent)) => {
                self.fail(id, index, status);
                false
            }
            Some(WorkFault::Hang) => {
                qp.requester.is_halted = true;
                false
            }
        }
    }

    fn stop(&mut self, id: QpId, stop: Stop) {
        match stop {
            Stop::Failed(status) => {
                let index = self.qps[id].requester.next;
                self.fail(id, index, status);
            }
            Stop::Lost(reason) => self.lose(id, reason),
            Stop::NotReady => self.not_ready(id),
            Stop::Refused {
                status,
                event,
                receive,
            } => self.refuse(id, status, event, receive),
        }
    }

    /// All bytes of a message are placed: the peer's receive is consumed, and the peer expects
    /// the next message.
    pub(crate) fn finish_message(&mut self, id: QpId, plan: &Plan) {
        if plan.head.opcode.consumes_receive() && !self.consume_receive(plan) {
            // The data stays placed, and is not placed again.
            self.qps[id].requester.partial = Some(Partial {
                peer_epoch: self.qps[plan.peer].epoch,
                left: Vec::new(),
            });
            self.not_ready(id);
            return;
        }
        let responder = &mut self.qps[plan.peer].responder;
        responder.psn = (responder.psn + plan.packets) & PSN_MASK;
        self.counters.messages += 1;

        let qp = &mut self.qps[id];
        let fails = qp.send.get(plan.index).fails_after;
        let requester = &mut qp.requester;
        requester.psn = (requester.psn + plan.packets) & PSN_MASK;
        requester.next += 1;
        requester.partial = None;
        requester.not_ready_left = qp.attributes.rnr_retry;
        if self.trace.is_some() {
            let qp = self.qps[id].number;
            self.record(TraceEvent::Delivered {
                qp,
                wr_id: plan.head.wr_id,
                bytes: plan.head.length,
            });
        }
        if let Some(status) = fails {
            self.fail(id, plan.index, status);
        }
    }

    /// Gives the message to the peer's next receive. False if there is none.
    fn consume_receive(&mut self, plan: &Plan) -> bool {
        let target = &mut self.qps[plan.peer];
        if !target.has_receive() {
            return false;
        }
        let index = target.responder.taken;
        target.responder.taken += 1;
        let wr_id = target.recv.get(index).wr_id;
        let head = &plan.head;
        let success = Success {
            opcode: match head.opcode {
                Opcode::WriteWithImmediate => IBV_WC_RECV_RDMA_WITH_IMM,
                _ => IBV_WC_RECV,
            },
            byte_len: head.length as u32, // At most max_message, which has 32 bits.
            immediate: head.opcode.has_immediate().then_some(head.immediate),
            is_solicited: head.is_solicited,
        };
        self.complete(plan.peer, Side::Recv, index, wr_id, success);
        true
    }

    /// The peer's next receive ends with an error.
    pub(crate) fn fail_receive(&mut self, peer: QpId, status: WcStatus) {
        let target = &mut self.qps[peer];
        if !target.has_receive() {
            return;
        }
        let index = target.responder.taken;
        target.responder.taken += 1;
        let wr_id = target.recv.get(index).wr_id;
        self.complete_failed(peer, Side::Recv, index, wr_id, status);
    }

    pub(crate) fn record_part(&mut self, id: QpId, wr_id: u64, partial: &Partial) {
        let qp = self.qps[id].number;
        let left = partial.left.len() as u64;
        self.record(TraceEvent::Placed { qp, wr_id, left });
    }
}
