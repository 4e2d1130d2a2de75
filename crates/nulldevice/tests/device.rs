//! The null device as a transport sees it: as a table of functions, and as the shared library.
#![allow(clippy::unwrap_used)]

mod common;

use ibnet_verbs::{
    Access, AddressVector, CompletionQueue, Context, Destination, Error, InitAttributes, Library,
    MemoryRegion, Mtu, ProtectionDomain, QueuePair, QueuePairOptions, QueuePairState,
    ReadyToReceive, ReadyToSend, RecvRequest, RemoteAddress, SendRequest, Sge, WcOpcode, WcStatus,
    WorkCompletion,
};

#[test]
fn as_a_table() {
    // SAFETY: the table is complete, and its functions are those of libibverbs in what they do.
    behaves(&unsafe { Library::from_functions(ibnet_nulldevice::functions()) });
}

#[test]
fn as_a_shared_library() {
    let folder = common::link("device");
    // Looks every function up with its version.
    behaves(&Library::load_from(&folder.join("libibverbs.so.1")).unwrap());
}

/// All of it in one thread, as the device demands.
fn behaves(library: &Library) {
    let contexts: Vec<Context> = library
        .devices()
        .unwrap()
        .iter()
        .map(|device| device.open().unwrap())
        .collect();
    assert_eq!(contexts.len(), 2);
    assert_eq!(contexts[0].device_name(), "null0");
    assert_eq!(contexts[1].device_name(), "null1");
    assert_ne!(
        contexts[0].port(1).unwrap().lid,
        contexts[1].port(1).unwrap().lid
    );
    assert!(contexts[0].port(2).is_err());
    assert!(contexts[0].next_event().unwrap().is_none());

    let pair = |from: usize, to: usize| Pair::new(&contexts[from], &contexts[to]);
    writes_arrive(&pair(0, 1));
    writes_arrive(&pair(0, 0));
    reads_bring(&pair(1, 0));
    chains_and_inline_data(&pair(0, 1));
    writes_wait_for_receives(&pair(0, 1));
    writes_wait_for_the_peer(&contexts[0]);
    errors_flush(&pair(0, 1));
    unregistered_memory_is_refused(&pair(0, 1));
    queues_are_bounded(&pair(0, 1));
    a_peer_that_is_gone(pair(0, 1));
}

/// An end: a queue pair with one completion queue and a buffer.
struct End {
    qp: QueuePair,
    region: MemoryRegion,
    // Leaked, so that it outlives the region.
    buffer: *mut [u8; LENGTH],
    cq: CompletionQueue,
    lid: u16,
}

const LENGTH: usize = 256;
const DEPTH: u32 = 8;

impl End {
    fn new(context: &Context) -> Self {
        let pd: ProtectionDomain = context.allocate_pd().unwrap();
        let cq = context.create_cq(64).unwrap();
        let qp = pd
            .create_qp(&QueuePairOptions {
                send_cq: &cq,
                recv_cq: &cq,
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline: 64,
                signal_all: false,
            })
            .unwrap();
        let buffer = Box::into_raw(Box::new([0_u8; LENGTH]));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        // SAFETY: the buffer is never freed.
        let region = unsafe { pd.register(buffer.cast(), LENGTH, access) }.unwrap();
        let lid = context.port(1).unwrap().lid;
        Self {
            qp,
            region,
            buffer,
            cq,
            lid,
        }
    }

    fn to_init(&self) {
        let attributes = InitAttributes {
            port: 1,
            pkey_index: 0,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
        };
        self.qp.to_init(&attributes).unwrap();
    }

    fn to_rts(&self, peer: &Self) {
        let attributes = ReadyToReceive {
            mtu: Mtu::MTU_4096,
            remote_qp: peer.qp.number(),
            remote_psn: 0,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            address: AddressVector {
                port: 1,
                service_level: 0,
                destination: Destination::infiniband(peer.lid, None),
            },
        };
        self.qp.to_rtr(&attributes).unwrap();
        let attributes = ReadyToSend {
            psn: 0,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
        };
        self.qp.to_rts(&attributes).unwrap();
    }

    fn fill(&self, byte: u8) {
        // SAFETY: no request is under way: the device has done what it does when posting returns.
        unsafe { (*self.buffer).fill(byte) };
    }

    fn bytes(&self) -> [u8; LENGTH] {
        // SAFETY: as above.
        unsafe { self.buffer.read() }
    }

    fn sge(&self, length: u32) -> Sge {
        Sge {
            address: self.region.address(),
            length,
            lkey: self.region.lkey(),
        }
    }

    fn remote(&self, offset: u64) -> RemoteAddress {
        RemoteAddress {
            address: self.region.address() + offset,
            rkey: self.region.rkey(),
        }
    }

    fn send(&self, chain: &mut [SendRequest]) -> Result<(), ibnet_verbs::PostError> {
        // SAFETY: the buffers are never freed, and are used between posts only.
        unsafe { self.qp.post_send(chain) }
    }

    fn receive(&self, wr_id: u64) -> Result<(), ibnet_verbs::PostError> {
        // SAFETY: the request names no memory.
        unsafe { self.qp.post_recv(&mut [RecvRequest::new(wr_id)]) }
    }

    fn poll(&self) -> Vec<WorkCompletion> {
        let mut batch = [WorkCompletion::default(); 16];
        self.cq.poll(&mut batch).unwrap().to_vec()
    }
}

/// Two ends that are connected.
struct Pair {
    a: End,
    b: End,
}

impl Pair {
    fn new(from: &Context, to: &Context) -> Self {
        let (a, b) = (End::new(from), End::new(to));
        a.to_init();
        b.to_init();
        a.to_rts(&b);
        b.to_rts(&a);
        Self { a, b }
    }
}

fn writes_arrive(Pair { a, b }: &Pair) {
    a.fill(7);
    b.receive(20).unwrap();
    let plain = SendRequest::write(1, Some(a.sge(16)), b.remote(0));
    let last =
        SendRequest::write_with_immediate(2, Some(a.sge(8)), b.remote(100), 0xabcd).signaled();
    a.send(&mut [plain]).unwrap();
    a.send(&mut [last]).unwrap();
    let sent = a.poll();
    assert_eq!(sent.len(), 1, "the first was not to be signaled: {sent:?}");
    assert!(sent[0].is_success() && sent[0].wr_id() == 2);
    assert_eq!(sent[0].opcode(), WcOpcode::RDMA_WRITE);
    assert_eq!(sent[0].qp_num(), a.qp.number());
    let received = b.poll();
    assert_eq!(received.len(), 1);
    assert!(received[0].is_success() && received[0].wr_id() == 20);
    assert_eq!(received[0].opcode(), WcOpcode::RECV_RDMA_WITH_IMM);
    assert_eq!(
        (received[0].byte_len(), received[0].immediate()),
        (8, Some(0xabcd))
    );
    assert_eq!(received[0].qp_num(), b.qp.number());
    let mut expected = [0; LENGTH];
    expected[..16].fill(7);
    expected[100..108].fill(7);
    assert_eq!(b.bytes(), expected);
}

fn reads_bring(Pair { a, b }: &Pair) {
    b.fill(9);
    let read = SendRequest::read(3, Some(a.sge(4)), b.remote(0)).signaled();
    a.send(&mut [read]).unwrap();
    let done = a.poll();
    assert_eq!(
        (done.len(), done[0].opcode(), done[0].byte_len()),
        (1, WcOpcode::RDMA_READ, 4)
    );
    assert_eq!(a.bytes()[..5], [9, 9, 9, 9, 0]);
    assert!(b.poll().is_empty());
}

fn chains_and_inline_data(Pair { a, b }: &Pair) {
    a.fill(5);
    let inline = Sge {
        lkey: 0,
        ..a.sge(32)
    };
    b.receive(1).unwrap();
    b.receive(2).unwrap();
    a.send(&mut [
        SendRequest::write(1, Some(inline), b.remote(0)).inline(),
        SendRequest::write_with_immediate(2, None, b.remote(0), 1),
        SendRequest::write_with_immediate(3, Some(inline), b.remote(32), 2)
            .inline()
            .signaled(),
    ])
    .unwrap();
    let received = b.poll();
    let lengths: Vec<u32> = received.iter().map(WorkCompletion::byte_len).collect();
    assert_eq!(lengths, [0, 32]);
    assert_eq!(b.bytes()[..65], [[5; 64].as_slice(), &[0]].concat());
    assert_eq!(a.poll().len(), 1);
    let too_long = SendRequest::write(4, Some(a.sge(65)), b.remote(0)).inline();
    assert!(a.send(&mut [too_long]).is_err());
}

fn writes_wait_for_receives(Pair { a, b }: &Pair) {
    a.fill(1);
    let inline = a.sge(1);
    let write =
        |wr_id: u64| SendRequest::write_with_immediate(wr_id, Some(inline), b.remote(wr_id), 0);
    a.send(&mut [write(0).inline().signaled()]).unwrap();
    // The bytes of the first were taken when it was posted.
    a.fill(2);
    a.send(&mut [write(1).signaled()]).unwrap();
    // Behind them in the queue, although it needs no receive.
    a.send(&mut [SendRequest::write(2, Some(inline), b.remote(2)).signaled()])
        .unwrap();
    assert!(a.poll().is_empty() && b.poll().is_empty());
    assert_eq!(b.bytes()[..3], [0, 0, 0]);
    b.receive(7).unwrap();
    assert_eq!(a.poll().len(), 1);
    assert_eq!(b.bytes()[..3], [1, 0, 0]);
    b.receive(8).unwrap();
    assert_eq!(a.poll().len(), 2);
    let received: Vec<u64> = b.poll().iter().map(WorkCompletion::wr_id).collect();
    assert_eq!(
        (received, &b.bytes()[..3]),
        (vec![7, 8], [1, 2, 2].as_slice())
    );
}

fn writes_wait_for_the_peer(context: &Context) {
    let (a, b) = (End::new(context), End::new(context));
    a.to_init();
    a.to_rts(&b);
    a.fill(3);
    let write = SendRequest::write(1, Some(a.sge(1)), b.remote(0)).signaled();
    a.send(&mut [write]).unwrap();
    assert!(a.poll().is_empty());
    b.to_init();
    b.to_rts(&a);
    assert_eq!((a.poll().len(), b.bytes()[0]), (1, 3));
}

fn errors_flush(Pair { a, b }: &Pair) {
    b.receive(1).unwrap();
    b.receive(2).unwrap();
    b.qp.to_error().unwrap();
    b.receive(3).unwrap();
    b.send(&mut [SendRequest::write(4, None, a.remote(0))])
        .unwrap();
    let flushed = b.poll();
    let ids: Vec<u64> = flushed.iter().map(WorkCompletion::wr_id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    assert!(
        flushed
            .iter()
            .all(|one| one.status() == WcStatus::WR_FLUSH_ERR)
    );
    assert_eq!(b.qp.state().unwrap(), QueuePairState::ERR);
    b.qp.to_reset().unwrap();
    assert!(
        b.receive(5).is_err(),
        "a queue that is reset takes no receives"
    );
}

fn unregistered_memory_is_refused(Pair { a, b }: &Pair) {
    if !cfg!(debug_assertions) {
        // Only builds for tests look.
        return;
    }
    let beyond = SendRequest::write(1, Some(a.sge(8)), b.remote(LENGTH as u64 - 7));
    a.send(&mut [beyond]).unwrap();
    let failed = a.poll();
    assert_eq!(
        (failed.len(), failed[0].status()),
        (1, WcStatus::REM_ACCESS_ERR)
    );
    assert_eq!(a.qp.state().unwrap(), QueuePairState::ERR);
}

fn queues_are_bounded(Pair { a, b }: &Pair) {
    for wr_id in 0..DEPTH {
        b.receive(wr_id.into()).unwrap();
    }
    assert!(b.receive(99).is_err());
    let write = || SendRequest::write_with_immediate(1, None, b.remote(0), 0);
    for _ in 0..2 * DEPTH {
        a.send(&mut [write()]).unwrap();
    }
    assert!(a.send(&mut [write()]).is_err(), "so many wait already");
    assert_eq!(b.poll().len(), DEPTH as usize);
}

fn a_peer_that_is_gone(Pair { a, b }: Pair) {
    let remote = b.remote(0);
    a.send(&mut [SendRequest::write(1, Some(a.sge(8)), remote)])
        .unwrap();
    drop(b);
    a.send(&mut [SendRequest::write(2, None, remote)]).unwrap();
    let failed = a.poll();
    assert_eq!(
        (failed.len(), failed[0].status()),
        (1, WcStatus::RETRY_EXC_ERR)
    );
    let gone: Result<(), Error> = a.qp.to_reset();
    gone.unwrap();
}
