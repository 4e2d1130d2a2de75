//! Announcing: the writes that bring prepared entries into the sender's ring.

use std::slice;

use ibnet_verbs::{RemoteAddress, Sge};

use super::{Again, Receiver};
use crate::connection::Connection;
use crate::connection::wr_id::WrId;
use crate::error::Failed;
use crate::wire::cts::{self, ENTRIES};

impl Connection<Receiver> {
    /// Writes the prepared entries into the sender's ring.
    #[inline]
    pub(super) fn post_cts(&mut self, first: u64, count: usize) -> Result<(), Failed> {
        let start = cts::slot(first);
        let before_end = count.min(ENTRIES as usize - start);
        self.post_cts_slots(start, before_end)?;
        if before_end < count {
            self.post_cts_slots(0, count - before_end)?;
        }
        self.next_cts_path();
        Ok(())
    }

    /// The next announcement takes the next path that is live, if any is.
    #[inline]
    pub(super) fn next_cts_path(&mut self) {
        for _ in 0..self.core.paths.len() {
            self.side.cts_path += 1;
            if self.side.cts_path == self.core.paths.len() {
                self.side.cts_path = 0;
            }
            if self.core.paths[self.side.cts_path].is_live {
                break;
            }
        }
    }

    /// Writes the announcements again that are outstanding, as long as there is room. Returns whether nothing is left
    /// to be done.
    pub(super) fn announce_lost(&mut self) -> Result<bool, Failed> {
        loop {
            let Again::Writing { next, landing } = &mut self.side.again else {
                return Ok(true);
            };
            let id = *next;
            if id == self.side.window.next() {
                let mut paths = self.core.paths.iter().zip(landing);
                let have_landed = paths.all(|(path, number)| path.has_finished(*number));
                if have_landed {
                    self.side.again = Again::Nothing;
                }
                return Ok(have_landed);
            }
            let number = self.side.cts_path;
            let path = &self.core.paths[number];
            let is_open = self.side.window.is_open(id);
            if is_open && path.room() == 0 {
                return Ok(false);
            }
            *next = id.wrapping_add(1);
            if is_open {
                landing[number] = path.next_number();
                // Signalled, so that its end is known.
                self.side.cts_since_signal[number] = path.depth();
                self.post_cts_slots(cts::slot(id), 1)?;
                self.next_cts_path();
            }
        }
    }

    /// Writes the `count` prepared entries from slot `slot` on, which follow each other in the ring.
    #[inline]
    fn post_cts_slots(&mut self, slot: usize, count: usize) -> Result<(), Failed> {
        let path = &mut self.core.paths[self.side.cts_path];
        let since_signal = &mut self.side.cts_since_signal[self.side.cts_path];
        let entry_bytes = self.side.staging.entry_bytes();
        let length = (count * entry_bytes) as u32;
        let write = &mut self.side.cts_write;
        let local = Sge {
            address: self.side.staging.address_of(slot),
            length,
            lkey: self.side.staging.lkey(path.device),
        };
        let remote = RemoteAddress {
            address: self.side.ring.address + (slot * entry_bytes) as u64,
            rkey: self.side.ring.rkeys[path.peer_device],
        };
        let is_inline = length <= path.max_inline;
        write.rewrite(Some(local), remote, self.side.cts_immediate, is_inline);
        let work = WrId {
            path: self.side.cts_path,
            parts: 0,
            number: path.posted(),
        };
        write.set_wr_id(work.encode());
        *since_signal += 1;
        // Unsignalled requests hold their place in the queue until a later signalled one is done.
        if *since_signal >= path.depth() / 4 {
            write.signal_as(work.encode());
            *since_signal = 0;
        }
        // SAFETY: the entries lie in this connection's staging area, which is freed after the
        // queue pairs; a slot is written again only after its message has arrived, which the
        // sender could only send after it had the entry.
        let posted = unsafe { path.queue_pair.post_send(slice::from_mut(write)) };
        posted.map_err(|error| self.core.post_failed(error).into())
    }
}
