//! The sending end.
//!
//! A send waits for the receiver's announcement, takes the buffer whose tag it has
//! ([`crate::connection::cts_queue`]), cuts the message into parts ([`crate::wire::stripe`]), chooses a path for each
//! ([`crate::connection::path_selector`]) and writes the data there. The last write of each part carries the immediate
//! that tells the receiver.

mod complete;
mod gathered;
mod post;

use std::num::NonZeroUsize;

use ibnet_verbs::{Access, RemoteAddress, SendRequest};

use crate::connect::established::NewSender;
use crate::connect::queue_pair::RECEIVE_CHAIN;
use crate::connection::cts_queue::{CtsQueue, ImpossibleCts};
use crate::connection::in_flight::InFlight;
use crate::connection::observer::{Observer, Watched};
use crate::connection::outgoing::{Outgoing, Shape};
use crate::connection::path_selector::PathSelector;
use crate::connection::requests::{RequestId, Table};
use crate::connection::{Core, End};
use crate::error::{Error, Failed};
use crate::memory::area::Area;
use crate::memory::region::{Region, Registrar};
use crate::ops::Owned;
use crate::wire::message::RemoteArea;

use gathered::Gathered;

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
    cts: CtsQueue,
    /// Sizes on their way to the peer's table, unless all of them can be sent inline.
    sizes: Option<Area>,
    /// A size on its way inline.
    inline_size: u32,
    /// The peer's table.
    size_table: RemoteArea,
    requests: Table<Send>,
    /// Parts in the order posted, for each path.
    parts: Vec<InFlight>,
    /// Completions that will come from each device: one without is not polled. Where there may be
    /// notices of announcements, one more.
    under_way: Vec<u32>,
    announcements: Announcements,
    selector: PathSelector,
    chain: Box<[SendRequest; CHAIN]>,
    gathered: Gathered,
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
    pub(crate) owned: Owned<crate::ops::Buffer>,
}

/// Receives that announcements use up; none unless this end waits rather than polls.
struct Announcements {
    /// Receives that are replaced with one call.
    batch: u32,
    /// Used up and not yet replaced, for each path.
    to_replace: Vec<u32>,
}

/// What is left to do for one send.
#[derive(Clone, Copy, Default)]
struct Send {
    /// Parts that have not completed.
    outstanding: u8,
    /// Bytes that were sent.
    size: u32,
}

impl SendConnection {
    pub(crate) fn new(parts: NewSender) -> Result<Self, Error> {
        let NewSender {
            common,
            ring,
            sizes,
            size_table,
            first_entry,
            largest_write,
        } = parts;
        let logs = common
            .queue_pairs
            .paths
            .iter()
            .map(|_| InFlight::new())
            .collect();
        let posted = common.queue_pairs.receives;
        let core = Core::new(common)?;
        let config = core.config();
        let selector = PathSelector::new(
            config.path_policy,
            core.paths.len(),
            core.pairs(),
            config.split_data,
            config.least_part(),
        );
        let reorders = core.paths.iter().any(|path| path.reorders);
        let bulk_threshold = reorders.then_some(config.adaptive_routing_threshold);
        let nowhere = RemoteAddress::default();
        let mut under_way = vec![0; core.cqs.len()];
        if posted > 0 {
            under_way.fill(1);
        }
        Ok(Self {
            cts: CtsQueue::new(ring, first_entry),
            sizes,
            inline_size: 0,
            size_table,
            requests: Table::new(),
            parts: logs,
            under_way,
            announcements: Announcements {
                batch: (posted / 8).clamp(1, RECEIVE_CHAIN as u32),
                to_replace: vec![0; core.paths.len()],
            },
            selector,
            chain: Box::new([SendRequest::write(0, None, nowhere); CHAIN]),
            gathered: Gathered::new(),
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

    /// As [`isend`](Self::isend); the connection's [`Observer`] hears of the parts of the message
    /// with `parent`, if one is given.
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
        Ok(self.start(data, length, tag, region, parent)?)
    }

    fn start(
        &mut self,
        data: *const u8,
        length: usize,
        tag: i32,
        region: Option<&Region>,
        parent: Option<NonZeroUsize>,
    ) -> Result<Option<RequestId>, Failed> {
        // A failure raises attention, too.
        if self.core.has_events() {
            self.core.check()?;
            self.handle_events()?;
            if self.core.peer_has_closed() {
                return self.start_in_vain(data, length, tag, region);
            }
            if !self.core.accepts_requests()? {
                return Ok(None);
            }
        }
        self.check_memory(data, length, region)?;
        let found = match self.cts.find(tag as u32) {
            Ok(Some(found)) => found,
            Ok(None) => {
                // Whoever has nothing to fill may wait for what is held back here.
                self.post_gathered()?;
                if self.cts.is_stuck() {
                    self.tell_of_tags(tag);
                }
                return Ok(None);
            }
            Err(ImpossibleCts) => return Err(self.impossible_announcement().into()),
        };
        let size = self.cut(length, found.entry.capacity)?;
        if size <= self.most_at_once && self.selector.is_one_part(size) {
            return self.send_at_once(data as u64, size, region, &found, parent);
        }
        self.post_gathered()?;
        let split = self.selector.choose(size, &self.core.paths);
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
        self.selector.sent(split.parts);
        self.cts.take(&found);
        Ok(Some(request))
    }

    /// The peer has closed. What it had announced is accepted all the same, and [`test`](Self::test) tells the
    /// error: a program that posts its sends and then looks at them goes on, as with NCCL's own transport.
    #[cold]
    fn start_in_vain(
        &mut self,
        data: *const u8,
        length: usize,
        tag: i32,
        region: Option<&Region>,
    ) -> Result<Option<RequestId>, Failed> {
        let Ok(Some(found)) = self.cts.find(tag as u32) else {
            return Ok(self.core.accepts_requests().map(|_| None)?);
        };
        self.check_memory(data, length, region)?;
        let size = self.cut(length, found.entry.capacity)?;
        let request = self.requests.insert(Send {
            outstanding: 1,
            size,
        });
        if request.is_some() {
            self.cts.take(&found);
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
        let size = self.requests.find(request)?.size;
        self.requests.remove(request);
        Ok(Some(size as usize))
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
        // In a forked child it is the parent's, to whom the peer goes on talking.
        if std::mem::replace(&mut self.is_closed, true) || self.core.is_inherited() {
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
    ) -> Result<(), Failed> {
        match region {
            Some(region) => region.check(&self.core.nic, Access::empty(), data, length),
            None if length == 0 => Ok(()),
            None => Err(unregistered(length)),
        }
    }

    /// A sender and a receiver that do not mean the same tags wait for each other for ever.
    #[cold]
    fn tell_of_tags(&self, tag: i32) {
        let free: Vec<i32> = self.cts.free_tags().iter().map(|&t| t as i32).collect();
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
    fn cut(&mut self, length: usize, capacity: u32) -> Result<u32, Failed> {
        let size = if length <= capacity as usize {
            length as u32
        } else {
            self.warn_of_cut(length, capacity);
            capacity
        };
        if size as usize > self.max_message {
            return Err(self.too_large(size).into());
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
}

#[cold]
fn unregistered(length: usize) -> Failed {
    let text = format!("sending {length} bytes from memory that is not registered");
    Error::InvalidArgument(text).into()
}

impl Drop for SendConnection {
    fn drop(&mut self) {
        if let Err(error) = self.close_once() {
            tracing::warn!("closing {}: {error}", self.core.names());
        }
    }
}
