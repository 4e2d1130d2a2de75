//! Two connected ends on one device, and what they need: memory, posting, waiting.

use std::time::{Duration, Instant};

use ibnet_verbs::{
    Access, AddressVector, CompletionQueue, Context, Destination, Error, GidType, GlobalRoute,
    InitAttributes, LinkLayer, MemoryRegion, QueuePair, QueuePairOptions, ReadyToReceive,
    ReadyToSend, RecvRequest, RemoteAddress, SendRequest, Sge, Sysfs, WorkCompletion,
};

use crate::PORT;

/// How long a buffer is, in bytes.
pub(crate) const SIZE: usize = 64 * 1024;

/// Registered memory of the test's own, which is never given back.
pub(crate) struct Buffer {
    start: *mut u8,
    pub(crate) region: MemoryRegion,
}

impl Buffer {
    pub(crate) fn new(pd: &ibnet_verbs::ProtectionDomain, fill: u8) -> Self {
        let start = Box::leak(vec![fill; SIZE].into_boxed_slice()).as_mut_ptr();
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::RELAXED_ORDERING;
        // SAFETY: the memory is never freed, and used through this pointer only.
        let region = unsafe { pd.register(start, SIZE, access) }.unwrap();
        Self { start, region }
    }

    pub(crate) fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            address: self.region.address() + offset as u64,
            length: length.try_into().unwrap(),
            lkey: self.region.lkey(),
        }
    }

    pub(crate) fn remote(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            address: self.region.address() + offset as u64,
            rkey: self.region.rkey(),
        }
    }

    /// Only while no request is under way that touches these bytes.
    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= SIZE);
        // SAFETY: the bytes are within the buffer, and no request touches them now.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), length) }.to_vec()
    }
}

/// Two connected ends on one device, each with a completion queue and a buffer.
pub(crate) struct Pair {
    pub(crate) left: QueuePair,
    pub(crate) right: QueuePair,
    pub(crate) source: Buffer,
    pub(crate) target: Buffer,
}

impl Pair {
    pub(crate) fn new(context: &Context) -> Self {
        let pd = context.allocate_pd().unwrap();
        let end = || {
            let cq = context.create_cq(64).unwrap();
            let options = QueuePairOptions {
                send_cq: &cq,
                recv_cq: &cq,
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline: 32,
                signal_all: false,
            };
            pd.create_qp(&options).unwrap()
        };
        let pair = Self {
            left: end(),
            right: end(),
            source: Buffer::new(&pd, 0xab),
            target: Buffer::new(&pd, 0),
        };
        pair.connect(context);
        pair
    }

    pub(crate) fn connect(&self, context: &Context) {
        connect(context, &self.left, &self.right).unwrap();
        connect(context, &self.right, &self.left).unwrap();
    }
}

fn connect(context: &Context, own: &QueuePair, remote: &QueuePair) -> Result<(), Error> {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    own.to_init(&InitAttributes {
        port: PORT,
        pkey_index: 0,
        access,
    })?;
    own.to_rtr(&to_rtr(context, remote))?;
    own.to_rts(&ReadyToSend {
        psn: own.number() & 0xff_ffff,
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        max_rd_atomic: 1,
    })
}

pub(crate) fn to_rtr(context: &Context, remote: &QueuePair) -> ReadyToReceive {
    let port = context.port(PORT).unwrap();
    let destination = match port.link_layer {
        LinkLayer::Ethernet => {
            let entries = context.gid_table(PORT, &Sysfs::default()).unwrap();
            // A link-local address is not always reachable from itself; an IPv4 address is.
            let entry = entries
                .iter()
                .filter(|entry| {
                    entry.gid_type == Some(GidType::RoceV2) && entry.unreadable.is_none()
                })
                .max_by_key(|entry| entry.gid.ipv4_mapped().is_some())
                .expect("no RoCE v2 address");
            Destination::global(GlobalRoute {
                dgid: entry.gid,
                sgid_index: entry.index.try_into().unwrap(),
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
            })
        }
        _ => Destination::infiniband(port.lid, None),
    };
    ReadyToReceive {
        mtu: port.active_mtu,
        remote_qp: remote.number(),
        remote_psn: remote.number() & 0xff_ffff,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        address: AddressVector {
            port: PORT,
            service_level: 0,
            destination,
        },
    }
}

/// Posts a chain whose memory is that of the test's buffers.
pub(crate) fn send(qp: &QueuePair, chain: &mut [SendRequest]) {
    // SAFETY: the buffers are never freed, and are read only after the completions.
    unsafe { qp.post_send(chain) }.unwrap();
}

pub(crate) fn receive(qp: &QueuePair, chain: &mut [RecvRequest]) {
    // SAFETY: as for `send`.
    unsafe { qp.post_recv(chain) }.unwrap();
}

/// Waits for that many completions.
pub(crate) fn complete(cq: &CompletionQueue, number: usize) -> Vec<WorkCompletion> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut all = Vec::new();
    let mut batch = [WorkCompletion::default(); 8];
    while all.len() < number {
        all.extend_from_slice(cq.poll(&mut batch).unwrap());
        assert!(
            Instant::now() < deadline,
            "{} of {number}: {all:?}",
            all.len()
        );
        std::thread::yield_now();
    }
    assert_eq!(all.len(), number, "{all:?}");
    all
}

/// As `complete`, but gives the rest a moment to show that there is none.
pub(crate) fn complete_all(cq: &CompletionQueue, number: usize) -> Vec<WorkCompletion> {
    let all = complete(cq, number);
    std::thread::sleep(Duration::from_millis(50));
    assert!(
        cq.poll(&mut [WorkCompletion::default()])
            .unwrap()
            .is_empty()
    );
    all
}
