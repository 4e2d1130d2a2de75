//! The receiving end.
//!
//! A receive announces its buffers in the sender's ring. What arrives is learnt from the immediates
//! alone: which buffer, how many parts, how large. Work requests without buffers are posted in
//! advance on every path, one for each part that can be outstanding, and replaced in batches.

mod complete;
mod post_cts;

use std::num::NonZeroUsize;

use ibnet_verbs::{Access, RecvRequest, RemoteAddress, SendRequest};

use crate::connect::established::NewReceiver;
use crate::connect::queue_pair::RECEIVE_CHAIN;
use crate::connection::flush::Flusher;
use crate::connection::observer::{self, Observer, Piece, Watched};
use crate::connection::recv_window::{NO_REQUEST, RecvWindow};
use crate::connection::requests::{RequestId, Table};
use crate::connection::{Core, End};
use crate::error::{Error, Failed};
use crate::memory::area::Area;
use crate::memory::cts_ring::CtsStaging;
use crate::memory::region::{Region, Registrar};
use crate::ops::Owned;
use crate::wire::cts::{self, CtsEntry, MAX_CAPACITY, MAX_GROUP};
use crate::wire::message::RemoteArea;

/// The receiving end of a connection.
///
/// The data path ([`irecv`](Self::irecv), [`test`](Self::test)) belongs to one thread at a time;
/// memory may meanwhile be registered on another through a [`Registrar`].
///
/// Dropping it closes the connection, whatever is outstanding.
pub struct RecvConnection {
    core: Core,
    // After the core, whose queue pairs read into its memory.
    flusher: Flusher,
    staging: CtsStaging,
    /// Sizes that the sender has written.
    sizes: Area,
    /// The ring in the sender's memory.
    ring: RemoteArea,
    requests: Table<Receive>,
    window: RecvWindow,
    receives: Vec<Receives>,
    /// Receives that are replaced with one call.
    batch: usize,
    replacements: Box<[RecvRequest; RECEIVE_CHAIN]>,
    /// The path of the next announcement: each takes the one after that of the one before, so that all
    /// devices have their share. Their order does not matter: each entry has its own ready word.
    cts_path: usize,
    /// Announcements on each path since a signalled one.
    cts_since_signal: Vec<u32>,
    /// The write that announces: only what differs is set each time. For a sender that waits rather
    /// than polls it carries an immediate: what it says is in the ring; that it comes is the news.
    cts_write: Box<SendRequest>,
    is_closed: bool,
    watched: Option<Watched>,
    pub(crate) owned: Owned<Vec<crate::ops::Buffer>>,
}

/// One buffer of a receive.
pub struct RecvBuffer<'a> {
    /// Where the message goes. May be null if `capacity` is 0.
    pub data: *mut u8,
    /// Bytes that there is room for.
    pub capacity: usize,
    /// Which of the sender's messages belongs here.
    pub tag: i32,
    /// The registration of `data`; needed unless `capacity` is 0.
    pub region: Option<&'a Region>,
}

/// What a finished receive has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    sizes: [u32; MAX_GROUP],
    buffers: u8,
}

impl Received {
    /// Bytes in each buffer, in the order in which the buffers were given.
    pub fn sizes(&self) -> &[u32] {
        &self.sizes[..usize::from(self.buffers)]
    }
}

/// Whether a flush is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing has to be flushed: none of it is device memory, or flushing is switched off.
    NotNeeded,
    /// Too much is outstanding: try again.
    NotReady,
    /// Done when [`test`](RecvConnection::test) says so.
    Started(RequestId),
}

/// What is left to do for one grouped receive, or for a flush.
#[derive(Clone, Copy, Default)]
struct Receive {
    /// None: it is a flush.
    buffers: u8,
    outstanding: u8,
    sizes: [u32; MAX_GROUP],
}

/// The receives of one path.
struct Receives {
    /// Parts taken since the beginning.
    taken: u64,
    /// Consumed receives that have not been replaced.
    to_replace: usize,
}

impl RecvConnection {
    pub(crate) fn new(parts: NewReceiver) -> Result<Self, Error> {
        let NewReceiver {
            common,
            scratch,
            staging,
            sizes,
            ring,
            first_entry,
            cts_with_immediate,
        } = parts;
        let depth = common.queue_pairs.receives as usize;
        // A shallow queue is replenished more often, so that most of it is always posted.
        let batch = (depth / 8).clamp(1, RECEIVE_CHAIN);
        let receives = common
            .queue_pairs
            .paths
            .iter()
            .map(|_| Receives {
                taken: 0,
                to_replace: 0,
            })
            .collect();
        let cts_since_signal = vec![0; common.queue_pairs.paths.len()];
        let core = Core::new(common)?;
        let nowhere = RemoteAddress::default();
        let cts_write = if cts_with_immediate {
            SendRequest::write_with_immediate(0, None, nowhere, 0)
        } else {
            SendRequest::write(0, None, nowhere)
        };
        Ok(Self {
            flusher: Flusher::new(scratch),
            core,
            staging,
            sizes,
            ring,
            requests: Table::new(),
            // Each message takes at most one receive of a path: with no more of them announced
            // than are surely posted, none ever finds the queue empty. Fewer than a batch wait to
            // be replaced. (The shallowest queue so has room for the largest group.)
            window: RecvWindow::new(first_entry, (depth - (batch - 1)) as u64),
            receives,
            batch,
            replacements: Box::new([RecvRequest::new(0); RECEIVE_CHAIN]),
            cts_path: 0,
            cts_since_signal,
            cts_write: Box::new(cts_write),
            is_closed: false,
            watched: None,
            owned: Owned::new(),
        })
    }

    /// Registers memory for this connection, also from other threads.
    pub fn registrar(&self) -> Registrar {
        Registrar::new(&self.core.nic, RECEIVING)
    }

    /// Lets `observer` hear of the buffers of the receives from now on that
    /// [`irecv_observed`](Self::irecv_observed) gives a parent.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        if self.requests.outstanding() == 0 {
            self.watched = Some(Watched::receiver(observer));
        }
    }

    /// Both ends, in words.
    pub fn description(&self) -> String {
        self.core.names().to_string()
    }

    /// Announces one to [`MAX_GROUP`] buffers as one receive. The sender fills each with the
    /// message of its tag. Receives are matched in the order of these calls.
    ///
    /// `Ok(None)` means that too much is outstanding: try again.
    ///
    /// # Safety
    /// The buffers and their registrations must stay valid and untouched until
    /// [`test`](Self::test) reports the request done, or the connection is dropped.
    ///
    /// # Errors
    /// The connection has failed, or an argument does not fit it.
    #[inline]
    pub unsafe fn irecv(&mut self, buffers: &[RecvBuffer<'_>]) -> Result<Option<RequestId>, Error> {
        Ok(self.announce_receive(buffers, &[], true)?)
    }

    /// As [`irecv`](Self::irecv), for a caller that finds out by itself when the data is there, for
    /// instance by flags in the data (NCCL's LL and LL128 protocols,
    /// `NCCL_NET_OPTIONAL_RECV_COMPLETION`): the request is done at once, with the capacities for
    /// sizes.
    ///
    /// # Safety
    /// As for [`irecv`](Self::irecv), but until the data is there.
    ///
    /// # Errors
    /// As for [`irecv`](Self::irecv).
    #[inline]
    pub unsafe fn irecv_unawaited(
        &mut self,
        buffers: &[RecvBuffer<'_>],
    ) -> Result<Option<RequestId>, Error> {
        Ok(self.announce_receive(buffers, &[], false)?)
    }

    /// As [`irecv`](Self::irecv), or with `is_awaited` false as
    /// [`irecv_unawaited`](Self::irecv_unawaited); the connection's [`Observer`] hears of each
    /// buffer for which `parents` has something in its place.
    ///
    /// # Safety
    /// As for these.
    ///
    /// # Errors
    /// As for these.
    #[inline]
    pub unsafe fn irecv_observed(
        &mut self,
        buffers: &[RecvBuffer<'_>],
        parents: &[Option<NonZeroUsize>],
        is_awaited: bool,
    ) -> Result<Option<RequestId>, Error> {
        Ok(self.announce_receive(buffers, parents, is_awaited)?)
    }

    fn announce_receive(
        &mut self,
        buffers: &[RecvBuffer<'_>],
        parents: &[Option<NonZeroUsize>],
        is_awaited: bool,
    ) -> Result<Option<RequestId>, Failed> {
        if !self.takes_requests()? {
            return Ok(None);
        }
        if !(1..=MAX_GROUP).contains(&buffers.len()) {
            return Err(wrong_group(buffers.len()));
        }
        for buffer in buffers {
            self.check_buffer(buffer)?;
        }
        if !self.has_room(buffers.len() as u64) {
            self.progress()?;
            if !self.has_room(buffers.len() as u64) {
                return Ok(None);
            }
        }
        let count = buffers.len() as u8;
        let first = self.window.next();
        let mut receive = Receive {
            buffers: count,
            outstanding: count,
            sizes: [0; MAX_GROUP],
        };
        if !is_awaited {
            receive.outstanding = 0;
            for (size, buffer) in receive.sizes.iter_mut().zip(buffers) {
                *size = clamp_capacity(buffer.capacity);
            }
        }
        let Some(request) = self.requests.insert(receive) else {
            return Ok(None);
        };
        let owner = if is_awaited {
            request.index()
        } else {
            NO_REQUEST
        };
        let devices = self.core.cqs.len();
        for (position, buffer) in buffers.iter().enumerate() {
            let capacity = clamp_capacity(buffer.capacity);
            let entry = CtsEntry {
                address: buffer.data as u64,
                capacity,
                tag: buffer.tag as u32,
                group: count,
                position: position as u8,
            };
            let rkeys = (0..devices).map(|d| buffer.region.map_or(0, |region| region.rkey(d)));
            self.staging
                .write(first.wrapping_add(position as u64), &entry, rkeys);
            self.window.open(owner, position as u8, capacity);
        }
        if let Some(watched) = &mut self.watched {
            let path = &self.core.paths[self.cts_path];
            for (position, buffer) in buffers.iter().enumerate() {
                let piece = Piece {
                    device: path.device,
                    queue_pair: path.queue_pair.number(),
                    wr_id: 0,
                    opcode: observer::WRITE,
                    length: buffer.capacity,
                };
                let parent = parents.get(position).copied().flatten();
                let slot = cts::slot(first.wrapping_add(position as u64));
                watched.announced(slot, parent, &piece);
            }
        }
        self.post_cts(first, buffers.len())?;
        Ok(Some(request))
    }

    /// Makes what was received into `buffers`, the data and registration of each, visible to the
    /// device whose memory it is: reads a byte back through every network device that received
    /// (InfiniBand specification, volume 1, section 9.5: a read is answered after earlier writes).
    /// Does nothing for host memory.
    ///
    /// # Safety
    /// The registrations must stay valid until the flush is done, or the connection is dropped.
    ///
    /// # Errors
    /// The connection has failed, or a buffer does not lie in its registration.
    pub unsafe fn iflush(
        &mut self,
        buffers: &[(*const u8, usize, &Region)],
    ) -> Result<Flush, Error> {
        self.core.check()?;
        for (data, length, region) in buffers {
            region.check(&self.core.nic, RECEIVING, *data, *length)?;
        }
        let target = buffers
            .iter()
            .rev()
            .find(|(_, length, region)| *length > 0 && region.needs_flush());
        let Some((data, _, region)) = target else {
            return Ok(Flush::NotNeeded);
        };
        if !self.flusher.is_enabled() {
            return Ok(Flush::NotNeeded);
        }
        if self.core.has_events() {
            self.handle_events()?;
            if !self.core.accepts_local_requests()? {
                return Ok(Flush::NotReady);
            }
        }
        if self.requests.is_full() || !self.has_room_to_flush() {
            self.progress()?;
            if self.requests.is_full() || !self.has_room_to_flush() {
                return Ok(Flush::NotReady);
            }
        }
        let Some(request) = self.requests.insert(Receive {
            outstanding: self.core.loops.len() as u8,
            ..Receive::default()
        }) else {
            return Ok(Flush::NotReady);
        };
        if let Err(source) = self
            .flusher
            .post(&mut self.core.loops, *data as u64, region, request)
        {
            // Some reads may be under way: the connection cannot go on (pitfall 85).
            return Err(self.core.post_failed(source));
        }
        Ok(Flush::Started(request))
    }

    /// Whether `request` is done: what has arrived, or `None` while it is not. A request that is
    /// done is dead.
    ///
    /// # Errors
    /// The request is not outstanding, or the connection has failed before it was done.
    #[inline]
    pub fn test(&mut self, request: RequestId) -> Result<Option<Received>, Error> {
        let mut received = Received {
            sizes: [0; MAX_GROUP],
            buffers: 0,
        };
        let is_done = self.test_with(request, |position, size| {
            received.sizes[position] = size;
            received.buffers = position as u8 + 1;
        })?;
        Ok(is_done.then_some(received))
    }

    /// As [`test`](Self::test), for callers that have a place for each size: whether `request` is
    /// done, and if so `tell` has been called with the position and the bytes of each buffer.
    ///
    /// # Errors
    /// As for [`test`](Self::test).
    #[inline]
    pub fn test_with(
        &mut self,
        request: RequestId,
        mut tell: impl FnMut(usize, u32),
    ) -> Result<bool, Error> {
        if !self.test_request(request)? {
            return Ok(false);
        }
        // Told from where they are: a copy would wait for the last one, which was just written.
        let receive = self.requests.find(request)?;
        let sizes = receive.sizes.iter().take(receive.buffers.into());
        for (position, size) in sizes.enumerate() {
            tell(position, *size);
        }
        self.requests.remove(request);
        Ok(true)
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
        // Count what has arrived, so that the sender learns of it.
        if !self.core.has_failed() {
            while matches!(self.progress(), Ok(count) if count > 0) {}
        }
        let taken = self
            .receives
            .iter()
            .map(|receives| receives.taken)
            .collect();
        self.core.close(taken)
    }

    /// Whether `buffers` more can be announced now.
    #[inline]
    fn has_room(&self, buffers: u64) -> bool {
        // A group is at most two writes: one more at the end of the ring.
        !self.requests.is_full()
            && self.window.has_room(buffers)
            && self.core.paths[self.cts_path].room() >= 2
    }

    /// Whether one more flush can be posted on every device.
    fn has_room_to_flush(&self) -> bool {
        self.core.loops.iter().all(|path| path.room() > 0)
    }

    #[inline]
    fn check_buffer(&self, buffer: &RecvBuffer<'_>) -> Result<(), Failed> {
        match buffer.region {
            Some(region) => region.check(&self.core.nic, RECEIVING, buffer.data, buffer.capacity),
            None if buffer.capacity == 0 => Ok(()),
            None => Err(unregistered(buffer.capacity)),
        }
    }
}

#[cold]
pub(crate) fn wrong_group(buffers: usize) -> Failed {
    let text = format!("a receive of {buffers} buffers; 1 to {MAX_GROUP} are possible");
    Error::InvalidArgument(text).into()
}

#[cold]
fn unregistered(capacity: usize) -> Failed {
    let text = format!("receiving {capacity} bytes into memory that is not registered");
    Error::InvalidArgument(text).into()
}

impl Drop for RecvConnection {
    fn drop(&mut self) {
        if let Err(error) = self.close_once() {
            tracing::warn!("closing {}: {error}", self.core.names());
        }
    }
}

/// What memory that is received into must allow.
const RECEIVING: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

/// Capacities beyond what sizes can express are announced as the most that they can.
fn clamp_capacity(capacity: usize) -> u32 {
    capacity.min(MAX_CAPACITY as usize) as u32
}
