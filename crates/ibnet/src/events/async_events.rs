//! What events of devices mean, and whom they hit.

use ibnet_verbs::{AsyncEvent, CqId, EventType};

/// Names a watched device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceToken(pub(super) u64);

/// What a connection uses of one device, and by which events can hit it.
#[derive(Clone, Debug)]
pub(crate) struct Resources {
    pub(crate) device: DeviceToken,
    /// The port, if the connection wants [`PORT`](super::PORT) to be raised.
    pub(crate) port: Option<u8>,
    pub(crate) queue_pairs: Vec<u32>,
    pub(crate) completion_queues: Vec<CqId>,
}

/// Something that can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fatal {
    pub(crate) device: DeviceToken,
    pub(crate) subject: Subject,
}

/// What of a device a fatal event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Device,
    QueuePair(u32),
    CompletionQueue(CqId),
}

/// What an event means to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Fatal(Subject),
    /// What is known of the port may be out of date.
    PortChanged(u8),
    /// What is known of every port may be out of date.
    DeviceChanged,
    Nothing,
}

impl Resources {
    pub(super) fn is_hit_by(&self, fatal: Fatal) -> bool {
        self.device == fatal.device
            && match fatal.subject {
                Subject::Device => true,
                Subject::QueuePair(number) => self.queue_pairs.contains(&number),
                Subject::CompletionQueue(id) => self.completion_queues.contains(&id),
            }
    }
}

/// What an event means, by its kind and what it names. Its port is the event's own, never that of
/// whoever happens to look.
pub(super) fn meaning(event: &AsyncEvent) -> Meaning {
    let kind = event.kind();
    if kind == EventType::DEVICE_FATAL {
        return Meaning::Fatal(Subject::Device);
    }
    if kind == EventType::DEVICE_SPEED_CHANGE {
        return Meaning::DeviceChanged;
    }
    if kind.is_fatal() {
        // Shared receive queues and work queues are not used here.
        let queue_pair = event.qp_number().map(Subject::QueuePair);
        let subject = queue_pair.or_else(|| event.cq_id().map(Subject::CompletionQueue));
        return subject.map_or(Meaning::Nothing, Meaning::Fatal);
    }
    event.port().map_or(Meaning::Nothing, Meaning::PortChanged)
}
