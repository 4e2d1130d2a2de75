//! A path: one reliable queue pair between one local and one remote device.
//!
//! A path outlives its queue pair: when that has failed, another one takes its place
//! ([`recovery`](super::recovery)).

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
    /// Number of the last request that was posted: they count up from 1.
    posted: u32,
    /// Number of the last request that is known to be finished.
    finished: u32,
    /// Completions that signalled requests will bring.
    pub(crate) completions: u32,
    /// Receives that are posted.
    pub(crate) receives: u32,
    /// Whether messages may be posted.
    pub(crate) is_live: bool,
    /// Bytes that can be sent inline.
    pub(crate) max_inline: u32,
    /// Packets may overtake each other on the way.
    pub(crate) reorders: bool,
}

impl Path {
    /// With `receives` receives posted.
    pub(crate) fn new(new: NewQueuePair, receives: u32) -> Self {
        Self {
            queue_pair: new.queue_pair,
            device: new.device,
            peer_device: new.peer_device,
            depth: new.depth,
            posted: 0,
            finished: 0,
            completions: 0,
            receives,
            is_live: true,
            max_inline: new.max_inline,
            reorders: new.reorders,
        }
    }

    /// Requests that can be posted now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        if self.is_live {
            self.depth - self.in_flight()
        } else {
            0
        }
    }

    /// Requests that are in the sending queue.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.posted.wrapping_sub(self.finished)
    }

    /// Requests that the sending queue can hold.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// One more request is posted: its number.
    #[inline]
    pub(crate) fn posted(&mut self) -> u32 {
        self.posted = self.posted.wrapping_add(1);
        self.posted
    }

    /// The last request was not posted after all.
    pub(crate) fn not_posted(&mut self) {
        self.posted = self.posted.wrapping_sub(1);
    }

    /// Whether request `number`, which was posted, is finished.
    pub(crate) fn has_finished(&self, number: u32) -> bool {
        number.wrapping_sub(self.finished) > self.in_flight() || number == self.finished
    }

    /// Whether any request has finished.
    pub(crate) fn has_carried(&self) -> bool {
        self.finished != 0
    }

    /// Number that the next request will have.
    pub(crate) fn next_number(&self) -> u32 {
        self.posted.wrapping_add(1)
    }

    /// Number of the last request that is known to be finished.
    pub(crate) fn last_finished(&self) -> u32 {
        self.finished
    }

    /// Number of the request that was posted last.
    #[inline]
    pub(crate) fn last_posted(&self) -> u32 {
        self.posted
    }

    /// Request `number` is finished, and so are those before it.
    #[inline]
    pub(crate) fn finished(&mut self, number: u32) {
        // Whatever a device says: no more than were posted.
        if self.posted.wrapping_sub(number) < self.in_flight() {
            self.finished = number;
        }
    }

    /// Number of the oldest request that is not known to be finished.
    pub(crate) fn next_unfinished(&self) -> u32 {
        self.finished.wrapping_add(1)
    }

    /// Whether everything that was posted has come back.
    pub(crate) fn is_drained(&self) -> bool {
        self.in_flight() == 0 && self.receives == 0
    }
}
