//! Asynchronous events: who is told what, how it is waited for, and acknowledging.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ibnet_simverbs::{DeviceSpec, Fabric, GidSlot};
use ibnet_verbs::{Context, EventType, QueuePairState, SendRequest, WcStatus};

use crate::pairs::{Pair, Setup, in_both_modes, open_all, two_roce};

/// Whether poll(2) says that an event is pending.
fn is_readable(fd: &impl AsRawFd) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the argument is one valid entry.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// All pending events: what, and on which port.
fn drain(context: &Context) -> Vec<(EventType, Option<u8>)> {
    std::iter::from_fn(|| context.next_event().unwrap())
        .map(|event| (event.kind(), event.port()))
        .collect()
}

#[test]
fn the_descriptor_is_readable_exactly_while_something_is_pending() {
    let fabric = two_roce().build().unwrap();
    let contexts = open_all(&fabric);
    let port = fabric.hca("sim0").unwrap().port(1).unwrap();
    assert!(!is_readable(&contexts[0].async_fd()));
    assert!(contexts[0].next_event().unwrap().is_none());
    port.down();
    port.up();
    assert!(is_readable(&contexts[0].async_fd()));
    assert_eq!(
        contexts[0].next_event().unwrap().unwrap().kind(),
        EventType::PORT_ERR
    );
    assert!(is_readable(&contexts[0].async_fd()));
    assert_eq!(
        contexts[0].next_event().unwrap().unwrap().kind(),
        EventType::PORT_ACTIVE
    );
    assert!(!is_readable(&contexts[0].async_fd()));
    assert!(contexts[0].next_event().unwrap().is_none());
    // The other device is not concerned.
    assert!(contexts[1].next_event().unwrap().is_none());
}

#[test]
fn everybody_who_has_the_device_open_is_told() {
    let fabric = Fabric::builder()
        .device(DeviceSpec::infiniband("ib0"))
        .build()
        .unwrap();
    let contexts = [open_all(&fabric), open_all(&fabric)].concat();
    let port = fabric.hca("ib0").unwrap().port(1).unwrap();
    port.set_lid(77);
    port.set_gid(1, GidSlot::infiniband(0xfe80 << 48, 5));
    port.up();
    for context in &contexts {
        let expected = [
            (EventType::LID_CHANGE, Some(1)),
            (EventType::GID_CHANGE, Some(1)),
        ];
        assert_eq!(drain(context), expected);
        assert_eq!(context.port(1).unwrap().lid, 77);
        assert_eq!(
            context
                .gid_table(1, &ibnet_verbs::Sysfs::default())
                .unwrap()
                .len(),
            2
        );
    }
}

#[test]
fn the_first_packet_in_rtr_is_reported() {
    for reports in [true, false] {
        let device = |name| match reports {
            true => DeviceSpec::roce(name),
            false => DeviceSpec::roce(name).without_established_events(),
        };
        let fabric = Fabric::builder()
            .device(device("sim0"))
            .device(device("sim1"));
        let setup = Setup::default();
        let pair = Pair::unconnected(fabric.stepped(1).build().unwrap(), &setup);
        let Pair { a, b, fabric } = &pair;
        b.init(&setup).unwrap();
        b.qp.to_rtr(&b.to_rtr(a, &setup)).unwrap();
        a.connect_to(b, &setup).unwrap();
        for _ in 0..2 {
            a.send(&mut [SendRequest::write(1, a.sge(0, 8), b.remote(0))])
                .unwrap();
            fabric.run_until_idle();
        }
        let event = b.context.next_event().unwrap();
        assert_eq!(event.is_some(), reports);
        if let Some(event) = event {
            assert_eq!(event.kind(), EventType::COMM_EST);
            assert!(event.is_qp(&b.qp));
        }
        assert!(b.context.next_event().unwrap().is_none());
    }
}

#[test]
fn a_queue_pair_is_not_destroyed_before_its_events_are_acknowledged() {
    let setup = Setup::default();
    let Pair { a, b, fabric } = Pair::free_running(&setup);
    let remote = ibnet_verbs::RemoteAddress::default();
    a.send(&mut [SendRequest::write(1, a.sge(0, 8), remote)])
        .unwrap();
    let event = b.context.next_event().unwrap().unwrap();
    assert_eq!(event.kind(), EventType::QP_ACCESS_ERR);
    assert_eq!(event.qp_number(), Some(b.qp.number()));
    let is_acknowledged = AtomicBool::new(false);
    thread::scope(|scope| {
        let destroyer = scope.spawn(|| {
            let End { qp, .. } = b;
            drop(qp);
            assert!(is_acknowledged.load(Ordering::SeqCst), "it did not wait");
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!destroyer.is_finished());
        assert_eq!(fabric.live_objects().qps, 2);
        is_acknowledged.store(true, Ordering::SeqCst);
        drop(event);
        destroyer.join().unwrap();
    });
    assert_eq!(fabric.live_objects().qps, 1);
}

use crate::pairs::End;

/// Only what was taken has to be acknowledged.
#[test]
fn events_that_were_not_taken_go_with_their_object() {
    let setup = Setup::default();
    let Pair { a, b, .. } = Pair::free_running(&setup);
    let context = b.context.clone();
    a.send(&mut [SendRequest::write(
        1,
        a.sge(0, 8),
        ibnet_verbs::RemoteAddress::default(),
    )])
    .unwrap();
    assert!(is_readable(&context.async_fd()));
    drop(b);
    assert!(!is_readable(&context.async_fd()));
    assert!(context.next_event().unwrap().is_none());
}

#[test]
fn a_thread_can_wait_for_an_event() {
    let fabric = two_roce().build().unwrap();
    let context = open_all(&fabric).remove(0);
    // As a program that leaves the descriptor as it was given.
    let fd = context.async_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and the flags are a plain number.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, 0) }, 0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| context.next_event().unwrap().unwrap().kind());
        thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        fabric.hca("sim0").unwrap().port(1).unwrap().down();
        assert_eq!(waiter.join().unwrap(), EventType::PORT_ERR);
    });
}

#[test]
fn events_can_be_had_without_a_cause() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let hca = fabric.hca("sim0").unwrap();
        hca.port(1).unwrap().report(EventType::SM_CHANGE);
        assert_eq!(drain(&a.context), [(EventType::SM_CHANGE, Some(1))]);

        assert!(
            !hca.fail_queue_pair(b.qp.number()),
            "it is of another device"
        );
        a.receive_immediates([5]);
        assert!(hca.fail_queue_pair(a.qp.number()));
        let event = a.context.next_event().unwrap().unwrap();
        assert_eq!(event.kind(), EventType::QP_FATAL);
        assert!(event.is_qp(&a.qp));
        fabric.run_until_idle();
        assert_eq!(a.outcomes(), [(5, WcStatus::WR_FLUSH_ERR)]);
        assert!(b.context.next_event().unwrap().is_none());
    });
}

#[test]
fn a_device_that_fails_takes_its_queue_pairs_with_it() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        a.receive_immediates([5]);
        fabric.hca("sim0").unwrap().fail();
        fabric.run_until_idle();
        assert_eq!(drain(&a.context), [(EventType::DEVICE_FATAL, None)]);
        assert_eq!(a.outcomes(), [(5, WcStatus::WR_FLUSH_ERR)]);
        assert_eq!(a.qp.state().unwrap(), QueuePairState::ERR);
        // New objects can be made, as after a reset by the driver.
        let again = End::new(&a.context, &Setup::default());
        again.connect_to(b, &Setup::default()).unwrap();
    });
}

#[test]
fn a_device_that_is_removed_is_gone() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        let write = SendRequest::write(1, b.sge(0, 8), a.remote(0)).signaled();
        a.receive_immediates([5]);
        fabric.hca("sim0").unwrap().remove();
        fabric.run_until_idle();
        let names: Vec<_> = fabric.library().devices().unwrap();
        assert_eq!(
            names.iter().map(|device| device.name()).collect::<Vec<_>>(),
            ["sim1"]
        );
        let event = a.context.next_event().unwrap().unwrap();
        assert_eq!(event.kind(), EventType::DEVICE_FATAL);
        drop(event);
        assert_eq!(a.context.next_event().unwrap_err().errno(), Some(libc::EIO));
        assert!(
            is_readable(&a.context.async_fd()),
            "as a descriptor that hung up"
        );
        assert_eq!(a.outcomes(), [(5, WcStatus::WR_FLUSH_ERR)]);
        let errno = |error: ibnet_verbs::Error| error.errno();
        assert_eq!(a.context.port(1).map_err(errno), Err(Some(libc::EIO)));
        assert_eq!(
            a.context.create_cq(4).map(|_| ()).map_err(errno),
            Err(Some(libc::EIO))
        );
        assert_eq!(a.qp.to_reset().map_err(errno), Err(Some(libc::EIO)));
        let posted = a.send(&mut [SendRequest::send(2, None)]);
        assert_eq!(posted.unwrap_err().errno(), Some(libc::EIO));
        // The peer learns it the hard way.
        b.send(&mut [write]).unwrap();
        while b.qp.state().unwrap() == QueuePairState::RTS {
            fabric.step();
            b.poll();
        }
        assert!(
            fabric
                .counters()
                .lost(ibnet_simverbs::LossReason::DeviceRemoved)
                > 0
        );
    });
}
