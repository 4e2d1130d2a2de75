//! Completion queues and completion channels.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ibnet_verbs::layout::RawCompletion;
use ibnet_verbs::sys::{ibv_cq, ibv_wc_flags};
use ibnet_verbs::{EventType, WcStatus};

use super::bell::Bell;
use super::events::Subject;
use super::handle::Handle;
use super::slab::{ChannelId, ContextId, CqId, QpId};
use super::timers::{Nanos, Timer};
use super::{Errno, State};
use crate::faults::Kind;
use crate::trace::TraceEvent;

pub(crate) struct Cq {
    pub(crate) handle: Handle<ibv_cq>,
    pub(crate) context: ContextId,
    pub(crate) channel: Option<ChannelId>,
    pub(crate) depth: usize,
    entries: VecDeque<Cqe>,
    /// Completions that may not be seen yet, by when they may and which came first.
    held: BTreeMap<(Nanos, u64), Cqe>,
    /// How many entries can be polled: read without the lock, so that polling nothing is cheap.
    pub(crate) available: Arc<AtomicUsize>,
    armed: Armed,
    has_overrun: bool,
    /// How many queue pairs use it.
    pub(crate) users: u32,
    pub(crate) unacknowledged_events: u32,
    pub(crate) unacknowledged_completion_events: u32,
}

/// What its user wants to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

pub(crate) struct Channel {
    pub(crate) context: ContextId,
    /// Completion queues with news.
    pub(crate) events: VecDeque<CqId>,
    pub(crate) bell: Bell,
    /// How many completion queues use it.
    pub(crate) users: u32,
}

/// Which queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Recv,
}

/// A completion, and whose place it frees when it is polled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe {
    raw: RawCompletion,
    qp: QpId,
    epoch: u32,
    side: Side,
    index: u64,
    is_solicited: bool,
}

/// What a completion says if the request succeeded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Success {
    pub(crate) opcode: u32,
    pub(crate) byte_len: u32,
    /// As it came from the wire.
    pub(crate) immediate: Option<u32>,
    pub(crate) is_solicited: bool,
}

impl Cq {
    pub(crate) fn new(
        handle: Handle<ibv_cq>,
        context: ContextId,
        channel: Option<ChannelId>,
        depth: usize,
    ) -> Self {
        Self {
            handle,
            context,
            channel,
            depth,
            entries: VecDeque::new(),
            held: BTreeMap::new(),
            available: Arc::new(AtomicUsize::new(0)),
            armed: Armed::No,
            has_overrun: false,
            users: 0,
            unacknowledged_events: 0,
            unacknowledged_completion_events: 0,
        }
    }

    fn publish(&self) {
        self.available.store(self.entries.len(), Ordering::Release);
    }
}

impl State {
    /// The completion of a request that succeeded.
    pub(crate) fn complete(&mut self, qp: QpId, side: Side, index: u64, wr_id: u64, what: Success) {
        let with_immediate = ibv_wc_flags::IBV_WC_WITH_IMM.0;
        let raw = RawCompletion {
            wr_id,
            status: WcStatus::SUCCESS.raw(),
            opcode: what.opcode,
            byte_len: what.byte_len,
            imm_data: what.immediate.unwrap_or(0),
            wc_flags: what.immediate.map_or(0, |_| with_immediate),
            ..RawCompletion::default()
        };
        self.push(qp, side, index, raw, what.is_solicited);
    }

    /// The completion of a request that failed. All fields that mean nothing then are garbage, so
    /// that programs do not get used to sensible values.
    pub(crate) fn complete_failed(
        &mut self,
        qp: QpId,
        side: Side,
        index: u64,
        wr_id: u64,
        status: WcStatus,
    ) {
        if status == WcStatus::WR_FLUSH_ERR {
            self.counters.flushed += 1;
        } else {
            let number = self.qps[qp].number;
            tracing::debug!(qp = number, wr_id, %status, "work request failed");
        }
        let raw = RawCompletion {
            wr_id,
            status: status.raw(),
            opcode: self.random.next_u32(),
            vendor_err: 0x5100 | status.raw(),
            byte_len: self.random.next_u32(),
            imm_data: self.random.next_u32(),
            wc_flags: self.random.next_u32() & 0xf,
            ..RawCompletion::default()
        };
        // Failures count as solicited.
        self.push(qp, side, index, raw, true);
    }

    fn push(&mut self, id: QpId, side: Side, index: u64, raw: RawCompletion, is_solicited: bool) {
        let qp = &self.qps[id];
        let (number, epoch, context) = (qp.number, qp.epoch, qp.context);
        let cq_id = match side {
            Side::Send => qp.send_cq,
            Side::Recv => qp.recv_cq,
        };
        let overruns = self.faults.is_armed(Kind::OverrunCq) && self.overruns_by_fault(id);
        let cq = &mut self.cqs[cq_id];
        if cq.has_overrun || overruns || cq.entries.len() + cq.held.len() >= cq.depth {
            let is_first = !cq.has_overrun;
            cq.has_overrun = true;
            self.counters.overruns += 1;
            if is_first {
                self.raise(context, EventType::CQ_ERR, Subject::Cq(cq_id));
            }
            // The queue pair has no way left to report: that is fatal to it.
            if self.enter_error(id) {
                self.raise_on_qp(id, EventType::QP_FATAL);
            }
            return;
        }
        let may_wait = self.faults.is_armed(Kind::DelayCompletions) || !cq.held.is_empty();
        self.counters.completions += 1;
        if self.trace.is_some() {
            self.record(TraceEvent::Completed {
                qp: number,
                wr_id: raw.wr_id,
                status: WcStatus::from_raw(raw.status),
            });
        }
        let cqe = Cqe {
            raw: RawCompletion {
                qp_num: number,
                ..raw
            },
            qp: id,
            epoch,
            side,
            index,
            is_solicited,
        };
        if may_wait && self.hold_back(id, cq_id, cqe) {
            return;
        }
        self.make_visible(cq_id, cqe);
    }

    /// Holds a completion back, if a fault or an earlier completion of the same queue that is held
    /// back says so.
    fn hold_back(&mut self, id: QpId, cq_id: CqId, cqe: Cqe) -> bool {
        // What is due goes first, so that this one cannot overtake it.
        self.release_held(cq_id);
        let now = self.clock.now();
        let delay = self.delay_by_fault(id).unwrap_or(0);
        let released = &mut self.qps[id].released[cqe.side as usize];
        *released = now.saturating_add(delay).max(*released);
        let at = *released;
        if at <= now {
            return false;
        }
        self.held_so_far += 1;
        let key = (at, self.held_so_far);
        self.cqs[cq_id].held.insert(key, cqe);
        self.set_timer(at, Timer::Release(cq_id));
        true
    }

    /// Makes completions visible whose time has come.
    pub(crate) fn release_held(&mut self, id: CqId) {
        let now = self.clock.now();
        while let Some(cq) = self.cqs.get_mut(id) {
            match cq.held.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let cqe = first.remove();
                    self.make_visible(id, cqe);
                }
                _ => return,
            }
        }
    }

    fn make_visible(&mut self, id: CqId, cqe: Cqe) {
        let cq = &mut self.cqs[id];
        cq.entries.push_back(cqe);
        cq.publish();
        let wanted = match cq.armed {
            Armed::No => false,
            Armed::Solicited => cqe.is_solicited,
            Armed::Any => true,
        };
        if !wanted {
            return;
        }
        cq.armed = Armed::No;
        let Some(channel) = cq.channel else { return };
        if self.faults.is_armed(Kind::LoseNotifications) && self.loses_notification(cqe.qp) {
            return;
        }
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.events.push_back(id);
            channel.bell.ring();
        }
    }

    /// Takes up to `capacity` completions, and frees the places of their requests.
    pub(crate) fn poll(
        &mut self,
        id: CqId,
        capacity: usize,
        mut each: impl FnMut(RawCompletion),
    ) -> usize {
        let mut number = self.cqs[id].entries.len().min(capacity);
        if self.faults.is_armed(Kind::PartialPolls) {
            number = self.limit_poll(id, number);
        }
        for _ in 0..number {
            let Some(cqe) = self.cqs[id].entries.pop_front() else {
                break;
            };
            self.free_place(&cqe);
            each(cqe.raw);
        }
        self.cqs[id].publish();
        number
    }

    fn free_place(&mut self, cqe: &Cqe) {
        let Some(qp) = self.qps.get_mut(cqe.qp) else {
            return;
        };
        // The number may have gone to another queue pair, or the place to another life of this one.
        if qp.number != cqe.raw.qp_num || qp.epoch != cqe.epoch {
            return;
        }
        match cqe.side {
            Side::Send => qp.send.free_through(cqe.index),
            Side::Recv => qp.recv.free_through(cqe.index),
        }
    }

    /// Asks for an event when the next completion becomes visible.
    pub(crate) fn arm(&mut self, id: CqId, solicited_only: bool) {
        let cq = &mut self.cqs[id];
        cq.armed = match (solicited_only, cq.armed) {
            (true, Armed::No | Armed::Solicited) => Armed::Solicited,
            _ => Armed::Any,
        };
    }

    /// Removes the completions of a queue pair, seen and unseen, from a completion queue.
    pub(crate) fn remove_completions(&mut self, id: CqId, qp: QpId) {
        let number = self.qps[qp].number;
        let cq = &mut self.cqs[id];
        cq.entries.retain(|cqe| cqe.raw.qp_num != number);
        cq.held.retain(|_, cqe| cqe.raw.qp_num != number);
        cq.publish();
    }

    /// Takes the next event of a channel.
    ///
    /// # Errors
    ///
    /// `EIO` if the device was removed and nothing is pending.
    pub(crate) fn take_completion_event(&mut self, id: ChannelId) -> Result<Option<CqId>, Errno> {
        let Some(cq) = self.channels[id].events.pop_front() else {
            return match self.is_hung_up(id) {
                true => Err(libc::EIO),
                false => Ok(None),
            };
        };
        self.silence_if_empty(id);
        self.cqs[cq].unacknowledged_completion_events += 1;
        Ok(Some(cq))
    }

    /// Forgets the completion events of a queue that is being destroyed.
    pub(crate) fn forget_completion_events(&mut self, id: CqId) {
        if let Some(channel) = self.cqs[id].channel {
            self.channels[channel].events.retain(|&cq| cq != id);
            self.silence_if_empty(channel);
        }
    }

    /// Whether the device of a channel was removed. Its descriptor then stays readable, so that
    /// no wait is for ever.
    fn is_hung_up(&self, id: ChannelId) -> bool {
        let device = self.contexts[self.channels[id].context].device;
        self.devices[device].is_removed
    }

    fn silence_if_empty(&mut self, id: ChannelId) {
        if self.channels[id].events.is_empty() && !self.is_hung_up(id) {
            self.channels[id].bell.silence();
        }
    }
}
