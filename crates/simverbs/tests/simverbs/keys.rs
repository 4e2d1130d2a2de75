//! Keys and ranges: what a simulated device refuses beyond what `conformance` observes on all devices.

use ibnet_verbs::{
    EventType, QueuePairState, RecvRequest, RemoteAddress, SendRequest, Sge, WcStatus,
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
fn reads_and_writes_with_immediate_beyond_the_region_are_denied() {
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
fn the_remote_key_is_no_local_key() {
    let request = |a: &End, b: &End| {
        let sge = a.sge(0, 8).map(|sge| Sge {
            lkey: a.region.rkey(),
            ..sge
        });
        SendRequest::write(0, sge, b.remote(0))
    };
    refused(&Setup::default(), request, WcStatus::LOC_PROT_ERR, None);
}

#[test]
fn an_element_of_no_bytes_needs_no_key() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, fabric, .. } = pair;
        let nowhere = RemoteAddress::default();
        a.send(&mut [SendRequest::write(1, Some(Sge::default()), nowhere).signaled()])
            .unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
    });
}

#[test]
fn a_receive_of_which_not_all_is_registered_fails_both_ends() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let beyond = b.sge(LENGTH - 50, 51).unwrap();
        b.receive(&mut [RecvRequest::new(5).with_sge(beyond), RecvRequest::new(6)])
            .unwrap();
        a.send(&mut [SendRequest::send(1, a.sge(0, 8))]).unwrap();
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(1, WcStatus::REM_OP_ERR)]);
        assert_eq!(
            b.outcomes(),
            [(5, WcStatus::LOC_PROT_ERR), (6, WcStatus::WR_FLUSH_ERR)]
        );
    });
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
    let read = |a: &End, b: &End| SendRequest::read(0, a.sge(0, 8), b.remote(0));
    refused(&setup, read, WcStatus::LOC_QP_OP_ERR, None);
}
