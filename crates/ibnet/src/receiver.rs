//! The receiving end.
//!
//! A receive announces its buffers in the sender's ring. What arrives is learnt from the immediates
//! alone: which buffer, how many parts, how large. Work requests without buffers are posted in
//! advance on every path, one for each part that can be outstanding, and replaced in batches.

use std::sync::Arc;

use verbs::{Access, RecvRequest, RemoteAddress, SendRequest, Sge, WcOpcode, WorkCompletion};

use crate::connection::{Core, Parts};
use crate::error::Error;
use crate::handshake::message::RemoteArea;
use crate::inbox::{Inbox, Violation};
use crate::memory::Area;
use crate::owned::Owned;
use crate::path::Path;
use crate::region::{Region, Registrar};
use crate::requests::{RequestId, Table};
use crate::ring::{self, Announcement, ENTRIES, MAX_GROUP, Staging};
use crate::work_id::WorkId;

/// Receives that are replaced with one call.
const REPLENISH: usize = 32;

/// Receives that are posted on every path: one for each part that can be under way, and those that
/// wait to be replaced.
pub(crate) const RECEIVE_QUEUE_DEPTH: u32 = ENTRIES as u32 + REPLENISH as u32;

/// Announcements that the sending queue of the receiver can hold.
pub(crate) const ANNOUNCE_QUEUE_DEPTH: u32 = 128;

/// The receiving end of a connection.
///
/// The data path ([`irecv`](Self::irecv), [`test`](Self::test)) belongs to one thread at a time;
/// memory may meanwhile be registered on another through a [`Registrar`].
///
/// Dropping it closes the connection, whatever is outstanding.
pub struct RecvConnection {
    core: Core,
    staging: Staging,
    /// Sizes that the sender has written.
    sizes: Area,
    /// The ring in the sender's memory.
    ring: RemoteAddress,
    requests: Table<Receive>,
    inbox: Inbox,
    receives: Vec<Receives>,
    replacements: Box<[RecvRequest; REPLENISH]>,
    announced_since_signal: u32,
    is_closed: bool,
    pub(crate) owned: Owned<Vec<crate::owned::Buffer>>,
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

/// What is left to do for one grouped receive.
#[derive(Clone, Copy, Default)]
struct Receive {
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

/// What a receiving end is made of.
pub(crate) struct ReceiverParts {
    pub(crate) common: Parts,
    pub(crate) staging: Staging,
    pub(crate) sizes: Area,
    pub(crate) ring: RemoteArea,
    pub(crate) first_entry: u64,
}

/// Posts the receives of a new path; possible from state INIT on.
pub(crate) fn post_all_receives(path: &Path) -> Result<(), Error> {
    let mut chain = [RecvRequest::new(0); REPLENISH];
    let mut left = RECEIVE_QUEUE_DEPTH as usize;
    while left > 0 {
        let count = left.min(REPLENISH);
        post_receives(path, &mut chain[..count]).map_err(|source| Error::Post {
            connection: format!("queue pair {:#x}", path.queue_pair.number()),
            source: Arc::new(source),
        })?;
        left -= count;
    }
    Ok(())
}

fn post_receives(path: &Path, chain: &mut [RecvRequest]) -> Result<(), verbs::PostError> {
    // SAFETY: these receives name no memory.
    unsafe { path.queue_pair.post_recv(chain) }
}

impl RecvConnection {
    pub(crate) fn new(parts: ReceiverParts) -> Result<Self, Error> {
        let ReceiverParts {
            common,
            staging,
            sizes,
            ring,
            first_entry,
        } = parts;
        let receives = common
            .paths
            .iter()
            .map(|_| Receives {
                taken: 0,
                to_replace: 0,
            })
            .collect();
        let core = Core::new(common)?;
        Ok(Self {
            core,
            staging,
            sizes,
            ring: RemoteAddress {
                address: ring.address,
                // One for each device of the sender, checked when it arrived.
                rkey: ring.rkeys.first().copied().unwrap_or(0),
            },
            requests: Table::new(),
            inbox: Inbox::new(first_entry),
            receives,
            replacements: Box::new([RecvRequest::new(0); REPLENISH]),
            announced_since_signal: 0,
            is_closed: false,
            owned: Owned::new(),
        })
    }

    /// Registers memory for this connection, also from other threads.
    pub fn registrar(&self) -> Registrar {
        Registrar::new(
            &self.core.device,
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        )
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
    pub unsafe fn irecv(&mut self, buffers: &[RecvBuffer<'_>]) -> Result<Option<RequestId>, Error> {
        self.core.check()?;
        if self.core.needs_attention() {
            self.attend()?;
            if !self.core.accepts_requests()? {
                return Ok(None);
            }
        }
        if !(1..=MAX_GROUP).contains(&buffers.len()) {
            return Err(Error::InvalidArgument(format!(
                "a receive of {} buffers; 1 to {MAX_GROUP} are possible",
                buffers.len()
            )));
        }
        if !self.has_room(buffers.len() as u64) {
            self.progress()?;
            if !self.has_room(buffers.len() as u64) {
                return Ok(None);
            }
        }
        let first = self.inbox.next();
        for (position, buffer) in buffers.iter().enumerate() {
            let entry = self.announcement(buffer, position, buffers.len())?;
            self.staging
                .write(first.wrapping_add(position as u64), &entry);
        }

        let count = buffers.len() as u8;
        let receive = Receive {
            buffers: count,
            outstanding: count,
            sizes: [0; MAX_GROUP],
        };
        let Some(request) = self.requests.insert(receive) else {
            return Ok(None);
        };
        for (position, buffer) in buffers.iter().enumerate() {
            let capacity = clamp_capacity(buffer.capacity);
            self.inbox.open(request.index(), position as u8, capacity);
        }
        self.announce(first, buffers.len(), request)?;
        Ok(Some(request))
    }

    /// Whether `request` is done: what has arrived, or `None` while it is not. A request that is
    /// done is dead.
    ///
    /// # Errors
    /// The request is not outstanding, or the connection has failed before it was done.
    pub fn test(&mut self, request: RequestId) -> Result<Option<Received>, Error> {
        if let Some(received) = self.finished(request)? {
            return Ok(Some(received));
        }
        self.core.check()?;
        self.progress()?;
        if let Some(received) = self.finished(request)? {
            return Ok(Some(received));
        }
        if self.core.needs_attention() {
            self.attend()?;
            // What the sender completed before it left is in the queue, or about to be: the end may
            // not be declared while there is still news to be had.
            while self.progress()? > 0 {}
            if let Some(received) = self.finished(request)? {
                return Ok(Some(received));
            }
            self.core.fail_after_grace()?;
        }
        Ok(None)
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

    fn finished(&mut self, request: RequestId) -> Result<Option<Received>, Error> {
        let receive = *self.requests.find(request)?;
        if receive.outstanding > 0 {
            return Ok(None);
        }
        self.requests.remove(request);
        Ok(Some(Received {
            sizes: receive.sizes,
            buffers: receive.buffers,
        }))
    }

    /// Whether `buffers` more can be announced now.
    fn has_room(&self, buffers: u64) -> bool {
        // A group is at most two writes: one more at the end of the ring.
        !self.requests.is_full() && self.inbox.has_room(buffers) && self.core.paths[0].room() >= 2
    }

    fn announcement(
        &self,
        buffer: &RecvBuffer<'_>,
        position: usize,
        group: usize,
    ) -> Result<Announcement, Error> {
        let rkey = match buffer.region {
            Some(region) => {
                let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
                region.check(&self.core.device, access, buffer.data, buffer.capacity)?;
                region.rkey()
            }
            None if buffer.capacity == 0 => 0,
            None => {
                return Err(Error::InvalidArgument(format!(
                    "receiving {} bytes into memory that is not registered",
                    buffer.capacity
                )));
            }
        };
        Ok(Announcement {
            address: buffer.data as u64,
            capacity: clamp_capacity(buffer.capacity),
            tag: buffer.tag as u32,
            group: group as u8,
            position: position as u8,
            rkey,
        })
    }

    /// Writes the prepared entries into the sender's ring.
    fn announce(&mut self, first: u64, count: usize, request: RequestId) -> Result<(), Error> {
        let start = ring::slot(first);
        let before_end = count.min(ENTRIES as usize - start);
        let mut chain = [
            self.announce_write(start, before_end),
            self.announce_write(0, 0),
        ];
        let mut writes = 1;
        if before_end < count {
            chain[1] = self.announce_write(0, count - before_end);
            writes = 2;
        }
        let path = &mut self.core.paths[0];
        path.posted(writes);
        self.announced_since_signal += writes;
        // Unsignalled requests hold their place in the queue until a later signalled one is done.
        if self.announced_since_signal >= path.depth() / 4 {
            let work = WorkId {
                path: 0,
                requests: self.announced_since_signal,
                request,
            };
            let last = &mut chain[writes as usize - 1];
            *last = last.with_wr_id(work.encode()).signaled();
            self.announced_since_signal = 0;
        }
        // SAFETY: the entries lie in this connection's staging area, which is freed after the
        // queue pairs; a slot is written again only after its message has arrived, which the
        // sender could only send after it had the entry.
        let posted = unsafe {
            self.core.paths[0]
                .queue_pair
                .post_send(&mut chain[..writes as usize])
        };
        posted.map_err(|error| {
            let connection = self.core.names().to_string();
            self.core.fail(Error::Post {
                connection,
                source: Arc::new(error),
            })
        })
    }

    fn announce_write(&self, slot: usize, count: usize) -> SendRequest {
        let entry_bytes = self.staging.entry_bytes();
        let length = (count * entry_bytes) as u32;
        let local = Sge {
            address: self.staging.address_of(slot),
            length,
            lkey: self.staging.lkey(),
        };
        let remote = RemoteAddress {
            address: self.ring.address + (slot * entry_bytes) as u64,
            rkey: self.ring.rkey,
        };
        let request = SendRequest::write(0, Some(local), remote);
        if length <= self.core.paths[0].max_inline {
            request.inline()
        } else {
            request
        }
    }

    /// Takes a batch of completions, whichever requests they belong to; tells how many.
    fn progress(&mut self) -> Result<usize, Error> {
        let count = self.core.poll()?;
        for index in 0..count {
            let completion = self.core.completion(index);
            self.complete(&completion)?;
        }
        Ok(count)
    }

    fn complete(&mut self, completion: &WorkCompletion) -> Result<(), Error> {
        if !completion.is_success() {
            self.core.work_failed(completion);
            return Ok(());
        }
        if completion.opcode() == WcOpcode::RDMA_WRITE {
            let work = WorkId::decode(completion.wr_id());
            if let Some(path) = self.core.paths.get_mut(usize::from(work.path)) {
                path.finished(work.requests);
            }
            return Ok(());
        }
        if completion.opcode() != WcOpcode::RECV_RDMA_WITH_IMM {
            let error = self
                .core
                .protocol_error("something other than a write with immediate");
            return Err(self.core.fail(error));
        }
        // Receives are posted with the number of their path.
        let path = completion.wr_id() as usize;
        self.take_part(completion)?;
        self.consumed(path)
    }

    /// A part of a message has arrived.
    fn take_part(&mut self, completion: &WorkCompletion) -> Result<(), Error> {
        let taken = self.inbox.take(
            completion.immediate(),
            completion.byte_len(),
            // Written before the immediate, which has been seen.
            |slot| self.sizes.read_u32(slot * 4),
        );
        match taken {
            Ok(None) => {}
            Ok(Some(arrived)) => {
                if let Some(receive) = self.requests.at(arrived.request) {
                    receive.sizes[usize::from(arrived.position)] = arrived.size;
                    receive.outstanding = receive.outstanding.saturating_sub(1);
                }
            }
            Err(Violation(what)) => {
                let error = self.core.protocol_error(what);
                return Err(self.core.fail(error));
            }
        }
        Ok(())
    }

    /// A receive of `path` was used up; replaces them in batches.
    fn consumed(&mut self, path: usize) -> Result<(), Error> {
        let Some(receives) = self.receives.get_mut(path) else {
            return Ok(());
        };
        receives.taken += 1;
        receives.to_replace += 1;
        if receives.to_replace < REPLENISH {
            return Ok(());
        }
        receives.to_replace = 0;
        for replacement in self.replacements.iter_mut() {
            *replacement = RecvRequest::new(path as u64);
        }
        post_receives(&self.core.paths[path], &mut self.replacements[..]).map_err(|error| {
            let connection = self.core.names().to_string();
            self.core.fail(Error::Post {
                connection,
                source: Arc::new(error),
            })
        })
    }

    fn attend(&mut self) -> Result<(), Error> {
        self.core.attend();
        self.core.check()
    }
}

impl Drop for RecvConnection {
    fn drop(&mut self) {
        if let Err(error) = self.close_once() {
            tracing::warn!("closing {}: {error}", self.core.names());
        }
    }
}

/// Capacities beyond what sizes can express are announced as the most that they can.
fn clamp_capacity(capacity: usize) -> u32 {
    capacity.min(i32::MAX as usize) as u32
}
