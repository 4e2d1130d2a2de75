//! Whole connections: endpoints, buffers, requests of several elements, waiting.

use std::thread;
use std::time::{Duration, Instant};

use ibnet_simverbs::{DeviceSpec, Fabric, PortSpec};
use ibnet_verbs::{
    Access, ConnectOptions, Endpoint, Gid, Mtu, QueuePairState, RecvRequest, SendRequest, Sge,
    WcStatus,
};

use crate::end::{End, SIZE, connected, two};
use crate::tap::{fabric, open};

#[test]
fn two_ends_connect_with_what_they_tell_each_other() {
    for fabric in [two(DeviceSpec::roce), two(DeviceSpec::infiniband)] {
        let (mut a, b) = connected(&fabric.library());
        assert_eq!(a.qp.state().unwrap(), QueuePairState::RTS);
        a.buffer.write(100, b"immortal");
        b.receive(RecvRequest::new(7));
        let (from, to) = (a.buffer.sge(100, 8), b.buffer.remote(8));
        a.send(SendRequest::write_with_immediate(1, Some(from), to, 42).signaled());
        let received = b.completion();
        assert_eq!((received.wr_id(), received.immediate()), (7, Some(42)));
        assert_eq!(&b.bytes(8), b"immortal");
        assert!(a.completion().is_success());
    }
}

#[test]
fn the_mtu_of_a_connection_is_that_of_the_smaller_port() {
    let small = PortSpec::roce().mtu(Mtu::MTU_512, Mtu::MTU_4096);
    let fabric = Fabric::builder()
        .device(DeviceSpec::roce("sim0").ports([small]))
        .device(DeviceSpec::roce("sim1"))
        .build()
        .unwrap();
    let (a, b) = connected(&fabric.library());
    for end in [&a, &b] {
        assert_eq!(end.qp.query().unwrap().mtu, Mtu::MTU_512);
    }
}

#[test]
fn roce_without_a_gid_is_refused_by_name() {
    let fabric = fabric(DeviceSpec::roce("sim0"));
    let end = End::new(&open(&fabric));
    let error = end.qp.endpoint(&ConnectOptions::default()).unwrap_err();
    assert!(error.to_string().contains("gid_index"), "{error}");
    let peer = end.endpoint();
    end.qp
        .connect(&peer, &ConnectOptions::default())
        .unwrap_err();
    assert_eq!(end.qp.state().unwrap(), QueuePairState::RESET);
}

#[test]
fn an_endpoint_is_read_as_it_is_written() {
    let by_lid = Endpoint {
        qp: 0xff_ffff,
        psn: 0x12_3456,
        lid: 0xbfff,
        gid: None,
        mtu: Mtu::MTU_4096,
    };
    let gid = Gid::from("fe80::1".parse::<std::net::Ipv6Addr>().unwrap());
    for endpoint in [
        by_lid,
        Endpoint {
            gid: Some(gid),
            ..by_lid
        },
    ] {
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
    }
    for (text, missing) in [
        ("", "qp="),
        ("qp=1 psn=2 lid=3", "mtu="),
        ("qp=1 psn=2 lid=65536 mtu=512", "16 bits"),
        ("qp=1 psn=2 lid=3 mtu=513", "MTU"),
        ("qp=1 psn=2 lid=3 mtu=512 gid=here", "gid="),
        ("qp=-1 psn=2 lid=3 mtu=512", "qp="),
    ] {
        let error = text.parse::<Endpoint>().unwrap_err();
        assert!(error.to_string().contains(missing), "{error}");
    }
}

#[test]
fn several_elements_are_gathered_and_scattered() {
    let (mut a, b) = connected(&two(DeviceSpec::roce).library());
    a.buffer.write(0, b"abc");
    a.buffer.write(1000, b"defgh");
    a.buffer.write(2000, b"ij");
    let pieces: [Sge; 3] = [
        a.buffer.sge(0, 3),
        a.buffer.sge(1000, 5),
        a.buffer.sge(2000, 2),
    ];
    a.send(
        SendRequest::write(1, None, b.buffer.remote(50))
            .with_sges(pieces)
            .signaled(),
    );
    assert!(a.completion().is_success());
    assert_eq!(&b.bytes(50), b"abcdefghij");

    b.receive(RecvRequest::new(2).with_sges([b.buffer.sge(100, 4), b.buffer.sge(200, 60)]));
    a.send(SendRequest::send(3, None).with_sges(pieces));
    assert_eq!(b.completion().byte_len(), 10);
    assert_eq!((&b.bytes(100), &b.bytes(200)), (b"abcd", b"efghij"));
}

#[test]
fn a_request_that_is_kept_can_be_rewritten() {
    let (mut a, b) = connected(&two(DeviceSpec::roce).library());
    a.buffer.write(0, b"data");
    let mut request = SendRequest::write(1, None, b.buffer.remote(0))
        .fenced()
        .inline();
    b.receive(RecvRequest::new(9));
    request.rewrite(
        Some(a.buffer.sge(0, 4)),
        b.buffer.remote(30),
        Some(5),
        false,
    );
    request.signal_as(2);
    a.send(request);
    assert_eq!(b.completion().immediate(), Some(5));
    assert_eq!(&b.bytes(30), b"data");
    assert_eq!(a.completion().wr_id(), 2);
    // Its completion is not asked for again.
    request.rewrite(None, b.buffer.remote(0), None, false);
    a.send(request);
    a.send(SendRequest::write(3, None, b.buffer.remote(0)).signaled());
    assert_eq!(a.completion().wr_id(), 3);
}

#[test]
fn waiting_ends_with_the_event_or_the_limit() {
    let (a, b) = connected(&two(DeviceSpec::roce).library());
    let before = Instant::now();
    let limit = Duration::from_millis(30);
    assert!(b.channel.wait(Some(limit)).unwrap().is_none());
    assert!(before.elapsed() >= limit);
    assert!(b.channel.wait(Some(Duration::ZERO)).unwrap().is_none());

    b.cq.request_notification(false).unwrap();
    b.receive(RecvRequest::new(1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| b.channel.wait(None).unwrap().map(|event| event.cq_id()));
        a.send(SendRequest::send(2, None));
        assert_eq!(waiter.join().unwrap(), Some(b.cq.id()));
    });
}

#[test]
fn remote_write_without_local_write_is_named_first() {
    let fabric = fabric(DeviceSpec::roce("sim0"));
    let pd = open(&fabric).allocate_pd().unwrap();
    let error = pd.allocate(SIZE, Access::REMOTE_WRITE).unwrap_err();
    assert!(error.to_string().contains("need LOCAL_WRITE"), "{error}");

    // What a completion tells of it, too.
    for status in [WcStatus::LOC_PROT_ERR, WcStatus::REM_ACCESS_ERR] {
        let cause = status.usual_cause().unwrap();
        assert!(cause.contains("_WRITE"), "{status}: {cause}");
    }
    assert_eq!(WcStatus::SUCCESS.usual_cause(), None);
}

#[test]
fn a_buffer_is_zeroed_and_keeps_its_bounds() {
    let fabric = fabric(DeviceSpec::roce("sim0"));
    let pd = open(&fabric).allocate_pd().unwrap();
    let mut buffer = pd.allocate(10, Access::LOCAL_WRITE).unwrap();
    let mut bytes = [7; 10];
    buffer.read(0, &mut bytes);
    assert_eq!((bytes, buffer.len()), ([0; 10], 10));
    buffer.write(6, b"tail");
    assert_eq!(buffer.sge(6, 4).address, buffer.region().address() + 6);
    assert_eq!(fabric.live_objects().mrs, 1);
    for outside in [(7, 4), (11, 0), (usize::MAX, 1)] {
        let read = || buffer.read(outside.0, &mut vec![0; outside.1]);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
        let sge = || buffer.sge(outside.0, outside.1 as u32);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(sge)).is_err());
    }
    drop(buffer);
    assert_eq!(fabric.live_objects().mrs, 0);
    for length in [0, usize::MAX] {
        assert_eq!(
            pd.allocate(length, Access::empty()).unwrap_err().errno(),
            Some(libc::EINVAL)
        );
    }
}
