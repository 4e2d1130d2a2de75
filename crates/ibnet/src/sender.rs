//! The sending end.
//!
//! A send waits for the receiver's announcement, takes the buffer whose tag it has
//! ([`crate::matching`]), and writes the data there. The last write carries the immediate that tells
//! the receiver.

use std::sync::Arc;

use verbs::{Access, RemoteAddress, SendRequest, Sge, WorkCompletion};

use crate::connection::{Core, Parts};
use crate::error::Error;
use crate::handshake::message::{Closing, RemoteArea};
use crate::immediate::{Immediate, SizeTold, lap};
use crate::matching::{ImpossibleGroup, Match, Matching};
use crate::memory::Area;
use crate::owned::Owned;
use crate::part_log::PartLog;
use crate::region::{Region, Registrar};
use crate::requests::{RequestId, Table};
use crate::ring::{self, Announced};
use crate::stripe;
use crate::work_id::WorkId;

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
    size_table: RemoteAddress,
    requests: Table<Send>,
    /// Parts in the order posted, for each path.
    parts: Vec<PartLog>,
    chain: Box<[SendRequest; CHAIN]>,
    largest_write: u32,
    has_warned_of_cut: bool,
    is_closed: bool,
    pub(crate) owned: Owned<crate::owned::Buffer>,
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
        let logs = common.paths.iter().map(|_| PartLog::new()).collect();
        let core = Core::new(common)?;
        let nothing = RemoteAddress {
            address: 0,
            rkey: 0,
        };
        Ok(Self {
            core,
            matching: Matching::new(ring, first_entry),
            sizes,
            size_table: RemoteAddress {
                address: size_table.address,
                // One for each device of the peer, checked when it arrived.
                rkey: size_table.rkeys.first().copied().unwrap_or(0),
            },
            requests: Table::new(),
            parts: logs,
            chain: Box::new([SendRequest::write(0, None, nothing); CHAIN]),
            largest_write,
            has_warned_of_cut: false,
            is_closed: false,
            owned: Owned::new(),
        })
    }

    /// Registers memory for this connection, also from other threads.
    pub fn registrar(&self) -> Registrar {
        Registrar::new(&self.core.device, Access::empty())
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
        self.core.check()?;
        if self.core.needs_attention() {
            self.attend()?;
            // Whoever has left will take no new message.
            if !self.core.accepts_requests()? {
                return Ok(None);
            }
        }
        let lkey = self.lkey(data, length, region)?;
        let found = match self.matching.find(tag as u32) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(ImpossibleGroup) => {
                let error = self
                    .core
                    .protocol_error("an announcement of an impossible group");
                return Err(self.core.fail(error));
            }
        };
        let Match { id, entry, .. } = found;
        let size = self.cut(length, entry.capacity)?;

        let writes = stripe::write_count(size, self.largest_write);
        let size_told = if writes == 1 {
            SizeTold::BySum
        } else if size == entry.capacity {
            SizeTold::AsAnnounced
        } else {
            SizeTold::InTable
        };
        let needed = writes + u32::from(size_told == SizeTold::InTable);
        // The one path that there is; more will be chosen here.
        let path = 0;
        if needed > self.core.paths[path].depth() {
            return Err(Error::InvalidArgument(format!(
                "a message of {size} bytes needs {needed} writes of at most {} bytes, the \
                 smaller of both ports' limits, and the queue holds {}",
                self.largest_write,
                self.core.paths[path].depth()
            )));
        }
        if self.requests.is_full() || self.core.paths[path].room() < needed {
            self.progress()?;
            if self.requests.is_full() || self.core.paths[path].room() < needed {
                return Ok(None);
            }
        }

        let Some(request) = self.requests.insert(Send {
            outstanding: 1,
            size,
        }) else {
            return Ok(None);
        };
        let immediate = Immediate {
            slot: ring::slot(id) as u8,
            size_told,
            parts: 1,
            lap: lap(id),
        };
        let part = Part {
            path,
            request,
            data: data as u64,
            lkey,
            size,
            writes,
            needed,
            remote: RemoteAddress {
                address: entry.address,
                rkey: entry.rkey,
            },
            immediate,
        };
        self.post(&part)?;
        self.parts[path].push(request.index());
        self.matching.take(&found);
        Ok(Some(request))
    }

    /// Whether `request` is done: the bytes that were sent, or `None` while it is not. A request
    /// that is done is dead.
    ///
    /// # Errors
    /// The request is not outstanding, or the connection has failed before it was done.
    pub fn test(&mut self, request: RequestId) -> Result<Option<usize>, Error> {
        if let Some(size) = self.finished(request)? {
            return Ok(Some(size));
        }
        self.core.check()?;
        self.progress()?;
        if let Some(size) = self.finished(request)? {
            return Ok(Some(size));
        }
        if self.core.needs_attention() {
            self.attend()?;
            // The end may not be declared while there is still news to be had.
            while self.progress()? > 0 {}
            if let Some(size) = self.finished(request)? {
                return Ok(Some(size));
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
        self.core.close(Vec::new())
    }

    fn finished(&mut self, request: RequestId) -> Result<Option<usize>, Error> {
        let send = *self.requests.find(request)?;
        if send.outstanding > 0 {
            return Ok(None);
        }
        self.requests.remove(request);
        Ok(Some(send.size as usize))
    }

    /// The lkey for the caller's memory, which is checked to be usable.
    fn lkey(&self, data: *const u8, length: usize, region: Option<&Region>) -> Result<u32, Error> {
        match region {
            Some(region) => {
                region.check(&self.core.device, Access::empty(), data, length)?;
                Ok(region.lkey())
            }
            None if length == 0 => Ok(0),
            None => Err(Error::InvalidArgument(format!(
                "sending {length} bytes from memory that is not registered"
            ))),
        }
    }

    /// The bytes to send of `length` into a buffer of `capacity`.
    fn cut(&mut self, length: usize, capacity: u32) -> Result<u32, Error> {
        let size = match u32::try_from(length) {
            Ok(length) if length <= capacity => length,
            _ => {
                if !self.has_warned_of_cut {
                    self.has_warned_of_cut = true;
                    tracing::warn!(
                        "{}: a message of {length} bytes is cut to the {capacity} that the \
                         receiver has room for; further cuts are not reported",
                        self.core.names()
                    );
                }
                capacity
            }
        };
        if size as usize > self.core.device.info.max_message {
            return Err(Error::InvalidArgument(format!(
                "a message of {size} bytes; {} can send {} at once",
                self.core.device.label(),
                self.core.device.info.max_message
            )));
        }
        Ok(size)
    }

    /// Posts the writes of a part, the last with the immediate.
    fn post(&mut self, part: &Part) -> Result<(), Error> {
        let max_inline = self.core.paths[part.path].max_inline;
        let last = part.writes - 1;
        let mut filled = 0;
        for index in 0..part.writes {
            let (offset, length) = stripe::write_at(part.size, self.largest_write, index);
            let remote = RemoteAddress {
                address: part.remote.address.wrapping_add(u64::from(offset)),
                rkey: part.remote.rkey,
            };
            let local = (length > 0).then_some(Sge {
                address: part.data.wrapping_add(u64::from(offset)),
                length,
                lkey: part.lkey,
            });
            if index < last {
                self.chain[filled] = SendRequest::write(0, local, remote);
                filled = self.post_when_full(part.path, filled + 1)?;
                continue;
            }
            if part.immediate.size_told == SizeTold::InTable {
                self.chain[filled] = self.size_record(part, max_inline);
                filled = self.post_when_full(part.path, filled + 1)?;
            }
            let work = WorkId {
                path: part.path as u8,
                requests: part.needed,
                request: part.request,
            };
            let request = SendRequest::write_with_immediate(
                work.encode(),
                local,
                remote,
                part.immediate.encode(),
            )
            .signaled();
            self.chain[filled] = if length <= max_inline {
                request.inline()
            } else {
                request
            };
            filled += 1;
        }
        self.post_chain(part.path, filled)?;
        self.core.paths[part.path].posted(part.needed);
        Ok(())
    }

    /// The write of the message's size into the peer's table.
    fn size_record(&mut self, part: &Part, max_inline: u32) -> SendRequest {
        const BYTES: u32 = 4;
        let offset = usize::from(part.immediate.slot) * BYTES as usize;
        self.sizes.write_u32(offset, part.size);
        let local = Sge {
            address: self.sizes.address() + offset as u64,
            length: BYTES,
            lkey: self.sizes.lkey(),
        };
        let remote = RemoteAddress {
            address: self.size_table.address + offset as u64,
            rkey: self.size_table.rkey,
        };
        let request = SendRequest::write(0, Some(local), remote);
        if BYTES <= max_inline {
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
        posted.map_err(|error| {
            // Some of the chain may be under way: the connection cannot go on (pitfall 78).
            let connection = self.core.names().to_string();
            self.core.fail(Error::Post {
                connection,
                source: Arc::new(error),
            })
        })
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
        let work = WorkId::decode(completion.wr_id());
        let path = usize::from(work.path);
        let (Some(state), Some(parts)) = (self.core.paths.get_mut(path), self.parts.get_mut(path))
        else {
            return Ok(());
        };
        state.finished(work.requests);
        parts.complete();
        if let Some(send) = self.requests.at(work.request.index()) {
            send.outstanding = send.outstanding.saturating_sub(1);
        }
        Ok(())
    }

    fn attend(&mut self) -> Result<(), Error> {
        self.attend_farewell();
        self.core.check()
    }

    fn attend_farewell(&mut self) {
        if let Some(closing) = self.core.attend() {
            self.apply(&closing);
        }
    }

    /// The receiver has left after taking so many parts from each path: these have arrived, though
    /// their acknowledgements may never come.
    fn apply(&mut self, closing: &Closing) {
        for (log, taken) in self.parts.iter_mut().zip(&closing.parts_taken) {
            while let Some(request) = log.complete_if_before(*taken) {
                if let Some(send) = self.requests.at(request) {
                    send.outstanding = send.outstanding.saturating_sub(1);
                }
            }
        }
    }
}

impl Drop for SendConnection {
    fn drop(&mut self) {
        if let Err(error) = self.close_once() {
            tracing::warn!("closing {}: {error}", self.core.names());
        }
    }
}

/// One part of a message on its way to a path.
struct Part {
    path: usize,
    request: RequestId,
    data: u64,
    lkey: u32,
    size: u32,
    writes: u32,
    /// Work requests: the writes and the size record.
    needed: u32,
    remote: RemoteAddress,
    immediate: Immediate,
}
