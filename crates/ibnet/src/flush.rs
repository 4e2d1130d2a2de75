//! Flushing: making received data visible to the device whose memory it was written to.
//!
//! Data that a network device writes into the memory of another one may still be on its way there
//! when the completion is seen. A read of that memory through the same network device is answered
//! only after the earlier writes have landed. So each device of the connection has a queue pair
//! that is connected to itself, made when the first flush asks for it.

use verbs::{Access, RemoteAddress, SendRequest, Sge};

use crate::config::Config;
use crate::connection::Core;
use crate::device::LocalPort;
use crate::error::Error;
use crate::memory::Area;
use crate::path::{Depths, Join, Path, PathSpec};
use crate::region::Region;
use crate::requests::RequestId;

/// Flushes that can be under way on a device.
pub(crate) const FLUSH_DEPTH: u32 = 32;

/// The queue pairs that read back. The order of the fields is the order of teardown.
pub(crate) struct Flusher {
    loops: Vec<Path>,
    /// Where the bytes that are read go; nobody looks at them.
    bin: Option<Area>,
    locals: Vec<LocalPort>,
    is_enabled: bool,
}

impl Flusher {
    /// With the state of the port of each device. `NCCL_GDR_FLUSH_DISABLE` switches it off.
    pub(crate) fn new(config: &Config, locals: Vec<LocalPort>) -> Self {
        Self {
            loops: Vec::new(),
            bin: None,
            locals,
            is_enabled: config.flush,
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Whether one more flush can be posted on every device.
    pub(crate) fn has_room(&self) -> bool {
        self.loops.iter().all(|path| path.room() > 0)
    }

    /// Makes the queue pairs, if they are not there.
    pub(crate) fn prepare(&mut self, core: &Core) -> Result<(), Error> {
        if self.bin.is_some() {
            return Ok(());
        }
        let devices = core.nic.members();
        let mut loops = Vec::with_capacity(devices.len());
        for (index, device) in devices.iter().enumerate() {
            let local = &self.locals[index];
            let offer = device.offer(local);
            let spec = PathSpec {
                device: index,
                peer_device: index,
                mtu: offer.mtu,
                reorders: false,
            };
            let depths = Depths {
                send: FLUSH_DEPTH.min(device.attributes.max_qp_wr),
                receive: 1,
                inline: 0,
            };
            let path = Path::create(device, &core.cqs[index], &spec, depths)?;
            path.to_init(device, local.pkey_index, Access::REMOTE_READ)?;
            let join = Join {
                config: core.config(),
                device,
                local,
                offer: &offer,
                remote: path.end(),
                mtu: spec.mtu,
                traffic_class: core.config().traffic_class.unwrap_or(0),
            };
            path.to_rtr(&join)?;
            path.to_rts(&join)?;
            loops.push(path);
        }
        let domains = devices.iter().map(|device| &device.pd);
        self.bin = Some(Area::new(domains, size_of::<u64>(), Access::LOCAL_WRITE)?);
        self.loops = loops;
        Ok(())
    }

    /// Reads a byte at `address` in `region` through each device, for `request`.
    ///
    /// The caller of [`iflush`](crate::RecvConnection::iflush) keeps the registration alive.
    pub(crate) fn post(
        &mut self,
        address: u64,
        region: &Region,
        request: RequestId,
    ) -> Result<(), verbs::PostError> {
        let Some(bin) = &self.bin else {
            return Ok(());
        };
        for path in &mut self.loops {
            let local = Sge {
                address: bin.address(),
                length: 1,
                lkey: bin.lkey(path.device),
            };
            let remote = RemoteAddress {
                address,
                rkey: region.rkey(path.device),
            };
            let id = (path.device as u64) << 32 | u64::from(request.index());
            let read = SendRequest::read(id, Some(local), remote).signaled();
            path.posted(1);
            // SAFETY: the bin is freed after the queue pairs and nobody looks at it; the remote
            // memory is kept registered by the caller of `iflush`.
            unsafe { path.queue_pair.post_send(&mut [read]) }?;
        }
        Ok(())
    }

    /// The read with `wr_id` is done: gives the slot of its request.
    pub(crate) fn finished(&mut self, wr_id: u64) -> u16 {
        if let Some(path) = self.loops.get_mut((wr_id >> 32) as usize) {
            path.finished(1);
        }
        wr_id as u16
    }
}
