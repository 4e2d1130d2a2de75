//! Posting: how chains reach the driver, and how much of one was accepted.

use ibnet_simverbs::DeviceSpec;
use ibnet_verbs::{
    Access, InitAttributes, PostError, QueuePair, QueuePairOptions, RecvRequest, RemoteAddress,
    SendRequest, Sge, WcOpcode,
};

use crate::end::{connected, two};
use crate::tap::{Failure, called, context, fail, library, set_errno, take_calls, tap};

const REMOTE: RemoteAddress = RemoteAddress {
    address: 0x2000,
    rkey: 0x22,
};

fn send(qp: &QueuePair, chain: &mut [SendRequest]) -> Result<(), PostError> {
    // SAFETY: the memory is not looked at before the completions.
    unsafe { qp.post_send(chain) }
}

fn receive(qp: &QueuePair, chain: &mut [RecvRequest]) -> Result<(), PostError> {
    // SAFETY: as above.
    unsafe { qp.post_recv(chain) }
}

/// A queue pair in INIT, with eight places in each queue.
fn queue_pair() -> QueuePair {
    let context = context();
    let cq = context.create_cq(16).unwrap();
    let pd = context.allocate_pd().unwrap();
    let qp = pd.create_qp(&QueuePairOptions::new(&cq, 8)).unwrap();
    qp.to_init(&InitAttributes {
        port: 1,
        pkey_index: 0,
        access: Access::empty(),
    })
    .unwrap();
    qp
}

#[test]
fn each_kind_of_request_does_what_it_says() {
    let (mut a, b) = connected(&library(&two(DeviceSpec::roce)));
    a.buffer.write(0, b"some bytes");
    let (sge, remote) = (a.buffer.sge(0, 4), |at| b.buffer.remote(at));
    let without_key = Sge { lkey: 0, ..sge };
    receive(
        &b.qp,
        &mut [
            RecvRequest::new(70),
            RecvRequest::new(0)
                .with_sge(b.buffer.sge(200, 8))
                .with_wr_id(71),
            RecvRequest::new(72),
        ],
    )
    .unwrap();
    assert_eq!((called("post_send"), called("post_recv")), (0, 1));
    b.cq.request_notification(true).unwrap();
    let mut chain = [
        // Inline data needs no key.
        SendRequest::write(1, Some(without_key), remote(100)).inline(),
        SendRequest::write_with_immediate(2, None, remote(0), 0x0102_0304).signaled(),
        SendRequest::read(3, Some(a.buffer.sge(300, 4)), remote(100))
            .fenced()
            .signaled(),
        SendRequest::send(4, Some(sge)).solicited().signaled(),
        SendRequest::send_with_immediate(5, None, 0xa0b0_c0d0)
            .with_wr_id(6)
            .signaled(),
    ];
    send(&a.qp, &mut chain).unwrap();
    // The chain went in one call.
    assert_eq!(called("post_send"), 1);
    let sent: Vec<_> = (0..4)
        .map(|_| a.completion())
        .map(|completion| (completion.wr_id(), completion.opcode()))
        .collect();
    let expected = [
        (2, WcOpcode::RDMA_WRITE),
        (3, WcOpcode::RDMA_READ),
        (4, WcOpcode::SEND),
        (6, WcOpcode::SEND),
    ];
    assert_eq!(sent, expected);
    // Only the solicited one was told of.
    assert!(b.channel.next_event().unwrap().is_some());
    let received: Vec<_> = (0..3)
        .map(|_| b.completion())
        .map(|completion| (completion.wr_id(), completion.immediate()))
        .collect();
    assert_eq!(
        received,
        [(70, Some(0x0102_0304)), (71, None), (72, Some(0xa0b0_c0d0))]
    );
    assert_eq!((&b.bytes(100), &b.bytes(200)), (b"some", b"some"));
    assert_eq!(&a.bytes(300), b"some");
    // On the wire immediates are big-endian.
    let immediates = tap(|tap| tap.immediates.clone());
    assert_eq!(
        (immediates[1], immediates[4]),
        ([1, 2, 3, 4], [0xa0, 0xb0, 0xc0, 0xd0])
    );
}

#[test]
fn a_chain_is_linked_anew_wherever_it_lies() {
    let (a, b) = connected(&two(DeviceSpec::roce).library());
    let write = |wr_id| SendRequest::write(wr_id, None, b.buffer.remote(0)).signaled();
    let polled = |number| -> Vec<_> { (0..number).map(|_| a.completion().wr_id()).collect() };
    let mut first = [1, 2, 3].map(write);
    send(&a.qp, &mut first).unwrap();
    assert_eq!(polled(3), [1, 2, 3]);
    // A copy elsewhere, shorter, in another order: nothing of the first post remains.
    let mut copy = vec![first[2].with_wr_id(9), first[0]];
    first = [77, 78, 79].map(write);
    send(&a.qp, &mut copy).unwrap();
    assert_eq!(polled(2), [9, 1]);
    send(&a.qp, &mut first[1..2]).unwrap();
    assert_eq!(polled(1), [78]);
    let mut more = [ibnet_verbs::WorkCompletion::default(); 1];
    assert!(a.cq.poll(&mut more).unwrap().is_empty());
}

#[test]
fn an_empty_chain_is_no_call() {
    let qp = queue_pair();
    send(&qp, &mut []).unwrap();
    receive(&qp, &mut []).unwrap();
    assert_eq!((called("post_send"), called("post_recv")), (0, 0));
}

#[test]
fn a_full_queue_tells_how_many_were_accepted() {
    for room in 0..4 {
        let qp = queue_pair();
        receive(&qp, &mut vec![RecvRequest::new(0); 8 - room]).unwrap();
        let error = receive(&qp, &mut [RecvRequest::new(0); 4]).unwrap_err();
        assert_eq!((error.accepted, error.qp), (room, qp.number()));
        assert_eq!(error.errno(), Some(libc::ENOMEM));
        let (text, number) = (error.to_string(), format!("{:#x}", qp.number()));
        assert!(
            text.contains("queue is full") && text.contains(&number),
            "{text}"
        );

        let (a, b) = connected(&two(DeviceSpec::roce).library());
        let write = SendRequest::write(0, None, b.buffer.remote(0)).signaled();
        send(&a.qp, &mut vec![write; 8 - room]).unwrap();
        // Nothing is polled, so that all places are still taken.
        let error = send(&a.qp, &mut [write; 4]).unwrap_err();
        assert_eq!((error.accepted, error.qp), (room, a.qp.number()));
    }
}

#[test]
fn a_driver_that_names_no_bad_request_accepted_none() {
    let qp = queue_pair();
    for (failure, errno) in [
        (Failure::Errno(libc::EINVAL), Some(libc::EINVAL)),
        (Failure::Negated(libc::EINVAL), Some(libc::EINVAL)),
        (Failure::MinusOne(libc::EINVAL), Some(libc::EINVAL)),
        // The data path does not clear what an earlier call has left.
        (Failure::Silent, Some(libc::EBUSY)),
    ] {
        set_errno(libc::EBUSY);
        fail("post_send", failure);
        let error = send(&qp, &mut [SendRequest::send(0, None); 2]).unwrap_err();
        assert_eq!((error.accepted, error.errno()), (0, errno));
    }
}

#[test]
fn a_context_without_the_operation_accepts_nothing() {
    let qp = queue_pair();
    take_calls();
    // SAFETY: the context is open, and nothing else uses it now.
    unsafe {
        let context = qp.pd().context().as_raw();
        (*context).ops.post_send = None;
        (*context).ops.post_recv = None;
    }
    let error = send(&qp, &mut [SendRequest::send(0, None)]).unwrap_err();
    assert_eq!((error.accepted, error.errno()), (0, Some(libc::EOPNOTSUPP)));
    let error = receive(&qp, &mut [RecvRequest::new(0)]).unwrap_err();
    assert_eq!((error.accepted, error.errno()), (0, Some(libc::EOPNOTSUPP)));
}

#[test]
fn requests_are_printed_with_what_they_do() {
    let sge = Sge {
        address: 4096,
        length: 64,
        lkey: 0x11,
    };
    let text = format!(
        "{:?}",
        SendRequest::write_with_immediate(7, Some(sge), REMOTE, 1)
    );
    for part in ["IBV_WR_RDMA_WRITE_WITH_IMM", "0x7", "4096"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(format!("{:?}", RecvRequest::new(7)).contains("0x7"));
}
