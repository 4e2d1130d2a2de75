//! A path: one reliable queue pair between one local and one remote device.

use ibnet_verbs::QueuePair;

use crate::connect::queue_pair::NewQueuePair;

/// A queue pair that is ready to send, with the count of work requests that its sending queue holds.
pub(crate) struct Path {
    pub(crate) queue_pair: QueuePair,
    /// Which of the own devices it is on.
    pub(crate) device: usize,
    /// Which of the peer's devices it leads to.
    pub(crate) peer_device: usize,
    /// Requests that the sending queue can hold.
    depth: u32,
    /// Requests that are in it: posted, and not known to be finished.
    in_flight: u32,
    /// Bytes that can be sent inline.
    pub(crate) max_inline: u32,
    /// Packets may overtake each other on the way.
    pub(crate) reorders: bool,
}

impl From<NewQueuePair> for Path {
    fn from(new: NewQueuePair) -> Self {
        Self {
            queue_pair: new.queue_pair,
            device: new.device,
            peer_device: new.peer_device,
            depth: new.depth,
            in_flight: 0,
            max_inline: new.max_inline,
            reorders: new.reorders,
        }
    }
}

impl Path {
    /// Requests that can be posted now.
    pub(crate) fn room(&self) -> u32 {
        self.depth - self.in_flight
    }

    /// Requests that are in the sending queue.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests that the sending queue can hold.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn posted(&mut self, requests: u32) {
        self.in_flight += requests;
    }

    /// A completion says that the oldest `requests` are finished.
    pub(crate) fn finished(&mut self, requests: u32) {
        self.in_flight = self.in_flight.saturating_sub(requests);
    }
}
