//! Requests that no queue takes, and completion queues that overflow. `conformance` observes places in
//! queues.

use std::ptr;

use ibnet_verbs::sys::{ibv_send_wr, ibv_sge, ibv_wr_opcode};
use ibnet_verbs::{EventType, QueuePairState, SendRequest, WcStatus};

use crate::pairs::{End, Pair, Setup, in_both_modes};

fn write(a: &End, b: &End, wr_id: u64) -> SendRequest {
    SendRequest::write(wr_id, a.sge(0, 8), b.remote(0))
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, .. } = pair;
        let inline_read = SendRequest::read(1, a.sge(0, 8), b.remote(0)).inline();
        let error = a.send(&mut [inline_read]).unwrap_err();
        assert_eq!((error.accepted, error.errno()), (0, Some(libc::EINVAL)));

        let mut elements = [ibv_sge::default(); 2];
        let mut request = ibv_send_wr {
            sg_list: elements.as_mut_ptr(),
            num_sge: -1,
            ..Default::default()
        };
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
