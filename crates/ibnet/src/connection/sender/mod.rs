//! The sending end.
//!
//! A send waits for the receiver's announcement and takes the buffer whose tag it has
//! ([`CtsQueue`]). The message is cut into parts ([`crate::wire::stripe`]), each of which goes over a path
//! ([`PathSelector`]). The work requests of the parts are staged ([`staging`]) and posted; the last
//! write of each part carries the immediate that tells the receiver.

mod complete;
mod staging;

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use ibnet_verbs::Access;

use crate::connect::established::NewSender;
use crate::connection::Connection;
use crate::connection::core::Core;
use crate::connection::cts_queue::{CtsQueue, ImpossibleCts};
use crate::connection::in_flight::{InFlight, Part};
use crate::connection::path_selector::PathSelector;
use crate::connection::replenish::Replenisher;
use crate::connection::requests::RequestId;
use crate::error::{Error, Failed};
use crate::memory::area::Area;
use crate::memory::region::{Region, Registration};
use crate::wire::message::RemoteArea;

use staging::{Message, Staged};

/// Bytes of the largest message that waits for the others of its group. With larger ones the call of
/// the driver is a small part of the work, and the link would idle.
const LARGEST_TO_WAIT: u32 = 4096;

/// What a sending end has beside what both have.
pub struct Sender {
    cts: CtsQueue,
    staged: Staged,
    selector: PathSelector,
    /// Parts in the order posted, for each path.
    parts: Vec<InFlight>,
    /// Parts that have to be sent again, because the queue pair that had them has failed.
    lost: VecDeque<Part>,
    /// Completions that will come from each device: one without is not polled. Where there may be
    /// notices of announcements, one more.
    under_way: Vec<u32>,
    /// Receives that notices of announcements use up; none unless this end waits rather than polls.
    notices: Replenisher,
    /// Sizes on their way to the peer's table, unless all of them can be sent inline.
    sizes: Option<Area>,
    /// A size on its way inline.
    inline_size: u32,
    /// The peer's table of sizes.
    size_table: RemoteArea,
    /// Bytes of the largest message that is one write, whatever its buffer.
    largest_single: u32,
    /// Bytes of the largest write.
    largest_write: u32,
    /// Bytes of the largest message.
    max_message: usize,
    /// Beyond this, data that may be reordered goes as plain writes, followed by an empty one with
    /// the immediate. `None`: nothing is reordered.
    bulk_threshold: Option<u32>,
    has_warned_of_cut: bool,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// What is known of one send: enough to send it again.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sent {
    /// Bytes of the message: more than the capacity if it was too long and not cut.
    size: u32,
    /// Bytes of the receiver's buffer.
    capacity: u32,
    /// Address of the data.
    data: u64,
    region: Option<NonNull<Registration>>,
    /// The entry of the ring that it goes to.
    id: u64,
    /// Address of the receiver's buffer.
    remote: u64,
}

// SAFETY: a registration may be used from every thread, and the pointer is followed by the thread that has the
// connection.
unsafe impl Send for Sent {}

impl Connection<Sender> {
    pub(crate) fn new(parts: NewSender) -> Result<Self, Error> {
        let NewSender {
            common,
            ring,
            sizes,
            size_table,
            first_entry,
            largest_write,
        } = parts;
        let receives = common.queue_pairs.recipe.receives();
        let core = Core::new(common)?;
        let paths = core.paths.len();
        let config = core.config();
        let reorders = core.paths.iter().any(|path| path.reorders);
        let bulk_threshold = reorders.then_some(config.adaptive_routing_threshold);
        let selector = PathSelector::new(
            config.path_policy,
            paths,
            core.pairs(),
            config.split_data,
            config.least_part(),
        );
        let max_message = core.nic.info().max_message;
        let largest_single = selector
            .largest_whole()
            .min(largest_write)
            .min(bulk_threshold.unwrap_or(u32::MAX))
            .min(u32::try_from(max_message).unwrap_or(u32::MAX));
        let side = Sender {
            cts: CtsQueue::new(ring, first_entry),
            staged: Staged::new(),
            selector,
            parts: (0..paths).map(|_| InFlight::new()).collect(),
            under_way: vec![u32::from(receives > 0); core.cqs.len()],
            lost: VecDeque::new(),
            notices: Replenisher::new(receives, paths),
            sizes,
            inline_size: 0,
            size_table,
            largest_single,
            largest_write,
            max_message,
            bulk_threshold,
            has_warned_of_cut: false,
        };
        Ok(Self::with(core, side))
    }

    /// Starts to send `length` bytes at `data`, which lie in `region`, into the oldest announced
    /// group's buffer with tag `tag`. A larger message than that buffer is cut to its size, with
    /// one warning per connection.
    ///
    /// `Ok(None)` means that no such buffer is announced, or that too much is outstanding: try
    /// again with the same arguments. An empty message needs neither data nor region.
    ///
    /// A small message for a group that others are still missing from may stay here until they are
    /// there, or until [`test`](Self::test) is called for a request that is not done: so a group is
    /// one call of the driver.
    ///
    /// # Safety
    /// The bytes and their registration must stay valid and unchanged until [`test`](Self::test)
    /// reports the request done, or the connection is dropped.
    ///
    /// # Errors
    /// The connection has failed, or an argument does not fit it.
    #[inline]
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

    /// As [`isend`](Self::isend); the connection's [`Observer`](crate::Observer) hears of the parts of
    /// the message with `parent`, if one is given.
    ///
    /// # Safety
    /// As for [`isend`](Self::isend).
    ///
    /// # Errors
    /// As for [`isend`](Self::isend).
    #[inline]
    pub unsafe fn isend_observed(
        &mut self,
        data: *const u8,
        length: usize,
        tag: i32,
        region: Option<&Region>,
        parent: Option<NonZeroUsize>,
    ) -> Result<Option<RequestId>, Error> {
        Ok(self.start(data, length, tag, region, parent, true)?)
    }

    /// As [`isend`](Self::isend), but nothing is cut: of a message that is too long for its buffer nothing
    /// is sent, and both ends hear of it when they test their requests.
    ///
    /// # Safety
    /// As for [`isend`](Self::isend).
    pub(crate) unsafe fn isend_whole(
        &mut self,
        data: *const u8,
        length: usize,
        tag: i32,
        region: &Region,
    ) -> Result<Option<RequestId>, Error> {
        Ok(self.start(data, length, tag, Some(region), None, false)?)
    }

    fn start(
        &mut self,
        data: *const u8,
        length: usize,
        tag: i32,
        region: Option<&Region>,
        parent: Option<NonZeroUsize>,
        may_cut: bool,
    ) -> Result<Option<RequestId>, Failed> {
        // A failure raises the flags, too.
        if self.core.has_events() {
            self.handle_events()?;
            if self.core.peer_has_closed() {
                return self.start_in_vain(data, length, tag, region);
            }
            if !self.core.accepts_requests()? {
                return Ok(None);
            }
            // What did not arrive comes first.
            if !self.side.lost.is_empty() || !self.side.selector.has_any() {
                return Ok(None);
            }
        }
        self.check_memory(data, length, region)?;
        let found = match self.side.cts.find(tag as u32) {
            Ok(Some(found)) => found,
            Ok(None) => return self.nothing_announced(tag),
            Err(ImpossibleCts) => return Err(self.impossible_announcement()),
        };
        let capacity = found.entry.capacity;
        let (size, whole) = if length <= capacity as usize {
            (length as u32, true)
        } else if may_cut {
            self.warn_of_cut(length, capacity);
            (capacity, true)
        } else {
            (u32::try_from(length).unwrap_or(u32::MAX), false)
        };
        let message = Message {
            data: data as u64,
            region: region.map(Region::registration),
            size,
            capacity,
            id: found.id,
            remote: found.entry.address,
            parent,
        };
        let staged = if whole && size <= self.side.largest_single {
            self.stage_single(&message)?
        } else {
            self.stage_pieces(&message, whole)?
        };
        let Some(request) = staged else {
            return Ok(None);
        };
        self.side.cts.take(&found);
        let may_wait = size <= LARGEST_TO_WAIT && self.side.cts.is_within_group();
        if !may_wait {
            self.post_staged()?;
        }
        Ok(Some(request))
    }

    /// No buffer is announced for a message with `tag`.
    #[cold]
    fn nothing_announced(&mut self, tag: i32) -> Result<Option<RequestId>, Failed> {
        // The receiver may wait for what is held back here before it announces more.
        self.post_staged()?;
        if self.side.cts.is_stuck() {
            let free: Vec<i32> = self
                .side
                .cts
                .free_tags()
                .iter()
                .map(|&t| t as i32)
                .collect();
            // A sender and a receiver that do not mean the same tags wait for each other for ever.
            tracing::warn!(
                "{}: a message with tag {tag} waits; the oldest receive has buffers for {free:?} \
                 only",
                self.core.names()
            );
        }
        Ok(None)
    }

    /// The peer has closed. What it had announced is accepted all the same, and [`test`](Self::test)
    /// tells the error: a program that posts its sends and then looks at them goes on, as with NCCL's own
    /// transport.
    #[cold]
    fn start_in_vain(
        &mut self,
        data: *const u8,
        length: usize,
        tag: i32,
        region: Option<&Region>,
    ) -> Result<Option<RequestId>, Failed> {
        let Ok(Some(found)) = self.side.cts.find(tag as u32) else {
            return Ok(self.core.accepts_requests().map(|_| None)?);
        };
        self.check_memory(data, length, region)?;
        let capacity = found.entry.capacity;
        let size = u32::try_from(length).map_or(capacity, |length| length.min(capacity));
        let sent = Sent {
            size,
            capacity,
            ..Sent::default()
        };
        let request = self.requests.insert(1, sent);
        if request.is_some() {
            self.side.cts.take(&found);
        }
        Ok(request)
    }

    /// Whether `request` is done: the bytes that were sent, or `None` while it is not. A request
    /// that is done is dead.
    ///
    /// # Errors
    /// The request is not outstanding, or the connection has failed before it was done.
    #[inline]
    pub fn test(&mut self, request: RequestId) -> Result<Option<usize>, Error> {
        if !self.test_request(request)? {
            return Ok(None);
        }
        let Sent { size, capacity, .. } = *self.requests.remove(request);
        if size > capacity {
            return Err(self.core.too_long(size, capacity));
        }
        Ok(Some(size as usize))
    }

    /// The caller's memory is usable on every device of the connection.
    #[inline]
    fn check_memory(
        &self,
        data: *const u8,
        length: usize,
        region: Option<&Region>,
    ) -> Result<(), Failed> {
        match region {
            Some(region) => region.check(&self.core.nic, Access::empty(), data, length),
            None if length == 0 => Ok(()),
            None => Err(unregistered(length)),
        }
    }

    #[cold]
    fn impossible_announcement(&mut self) -> Failed {
        let what = "an announcement whose group, position or size cannot be";
        let error = self.core.protocol_error(what);
        self.core.fail(error).into()
    }

    #[cold]
    fn warn_of_cut(&mut self, length: usize, capacity: u32) {
        if !std::mem::replace(&mut self.side.has_warned_of_cut, true) {
            tracing::warn!(
                "{}: a message of {length} bytes is cut to the {capacity} that the receiver has \
                 room for; further cuts are not reported",
                self.core.names()
            );
        }
    }

    #[cold]
    fn too_large(&self, size: u32) -> Failed {
        let name = &self.core.nic.info().name;
        let most = self.side.max_message;
        let text = format!("a message of {size} bytes; {name} can send {most} at once");
        Error::InvalidArgument(text).into()
    }
}

#[cold]
fn unregistered(length: usize) -> Failed {
    let text = format!("sending {length} bytes from memory that is not registered");
    Error::InvalidArgument(text).into()
}
