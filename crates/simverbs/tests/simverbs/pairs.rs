//! Two connected ends with memory, which most tests begin with.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use ibnet_simverbs::{DeviceSpec, Fabric, FabricBuilder};
use ibnet_verbs::{
    Access, AddressVector, CompletionQueue, Context, Destination, Error, GidType, GlobalRoute,
    InitAttributes, LinkLayer, MemoryRegion, Mtu, PostError, ProtectionDomain, QueuePair,
    QueuePairOptions, ReadyToReceive, ReadyToSend, RecvRequest, RemoteAddress, SendRequest, Sge,
    Sysfs, WcStatus, WorkCompletion,
};

/// How long each end's memory is.
pub(crate) const LENGTH: usize = 1 << 16;

/// Memory that the simulated device may write at any time: read and written through pointers only.
pub(crate) struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: the memory belongs to the value, and is accessed as a device accesses it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Whole pages, which are unmapped on drop: whatever touches them later crashes.
    pub(crate) fn new(length: usize) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self {
            start: start.cast(),
            length,
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn address(&self) -> u64 {
        self.start as u64
    }

    pub(crate) fn read(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.length);
        // SAFETY: within the memory.
        range
            .map(|index| unsafe { self.start.add(index).read_volatile() })
            .collect()
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length);
        for (index, &byte) in bytes.iter().enumerate() {
            // SAFETY: within the memory.
            unsafe { self.start.add(at + index).write_volatile(byte) };
        }
    }

    pub(crate) fn load(&self, at: usize) -> u64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.length);
        // SAFETY: an aligned word within the memory.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast()) }.load(Ordering::Acquire)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        assert_eq!(unsafe { libc::munmap(self.start.cast(), self.length) }, 0);
    }
}

/// What ends are made with, and how they are connected.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) cq: u32,
    pub(crate) inline: u32,
    pub(crate) signal_all: bool,
    pub(crate) mtu: Mtu,
    pub(crate) psn: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) reads: u8,
    pub(crate) access: Access,
    pub(crate) region_access: Access,
}

impl Default for Setup {
    fn default() -> Self {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        Self {
            send_wr: 16,
            recv_wr: 16,
            cq: 64,
            inline: 64,
            signal_all: false,
            mtu: Mtu::MTU_1024,
            psn: 0xff_fffe,
            // 262 µs
            timeout: 6,
            retries: 3,
            rnr_retries: 7,
            // 10 µs
            rnr_timer: 1,
            reads: 4,
            access,
            region_access: access,
        }
    }
}

/// One end of a connection, with its own completion queue, domain and memory.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) region: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
    pub(crate) port: u8,
    // After the region.
    pub(crate) memory: Memory,
}

impl End {
    pub(crate) fn new(context: &Context, setup: &Setup) -> Self {
        let cq = context.create_cq(setup.cq).unwrap();
        Self::with_cq(context, setup, &cq)
    }

    pub(crate) fn with_cq(context: &Context, setup: &Setup, cq: &CompletionQueue) -> Self {
        let pd = context.allocate_pd().unwrap();
        let memory = Memory::new(LENGTH);
        // SAFETY: the memory is freed after the region is gone.
        let region = unsafe { pd.register(memory.as_ptr(), LENGTH, setup.region_access) }.unwrap();
        let qp = pd.create_qp(&options(cq, setup)).unwrap();
        Self {
            qp,
            cq: cq.clone(),
            region,
            pd,
            context: context.clone(),
            port: 1,
            memory,
        }
    }

    pub(crate) fn sge(&self, at: usize, length: usize) -> Option<Sge> {
        Some(Sge {
            address: self.memory.address() + at as u64,
            length: length as u32,
            lkey: self.region.lkey(),
        })
    }

    pub(crate) fn remote(&self, at: usize) -> RemoteAddress {
        RemoteAddress {
            address: self.memory.address() + at as u64,
            rkey: self.region.rkey(),
        }
    }

    pub(crate) fn send(&self, requests: &mut [SendRequest]) -> Result<(), PostError> {
        // SAFETY: tests keep the memory of what they post, and touch it as a device does.
        unsafe { self.qp.post_send(requests) }
    }

    pub(crate) fn receive(&self, requests: &mut [RecvRequest]) -> Result<(), PostError> {
        // SAFETY: as above.
        unsafe { self.qp.post_recv(requests) }
    }

    /// Posts receives without buffers.
    pub(crate) fn receive_immediates(&self, wr_ids: impl IntoIterator<Item = u64>) {
        let mut requests: Vec<_> = wr_ids.into_iter().map(RecvRequest::new).collect();
        self.receive(&mut requests).unwrap();
    }

    /// Everything that can be polled now.
    pub(crate) fn poll(&self) -> Vec<WorkCompletion> {
        poll(&self.cq)
    }

    /// The statuses and identifiers of everything that can be polled now.
    pub(crate) fn outcomes(&self) -> Vec<(u64, WcStatus)> {
        let polled = self.poll().into_iter();
        polled
            .map(|completion| (completion.wr_id(), completion.status()))
            .collect()
    }

    pub(crate) fn init(&self, setup: &Setup) -> Result<(), Error> {
        self.qp.to_init(&InitAttributes {
            port: self.port,
            pkey_index: 0,
            access: setup.access & !Access::LOCAL_WRITE,
        })
    }

    /// How a peer reaches this end.
    pub(crate) fn destination(&self, from: &Self) -> Destination {
        let port = self.context.port(self.port).unwrap();
        if port.link_layer == LinkLayer::InfiniBand {
            return Destination::infiniband(port.lid, None);
        }
        let index_of = |end: &Self| {
            let entries = end.context.gid_table(end.port, &Sysfs::default()).unwrap();
            let mut usable = entries.into_iter().rev();
            usable
                .find(|entry| entry.gid_type == Some(GidType::RoceV2))
                .unwrap()
        };
        Destination::global(GlobalRoute {
            dgid: index_of(self).gid,
            sgid_index: index_of(from).index as u8,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        })
    }

    pub(crate) fn to_rtr(&self, peer: &Self, setup: &Setup) -> ReadyToReceive {
        ReadyToReceive {
            mtu: setup.mtu,
            remote_qp: peer.qp.number(),
            remote_psn: setup.psn,
            max_dest_rd_atomic: setup.reads,
            min_rnr_timer: setup.rnr_timer,
            address: AddressVector {
                port: self.port,
                service_level: 0,
                destination: peer.destination(self),
            },
        }
    }

    pub(crate) fn ready_to_send(setup: &Setup) -> ReadyToSend {
        ReadyToSend {
            psn: setup.psn,
            timeout: setup.timeout,
            retry_count: setup.retries,
            rnr_retry: setup.rnr_retries,
            max_rd_atomic: setup.reads,
        }
    }

    /// All the way to RTS.
    pub(crate) fn connect_to(&self, peer: &Self, setup: &Setup) -> Result<(), Error> {
        self.init(setup)?;
        self.qp.to_rtr(&self.to_rtr(peer, setup))?;
        self.qp.to_rts(&Self::ready_to_send(setup))
    }
}

pub(crate) fn options<'a>(cq: &'a CompletionQueue, setup: &Setup) -> QueuePairOptions<'a> {
    QueuePairOptions {
        send_cq: cq,
        recv_cq: cq,
        max_send_wr: setup.send_wr,
        max_recv_wr: setup.recv_wr,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline: setup.inline,
        signal_all: setup.signal_all,
    }
}

pub(crate) fn poll(cq: &CompletionQueue) -> Vec<WorkCompletion> {
    let mut all = Vec::new();
    let mut batch = [WorkCompletion::default(); 8];
    loop {
        let polled = cq.poll(&mut batch).unwrap();
        if polled.is_empty() {
            return all;
        }
        all.extend_from_slice(polled);
    }
}

/// A fabric with two connected ends, `a` on the first device and `b` on the last.
pub(crate) struct Pair {
    pub(crate) a: End,
    pub(crate) b: End,
    pub(crate) fabric: Fabric,
}

impl Pair {
    pub(crate) fn of(fabric: Fabric, setup: &Setup) -> Self {
        let pair = Self::unconnected(fabric, setup);
        pair.a.connect_to(&pair.b, setup).unwrap();
        pair.b.connect_to(&pair.a, setup).unwrap();
        pair
    }

    pub(crate) fn unconnected(fabric: Fabric, setup: &Setup) -> Self {
        let contexts = open_all(&fabric);
        let a = End::new(contexts.first().unwrap(), setup);
        let b = End::new(contexts.last().unwrap(), setup);
        Self { a, b, fabric }
    }

    /// Two stepped RoCE devices.
    pub(crate) fn stepped(seed: u64, setup: &Setup) -> Self {
        Self::of(two_roce().stepped(seed).trace().build().unwrap(), setup)
    }

    pub(crate) fn free_running(setup: &Setup) -> Self {
        Self::of(two_roce().build().unwrap(), setup)
    }

    /// Drops both ends, and checks that nothing is left.
    pub(crate) fn finish(self) {
        let Self { a, b, fabric } = self;
        drop((a, b));
        assert!(
            fabric.live_objects().is_empty(),
            "{:?}",
            fabric.live_objects()
        );
    }
}

pub(crate) fn two_roce() -> FabricBuilder {
    Fabric::builder()
        .device(DeviceSpec::roce("sim0"))
        .device(DeviceSpec::roce("sim1"))
}

pub(crate) fn open_all(fabric: &Fabric) -> Vec<Context> {
    let devices = fabric.library().devices().unwrap();
    devices
        .iter()
        .map(|device| device.open().unwrap())
        .collect()
}

/// The same scenario on a stepped and on a free-running pair.
pub(crate) fn in_both_modes(setup: &Setup, play: impl Fn(&Pair)) {
    for pair in [Pair::stepped(1, setup), Pair::free_running(setup)] {
        play(&pair);
        pair.finish();
    }
}
