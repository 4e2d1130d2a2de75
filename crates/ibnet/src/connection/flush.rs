//! Flushing: making received data visible to the device whose memory it was written to.
//!
//! Data that a network device writes into the memory of another one may still be on its way there
//! when the completion is seen. A read of that memory through the same network device is answered
//! only after the earlier writes have landed. So each device of a receiver has a queue pair that is
//! connected to itself, made while the connection is accepted.

use ibnet_verbs::{RemoteAddress, SendRequest, Sge};

use crate::connection::path::Path;
use crate::connection::requests::RequestId;
use crate::memory::area::Area;
use crate::memory::region::Region;

/// What reads back through the queue pairs that lead back ([`Core::loops`](crate::connection::Core)).
pub(crate) struct Flusher {
    /// Where the bytes that are read go; nobody looks at them. None if there are no such queue pairs:
    /// `flush` is not set.
    scratch: Option<Area>,
}

impl Flusher {
    /// `scratch` is one word; none if there are no queue pairs for flushing.
    pub(crate) fn new(scratch: Option<Area>) -> Self {
        Self { scratch }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.scratch.is_some()
    }

    /// Reads a byte at `address` in `region` through each device, for `request`.
    ///
    /// The caller of [`iflush`](crate::RecvConnection::iflush) keeps the registration alive.
    pub(crate) fn post(
        &self,
        loops: &mut [Path],
        address: u64,
        region: &Region,
        request: RequestId,
    ) -> Result<(), ibnet_verbs::PostError> {
        let Some(scratch) = &self.scratch else {
            return Ok(());
        };
        for path in loops {
            let local = Sge {
                address: scratch.address(),
                length: 1,
                lkey: scratch.lkey(path.device),
            };
            let remote = RemoteAddress {
                address,
                rkey: region.rkey(path.device),
            };
            let id = (path.device as u64) << 32 | u64::from(request.index());
            let read = SendRequest::read(id, Some(local), remote).signaled();
            path.posted(1);
            // SAFETY: the scratch word is freed after the queue pairs and nobody looks at it; the remote
            // memory is kept registered by the caller of `iflush`.
            unsafe { path.queue_pair.post_send(&mut [read]) }?;
        }
        Ok(())
    }
}

/// The read with `wr_id` is done: gives the slot of its request.
pub(crate) fn finished(loops: &mut [Path], wr_id: u64) -> u16 {
    if let Some(path) = loops.get_mut((wr_id >> 32) as usize) {
        path.finished(1);
    }
    wr_id as u16
}
