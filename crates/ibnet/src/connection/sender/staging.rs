//! The one way to post: the work requests of messages are staged on a path, and posted with one call of
//! the driver.
//!
//! The small messages of a group share a chain, of which only the last request is signalled: it tells that
//! all are done. Every other message is posted as soon as it is staged.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use ibnet_verbs::{RemoteAddress, SendRequest, Sge};

use super::{Sender, Sent};
use crate::connection::Connection;
use crate::connection::in_flight::Part;
use crate::connection::observer::{Piece, WRITE_WITH_IMMEDIATE};
use crate::connection::requests::RequestId;
use crate::connection::wr_id::WrId;
use crate::error::{Error, Failed};
use crate::memory::region::Registration;
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
struct Shape {
    split: Split,
    /// The data goes as plain writes and each immediate with an empty one after them.
    is_bulk: bool,
    size_told: SizeTold,
    /// Writes of data for each part but perhaps the last.
    writes: u32,
}

impl Shape {
    /// Of a message that is too long for its buffer: its length, and an empty write.
    const TOO_LONG: Self = Self {
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
    fn of(
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

    /// The same without data, which has been there: only the immediates count.
    fn without_data(self) -> Self {
        Self {
            split: Split {
                part_bytes: 0,
                ..self.split
            },
            is_bulk: true,
            size_told: SizeTold::AsAnnounced,
            writes: 0,
        }
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
    /// Address of the data.
    pub(super) data: u64,
    pub(super) region: Option<&'a Registration>,
    /// Bytes to send; more than `capacity` if it is too long and only its length is told.
    pub(super) size: u32,
    /// Bytes of the receiver's buffer.
    pub(super) capacity: u32,
    /// The entry of the ring that it goes to.
    pub(super) id: u64,
    /// Address of the receiver's buffer.
    pub(super) remote: u64,
    /// What an observer is told.
    pub(super) parent: Option<NonZeroUsize>,
}

impl Message<'_> {
    fn sent(&self) -> Sent {
        Sent {
            size: self.size,
            capacity: self.capacity,
            data: self.data,
            region: self.region.map(NonNull::from),
            id: self.id,
            remote: self.remote,
        }
    }

    /// What its last write on a path tells the receiver.
    #[inline]
    fn immediate(&self, size_told: SizeTold, parts: u32) -> u32 {
        let immediate = Immediate {
            slot: cts::slot(self.id) as u8,
            size_told,
            parts: parts as u8,
            generation: generation(self.id),
        };
        immediate.encode()
    }
}

/// Work requests that are built and not posted. All take the same path.
pub(super) struct Staged {
    chain: Box<[SendRequest; CHAIN]>,
    /// Requests in the chain. None of them is signalled.
    filled: usize,
    /// The parts whose last requests are in the chain, or were in one that was full.
    parts: [StagedPart; MAX_GROUP],
    part_count: usize,
    path: usize,
}

/// What has to be known of a part once it is posted.
#[derive(Clone, Copy, Default)]
struct StagedPart {
    part: Part,
    bytes: u32,
    parent: Option<NonZeroUsize>,
}

impl Staged {
    pub(super) fn new() -> Self {
        let request = SendRequest::write(0, None, RemoteAddress::default());
        Self {
            chain: Box::new([request; CHAIN]),
            filled: 0,
            parts: [StagedPart::default(); MAX_GROUP],
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
        request
    }

    /// The last request so far is the last of a part.
    #[inline]
    fn push_part(&mut self, part: Part, bytes: u32, parent: Option<NonZeroUsize>) {
        self.parts[self.part_count] = StagedPart {
            part,
            bytes,
            parent,
        };
        self.part_count += 1;
    }
}

impl Connection<Sender> {
    /// Stages a message that is one write. Returns its request, or `None` if there is no room.
    #[inline]
    pub(super) fn stage_single(
        &mut self,
        message: &Message<'_>,
    ) -> Result<Option<RequestId>, Failed> {
        if self.side.staged.is_empty() {
            self.side.staged.path = self.side.selector.choose_one(&self.core.paths);
        }
        // Those that join others take their path.
        let path = self.side.staged.path;
        if self.core.paths[path].room() == 0 || self.requests.is_full() {
            self.progress()?;
            if self.core.paths[path].room() == 0 {
                return Ok(None);
            }
        }
        let Some(request) = self.requests.insert(1, message.sent()) else {
            return Ok(None);
        };
        if self.side.staged.is_empty() {
            self.side.staged.path = path;
            self.side.selector.sent(1);
        }
        let immediate = message.immediate(SizeTold::BySum, 1);
        self.stage_write(message, 0, message.size, Some(immediate));
        let part = Part {
            request: request.index(),
            index: 0,
        };
        self.side
            .staged
            .push_part(part, message.size, message.parent);
        Ok(Some(request))
    }

    /// Stages and posts a message that may be several parts and writes; if it is not `whole`, it is too long for
    /// its buffer, and only its length is told. Returns its request, or `None` if there is no room.
    pub(super) fn stage_pieces(
        &mut self,
        message: &Message<'_>,
        whole: bool,
    ) -> Result<Option<RequestId>, Failed> {
        self.post_staged()?;
        if whole && message.size as usize > self.side.max_message {
            return Err(self.too_large(message.size));
        }
        let shape = self.shape(message);
        if !self.choose_paths(&shape)? {
            self.progress()?;
            if !self.choose_paths(&shape)? {
                return Ok(None);
            }
        }
        let parts = shape.split.parts;
        let Some(request) = self.requests.insert(parts as u8, message.sent()) else {
            return Ok(None);
        };
        self.side.selector.sent(parts);
        for part in 0..parts {
            let path = self.side.selector.path(part);
            if self.core.paths[path].room() < shape.most_requests() {
                // With fewer paths than parts these wait for each other.
                self.side.lost.push_back(Part {
                    request: request.index(),
                    index: part as u8,
                });
                self.core.keep_looking();
                continue;
            }
            self.stage_part(message, &shape, request.index(), part, path)?;
            self.post_staged()?;
        }
        Ok(Some(request))
    }

    /// How a message travels: the same each time, so that any part of it can be sent again.
    fn shape(&self, message: &Message<'_>) -> Shape {
        if message.size > message.capacity {
            return Shape::TOO_LONG;
        }
        let Sender {
            largest_write,
            bulk_threshold,
            ref selector,
            ..
        } = self.side;
        let split = selector.split(message.size);
        Shape::of(
            message.size,
            message.capacity,
            split,
            largest_write,
            bulk_threshold,
        )
    }

    /// Sends the parts again that did not arrive, as long as there is room. Returns whether none is left.
    pub(super) fn send_lost(&mut self) -> Result<bool, Failed> {
        if self.side.lost.is_empty() {
            return Ok(true);
        }
        self.post_staged()?;
        while let Some(part) = self.side.lost.front().copied() {
            let Some(sent) = self.requests.get(part.request).copied() else {
                self.side.lost.pop_front();
                continue;
            };
            if !self.side.selector.has_any() {
                return Ok(false);
            }
            // SAFETY: the request is not done, and until then its registration stays, by the contract of `isend`.
            let region = sent.region.map(|region| unsafe { region.as_ref() });
            let message = Message {
                data: sent.data,
                region,
                size: sent.size,
                capacity: sent.capacity,
                id: sent.id,
                remote: sent.remote,
                parent: None,
            };
            let mut shape = self.shape(&message);
            if self.is_superseded(&sent) {
                shape = shape.without_data();
            }
            let path = self.side.selector.choose_one(&self.core.paths);
            if self.core.paths[path].room() < shape.most_requests() {
                return Ok(false);
            }
            self.side.lost.pop_front();
            self.side.selector.sent(1);
            self.stage_part(&message, &shape, part.request, part.index.into(), path)?;
            self.post_staged()?;
        }
        Ok(true)
    }

    /// Whether a later message goes to the same memory: the receiver has announced it again, so the data of the
    /// earlier one has been there. That happens where the application does not wait for the end of a receive.
    fn is_superseded(&self, sent: &Sent) -> bool {
        let ends = |sent: &Sent| (sent.remote, sent.remote + u64::from(sent.size));
        let (start, end) = ends(sent);
        self.requests.iter().any(|other| {
            let (other_start, other_end) = ends(other);
            let is_later = (other.id.wrapping_sub(sent.id) as i64) > 0;
            is_later && other_start < end && start < other_end
        })
    }

    /// Chooses a path for each part of the next message. Returns whether all of them have room for it,
    /// and the table of requests has.
    fn choose_paths(&mut self, shape: &Shape) -> Result<bool, Failed> {
        let selector = &mut self.side.selector;
        selector.choose(shape.split.parts, &self.core.paths);
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

    /// Stages the writes of part `index` of the message of request `request`, the last with the immediate.
    fn stage_part(
        &mut self,
        message: &Message<'_>,
        shape: &Shape,
        request: u16,
        index: u32,
        path: usize,
    ) -> Result<(), Failed> {
        self.side.staged.path = path;
        let Shape {
            split,
            is_bulk,
            size_told,
            ..
        } = *shape;
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
        self.make_room()?;
        let immediate = message.immediate(size_told, split.parts);
        self.stage_write(message, part_offset + offset, length, Some(immediate));
        let part = Part {
            request,
            index: index as u8,
        };
        self.side.staged.push_part(part, bytes, message.parent);
        Ok(())
    }

    /// Stages a write of `length` bytes at `offset` of the message.
    #[inline(always)]
    fn stage_write(
        &mut self,
        message: &Message<'_>,
        offset: u32,
        length: u32,
        immediate: Option<u32>,
    ) {
        let number_of_path = self.side.staged.path;
        let path = &mut self.core.paths[number_of_path];
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
            && message.region.is_none_or(Registration::can_be_inline);
        write.rewrite(local, remote, immediate, is_inline);
        let id = WrId {
            path: number_of_path,
            parts: 0,
            number: path.posted(),
        };
        write.set_wr_id(id.encode());
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
        let number_of_path = staged.path;
        let path = &mut self.core.paths[number_of_path];
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
        let id = WrId {
            path: number_of_path,
            parts: 0,
            number: path.posted(),
        };
        write.set_wr_id(id.encode());
    }

    /// Posts the chain if it is full, without asking for a completion: the part goes on.
    #[inline]
    fn make_room(&mut self) -> Result<(), Failed> {
        if self.side.staged.filled < CHAIN {
            return Ok(());
        }
        self.post_chain()
    }

    #[inline]
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
        let path = &mut self.core.paths[staged.path];
        path.completions += 1;
        self.side.under_way[path.device] += 1;
        let work = WrId {
            path: staged.path,
            parts: staged.part_count as u8,
            number: path.last_posted(),
        };
        staged.chain[last].signal_as(work.encode());
        let posted = self.post_chain();
        let staged = &mut self.side.staged;
        // From here on the peer may count them, and no sooner.
        let log = &mut self.side.parts[work.path];
        for staged in &staged.parts[..staged.part_count] {
            log.push(staged.part);
        }
        let count = std::mem::take(&mut staged.part_count);
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
