//! Asynchronous events: raising, taking and acknowledging them.

use ibnet_verbs::{EventType, QueuePairState};

use super::slab::{ContextId, CqId, DeviceId, QpId};
use super::{Errno, State};
use crate::trace::TraceEvent;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Device,
    Port(u8),
    Qp(QpId),
    Cq(CqId),
}

/// An event that was not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) kind: EventType,
    pub(crate) subject: Subject,
}

impl State {
    /// An event for the one open device that owns the object.
    pub(crate) fn raise(&mut self, context: ContextId, kind: EventType, subject: Subject) {
        self.counters.events += 1;
        self.record(TraceEvent::Event { kind });
        let Some(context) = self.contexts.get_mut(context) else {
            return;
        };
        let device = &self.devices[context.device].spec.name;
        tracing::debug!(device, %kind, ?subject, "asynchronous event");
        context.events.push_back(Pending { kind, subject });
        context.bell.ring();
    }

    /// An event for everybody who has the device open.
    pub(crate) fn raise_on_device(&mut self, device: DeviceId, kind: EventType, subject: Subject) {
        let of_device = self.contexts.iter();
        let of_device = of_device.filter(|(_, context)| context.device == device);
        let contexts: Vec<_> = of_device.map(|(id, _)| id).collect();
        for context in contexts {
            self.raise(context, kind, subject);
        }
    }

    pub(crate) fn raise_on_qp(&mut self, qp: QpId, kind: EventType) {
        self.raise(self.qps[qp].context, kind, Subject::Qp(qp));
    }

    /// Takes the next event. None if nothing is pending.
    ///
    /// # Errors
    ///
    /// `EIO` if the device was removed and nothing is pending.
    pub(crate) fn take_event(&mut self, id: ContextId) -> Result<Option<Pending>, Errno> {
        let context = &mut self.contexts[id];
        let is_removed = self.devices[context.device].is_removed;
        let Some(event) = context.events.pop_front() else {
            return if is_removed { Err(libc::EIO) } else { Ok(None) };
        };
        // After a removal the descriptor stays readable, as one that hung up.
        if context.events.is_empty() && !is_removed {
            context.bell.silence();
        }
        match event.subject {
            Subject::Qp(qp) => self.qps[qp].unacknowledged_events += 1,
            Subject::Cq(cq) => self.cqs[cq].unacknowledged_events += 1,
            Subject::Device | Subject::Port(_) => {}
        }
        Ok(Some(event))
    }

    /// Forgets the events about an object that were not taken yet: it is being destroyed.
    pub(crate) fn forget_events(&mut self, id: ContextId, subject: Subject) {
        let context = &mut self.contexts[id];
        context.events.retain(|event| event.subject != subject);
        if context.events.is_empty() && !self.devices[context.device].is_removed {
            context.bell.silence();
        }
    }

    /// Notes that a queue pair entered a state.
    pub(crate) fn record_state(&mut self, id: QpId) {
        let qp = &self.qps[id];
        let state = QueuePairState::from_raw(qp.state as u32);
        let qp = qp.number;
        self.record(TraceEvent::Entered { qp, state });
    }
}
