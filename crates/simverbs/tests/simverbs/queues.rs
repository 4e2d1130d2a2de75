//! Places in queues: when they are taken, when they are free again, and what overflows.

use std::ptr;

use ibnet_verbs::sys::{ibv_send_wr, ibv_sge, ibv_wr_opcode};
use ibnet_verbs::{
    EventType, QueuePairOptions, QueuePairState, RecvRequest, SendRequest, WcStatus,
};

use crate::pairs::{End, Pair, Setup, in_both_modes, options};

fn write(a: &End, b: &End, wr_id: u64) -> SendRequest {
    SendRequest::write(wr_id, a.sge(0, 8), b.remote(0))
}

#[test]
fn a_full_send_queue_takes_the_chain_in_part() {
    let setup = Setup {
        send_wr: 4,
        ..Setup::default()
    };
    in_both_modes(&setup, |pair| {
        let Pair { a, b, fabric } = pair;
        let mut chain: Vec<_> = (0..6).map(|wr_id| write(a, b, wr_id).signaled()).collect();
        let error = a.send(&mut chain).unwrap_err();
        assert_eq!((error.accepted, error.errno()), (4, Some(libc::ENOMEM)));
        fabric.run_until_idle();
        // Complete, but not polled: the places are still taken.
        assert_eq!(a.send(&mut chain[4..]).unwrap_err().accepted, 0);
        let outcomes = a.outcomes();
        assert_eq!(
            outcomes,
            [0, 1, 2, 3].map(|wr_id| (wr_id, WcStatus::SUCCESS))
        );
        a.send(&mut chain[4..]).unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes().len(), 2);
    });
}

#[test]
fn unsignalled_requests_hold_their_places_until_a_later_one_is_polled() {
    let setup = Setup {
        send_wr: 4,
        ..Setup::default()
    };
    in_both_modes(&setup, |pair| {
        let Pair { a, b, fabric } = pair;
        for wr_id in 0..3 {
            a.send(&mut [write(a, b, wr_id)]).unwrap();
        }
        fabric.run_until_idle();
        assert!(a.outcomes().is_empty());
        // All three are long done, but only one place is left.
        a.send(&mut [write(a, b, 3).signaled()]).unwrap();
        fabric.run_until_idle();
        assert_eq!(
            a.send(&mut [write(a, b, 4)]).unwrap_err().errno(),
            Some(libc::ENOMEM)
        );
        assert_eq!(a.outcomes(), [(3, WcStatus::SUCCESS)]);
        let mut chain = [4, 5, 6, 7].map(|wr_id| write(a, b, wr_id));
        a.send(&mut chain).unwrap();
    });
}

#[test]
fn a_queue_pair_can_signal_everything() {
    let setup = Setup {
        signal_all: true,
        ..Setup::default()
    };
    in_both_modes(&setup, |pair| {
        let Pair { a, b, fabric } = pair;
        a.send(&mut [write(a, b, 1), write(a, b, 2)]).unwrap();
        fabric.run_until_idle();
        assert_eq!(
            a.outcomes(),
            [(1, WcStatus::SUCCESS), (2, WcStatus::SUCCESS)]
        );
    });
}

#[test]
fn a_full_receive_queue_takes_the_chain_in_part() {
    let setup = Setup {
        recv_wr: 3,
        ..Setup::default()
    };
    in_both_modes(&setup, |pair| {
        let Pair { a, b, fabric } = pair;
        let mut chain = [RecvRequest::new(1); 5];
        let error = b.receive(&mut chain).unwrap_err();
        assert_eq!((error.accepted, error.errno()), (3, Some(libc::ENOMEM)));
        a.send(&mut [SendRequest::send(1, None)]).unwrap();
        fabric.run_until_idle();
        // Consumed, but not polled.
        b.receive(&mut chain[..1]).unwrap_err();
        assert_eq!(b.outcomes().len(), 1);
        b.receive(&mut chain[..1]).unwrap();
        b.receive(&mut chain[..1]).unwrap_err();
    });
}

#[test]
fn requests_with_too_many_elements_or_inline_bytes_are_refused() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, .. } = pair;
        let refuse = |request: SendRequest| {
            let error = a.send(&mut [request]).unwrap_err();
            assert_eq!((error.accepted, error.errno()), (0, Some(libc::EINVAL)));
        };
        refuse(SendRequest::write(1, a.sge(0, 65), b.remote(0)).inline());
        refuse(SendRequest::read(1, a.sge(0, 8), b.remote(0)).inline());
        a.send(&mut [SendRequest::write(1, a.sge(0, 64), b.remote(0)).inline()])
            .unwrap();

        let mut elements = [ibv_sge::default(); 2];
        let mut request = ibv_send_wr {
            sg_list: elements.as_mut_ptr(),
            num_sge: 2,
            ..Default::default()
        };
        assert_eq!(post(a, &mut request), libc::EINVAL);
        request.num_sge = -1;
        assert_eq!(post(a, &mut request), libc::EINVAL);
        request.num_sge = 0;
        request.opcode = ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
        assert_eq!(post(a, &mut request), libc::EINVAL);
    });
}

/// Posts by the bare operation.
fn post(end: &End, request: &mut ibv_send_wr) -> i32 {
    let mut bad = ptr::null_mut();
    // SAFETY: the context is open.
    let post_send = unsafe { (*end.context.as_raw()).ops.post_send }.unwrap();
    // SAFETY: the queue pair exists, and the request and its elements are valid.
    let result = unsafe { post_send(end.qp.as_raw(), request, &raw mut bad) };
    assert_eq!(result != 0, ptr::eq(bad, request));
    result
}

#[test]
fn data_is_gathered_from_and_scattered_to_several_elements() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        // The verbs crate has one element per request, so this goes by the C structures.
        let wide = |end: &End| {
            let setup = Setup::default();
            let qp = end.pd.create_qp(&QueuePairOptions {
                max_send_sge: 3,
                max_recv_sge: 3,
                ..options(&end.cq, &setup)
            });
            qp.unwrap()
        };
        let (from, to) = (wide(a), wide(b));
        connect(a, &from, b, &to);
        connect(b, &to, a, &from);
        a.memory.write(0, b"one");
        a.memory.write(1000, b"two");
        a.memory.write(2001, b"three");
        let element = |end: &End, at, length| ibv_sge::from(end.sge(at, length).unwrap());
        let mut source = [element(a, 0, 3), element(a, 1000, 3), element(a, 2001, 5)];
        let mut target = [element(b, 50, 4), element(b, 70, 0), element(b, 90, 100)];
        let mut receive = ibnet_verbs::sys::ibv_recv_wr {
            wr_id: 5,
            sg_list: target.as_mut_ptr(),
            num_sge: 3,
            ..Default::default()
        };
        let mut send = ibv_send_wr {
            opcode: ibv_wr_opcode::IBV_WR_SEND,
            sg_list: source.as_mut_ptr(),
            num_sge: 3,
            ..Default::default()
        };
        // SAFETY: both contexts are open, and all that is posted is valid.
        unsafe {
            let (post_send, post_recv) = {
                let ops = &(*a.context.as_raw()).ops;
                (ops.post_send.unwrap(), ops.post_recv.unwrap())
            };
            assert_eq!(
                post_recv(to.as_raw(), &raw mut receive, &mut ptr::null_mut()),
                0
            );
            assert_eq!(
                post_send(from.as_raw(), &raw mut send, &mut ptr::null_mut()),
                0
            );
        }
        fabric.run_until_idle();
        let received = b.poll();
        assert_eq!((received[0].wr_id(), received[0].byte_len()), (5, 11));
        assert_eq!(b.memory.read(50..55), b"onet\0");
        assert_eq!(b.memory.read(90..98), b"wothree\0");
    });
}

fn connect(own: &End, qp: &ibnet_verbs::QueuePair, peer: &End, peer_qp: &ibnet_verbs::QueuePair) {
    let setup = Setup::default();
    qp.to_init(&ibnet_verbs::InitAttributes {
        port: 1,
        pkey_index: 0,
        access: setup.access,
    })
    .unwrap();
    qp.to_rtr(&ibnet_verbs::ReadyToReceive {
        remote_qp: peer_qp.number(),
        ..own.to_rtr(peer, &setup)
    })
    .unwrap();
    qp.to_rts(&End::ready_to_send(&setup)).unwrap();
}

#[test]
fn a_completion_queue_that_overflows_is_lost_with_its_queue_pair() {
    let setup = Setup {
        cq: 2,
        ..Setup::default()
    };
    in_both_modes(&setup, |pair| {
        let Pair { a, b, fabric } = pair;
        let mut chain = [1, 2, 3].map(|wr_id| write(a, b, wr_id).signaled());
        a.send(&mut chain).unwrap();
        fabric.run_until_idle();
        let first = a.context.next_event().unwrap().unwrap();
        assert_eq!(first.kind(), EventType::CQ_ERR);
        assert!(first.cq_id() == Some(a.cq.id()) && first.is_fatal());
        let second = a.context.next_event().unwrap().unwrap();
        assert_eq!(second.kind(), EventType::QP_FATAL);
        assert!(second.is_qp(&a.qp));
        assert!(a.context.next_event().unwrap().is_none());
        assert_eq!(a.qp.state().unwrap(), QueuePairState::ERR);
        // What had come before is still there; nothing comes after.
        assert_eq!(
            a.outcomes(),
            [(1, WcStatus::SUCCESS), (2, WcStatus::SUCCESS)]
        );
        a.send(&mut [write(a, b, 4).signaled()]).unwrap();
        fabric.run_until_idle();
        assert!(a.outcomes().is_empty());
        assert!(fabric.counters().overruns >= 2);
    });
}
