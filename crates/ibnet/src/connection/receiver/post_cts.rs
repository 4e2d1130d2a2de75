//! Announcing: the writes that bring prepared entries into the sender's ring.

use std::slice;

use ibnet_verbs::{RemoteAddress, Sge};

use super::Receiver;
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
        self.side.cts_path += 1;
        if self.side.cts_path == self.core.paths.len() {
            self.side.cts_path = 0;
        }
        Ok(())
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
        path.posted(1);
        *since_signal += 1;
        // Unsignalled requests hold their place in the queue until a later signalled one is done.
        if *since_signal >= path.depth() / 4 {
            let work = WrId {
                path: self.side.cts_path,
                parts: 0,
                requests: *since_signal,
            };
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
