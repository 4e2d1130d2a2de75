//! Posting: how chains reach the driver, and how much of one was accepted.

use ibnet_verbs::sys::{ibv_send_flags as flags, ibv_wr_opcode as opcode};
use ibnet_verbs::{QueuePair, RecvRequest, RemoteAddress, SendRequest, Sge};

use crate::fake::{Failure, Received, Sent, called, context, fail, fake, set_errno};
use crate::queue_pairs::queue_pair;

const SGE: Sge = Sge {
    address: 0x1000,
    length: 64,
    lkey: 0x11,
};
const REMOTE: RemoteAddress = RemoteAddress {
    address: 0x2000,
    rkey: 0x22,
};

fn send(qp: &QueuePair, chain: &mut [SendRequest]) -> Result<(), ibnet_verbs::PostError> {
    // SAFETY: the scripted device does not touch the memory.
    unsafe { qp.post_send(chain) }
}

fn receive(qp: &QueuePair, chain: &mut [RecvRequest]) -> Result<(), ibnet_verbs::PostError> {
    // SAFETY: the scripted device does not touch the memory.
    unsafe { qp.post_recv(chain) }
}

fn sent() -> Vec<Sent> {
    fake(|fake| std::mem::take(&mut fake.sent))
}

#[test]
fn each_kind_of_request_reaches_the_driver() {
    let qp = queue_pair(&context());
    let mut chain = [
        SendRequest::write(1, Some(SGE), REMOTE).inline(),
        SendRequest::write_with_immediate(2, None, REMOTE, 0x0102_0304).signaled(),
        SendRequest::read(3, Some(SGE), REMOTE).fenced(),
        SendRequest::send(4, Some(SGE)).solicited().signaled(),
        SendRequest::send_with_immediate(5, None, 0xa0b0_c0d0).with_wr_id(6),
    ];
    send(&qp, &mut chain).unwrap();
    let sge = Some((0x1000, 64, 0x11));
    let remote = (0x2000, 0x22);
    let nothing = Sent {
        wr_id: 0,
        opcode: 0,
        flags: 0,
        sge: None,
        remote: (0, 0),
        immediate: [0; 4],
    };
    let expected = [
        Sent {
            wr_id: 1,
            opcode: opcode::IBV_WR_RDMA_WRITE,
            flags: flags::IBV_SEND_INLINE.0,
            sge,
            remote,
            ..nothing
        },
        Sent {
            wr_id: 2,
            opcode: opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            flags: flags::IBV_SEND_SIGNALED.0,
            remote,
            immediate: [1, 2, 3, 4],
            ..nothing
        },
        Sent {
            wr_id: 3,
            opcode: opcode::IBV_WR_RDMA_READ,
            flags: flags::IBV_SEND_FENCE.0,
            sge,
            remote,
            ..nothing
        },
        Sent {
            wr_id: 4,
            opcode: opcode::IBV_WR_SEND,
            flags: (flags::IBV_SEND_SOLICITED | flags::IBV_SEND_SIGNALED).0,
            sge,
            ..nothing
        },
        Sent {
            wr_id: 6,
            opcode: opcode::IBV_WR_SEND_WITH_IMM,
            immediate: [0xa0, 0xb0, 0xc0, 0xd0],
            ..nothing
        },
    ];
    assert_eq!(sent(), expected);
    // The chain went in one call.
    assert_eq!(called("post_send"), 1);
}

#[test]
fn a_chain_is_linked_anew_wherever_it_lies() {
    let qp = queue_pair(&context());
    let mut first = [SendRequest::write(1, Some(SGE), REMOTE); 3];
    send(&qp, &mut first).unwrap();
    assert_eq!(sent().len(), 3);
    // A copy elsewhere, shorter, in another order: nothing of the first post remains.
    let mut copy = vec![first[2].with_wr_id(9), first[0]];
    first = [SendRequest::send(77, None); 3];
    send(&qp, &mut copy).unwrap();
    assert_eq!(
        sent()
            .iter()
            .map(|request| request.wr_id)
            .collect::<Vec<_>>(),
        [9, 1]
    );
    send(&qp, &mut first[1..2]).unwrap();
    assert_eq!(
        sent()
            .iter()
            .map(|request| request.wr_id)
            .collect::<Vec<_>>(),
        [77]
    );
}

#[test]
fn an_empty_chain_is_no_call() {
    let qp = queue_pair(&context());
    send(&qp, &mut []).unwrap();
    receive(&qp, &mut []).unwrap();
    assert_eq!((called("post_send"), called("post_recv")), (0, 0));
}

#[test]
fn a_full_queue_tells_how_many_were_accepted() {
    let qp = queue_pair(&context());
    for room in 0..4 {
        fake(|fake| fake.room = room);
        let mut chain = [SendRequest::send(0, None); 4];
        let error = send(&qp, &mut chain).unwrap_err();
        assert_eq!((error.accepted, error.qp), (room, 0xabc));
        assert_eq!(error.errno(), Some(libc::ENOMEM));
        let text = error.to_string();
        assert!(
            text.contains("queue is full") && text.contains("0xabc"),
            "{text}"
        );
        assert_eq!(sent().len(), room);

        fake(|fake| fake.room = room);
        let error = receive(&qp, &mut [RecvRequest::new(0); 4]).unwrap_err();
        assert_eq!(error.accepted, room);
    }
}

#[test]
fn a_driver_that_names_no_bad_request_accepted_none() {
    let qp = queue_pair(&context());
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
    let qp = queue_pair(&context());
    // SAFETY: the context is open, and nobody else uses it now.
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
fn receives_come_with_and_without_memory() {
    let qp = queue_pair(&context());
    let mut chain = [
        RecvRequest::new(1),
        RecvRequest::new(2).with_sge(SGE),
        RecvRequest::new(3).with_wr_id(4),
    ];
    receive(&qp, &mut chain).unwrap();
    assert_eq!(chain[2].wr_id(), 4);
    let received = fake(|fake| std::mem::take(&mut fake.received));
    let expected = [
        Received {
            wr_id: 1,
            sge: None,
        },
        Received {
            wr_id: 2,
            sge: Some((0x1000, 64, 0x11)),
        },
        Received {
            wr_id: 4,
            sge: None,
        },
    ];
    assert_eq!(received, expected);
    assert_eq!(called("post_recv"), 1);
}

#[test]
fn requests_are_printed_with_what_they_do() {
    let text = format!(
        "{:?}",
        SendRequest::write_with_immediate(7, Some(SGE), REMOTE, 1)
    );
    for part in ["IBV_WR_RDMA_WRITE_WITH_IMM", "0x7", "4096"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(format!("{:?}", RecvRequest::new(7)).contains("0x7"));
}
