//! The plain operations, on every kind of device and in both modes.

use ibnet_simverbs::{ContextKind, DeviceSpec, Fabric, FabricBuilder, OptionalFunction};
use ibnet_verbs::{Mtu, RecvRequest, SendRequest, WcOpcode, WcStatus};

use crate::pairs::{Pair, Setup, two_roce};

/// A message there and back by each operation.
fn play(pair: &Pair) {
    let Pair { a, b, fabric } = pair;
    a.memory.write(100, b"written data");

    // Write: the peer does not notice.
    let write = SendRequest::write(1, a.sge(100, 12), b.remote(3000)).signaled();
    a.send(&mut [write]).unwrap();
    fabric.run_until_idle();
    let done = a.poll();
    assert_eq!(done.len(), 1);
    assert_eq!(
        (done[0].wr_id(), done[0].opcode()),
        (1, WcOpcode::RDMA_WRITE)
    );
    assert_eq!(done[0].qp_num(), a.qp.number());
    assert_eq!(b.memory.read(3000..3012), b"written data");
    assert!(b.poll().is_empty());

    // Write with immediate: consumes a receive.
    b.receive_immediates([50]);
    let write = SendRequest::write_with_immediate(2, a.sge(100, 7), b.remote(4001), 0xdead_beef);
    a.send(&mut [write]).unwrap();
    fabric.run_until_idle();
    let done = b.poll();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].opcode(), WcOpcode::RECV_RDMA_WITH_IMM);
    assert_eq!((done[0].wr_id(), done[0].byte_len()), (50, 7));
    assert_eq!(done[0].immediate(), Some(0xdead_beef));
    assert_eq!(b.memory.read(4001..4008), b"written");
    assert!(a.poll().is_empty(), "not signalled");

    // Send, into a buffer that is longer.
    let sge = b.sge(9000, 100).unwrap();
    b.receive(&mut [RecvRequest::new(51).with_sge(sge)])
        .unwrap();
    a.send(&mut [SendRequest::send(3, a.sge(108, 4)).signaled()])
        .unwrap();
    fabric.run_until_idle();
    let (sent, received) = (a.poll(), b.poll());
    assert_eq!((sent[0].wr_id(), sent[0].opcode()), (3, WcOpcode::SEND));
    assert_eq!(
        (received[0].wr_id(), received[0].opcode()),
        (51, WcOpcode::RECV)
    );
    assert_eq!((received[0].byte_len(), received[0].immediate()), (4, None));
    assert_eq!(b.memory.read(9000..9005), b"data\0");

    // Read, of more than a packet.
    let long: Vec<u8> = (0..5000).map(|index| index as u8).collect();
    b.memory.write(20_001, &long);
    a.send(&mut [SendRequest::read(4, a.sge(30_005, 5000), b.remote(20_001)).signaled()])
        .unwrap();
    fabric.run_until_idle();
    let done = a.poll();
    assert_eq!(
        (done[0].opcode(), done[0].byte_len()),
        (WcOpcode::RDMA_READ, 5000)
    );
    assert_eq!(a.memory.read(30_005..35_005), long);

    // And the other way, with an immediate.
    a.receive_immediates([60]);
    b.send(&mut [SendRequest::send_with_immediate(5, None, 9).signaled()])
        .unwrap();
    fabric.run_until_idle();
    assert_eq!(a.poll()[0].immediate(), Some(9));
    assert_eq!(b.poll()[0].status(), WcStatus::SUCCESS);
}

fn on(builder: FabricBuilder) {
    let setup = Setup::default();
    for builder in [builder.clone().stepped(7), builder.free_running()] {
        let pair = Pair::of(builder.build().unwrap(), &setup);
        play(&pair);
        pair.finish();
    }
}

#[test]
fn between_roce_devices() {
    on(two_roce());
}

#[test]
fn between_infiniband_devices() {
    on(Fabric::builder()
        .device(DeviceSpec::infiniband("ib0"))
        .device(DeviceSpec::infiniband("ib1")));
}

#[test]
fn within_one_device() {
    on(Fabric::builder().device(DeviceSpec::roce("sim0")));
}

#[test]
fn with_legacy_contexts() {
    let device = |name| DeviceSpec::roce(name).context(ContextKind::Legacy);
    on(Fabric::builder()
        .device(device("old0"))
        .device(device("old1")));
}

#[test]
fn with_the_oldest_library() {
    let device = |name| DeviceSpec::infiniband(name).context(ContextKind::Legacy);
    let builder = Fabric::builder()
        .device(device("old0"))
        .device(device("old1"));
    on(OptionalFunction::ALL
        .into_iter()
        .fold(builder, FabricBuilder::without));
}

/// A queue pair that is connected to itself, as for flushing a device's writes.
#[test]
fn a_queue_pair_with_itself() {
    let setup = Setup {
        mtu: Mtu::MTU_512,
        ..Setup::default()
    };
    for builder in [two_roce().stepped(3), two_roce()] {
        let pair = Pair::unconnected(builder.build().unwrap(), &setup);
        let own = &pair.a;
        own.connect_to(own, &setup).unwrap();
        own.memory.write(0, b"to myself");
        own.receive_immediates([8]);
        let write = SendRequest::write_with_immediate(1, own.sge(0, 9), own.remote(600), 5);
        let read = SendRequest::read(2, own.sge(1200, 9), own.remote(600));
        own.send(&mut [write.signaled(), read.signaled()]).unwrap();
        pair.fabric.run_until_idle();
        let mut done: Vec<_> = own.outcomes();
        done.sort_by_key(|(wr_id, _)| *wr_id);
        assert_eq!(done, [1, 2, 8].map(|wr_id| (wr_id, WcStatus::SUCCESS)));
        assert_eq!(own.memory.read(600..609), b"to myself");
        assert_eq!(own.memory.read(1200..1209), b"to myself");
        pair.finish();
    }
}

/// An unfenced read may be overtaken by a later write, so the read of the test above is not
/// fenced on purpose only where both give the same. A fence keeps the order.
#[test]
fn a_fence_waits_for_reads() {
    for seed in 0..30 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        b.memory.write(0, &[1; 300]);
        a.memory.write(0, &[2; 300]);
        let read = SendRequest::read(1, a.sge(1000, 300), b.remote(0)).signaled();
        let write = SendRequest::write(2, a.sge(0, 300), b.remote(0))
            .signaled()
            .fenced();
        a.send(&mut [read, write]).unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes().len(), 2);
        assert_eq!(a.memory.read(1000..1300), [1; 300], "seed {seed}");
        assert_eq!(b.memory.read(0..300), [2; 300]);
    }
}
