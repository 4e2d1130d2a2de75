//! The one way to post: the work requests of messages are staged on a path, and posted with one call of
//! the driver.
//!
//! The small messages of a group share a chain, of which only the last request is signalled: it tells that
//! all are done. Every other message is posted as soon as it is staged.

use std::num::NonZeroUsize;

use ibnet_verbs::{RemoteAddress, SendRequest, Sge};

use super::Sender;
use crate::connection::Connection;
use crate::connection::observer::{Piece, WRITE_WITH_IMMEDIATE};
use crate::connection::requests::RequestId;
use crate::connection::wr_id::WrId;
use crate::error::{Error, Failed};
use crate::memory::region::Region;
use crate::wire::cts::{self, MAX_GROUP, SIZE_BYTES};
use crate::wire::immediate::{Immediate, SizeTold, generation};
use crate::wire::stripe::{self, Split};

/// Work requests that are posted with one call.
const CHAIN: usize = 32;

/// Requests beside the data writes that a part may need: the size record, and an immediate on its
/// own.
const EXTRA_REQUESTS: u32 = 2;

/// How a message travels.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) split: Split,
    /// The data goes as plain writes and each immediate with an empty one after them.
    is_bulk: bool,
    size_told: SizeTold,
    /// Writes of data for each part but perhaps the last.
    writes: u32,
}

impl Shape {
    /// Of a message that is too long for its buffer: its length, and an empty write.
    pub(super) const TOO_LONG: Self = Self {
        split: Split {
            parts: 1,
            part_bytes: 0,
        },
        is_bulk: true,
        size_told: SizeTold::TooLong,
        writes: 0,
    };

    /// Of a message of `size` bytes in `split`, to a buffer of `capacity` bytes. Where packets may
    /// be reordered, messages larger than `bulk_threshold` go in bulk.
    #[inline]
    pub(super) fn of(
        size: u32,
        capacity: u32,
        split: Split,
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
            split,
            is_bulk,
            size_told,
            writes: stripe::write_count(split.part_bytes, largest_write),
        }
    }

    /// Whether the whole message is one write.
    #[inline]
    pub(super) fn is_one_write(&self) -> bool {
        self.split.parts == 1 && self.size_told == SizeTold::BySum
    }

    /// Work requests that a part needs at most.
    #[inline]
    fn most_requests(&self) -> u32 {
        if self.size_told == SizeTold::BySum {
            self.writes
        } else {
            self.writes + EXTRA_REQUESTS
        }
    }
}

/// A message to stage.
pub(super) struct Message<'a> {
    pub(super) request: RequestId,
    /// Address of the data.
    pub(super) data: u64,
    pub(super) region: Option<&'a Region>,
    pub(super) size: u32,
    /// The entry of the ring that it goes to.
    pub(super) id: u64,
    /// Address of the receiver's buffer.
    pub(super) remote: u64,
    pub(super) shape: Shape,
    /// What an observer is told.
    pub(super) parent: Option<NonZeroUsize>,
}

/// Work requests that are built and not posted. All take the same path.
pub(super) struct Staged {
    chain: Box<[SendRequest; CHAIN]>,
    /// Requests in the chain. None of them is signalled.
    filled: usize,
    /// Requests since the last signalled one: those in the chain, and those that did not fit in it.
    requests: u32,
    /// The parts whose last requests are among these.
    parts: [Part; MAX_GROUP],
    part_count: usize,
    path: usize,
}

/// What has to be known of a part once it is posted.
#[derive(Clone, Copy, Default)]
struct Part {
    /// Slot of its request in the table.
    request: u16,
    bytes: u32,
    parent: Option<NonZeroUsize>,
}

impl Staged {
    pub(super) fn new() -> Self {
        let request = SendRequest::write(0, None, RemoteAddress::default());
        Self {
            chain: Box::new([request; CHAIN]),
            filled: 0,
            requests: 0,
            parts: [Part::default(); MAX_GROUP],
            part_count: 0,
            path: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.part_count == 0
    }

    /// The next request of the chain, which has room for it.
    #[inline]
    fn push(&mut self) -> &mut SendRequest {
        let request = &mut self.chain[self.filled];
        self.filled += 1;
        self.requests += 1;
        request
    }

    /// What the completion of all that is staged will say.
    #[inline]
    fn work(&self) -> WrId {
        WrId {
            path: self.path,
            parts: self.part_count as u8,
            requests: self.requests,
        }
    }
}

impl Connection<Sender> {
    /// Chooses a path for each part of the next message. Returns whether all of them have room for it,
    /// and the table of requests has.
    #[inline]
    pub(super) fn choose_paths(&mut self, shape: &Shape) -> Result<bool, Failed> {
        // A message that is one write joins what is staged, on the same path.
        if !self.side.staged.is_empty() && !shape.is_one_write() {
            self.post_staged()?;
        }
        let Sender {
            staged, selector, ..
        } = &mut self.side;
        if staged.is_empty() {
            selector.choose(shape.split.parts, &self.core.paths);
        }
        let needed = shape.most_requests();
        for part in 0..shape.split.parts {
            let path = &self.core.paths[selector.path(part)];
            if path.room() < needed {
                return if path.depth() < needed {
                    Err(self.never_fits(shape.split.part_bytes, path.depth()))
                } else {
                    Ok(false)
                };
            }
        }
        Ok(!self.requests.is_full())
    }

    #[cold]
    fn never_fits(&self, bytes: u32, depth: u32) -> Failed {
        let text = format!(
            "{bytes} bytes over one path need too many writes of at most {} bytes, the smaller of \
             both ports' limits: the queue holds {depth} requests",
            self.side.largest_write
        );
        Error::InvalidArgument(text).into()
    }

    /// Stages the writes of a part, the last with the immediate.
    #[inline]
    pub(super) fn stage_part(&mut self, message: &Message<'_>, index: u32) -> Result<(), Failed> {
        let number = self.side.selector.path(index);
        if number != self.side.staged.path {
            self.post_staged()?;
            self.side.staged.path = number;
        }
        let Shape {
            split,
            is_bulk,
            size_told,
            ..
        } = message.shape;
        let largest_write = self.side.largest_write;
        let (part_offset, bytes) = split.part(message.size, index);
        let writes = stripe::write_count(bytes, largest_write);
        let plain_writes = match is_bulk {
            false => writes - 1,
            true if bytes == 0 => 0,
            true => writes,
        };
        for write in 0..plain_writes {
            let (offset, length) = stripe::write_at(bytes, largest_write, write);
            self.make_room()?;
            self.stage_write(message, part_offset + offset, length, None);
        }
        // One record will do: the receiver looks after the immediates of all parts have come.
        if index == 0 && matches!(size_told, SizeTold::InTable | SizeTold::TooLong) {
            self.make_room()?;
            self.stage_size(message);
        }
        let (offset, length) = if is_bulk {
            (bytes, 0)
        } else {
            stripe::write_at(bytes, largest_write, plain_writes)
        };
        let immediate = Immediate {
            slot: cts::slot(message.id) as u8,
            size_told,
            parts: split.parts as u8,
            generation: generation(message.id),
        };
        self.make_room()?;
        let immediate = Some(immediate.encode());
        self.stage_write(message, part_offset + offset, length, immediate);

        let staged = &mut self.side.staged;
        staged.parts[staged.part_count] = Part {
            request: message.request.index(),
            bytes,
            parent: message.parent,
        };
        staged.part_count += 1;
        if staged.part_count == MAX_GROUP {
            self.post_staged()?;
        }
        Ok(())
    }

    /// Stages a write of `length` bytes at `offset` of the message.
    #[inline]
    fn stage_write(
        &mut self,
        message: &Message<'_>,
        offset: u32,
        length: u32,
        immediate: Option<u32>,
    ) {
        let path = &mut self.core.paths[self.side.staged.path];
        let write = self.side.staged.push();
        let local = (length > 0).then(|| Sge {
            address: message.data.wrapping_add(u64::from(offset)),
            length,
            lkey: message.region.map_or(0, |region| region.lkey(path.device)),
        });
        let remote = RemoteAddress {
            address: message.remote.wrapping_add(u64::from(offset)),
            rkey: self.side.cts.rkey(message.id, path.peer_device),
        };
        // Only what tells the receiver is small.
        let is_inline = immediate.is_some()
            && length <= path.max_inline
            && message.region.is_none_or(Region::can_be_inline);
        write.rewrite(local, remote, immediate, is_inline);
        path.posted(1);
    }

    /// Stages the write of the message's size into the peer's table.
    #[cold]
    fn stage_size(&mut self, message: &Message<'_>) {
        let Sender {
            staged,
            sizes,
            inline_size,
            size_table,
            ..
        } = &mut self.side;
        let path = &mut self.core.paths[staged.path];
        let offset = cts::slot(message.id) * SIZE_BYTES as usize;
        let (address, lkey) = match sizes {
            Some(sizes) => {
                sizes.write_u32(offset, message.size);
                (sizes.address() + offset as u64, sizes.lkey(path.device))
            }
            None => {
                // It is copied when it is posted, which is before the next one is written.
                *inline_size = message.size;
                ((&raw const *inline_size) as u64, 0)
            }
        };
        let write = staged.push();
        let local = Sge {
            address,
            length: SIZE_BYTES,
            lkey,
        };
        let remote = RemoteAddress {
            address: size_table.address + offset as u64,
            // The key for the device that *this* path leads to.
            rkey: size_table.rkeys[path.peer_device],
        };
        let is_inline = SIZE_BYTES <= path.max_inline;
        write.rewrite(Some(local), remote, None, is_inline);
        path.posted(1);
    }

    /// Posts the chain if it is full, without asking for a completion: the part goes on.
    #[inline]
    fn make_room(&mut self) -> Result<(), Failed> {
        if self.side.staged.filled < CHAIN {
            return Ok(());
        }
        self.post_chain()
    }

    fn post_chain(&mut self) -> Result<(), Failed> {
        let staged = &mut self.side.staged;
        let filled = std::mem::take(&mut staged.filled);
        let queue_pair = &self.core.paths[staged.path].queue_pair;
        // SAFETY: the data of `isend` stays valid until its completion by that function's contract,
        // and the size records lie in an area of this connection, whose memory is freed after the
        // queue pairs; a record is not written again before its slot's message has completed.
        let posted = unsafe { queue_pair.post_send(&mut staged.chain[..filled]) };
        posted.map_err(|error| self.core.post_failed(error).into())
    }

    /// Posts what is staged, if anything is.
    #[inline]
    pub(crate) fn post_staged(&mut self) -> Result<(), Failed> {
        let staged = &mut self.side.staged;
        let Some(last) = staged.filled.checked_sub(1) else {
            return Ok(());
        };
        let work = staged.work();
        staged.chain[last].signal_as(work.encode());
        let posted = self.post_chain();
        let staged = &mut self.side.staged;
        // From here on the peer may count them, and no sooner.
        let log = &mut self.side.parts[work.path];
        for part in &staged.parts[..staged.part_count] {
            log.push(part.request);
        }
        let count = std::mem::take(&mut staged.part_count);
        staged.requests = 0;
        self.side.under_way[self.core.paths[work.path].device] += 1;
        if self.watched.is_some() {
            self.tell_observer(work, count);
        }
        posted
    }

    /// The first `count` staged parts have been posted, which end with the completion of `work`.
    #[cold]
    fn tell_observer(&mut self, work: WrId, count: usize) {
        // An observer that panics is not told any more: it would be out of step.
        let Some(mut watched) = self.watched.take() else {
            return;
        };
        let path = &self.core.paths[work.path];
        for part in &self.side.staged.parts[..count] {
            let piece = Piece {
                device: path.device,
                queue_pair: path.queue_pair.number(),
                wr_id: work.encode(),
                opcode: WRITE_WITH_IMMEDIATE,
                length: part.bytes as usize,
            };
            watched.part_started(work.path, part.parent, &piece);
        }
        self.watched = Some(watched);
    }
}
