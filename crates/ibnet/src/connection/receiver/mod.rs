//! The receiving end.
//!
//! A receive announces its buffers in the sender's ring. What arrives is learnt from the immediates
//! alone: which buffer, how many parts, how large. Work requests without buffers are posted in
//! advance on every path, one for each part that can be outstanding, and replaced in batches.

mod complete;
mod flush;
mod post_cts;

use std::fmt;
use std::num::NonZeroUsize;

use ibnet_verbs::{RemoteAddress, SendRequest};

use crate::connect::established::NewReceiver;
use crate::connection::core::Core;
use crate::connection::observer::{self, Piece};
use crate::connection::recv_window::{NO_REQUEST, RecvWindow};
use crate::connection::replenish::Replenisher;
use crate::connection::requests::RequestId;
use crate::connection::{Connection, Side};
use crate::error::{Error, Failed};
use crate::memory::area::Area;
use crate::memory::cts_ring::CtsStaging;
use crate::memory::region::Region;
use crate::wire::cts::{self, CtsEntry, MAX_CAPACITY, MAX_GROUP};
use crate::wire::message::RemoteArea;

pub use flush::Flush;

/// What a receiving end has beside what both have.
pub struct Receiver {
    staging: CtsStaging,
    /// Sizes that the sender has written.
    sizes: Area,
    /// The ring in the sender's memory.
    ring: RemoteArea,
    window: RecvWindow,
    receives: Replenisher,
    /// Parts taken from each path since the beginning.
    taken: Vec<u64>,
    /// The path of the next announcement: each takes the one after that of the one before, so that all
    /// devices have their share. Their order does not matter: each entry has its own ready word.
    cts_path: usize,
    /// Announcements that have to be written again.
    again: Again,
    /// Announcements on each path since a signalled one.
    cts_since_signal: Vec<u32>,
    /// The write that announces: only what differs is set each time.
    cts_write: Box<SendRequest>,
    /// For a sender that waits rather than polls: what it says is in the ring; that it comes is the news.
    cts_immediate: Option<u32>,
}

/// Announcements that are written a second time, after a path has failed with some of them.
///
/// Until all second copies have landed no slot is used again: one could land over the next announcement there.
enum Again {
    Nothing,
    Writing {
        /// From this id on they have yet to be written.
        next: u64,
        /// For each path, the number of the last request with one of them.
        landing: Vec<u32>,
    },
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

/// One buffer of a receive.
#[derive(Clone, Copy, Debug)]
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

/// What is known of one grouped receive, or of a flush.
#[derive(Clone, Copy, Default)]
pub(crate) struct Receive {
    /// None: it is a flush.
    buffers: u8,
    sizes: [u32; MAX_GROUP],
    /// Of the last message that was too long for its buffer: its bytes, and those of the buffer.
    too_long: Option<(u32, u32)>,
}

impl Connection<Receiver> {
    pub(crate) fn new(parts: NewReceiver) -> Result<Self, Error> {
        let NewReceiver {
            common,
            staging,
            sizes,
            ring,
            first_entry,
            cts_with_immediate,
        } = parts;
        let posted = common.queue_pairs.recipe.receives();
        let core = Core::new(common)?;
        let paths = core.paths.len();
        let receives = Replenisher::new(posted, paths);
        let side = Receiver {
            staging,
            sizes,
            ring,
            // Each message takes at most one receive of a path: with no more of them announced
            // than are surely posted, none ever finds the queue empty. (The shallowest queue so has
            // room for the largest group.)
            window: RecvWindow::new(first_entry, (posted - receives.most_missing()).into()),
            receives,
            taken: vec![0; paths],
            cts_path: 0,
            again: Again::Nothing,
            cts_since_signal: vec![0; paths],
            cts_write: Box::new(SendRequest::write(0, None, RemoteAddress::default())),
            cts_immediate: cts_with_immediate.then_some(0),
        };
        Ok(Self::with(core, side))
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
    /// [`irecv_unawaited`](Self::irecv_unawaited); the connection's [`Observer`](crate::Observer) hears of each
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
        // A failure raises the flags, too.
        if self.core.has_events() {
            self.handle_events()?;
            if !self.core.accepts_requests()? {
                return Ok(None);
            }
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
        let first = self.side.window.next();
        let mut receive = Receive {
            buffers: count,
            sizes: [0; MAX_GROUP],
            too_long: None,
        };
        if !is_awaited {
            for (size, buffer) in receive.sizes.iter_mut().zip(buffers) {
                *size = clamp_capacity(buffer.capacity);
            }
        }
        let Some(request) = self
            .requests
            .insert(if is_awaited { count } else { 0 }, receive)
        else {
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
            let id = first.wrapping_add(position as u64);
            let rkey = |device| buffer.region.map_or(0, |region| region.rkey(device));
            self.side.staging.write(id, &entry, devices, rkey);
            self.side.window.open(owner, position as u8, capacity);
        }
        if let Some(watched) = &mut self.watched {
            let path = &self.core.paths[self.side.cts_path];
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
        let receive = self.requests.remove(request);
        if let Some((length, capacity)) = receive.too_long {
            return Err(self.core.too_long(length, capacity));
        }
        let sizes = receive.sizes.iter().take(receive.buffers.into());
        for (position, size) in sizes.enumerate() {
            tell(position, *size);
        }
        Ok(true)
    }

    /// Whether `buffers` more can be announced now.
    #[inline]
    fn has_room(&self, buffers: u64) -> bool {
        // A group is at most two writes: one more at the end of the ring.
        !self.requests.is_full()
            && matches!(self.side.again, Again::Nothing)
            && self.side.window.has_room(buffers)
            && self.core.paths[self.side.cts_path].room() >= 2
    }

    #[inline]
    fn check_buffer(&self, buffer: &RecvBuffer<'_>) -> Result<(), Failed> {
        match buffer.region {
            Some(region) => region.check(
                &self.core.nic,
                Receiver::ACCESS,
                buffer.data,
                buffer.capacity,
            ),
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

/// Capacities beyond what sizes can express are announced as the most that they can.
fn clamp_capacity(capacity: usize) -> u32 {
    capacity.min(MAX_CAPACITY as usize) as u32
}
