//! Losses, receivers that are not ready, and trying again.

use ibnet_verbs::WcStatus;

use super::State;
use super::slab::QpId;
use super::timers::{Timer, acknowledgement_timeout, not_ready_delay};
use crate::trace::{LossReason, TraceEvent};

/// A count of retries that never ends (`rnr_retry`).
const FOR_EVER: u8 = 7;

impl State {
    /// A message or an acknowledgement of a queue pair is lost. Nothing happens until the sender
    /// misses the acknowledgement.
    pub(crate) fn lose(&mut self, id: QpId, reason: LossReason) {
        self.counters.count_loss(reason);
        let token = self.new_token();
        let qp = &mut self.qps[id];
        let number = qp.number;
        tracing::debug!(qp = number, ?reason, "packet lost");
        let requester = &mut qp.requester;
        requester.is_stalled = true;
        requester.has_lost = true;
        if requester.refused.take().is_some() {
            requester.is_halted = false;
        }
        requester.timer = token;
        if let Some(timeout) = acknowledgement_timeout(qp.attributes.timeout) {
            let at = self.clock.now() + timeout;
            self.set_timer(at, Timer::Unacknowledged(id, token));
        }
        self.record(TraceEvent::Lost { qp: number, reason });
    }

    /// The peer has no receive for the message that is next, and says when to try again. That also
    /// acknowledges everything before.
    pub(crate) fn not_ready(&mut self, id: QpId) {
        let Ok(peer) = self.route(id) else { return };
        let delay = not_ready_delay(self.qps[peer].attributes.min_rnr_timer);
        self.counters.not_ready += 1;
        let token = self.new_token();
        let qp = &mut self.qps[id];
        let number = qp.number;
        let requester = &mut qp.requester;
        let (index, left) = (requester.next, requester.not_ready_left);
        if left == 0 {
            self.record(TraceEvent::NotReady { qp: number });
            self.acknowledge(id, index);
            self.fail(id, index, WcStatus::RNR_RETRY_EXC_ERR);
            return;
        }
        if left != FOR_EVER {
            requester.not_ready_left -= 1;
        }
        requester.is_stalled = true;
        requester.timer = token;
        let at = self.clock.now() + delay;
        self.set_timer(at, Timer::NotReady(id, token));
        self.record(TraceEvent::NotReady { qp: number });
        self.acknowledge(id, index);
    }

    /// Does what is due by now. Whether there was anything.
    pub(crate) fn fire_timers(&mut self) -> bool {
        if self.timers.next().is_none() {
            return false;
        }
        let now = self.clock.now();
        let mut fired = false;
        while let Some(timer) = self.timers.take_due(now) {
            fired |= self.fire(timer);
        }
        self.note_attention();
        fired
    }

    fn fire(&mut self, timer: Timer) -> bool {
        match timer {
            Timer::Unacknowledged(id, token) if self.is_current(id, token) => self.retry(id),
            Timer::NotReady(id, token) if self.is_current(id, token) => {
                self.qps[id].requester.is_stalled = false;
                self.enqueue(id);
            }
            Timer::Unacknowledged(..) | Timer::NotReady(..) => return false,
            Timer::Release(cq) => self.release_held(cq),
            Timer::LinkRestored(device, number, token) => {
                let port = self.devices[device].port_mut(number);
                let Some(port) = port.filter(|port| {
                    let cut = port.cut.as_ref();
                    cut.is_some_and(|cut| cut.token == token)
                }) else {
                    return false;
                };
                port.cut = None;
                self.network_changed();
            }
        }
        true
    }

    fn is_current(&self, id: QpId, token: u64) -> bool {
        let qp = self.qps.get(id);
        qp.is_some_and(|qp| qp.requester.timer == token && qp.requester.is_stalled)
    }

    /// The acknowledgement did not come in time.
    fn retry(&mut self, id: QpId) {
        let qp = &mut self.qps[id];
        let requester = &mut qp.requester;
        requester.is_stalled = false;
        if requester.retries_left == 0 {
            let oldest = requester.completed;
            self.fail(id, oldest, WcStatus::RETRY_EXC_ERR);
            return;
        }
        requester.retries_left -= 1;
        self.counters.retries += 1;
        let qp = self.qps[id].number;
        self.record(TraceEvent::Retried { qp });
        self.enqueue(id);
    }
}
