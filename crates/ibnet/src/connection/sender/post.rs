//! Posting: the work requests of a message, on the paths that were chosen for it.

use std::num::NonZeroUsize;

use ibnet_verbs::{RemoteAddress, SendRequest, Sge};

use super::{CHAIN, SendConnection};
use crate::connection::observer::{self, Piece};
use crate::connection::outgoing::{Outgoing, Part, Shape};
use crate::connection::wr_id::WrId;
use crate::error::{Error, Failed};
use crate::memory::region::Region;
use crate::wire::cts::{self, SIZE_BYTES};
use crate::wire::immediate::SizeTold;
use crate::wire::stripe::{self, Split};

impl SendConnection {
    /// A part of `bytes` bytes is about to be posted.
    #[inline]
    fn tell_observer(&mut self, work: WrId, parent: Option<NonZeroUsize>, bytes: u32) {
        if self.watched.is_some() {
            let piece = self.piece(work, bytes);
            if let Some(watched) = &mut self.watched {
                watched.part_started(work.path, parent, &piece);
            }
        }
    }

    /// What an observer is told of a part of `bytes` bytes.
    pub(super) fn piece(&self, work: WrId, bytes: u32) -> Piece {
        let path = &self.core.paths[work.path];
        Piece {
            device: path.device,
            queue_pair: path.queue_pair.number(),
            wr_id: work.encode(),
            opcode: observer::WRITE_WITH_IMMEDIATE,
            length: bytes as usize,
        }
    }

    /// Whether each of the chosen paths has room for its part.
    pub(super) fn has_room(&self, split: &Split, shape: &Shape) -> Result<bool, Failed> {
        let needed = shape.most_requests();
        for part in 0..split.parts {
            let path = &self.core.paths[self.selector.path(part)];
            if path.room() < needed {
                return if path.depth() < needed {
                    Err(self.never_fits(split.part_bytes, path.depth()).into())
                } else {
                    Ok(false)
                };
            }
        }
        Ok(true)
    }

    #[cold]
    pub(super) fn never_fits(&self, bytes: u32, depth: u32) -> Error {
        Error::InvalidArgument(format!(
            "{bytes} bytes over one path need too many writes of at most {} bytes, the smaller of \
             both ports' limits: the queue holds {depth} requests",
            self.largest_write
        ))
    }

    /// Posts the writes of a part, the last with the immediate.
    pub(super) fn post_part(&mut self, message: &Outgoing<'_>, index: u32) -> Result<(), Failed> {
        let path = self.selector.path(index);
        let (device, peer_device, max_inline) = {
            let path = &self.core.paths[path];
            (path.device, path.peer_device, path.max_inline)
        };
        let part = Part {
            lkey: message.region.map_or(0, |region| region.lkey(device)),
            rkey: self.cts.rkey(message.id, peer_device),
            max_inline,
            can_be_inline: message.region.is_none_or(Region::can_be_inline),
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
        let work = WrId {
            path,
            parts: 1,
            requests,
        };
        self.tell_observer(work, message.parent, part_bytes);
        self.chain[filled] = part.last(message, work, part_offset + offset, length);
        self.post_chain(path, filled + 1)?;
        self.core.paths[path].posted(requests);
        self.under_way[device] += 1;
        self.parts[path].push(message.request.index());
        Ok(())
    }

    /// The write of the message's size into the peer's table.
    pub(super) fn size_record(&mut self, message: &Outgoing<'_>, path: usize) -> SendRequest {
        let path = &self.core.paths[path];
        let offset = cts::slot(message.id) * SIZE_BYTES as usize;
        let (address, lkey) = match &self.sizes {
            Some(sizes) => {
                sizes.write_u32(offset, message.size);
                (sizes.address() + offset as u64, sizes.lkey(path.device))
            }
            None => {
                // Every path copies it when it is posted, which is before the next one is written.
                self.inline_size = message.size;
                ((&raw const self.inline_size) as u64, 0)
            }
        };
        let remote = RemoteAddress {
            address: self.size_table.address + offset as u64,
            // The key for the device that *this* path leads to (pitfall 42).
            rkey: self.size_table.rkeys[path.peer_device],
        };
        let local = Sge {
            address,
            length: SIZE_BYTES,
            lkey,
        };
        let request = SendRequest::write(0, Some(local), remote);
        if SIZE_BYTES <= path.max_inline {
            request.inline()
        } else {
            request
        }
    }

    pub(super) fn post_when_full(&mut self, path: usize, filled: usize) -> Result<usize, Failed> {
        if filled < CHAIN {
            return Ok(filled);
        }
        self.post_chain(path, filled)?;
        Ok(0)
    }

    pub(super) fn post_chain(&mut self, path: usize, filled: usize) -> Result<(), Failed> {
        let queue_pair = &self.core.paths[path].queue_pair;
        // SAFETY: the data of `isend` stays valid until its completion by that function's contract,
        // and the size records lie in an area of this connection, whose memory is freed after the
        // queue pairs; a record is not written again before its slot's message has completed.
        let posted = unsafe { queue_pair.post_send(&mut self.chain[..filled]) };
        posted.map_err(|error| self.core.post_failed(error).into())
    }
}
