//! Keys, ranges, domains and permissions: what is refused, and how.

use ibnet_verbs::{
    Access, EventType, QueuePairState, RecvRequest, RemoteAddress, SendRequest, Sge, WcStatus,
};

use crate::pairs::{End, LENGTH, Pair, Setup, in_both_modes, two_roce};

/// A request that fails with a status, and the event that the peer gets.
fn refused(
    setup: &Setup,
    request: impl Fn(&End, &End) -> SendRequest,
    status: WcStatus,
    event: Option<EventType>,
) {
    in_both_modes(setup, |pair| {
        let Pair { a, b, fabric } = pair;
        b.memory.write(0, &[7; 64]);
        let good = SendRequest::write(1, a.sge(0, 1), b.remote(100)).signaled();
        a.send(&mut [good, request(a, b).with_wr_id(2), good.with_wr_id(3)])
            .unwrap();
        fabric.run_until_idle();
        let expected = [
            (1, WcStatus::SUCCESS),
            (2, status),
            (3, WcStatus::WR_FLUSH_ERR),
        ];
        assert_eq!(a.outcomes(), expected);
        assert_eq!(a.qp.state().unwrap(), QueuePairState::ERR);
        // Nothing was written.
        assert_eq!(b.memory.read(0..64), [7; 64]);
        let told = b.context.next_event().unwrap();
        assert_eq!(told.as_ref().map(|told| told.kind()), event);
        let state = match event {
            Some(_) => QueuePairState::ERR,
            None => QueuePairState::RTS,
        };
        assert_eq!(b.qp.state().unwrap(), state);
    });
}

fn denied(request: impl Fn(&End, &End) -> SendRequest) {
    let event = Some(EventType::QP_ACCESS_ERR);
    refused(&Setup::default(), request, WcStatus::REM_ACCESS_ERR, event);
}

fn own_fault(setup: &Setup, request: impl Fn(&End, &End) -> SendRequest) {
    refused(setup, request, WcStatus::LOC_PROT_ERR, None);
}

#[test]
fn a_wrong_remote_key_is_denied() {
    denied(|a, b| {
        let RemoteAddress { address, rkey } = b.remote(0);
        SendRequest::write(
            0,
            a.sge(0, 8),
            RemoteAddress {
                address,
                rkey: rkey ^ 0x1000,
            },
        )
    });
}

#[test]
fn the_local_key_is_no_remote_key() {
    denied(|a, b| {
        let (address, rkey) = (b.remote(0).address, b.region.lkey());
        SendRequest::write(0, a.sge(0, 8), RemoteAddress { address, rkey })
    });
}

#[test]
fn a_key_of_another_device_is_denied() {
    denied(|a, b| {
        let (address, rkey) = (b.remote(0).address, a.region.rkey());
        SendRequest::write(0, a.sge(0, 8), RemoteAddress { address, rkey })
    });
}

#[test]
fn bytes_beyond_the_region_are_denied() {
    denied(|a, b| SendRequest::write(0, a.sge(0, 8), b.remote(LENGTH - 7)));
    denied(|a, b| {
        let RemoteAddress { address, rkey } = b.remote(0);
        let before = RemoteAddress {
            address: address - 1,
            rkey,
        };
        SendRequest::write_with_immediate(0, a.sge(0, 8), before, 1)
    });
    denied(|a, b| SendRequest::read(0, a.sge(0, 8), b.remote(LENGTH - 7)));
}

#[test]
fn a_region_without_permission_is_denied() {
    let setup = |region_access| Setup {
        region_access,
        ..Setup::default()
    };
    let event = Some(EventType::QP_ACCESS_ERR);
    let local = setup(Access::LOCAL_WRITE);
    refuse_after_nothing(&local, |a, b| {
        (
            SendRequest::write(1, a.sge(0, 8), b.remote(0)),
            WcStatus::REM_ACCESS_ERR,
            event,
        )
    });
    let write_only = setup(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let read = |a: &End, b: &End| SendRequest::read(0, a.sge(0, 8), b.remote(0));
    refused(&write_only, read, WcStatus::REM_ACCESS_ERR, event);
}

/// As [`refused`], without a good request before.
fn refuse_after_nothing(
    setup: &Setup,
    request: impl Fn(&End, &End) -> (SendRequest, WcStatus, Option<EventType>),
) {
    in_both_modes(setup, |pair| {
        let Pair { a, b, fabric } = pair;
        let (request, status, event) = request(a, b);
        a.send(&mut [request]).unwrap();
        fabric.run_until_idle();
        let outcomes: Vec<_> = a.outcomes().iter().map(|(_, status)| *status).collect();
        assert_eq!(outcomes, [status]);
        let told = b.context.next_event().unwrap();
        assert_eq!(told.as_ref().map(|told| told.kind()), event);
    });
}

#[test]
fn a_queue_pair_without_permission_finds_the_request_invalid() {
    let event = Some(EventType::QP_REQ_ERR);
    let setup = Setup {
        access: Access::empty(),
        ..Setup::default()
    };
    refuse_after_nothing(&setup, |a, b| {
        (
            SendRequest::write(1, a.sge(0, 8), b.remote(0)),
            WcStatus::REM_INV_REQ_ERR,
            event,
        )
    });
    refuse_after_nothing(&setup, |a, b| {
        (
            SendRequest::read(1, a.sge(0, 8), b.remote(0)),
            WcStatus::REM_INV_REQ_ERR,
            event,
        )
    });
}

#[test]
fn a_region_of_another_domain_is_denied() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let other = b.context.allocate_pd().unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        // SAFETY: the memory of `b` outlives the region.
        let region = unsafe { other.register(b.memory.as_ptr(), LENGTH, access) }.unwrap();
        let remote = RemoteAddress {
            address: region.address(),
            rkey: region.rkey(),
        };
        a.send(&mut [SendRequest::write(1, a.sge(0, 8), remote)])
            .unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::REM_ACCESS_ERR)]);
    });
}

#[test]
fn a_deregistered_region_is_denied() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        // SAFETY: the memory of `b` outlives the region.
        let region = unsafe { b.pd.register(b.memory.as_ptr(), LENGTH, access) }.unwrap();
        let remote = RemoteAddress {
            address: region.address(),
            rkey: region.rkey(),
        };
        let write = SendRequest::write(1, a.sge(0, 8), remote).signaled();
        a.send(&mut [write]).unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        region.deregister().unwrap();
        a.send(&mut [write]).unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::REM_ACCESS_ERR)]);
    });
}

#[test]
fn local_mistakes_are_ones_own() {
    let setup = Setup::default();
    own_fault(&setup, |a, b| {
        let sge = a.sge(0, 8).map(|sge| Sge {
            lkey: sge.lkey ^ 0x100,
            ..sge
        });
        SendRequest::write(0, sge, b.remote(0))
    });
    own_fault(&setup, |a, b| {
        let sge = a.sge(0, 8).map(|sge| Sge {
            lkey: a.region.rkey(),
            ..sge
        });
        SendRequest::write(0, sge, b.remote(0))
    });
    own_fault(&setup, |a, b| {
        SendRequest::write(0, a.sge(LENGTH - 7, 8), b.remote(0))
    });
    // A read writes to local memory.
    let read_only = Setup {
        region_access: Access::empty(),
        ..setup
    };
    refuse_after_nothing(&read_only, |a, b| {
        (
            SendRequest::read(1, a.sge(0, 8), b.remote(0)),
            WcStatus::LOC_PROT_ERR,
            None,
        )
    });
}

#[test]
fn zero_bytes_need_no_key() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        b.receive_immediates([9]);
        let nowhere = RemoteAddress::default();
        let mut chain = [
            SendRequest::write(1, None, nowhere).signaled(),
            SendRequest::write_with_immediate(2, None, nowhere, 3).signaled(),
            SendRequest::read(3, None, nowhere).signaled(),
            // An element of no bytes is not looked at either.
            SendRequest::write(4, Some(Sge::default()), nowhere).signaled(),
        ];
        a.send(&mut chain).unwrap();
        fabric.run_until_idle();
        assert_eq!(
            a.outcomes(),
            [1, 2, 3, 4].map(|wr_id| (wr_id, WcStatus::SUCCESS))
        );
        let received = b.poll();
        assert_eq!(
            (received[0].byte_len(), received[0].immediate()),
            (0, Some(3))
        );
    });
}

#[test]
fn inline_data_needs_no_key() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let text = *b"not registered";
        let sge = Sge {
            address: text.as_ptr() as u64,
            length: 14,
            lkey: 0,
        };
        a.send(&mut [SendRequest::write(1, Some(sge), b.remote(5))
            .inline()
            .signaled()])
            .unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        assert_eq!(b.memory.read(5..19), text);
    });
}

#[test]
fn a_receive_that_is_too_short_or_not_writable_fails_both_ends() {
    let cases = |b: &End| {
        let short = b.sge(0, 7).unwrap();
        let wrong = Sge {
            lkey: b.region.rkey(),
            ..b.sge(0, 100).unwrap()
        };
        // Long enough, but not all of it is registered.
        let beyond = b.sge(LENGTH - 50, 51).unwrap();
        [
            (beyond, WcStatus::LOC_PROT_ERR, WcStatus::REM_OP_ERR),
            (short, WcStatus::LOC_LEN_ERR, WcStatus::REM_INV_REQ_ERR),
            (wrong, WcStatus::LOC_PROT_ERR, WcStatus::REM_OP_ERR),
        ]
    };
    for case in 0..3 {
        in_both_modes(&Setup::default(), |pair| {
            let Pair { a, b, fabric } = pair;
            let (sge, receiver, sender) = cases(b)[case];
            b.receive(&mut [RecvRequest::new(5).with_sge(sge), RecvRequest::new(6)])
                .unwrap();
            a.send(&mut [SendRequest::send(1, a.sge(0, 8))]).unwrap();
            fabric.run_until_idle();
            assert_eq!(a.outcomes(), [(1, sender)]);
            assert_eq!(b.outcomes(), [(5, receiver), (6, WcStatus::WR_FLUSH_ERR)]);
        });
    }
}

#[test]
fn reads_beyond_what_the_peer_serves_are_invalid() {
    let setup = Setup::default();
    let pair = Pair::unconnected(two_roce().stepped(1).build().unwrap(), &setup);
    let Pair { a, b, fabric } = &pair;
    a.connect_to(b, &setup).unwrap();
    b.connect_to(a, &Setup { reads: 0, ..setup }).unwrap();
    a.send(&mut [SendRequest::read(1, a.sge(0, 8), b.remote(0))])
        .unwrap();
    fabric.run_until_idle();
    assert_eq!(a.outcomes(), [(1, WcStatus::REM_INV_REQ_ERR)]);
}

#[test]
fn a_queue_pair_without_reads_cannot_read() {
    let setup = Setup {
        reads: 0,
        ..Setup::default()
    };
    refuse_after_nothing(&setup, |a, b| {
        (
            SendRequest::read(1, a.sge(0, 8), b.remote(0)),
            WcStatus::LOC_QP_OP_ERR,
            None,
        )
    });
}
