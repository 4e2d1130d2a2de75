//! The sending end.
//!
//! A send waits for the receiver's announcement, takes the buffer whose tag it has
//! ([`crate::matching`]), cuts the message into parts ([`crate::stripe`]), chooses a path for each
//! ([`crate::spread`]) and writes the data there. The last write of each part carries the immediate
//! that tells the receiver.

use std::num::NonZeroUsize;
use std::slice;
use std::sync::Arc;

use verbs::{Access, RemoteAddress, SendRequest, Sge, WorkCompletion};

use crate::assembly::{ANNOUNCE_PATH, ANNOUNCED, RECEIVE_CHAIN, post_receives};
use crate::connection::{Core, End, Parts};
use crate::error::Error;
use crate::handshake::message::{Closing, RemoteArea};
use crate::immediate::{Immediate, SizeTold, lap};
use crate::matching::{ImpossibleAnnouncement, Match, Matching};
use crate::memory::Area;
use crate::observer::{self, Observer, Piece, Watched};
use crate::outgoing::{Outgoing, Part, Shape};
use crate::owned::Owned;
use crate::part_log::{ImpossibleCount, PartLog, credit};
use crate::region::{Region, Registrar};
use crate::requests::{RequestId, Table};
use crate::ring::{self, Announced};
use crate::spread::Spread;
use crate::stripe::{self, Split};
use crate::work_id::WorkId;

/// Receives that a sender who waits rather than polls has posted for announcements: all that there
/// can be at a time may have come, and as many again whose messages are sent and not yet known to
/// have arrived.
pub(crate) const ANNOUNCEMENT_RECEIVES: u32 = 2 * ring::ENTRIES as u32 + RECEIVE_CHAIN as u32;

/// Work requests that are built on the way to one `ibv_post_send`.
const CHAIN: usize = 32;

/// The sending end of a connection.
///
/// The data path ([`isend`](Self::isend), [`test`](Self::test)) belongs to one thread at a time;
/// memory may meanwhile be registered on another through a [`Registrar`].
///
/// Dropping it closes the connection, whatever is outstanding.
pub struct SendConnection {
    core: Core,
    matching: Matching,
    /// Sizes on their way to the peer's table, where they cannot be sent inline.
    sizes: Area,
    /// The peer's table.
    size_table: RemoteArea,
    requests: Table<Send>,
    /// Parts in the order posted, for each path.
    parts: Vec<PartLog>,
    /// Parts under way on each device: a device without is not polled. Where announcements are
    /// notified of, one more.
    under_way: Vec<u32>,
    announcements: Announcements,
    spread: Spread,
    chain: Box<[SendRequest; CHAIN]>,
    /// The request of a message that is one write.
    single: Box<SendRequest>,
    largest_write: u32,
    /// Bytes of the largest message that can be one write with its immediate.
    most_at_once: u32,
    /// Bytes of the largest message.
    max_message: usize,
    /// Beyond this, data that may be reordered goes as plain writes, followed by an empty one with
    /// the immediate. `None`: nothing is reordered.
    bulk_threshold: Option<u32>,
    has_warned_of_cut: bool,
    is_closed: bool,
    watched: Option<Watched>,
    pub(crate) owned: Owned<crate::owned::Buffer>,
}

/// Receives that announcements use up; none unless this end waits rather than polls.
struct Announcements {
    /// Receives that are replaced with one call.
    batch: u32,
    to_replace: u32,
}

/// What is left to do for one send.
#[derive(Clone, Copy, Default)]
struct Send {
    /// Parts that have not completed.
    outstanding: u8,
    /// Bytes that were sent.
    size: u32,
}

/// What a sending end is made of.
pub(crate) struct SenderParts {
    pub(crate) common: Parts,
    pub(crate) ring: Announced,
    pub(crate) sizes: Area,
    pub(crate) size_table: RemoteArea,
    pub(crate) first_entry: u64,
    pub(crate) largest_write: u32,
}

impl SendConnection {
    pub(crate) fn new(parts: SenderParts) -> Result<Self, Error> {
        let SenderParts {
            common,
            ring,
            sizes,
            size_table,
            first_entry,
            largest_write,
        } = parts;
        let logs = common.ends.paths.iter().map(|_| PartLog::new()).collect();
        let posted = common.ends.announcements;
        let core = Core::new(common)?;
        let config = core.config();
        let spread = Spread::new(
            config.path_policy,
            core.paths.len(),
            core.pairs(),
            config.split_data,
            config.min_part,
        );
        let reorders = core.paths.iter().any(|path| path.reorders);
        let bulk_threshold = reorders.then_some(config.adaptive_routing_threshold);
        let nowhere = RemoteAddress::default();
        let mut under_way = vec![0; core.cqs.len()];
        if posted > 0 {
            under_way[core.paths[ANNOUNCE_PATH].device] = 1;
        }
        Ok(Self {
            matching: Matching::new(ring, first_entry),
            sizes,
            size_table,
            requests: Table::new(),
            parts: logs,
            under_way,
            announcements: Announcements {
                batch: (posted / 8).clamp(1, RECEIVE_CHAIN as u32),
                to_replace: 0,
            },
            spread,
            chain: Box::new([SendRequest::write(0, None, nowhere); CHAIN]),
            single: Box::new(SendRequest::write_with_immediate(0, None, nowhere, 0).signaled()),
            largest_write,
            most_at_once: largest_write.min(bulk_threshold.unwrap_or(u32::MAX)),
            max_message: core.nic.info().max_message,
            bulk_threshold,
            has_warned_of_cut: false,
            is_closed: false,
            watched: None,
            owned: Owned::new(),
            core,
        })
    }

    /// Registers memory for this connection, also from other threads.
    pub fn registrar(&self) -> Registrar {
        Registrar::new(&self.core.nic, Access::empty())
    }

    /// Lets `observer` hear of the parts of the messages from now on that
    /// [`isend_observed`](Self::isend_observed) gives a parent.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        if self.requests.outstanding() == 0 {
            self.watched = Some(Watched::sender(observer, self.core.paths.len()));
        }
    }

    /// Both ends, in words.
    pub fn description(&self) -> String {
        self.core.names().to_string()
    }

    /// Starts to send `length` bytes at `data`, which lie in `region`, into the oldest announced
    /// group's buffer with tag `tag`. A larger message than that buffer is cut to its size, with
    /// one warning per connection.
    ///
    /// `Ok(None)` means that no such buffer is announced, or that too much is outstanding: try
    /// again with the same arguments. An empty message needs neither data nor region.
    ///
    /// # Safety
    /// The bytes and their registration must stay valid and unchanged until [`test`](Self::test)
    /// reports the request done, or the connection is dropped.
    ///
    /// # Errors
    /// The connection has failed, or an argument does not fit it.
    pub unsafe fn isend(
        &mut self,
        data: *const u8,
        length: usize,
        tag: i32,
        region: Option<&Region>,
    ) -> Result<Option<RequestId>, Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.isend_observed(data, length, tag, region, None) }
    }

    /// As [`isend`](Self::isend); the connection's [`Observer`] hears of the parts of the message
    /// with `parent`, if one is given.
    ///
    /// # Safety
    /// As for [`isend`](Self::isend).
    ///
    /// # Errors
    /// As for [`isend`](Self::isend).
    pub unsafe fn isend_observed(
        &mut self,
        data: *const u8,
        length: usize,
        tag: i32,
        region: Option<&Region>,
        parent: Option<NonZeroUsize>,
    ) -> Result<Option<RequestId>, Error> {
        if !self.takes_requests()? {
            return Ok(None);
        }
        self.check_memory(data, length, region)?;
        let found = match self.matching.find(tag as u32) {
            Ok(Some(found)) => found,
            Ok(None) => {
                if self.matching.is_stuck() {
                    self.tell_of_tags(tag);
                }
                return Ok(None);
            }
            Err(ImpossibleAnnouncement) => return Err(self.impossible_announcement()),
        };
        let size = self.cut(length, found.entry.capacity)?;
        if size <= self.most_at_once && self.spread.is_one_part(size) {
            return self.send_at_once(data as u64, size, region, &found, parent);
        }
        let split = self.spread.choose(size, &self.core.paths);
        let shape = Shape::of(
            size,
            found.entry.capacity,
            &split,
            self.largest_write,
            self.bulk_threshold,
        );
        if self.requests.is_full() || !self.has_room(&split, &shape)? {
            self.progress()?;
            if self.requests.is_full() || !self.has_room(&split, &shape)? {
                return Ok(None);
            }
        }
        let Some(request) = self.requests.insert(Send {
            outstanding: split.parts as u8,
            size,
        }) else {
            return Ok(None);
        };
        let message = Outgoing {
            request,
            data: data as u64,
            region,
            size,
            id: found.id,
            remote: found.entry.address,
            split,
            shape,
            parent,
        };
        for index in 0..split.parts {
            self.post_part(&message, index)?;
        }
        self.spread.sent(split.parts);
        self.matching.take(&found);
        Ok(Some(request))
    }

    /// Sends a message that is one write, as nearly all are: nothing is decided and the work
    /// request is at hand but for what differs.
    #[inline]
    fn send_at_once(
        &mut self,
        data: u64,
        size: u32,
        region: Option<&Region>,
        found: &Match,
        parent: Option<NonZeroUsize>,
    ) -> Result<Option<RequestId>, Error> {
        let mut number = self.spread.choose_one(&self.core.paths);
        if self.requests.is_full() || self.core.paths[number].room() == 0 {
            self.progress()?;
            number = self.spread.choose_one(&self.core.paths);
            if self.requests.is_full() || self.core.paths[number].room() == 0 {
                return Ok(None);
            }
        }
        let Some(request) = self.requests.insert(Send {
            outstanding: 1,
            size,
        }) else {
            return Ok(None);
        };
        let path = &mut self.core.paths[number];
        let work = WorkId {
            path: number,
            requests: 1,
        };
        if let Some(watched) = &mut self.watched {
            let piece = Piece {
                device: path.device,
                queue_pair: path.queue_pair.number(),
                wr_id: work.encode(),
                opcode: observer::WRITE_WITH_IMMEDIATE,
                length: size as usize,
            };
            watched.part_started(number, parent, &piece);
        }
        let immediate = Immediate {
            slot: ring::slot(found.id) as u8,
            size_told: SizeTold::BySum,
            parts: 1,
            lap: lap(found.id),
        };
        let single = &mut self.single;
        single.set_wr_id(work.encode());
        single.set_local((size > 0).then(|| Sge {
            address: data,
            length: size,
            lkey: region.map_or(0, |region| region.lkey(path.device)),
        }));
        single.set_remote(RemoteAddress {
            address: found.entry.address,
            rkey: self.matching.rkey(found.id, path.peer_device),
        });
        single.set_immediate(immediate.encode());
        single.set_inline(size <= path.max_inline);
        path.posted(1);
        // SAFETY: as in `post_chain`.
        let posted = unsafe { path.queue_pair.post_send(slice::from_mut(single)) };
        self.under_way[path.device] += 1;
        if let Err(error) = posted {
            return Err(self.post_failed(error));
        }
        self.parts[number].push(request.index());
        self.spread.sent(1);
        self.matching.take(found);
        Ok(Some(request))
    }

    /// Whether `request` is done: the bytes that were sent, or `None` while it is not. A request
    /// that is done is dead.
    ///
    /// # Errors
    /// The request is not outstanding, or the connection has failed before it was done.
    pub fn test(&mut self, request: RequestId) -> Result<Option<usize>, Error> {
        self.test_request(request)
    }

    /// Requests that are not done, or whose end has not been asked for.
    pub fn outstanding(&self) -> usize {
        self.requests.outstanding()
    }

    /// Whether all requests that there can be are done and wait to be asked for.
    pub(crate) fn is_full_of_finished(&self) -> bool {
        self.requests.is_full() && self.requests.all(|request| request.outstanding == 0)
    }

    /// Closes the connection, whatever is outstanding; never waits.
    ///
    /// # Errors
    /// The first thing that could not be torn down.
    pub fn close(mut self) -> Result<(), Error> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        self.core.close(Vec::new())
    }

    /// The caller's memory is usable on every device of the connection.
    fn check_memory(
        &self,
        data: *const u8,
        length: usize,
        region: Option<&Region>,
    ) -> Result<(), Error> {
        match region {
            Some(region) => region.check(&self.core.nic, Access::empty(), data, length),
            None if length == 0 => Ok(()),
            None => Err(Error::InvalidArgument(format!(
                "sending {length} bytes from memory that is not registered"
            ))),
        }
    }

    /// A sender and a receiver that do not mean the same tags wait for each other for ever.
    #[cold]
    fn tell_of_tags(&self, tag: i32) {
        let free: Vec<i32> = self
            .matching
            .free_tags()
            .iter()
            .map(|&t| t as i32)
            .collect();
        tracing::warn!(
            "{}: a message with tag {tag} waits; the oldest receive has buffers for {free:?} only",
            self.core.names()
        );
    }

    #[cold]
    fn impossible_announcement(&mut self) -> Error {
        let what = "an announcement whose group, position or size cannot be";
        let error = self.core.protocol_error(what);
        self.core.fail(error)
    }

    /// The bytes to send of `length` into a buffer of `capacity`.
    #[inline]
    fn cut(&mut self, length: usize, capacity: u32) -> Result<u32, Error> {
        let size = if length <= capacity as usize {
            length as u32
        } else {
            self.warn_of_cut(length, capacity);
            capacity
        };
        if size as usize > self.max_message {
            return Err(self.too_large(size));
        }
        Ok(size)
    }

    #[cold]
    fn warn_of_cut(&mut self, length: usize, capacity: u32) {
        if !std::mem::replace(&mut self.has_warned_of_cut, true) {
            tracing::warn!(
                "{}: a message of {length} bytes is cut to the {capacity} that the receiver has \
                 room for; further cuts are not reported",
                self.core.names()
            );
        }
    }

    #[cold]
    fn too_large(&self, size: u32) -> Error {
        Error::InvalidArgument(format!(
            "a message of {size} bytes; {} can send {} at once",
            self.core.nic.info().name,
            self.max_message
        ))
    }

    /// Whether each of the chosen paths has room for its part.
    fn has_room(&self, split: &Split, shape: &Shape) -> Result<bool, Error> {
        let needed = shape.most_requests();
        for part in 0..split.parts {
            let path = &self.core.paths[self.spread.path(part)];
            if path.room() < needed {
                return if path.depth() < needed {
                    Err(self.never_fits(split.part_bytes, path.depth()))
                } else {
                    Ok(false)
                };
            }
        }
        Ok(true)
    }

    #[cold]
    fn never_fits(&self, bytes: u32, depth: u32) -> Error {
        Error::InvalidArgument(format!(
            "{bytes} bytes over one path need too many writes of at most {} bytes, the smaller of \
             both ports' limits: the queue holds {depth} requests",
            self.largest_write
        ))
    }

    /// Posts the writes of a part, the last with the immediate.
    fn post_part(&mut self, message: &Outgoing<'_>, index: u32) -> Result<(), Error> {
        let path = self.spread.path(index);
        let (device, peer_device, max_inline) = {
            let path = &self.core.paths[path];
            (path.device, path.peer_device, path.max_inline)
        };
        let part = Part {
            lkey: message.region.map_or(0, |region| region.lkey(device)),
            rkey: self.matching.rkey(message.id, peer_device),
            max_inline,
        };
        let (part_offset, part_bytes) = message.split.part(message.size, index);
        let writes = stripe::write_count(part_bytes, self.largest_write);
        let is_bulk = message.shape.is_bulk;
        let mut requests = 0;
        let mut filled = 0;
        for index in 0..writes {
            let (offset, length) = stripe::write_at(part_bytes, self.largest_write, index);
            if index + 1 == writes && !is_bulk {
                break;
            }
            self.chain[filled] = part.write(message, part_offset + offset, length);
            filled = self.post_when_full(path, filled + 1)?;
            requests += 1;
        }
        // One record will do: the receiver looks after the immediates of all parts have come.
        if index == 0 && message.shape.size_told == SizeTold::InTable {
            self.chain[filled] = self.size_record(message, path);
            filled = self.post_when_full(path, filled + 1)?;
            requests += 1;
        }
        requests += 1;
        let (offset, length) = if is_bulk {
            (part_bytes, 0)
        } else {
            stripe::write_at(part_bytes, self.largest_write, writes - 1)
        };
        let work = WorkId { path, requests };
        if let Some(watched) = &mut self.watched {
            let piece = Piece {
                device,
                queue_pair: self.core.paths[path].queue_pair.number(),
                wr_id: work.encode(),
                opcode: observer::WRITE_WITH_IMMEDIATE,
                length: part_bytes as usize,
            };
            watched.part_started(path, message.parent, &piece);
        }
        self.chain[filled] = part.last(message, work, part_offset + offset, length);
        self.post_chain(path, filled + 1)?;
        self.core.paths[path].posted(requests);
        self.under_way[device] += 1;
        self.parts[path].push(message.request.index());
        Ok(())
    }

    /// The write of the message's size into the peer's table.
    fn size_record(&mut self, message: &Outgoing<'_>, path: usize) -> SendRequest {
        const BYTES: u32 = 4;
        let path = &self.core.paths[path];
        let offset = ring::slot(message.id) * BYTES as usize;
        self.sizes.write_u32(offset, message.size);
        let local = Sge {
            address: self.sizes.address() + offset as u64,
            length: BYTES,
            lkey: self.sizes.lkey(path.device),
        };
        let remote = RemoteAddress {
            address: self.size_table.address + offset as u64,
            // The key for the device that *this* path leads to (pitfall 42).
            rkey: self.size_table.rkeys[path.peer_device],
        };
        let request = SendRequest::write(0, Some(local), remote);
        if BYTES <= path.max_inline {
            request.inline()
        } else {
            request
        }
    }

    fn post_when_full(&mut self, path: usize, filled: usize) -> Result<usize, Error> {
        if filled < CHAIN {
            return Ok(filled);
        }
        self.post_chain(path, filled)?;
        Ok(0)
    }

    fn post_chain(&mut self, path: usize, filled: usize) -> Result<(), Error> {
        let queue_pair = &self.core.paths[path].queue_pair;
        // SAFETY: the data of `isend` stays valid until its completion by that function's contract,
        // and the size records lie in an area of this connection, whose memory is freed after the
        // queue pairs; a record is not written again before its slot's message has completed.
        let posted = unsafe { queue_pair.post_send(&mut self.chain[..filled]) };
        posted.map_err(|error| self.post_failed(error))
    }

    /// Some of what was posted may be under way: the connection cannot go on (pitfall 78).
    #[cold]
    fn post_failed(&mut self, source: verbs::PostError) -> Error {
        let connection = self.core.names().to_string();
        self.core.fail(Error::Post {
            connection,
            source: Arc::new(source),
        })
    }

    /// An announcement has come, which the ring tells more of; replaces the receives in batches.
    /// Out of the way of [`complete`](Self::complete), whose other cases are those that count.
    #[cold]
    fn announced(&mut self, wr_id: u64) {
        let announcements = &mut self.announcements;
        if wr_id != ANNOUNCED {
            return;
        }
        announcements.to_replace += 1;
        if announcements.to_replace < announcements.batch {
            return;
        }
        announcements.to_replace = 0;
        let queue_pair = &self.core.paths[ANNOUNCE_PATH].queue_pair;
        if let Err(error) = post_receives(queue_pair, ANNOUNCED, announcements.batch) {
            // Every later call gets the error.
            self.post_failed(error);
        }
    }

    fn complete(&mut self, completion: &WorkCompletion) {
        if !completion.is_success() {
            self.core.work_failed(completion);
            return;
        }
        let work = WorkId::decode(completion.wr_id());
        let (Some(path), Some(parts)) = (
            self.core.paths.get_mut(work.path),
            self.parts.get_mut(work.path),
        ) else {
            self.announced(completion.wr_id());
            return;
        };
        path.finished(work.requests);
        self.under_way[path.device] = self.under_way[path.device].saturating_sub(1);
        if let Some(watched) = &mut self.watched {
            watched.part_finished(work.path);
        }
        if let Some(send) = parts
            .complete()
            .and_then(|request| self.requests.at(request))
        {
            send.outstanding = send.outstanding.saturating_sub(1);
        }
    }

    /// The receiver has left, and has told how much of each path it has taken.
    fn apply(&mut self, closing: &Closing) -> Result<(), Error> {
        let (requests, watched) = (&mut self.requests, &mut self.watched);
        let credited = credit(&mut self.parts, closing, |path, request| {
            if let Some(watched) = watched {
                watched.part_finished(path);
            }
            if let Some(send) = requests.at(request) {
                send.outstanding = send.outstanding.saturating_sub(1);
            }
        });
        credited.map_err(|ImpossibleCount| {
            let what = "a farewell that counts parts which were never sent";
            let error = self.core.protocol_error(what);
            self.core.fail(error)
        })
    }
}

impl End for SendConnection {
    type Done = usize;

    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn finished(&mut self, request: RequestId) -> Result<Option<usize>, Error> {
        let send = self.requests.find(request)?;
        if send.outstanding > 0 {
            return Ok(None);
        }
        let size = send.size as usize;
        self.requests.remove(request);
        Ok(Some(size))
    }

    fn progress(&mut self) -> Result<usize, Error> {
        let mut total = 0;
        for device in 0..self.under_way.len() {
            if self.under_way[device] == 0 {
                continue;
            }
            let count = self.core.poll(device)?;
            for index in 0..count {
                let completion = self.core.completion(index);
                self.complete(&completion);
            }
            total += count;
        }
        Ok(total)
    }

    fn attend(&mut self) -> Result<(), Error> {
        if let Some(closing) = self.core.attend() {
            self.apply(&closing)?;
        }
        self.core.check()
    }
}

impl Drop for SendConnection {
    fn drop(&mut self) {
        if let Err(error) = self.close_once() {
            tracing::warn!("closing {}: {error}", self.core.names());
        }
    }
}
