//! [`Queue`]: the send or receive queue of a queue pair, and the requests in it.

use ibnet_verbs::WcStatus;

/// What a send request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Write,
    WriteWithImmediate,
    Send,
    SendWithImmediate,
    Read,
}

impl Opcode {
    pub(crate) const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteWithImmediate)
    }

    pub(crate) const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendWithImmediate)
    }

    pub(crate) const fn has_immediate(self) -> bool {
        matches!(self, Self::WriteWithImmediate | Self::SendWithImmediate)
    }

    /// Whether it consumes a receive of the peer.
    pub(crate) const fn consumes_receive(self) -> bool {
        matches!(self, Self::WriteWithImmediate) || self.is_send()
    }
}

/// A piece of local memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// The fixed part of a send request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendHead {
    pub(crate) wr_id: u64,
    pub(crate) opcode: Opcode,
    pub(crate) is_signaled: bool,
    pub(crate) is_solicited: bool,
    pub(crate) is_fenced: bool,
    pub(crate) is_inline: bool,
    /// As it goes on the wire.
    pub(crate) immediate: u32,
    pub(crate) length: u64,
    pub(crate) remote: u64,
    pub(crate) rkey: u32,
}

impl Default for SendHead {
    fn default() -> Self {
        Self {
            wr_id: 0,
            opcode: Opcode::Write,
            is_signaled: false,
            is_solicited: false,
            is_fenced: false,
            is_inline: false,
            immediate: 0,
            length: 0,
            remote: 0,
            rkey: 0,
        }
    }
}

/// A request in a send queue.
#[derive(Debug, Default)]
pub(crate) struct SendWqe {
    pub(crate) head: SendHead,
    pub(crate) elements: Vec<Element>,
    /// What an inline request carries.
    pub(crate) data: Vec<u8>,
    /// Set when it failed: it ends so as soon as all earlier ones have ended.
    pub(crate) failure: Option<WcStatus>,
    /// The data of a read is here.
    pub(crate) is_read: bool,
    /// Faults were looked for.
    pub(crate) is_seen: bool,
    /// An injected error to report once the peer has carried the request out.
    pub(crate) fails_after: Option<WcStatus>,
}

/// A request in a receive queue.
#[derive(Debug, Default)]
pub(crate) struct RecvWqe {
    pub(crate) wr_id: u64,
    pub(crate) elements: Vec<Element>,
}

/// A bounded queue in which a place is taken until its user says that it is free.
///
/// Requests are named by how many were posted before them. Places are made when they are first
/// needed and keep their lists, so that posting needs no heap once the queue has gone round.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    places: Vec<W>,
    capacity: u64,
    posted: u64,
    freed: u64,
}

impl<W: Default> Queue<W> {
    pub(crate) const fn new(capacity: u32) -> Self {
        Self {
            places: Vec::new(),
            capacity: capacity as u64,
            posted: 0,
            freed: 0,
        }
    }

    /// How many requests were posted since the last reset.
    #[inline]
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Whether no place is free.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.posted - self.freed >= self.capacity
    }

    /// The place of the next request, to be filled in; it still holds what an earlier one left.
    /// The queue is not full.
    #[inline]
    pub(crate) fn push(&mut self) -> &mut W {
        debug_assert!(!self.is_full());
        let place = (self.posted % self.capacity) as usize;
        self.posted += 1;
        if place == self.places.len() {
            self.places.push(W::default());
        }
        &mut self.places[place]
    }

    /// A request that was posted and whose place was not freed.
    #[inline]
    pub(crate) fn get(&self, index: u64) -> &W {
        &self.places[(index % self.capacity) as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u64) -> &mut W {
        &mut self.places[(index % self.capacity) as usize]
    }

    /// Frees the places of all requests up to `index` and including it.
    #[inline]
    pub(crate) fn free_through(&mut self, index: u64) {
        // Completions are polled in order.
        self.freed = index + 1;
    }

    pub(crate) fn clear(&mut self) {
        self.posted = 0;
        self.freed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_until_freed_and_then_used_again() {
        let mut queue: Queue<RecvWqe> = Queue::new(3);
        for wr_id in 0..3 {
            assert!(!queue.is_full());
            queue.push().wr_id = wr_id;
        }
        assert!(queue.is_full());
        queue.free_through(1);
        assert!(!queue.is_full());
        queue.push().wr_id = 3;
        queue.push().wr_id = 4;
        assert!(queue.is_full());
        let ids: Vec<_> = (2..5).map(|index| queue.get(index).wr_id).collect();
        assert_eq!(ids, [2, 3, 4]);
        queue.clear();
        assert_eq!((queue.posted(), queue.is_full()), (0, false));
    }

    #[test]
    fn a_queue_of_no_places_is_full() {
        assert!(Queue::<RecvWqe>::new(0).is_full());
    }
}
