//! Flushing: making received data visible to the device whose memory it was written to.
//!
//! Data that a network device writes into the memory of another one may still be on its way there
//! when the completion is seen. A read of that memory through the same network device is answered
//! only after the earlier writes have landed. So each device of a receiver has a queue pair that is
//! connected to itself, made while the connection is accepted
//! ([`Core::loops`](crate::connection::core::Core)).

use ibnet_verbs::{PostError, RemoteAddress, SendRequest, Sge};

use super::{Receive, Receiver};
use crate::connection::requests::RequestId;
use crate::connection::{Connection, Side};
use crate::error::Error;
use crate::memory::region::Region;

/// Whether a flush is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Nothing has to be flushed: none of it is device memory, or flushing is switched off.
    NotNeeded,
    /// Too much is outstanding: try again.
    NotReady,
    /// Done when [`test`](Connection::test) says so.
    Started(RequestId),
}

impl Connection<Receiver> {
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
            region.check(&self.core.nic, Receiver::ACCESS, *data, *length)?;
        }
        let target = buffers
            .iter()
            .rev()
            .find(|(_, length, region)| *length > 0 && region.needs_flush());
        let Some((data, _, region)) = target else {
            return Ok(Flush::NotNeeded);
        };
        if self.core.loops.is_empty() {
            // `flush` is off.
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
        let Some(request) = self
            .requests
            .insert(self.core.loops.len() as u8, Receive::default())
        else {
            return Ok(Flush::NotReady);
        };
        if let Err(source) = self.post_reads(*data as u64, region, request) {
            // Some reads may be under way: the connection cannot go on.
            return Err(self.core.post_failed(source));
        }
        Ok(Flush::Started(request))
    }

    /// Whether one more flush can be posted on every device.
    fn has_room_to_flush(&self) -> bool {
        self.core.loops.iter().all(|path| path.room() > 0)
    }

    /// Reads a byte at `address` in `region` through each device, for `request`.
    fn post_reads(
        &mut self,
        address: u64,
        region: &Region,
        request: RequestId,
    ) -> Result<(), PostError> {
        let staging = &self.side.staging;
        for path in &mut self.core.loops {
            let local = Sge {
                address: staging.scratch(),
                length: 1,
                lkey: staging.lkey(path.device),
            };
            let remote = RemoteAddress {
                address,
                rkey: region.rkey(path.device),
            };
            let id = (path.device as u64) << 32 | u64::from(request.index());
            let read = SendRequest::read(id, Some(local), remote).signaled();
            path.posted();
            // SAFETY: the scratch byte is freed after the queue pairs; the remote memory is kept
            // registered by the caller of `iflush`.
            unsafe { path.queue_pair.post_send(&mut [read]) }?;
        }
        Ok(())
    }

    /// The read with `wr_id` is done.
    pub(super) fn read_done(&mut self, wr_id: u64) {
        if let Some(path) = self.core.loops.get_mut((wr_id >> 32) as usize) {
            path.finished(path.next_unfinished());
        }
        self.requests.part_done(wr_id as u16);
    }
}
