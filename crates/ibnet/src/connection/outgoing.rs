//! A message on its way: how it travels, and the work requests of its parts.

use std::num::NonZeroUsize;

use ibnet_verbs::{RemoteAddress, SendRequest, Sge};

use crate::connection::requests::RequestId;
use crate::connection::wr_id::WrId;
use crate::memory::region::Region;
use crate::wire::cts;
use crate::wire::immediate::{Immediate, SizeTold, generation};
use crate::wire::stripe::{self, Split};

/// Requests beside the data writes that a part may need: the size record, and an immediate on its
/// own.
const EXTRA_REQUESTS: u32 = 2;

/// How a message travels.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// The data goes as plain writes and each immediate with an empty one after them.
    pub(crate) is_bulk: bool,
    pub(crate) size_told: SizeTold,
    /// Writes of data for each part.
    writes: u32,
}

impl Shape {
    /// Of a message of `size` bytes in `split`, to a buffer of `capacity` bytes. Where packets may
    /// be reordered, messages larger than `bulk_threshold` go in bulk.
    pub(crate) fn of(
        size: u32,
        capacity: u32,
        split: &Split,
        largest_write: u32,
        bulk_threshold: Option<u32>,
    ) -> Self {
        let is_bulk = bulk_threshold.is_some_and(|most| size > most);
        let size_told = if !is_bulk && split.part_bytes <= largest_write {
            SizeTold::BySum
        } else if size == capacity {
            SizeTold::AsAnnounced
        } else {
            SizeTold::InTable
        };
        Self {
            is_bulk,
            size_told,
            writes: stripe::write_count(split.part_bytes, largest_write),
        }
    }

    /// Work requests that a part needs at most.
    pub(crate) fn most_requests(&self) -> u32 {
        if self.size_told == SizeTold::BySum {
            self.writes
        } else {
            self.writes + EXTRA_REQUESTS
        }
    }
}

/// A message on its way to its paths.
pub(crate) struct Outgoing<'a> {
    pub(crate) request: RequestId,
    pub(crate) data: u64,
    pub(crate) region: Option<&'a Region>,
    pub(crate) size: u32,
    /// The entry of the ring that it goes to.
    pub(crate) id: u64,
    /// Address of the receiver's buffer.
    pub(crate) remote: u64,
    pub(crate) split: Split,
    pub(crate) shape: Shape,
    /// What an observer is told.
    pub(crate) parent: Option<NonZeroUsize>,
}

/// What the writes of one part have in common.
pub(crate) struct Part {
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) max_inline: u32,
    pub(crate) can_be_inline: bool,
}

impl Part {
    /// A write of `length` bytes at `offset` of the message.
    #[inline]
    pub(crate) fn write(&self, message: &Outgoing<'_>, offset: u32, length: u32) -> SendRequest {
        let (local, remote) = self.span(message, offset, length);
        SendRequest::write(0, local, remote)
    }

    /// The last write, which tells the receiver.
    // Built in its place in the chain, whichever unit of code this lands in: a copy of a request
    // costs as much as the rest of it.
    #[inline]
    pub(crate) fn last(
        &self,
        message: &Outgoing<'_>,
        work: WrId,
        offset: u32,
        length: u32,
    ) -> SendRequest {
        let (local, remote) = self.span(message, offset, length);
        let immediate = Immediate {
            slot: cts::slot(message.id) as u8,
            size_told: message.shape.size_told,
            parts: message.split.parts as u8,
            generation: generation(message.id),
        };
        let request =
            SendRequest::write_with_immediate(work.encode(), local, remote, immediate.encode())
                .signaled();
        if length <= self.max_inline && self.can_be_inline {
            request.inline()
        } else {
            request
        }
    }

    #[inline]
    fn span(
        &self,
        message: &Outgoing<'_>,
        offset: u32,
        length: u32,
    ) -> (Option<Sge>, RemoteAddress) {
        let local = Sge {
            address: message.data.wrapping_add(u64::from(offset)),
            length,
            lkey: self.lkey,
        };
        let remote = RemoteAddress {
            address: message.remote.wrapping_add(u64::from(offset)),
            rkey: self.rkey,
        };
        ((length > 0).then_some(local), remote)
    }
}
