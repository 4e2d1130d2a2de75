//! Devices and queue pairs that fail: seen by the next call, whichever that is, also when no
//! completion arrives.

use std::time::Duration;

use ibnet::raw::{Flush, RecvBuffer};
use ibnet::{Error, RecvConnection, SendConnection, Wait};
use ibnet_simverbs::{Fabric, TraceEvent, When};

use crate::rig::{
    PATIENCE, connection, ends, eventually, expect_nothing_left, fabric, filled, flushing, join,
    message,
};

/// Tries to send with a tag that no buffer has, which gives the error of the connection, if it
/// has one.
fn sending_error(sending: &mut SendConnection) -> Option<Error> {
    // SAFETY: an empty message has no memory.
    unsafe { sending.raw().isend(std::ptr::null(), 0, 99, None) }.err()
}

/// Tries to receive.
fn receiving_error(receiving: &mut RecvConnection) -> Option<Error> {
    let nowhere = RecvBuffer {
        data: std::ptr::null_mut(),
        capacity: 0,
        tag: 0,
        region: None,
    };
    // SAFETY: an empty buffer has no memory.
    unsafe { receiving.raw().irecv(&[nowhere]) }.err()
}

#[test]
fn a_device_that_fails_is_seen_by_the_next_call_without_any_completion() {
    // Pitfall 79: nothing is outstanding, so that no completion will ever arrive.
    for is_removed in [false, true] {
        for devices in [1, 2] {
            let last = devices - 1;
            let fabric = fabric(devices, devices);
            let (mut sending, receiving) = connection(&fabric);
            break_device(&fabric, &format!("s{last}"), is_removed);
            let error = eventually("the failure", || sending_error(&mut sending));
            expect_fatal(&error, "s0");
            // It stays.
            expect_fatal(&sending_error(&mut sending).unwrap(), "s0");
            sending.close().unwrap();
            drop(receiving);

            let fabric = crate::rig::fabric(devices, devices);
            let (sending, mut receiving) = connection(&fabric);
            break_device(&fabric, &format!("r{last}"), is_removed);
            let error = eventually("the failure", || receiving_error(&mut receiving));
            expect_fatal(&error, "r0");
            expect_fatal(&receiving_error(&mut receiving).unwrap(), "r0");
            receiving.close().unwrap();
            drop(sending);
        }
    }
}

fn break_device(fabric: &Fabric, name: &str, is_removed: bool) {
    let hca = fabric.hca(name).unwrap();
    if is_removed {
        hca.remove();
    } else {
        hca.fail();
    }
}

/// A device that is gone refuses what is posted or polled, perhaps before its last event was read.
fn expect_fatal(error: &Error, device: &str) {
    let is_fatal = matches!(
        error,
        Error::DeviceFatal { .. } | Error::Post { .. } | Error::Verbs(_)
    );
    assert!(is_fatal, "{error}");
    assert!(error.to_string().contains(device), "{error}");
}

#[test]
fn outstanding_requests_end_when_the_device_fails_and_the_peer_is_told() {
    // Pitfalls 79 and 82: every request of the connection ends, not the one that was asked for.
    let fabric = fabric(2, 2);
    let (mut sending, mut receiving) = connection(&fabric);
    let receives: Vec<_> = (0..5)
        .map(|_| {
            receiving
                .recv(receiving.registrar().buffer(100).unwrap(), 0)
                .wait()
                .unwrap()
        })
        .collect();
    break_device(&fabric, "r1", true);
    for receive in receives {
        expect_fatal(&receiving.finish(receive).wait().unwrap_err().error, "r0");
    }
    // The sender is on a healthy device and learns of it by the control channel.
    let told = eventually("the news", || {
        match sending.send(filled(&sending, 8, 1), 0).try_now() {
            Err(failed) => Some(failed.error),
            Ok(_) => None,
        }
    });
    let is_told = matches!(told, Error::PeerFailed { .. } | Error::Completion { .. });
    assert!(is_told, "{told}");
    sending.close().unwrap();
    receiving.close().unwrap();
}

#[test]
fn a_queue_pair_that_fails_ends_its_connection_and_no_other() {
    // Pitfalls 8 and 79.
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = 2);
    let (mut sending, mut receiving) = join(&sender, &receiver);
    let others: Vec<u32> = queue_pairs(&fabric);
    let (mut unhurt_sending, mut unhurt_receiving) = join(&sender, &receiver);
    let hca = fabric.hca("s0").unwrap();
    let failed = others.iter().filter(|number| hca.fail_queue_pair(**number));
    assert_eq!(failed.count(), 2, "both queue pairs of the sender");
    let error = eventually("the failure", || sending_error(&mut sending));
    expect_fatal(&error, "s0");
    let told = eventually("the news", || receiving_error(&mut receiving));
    assert!(matches!(told, Error::PeerFailed { .. }), "{told}");
    message(&mut unhurt_sending, &mut unhurt_receiving, 5000, 5000);
}

#[test]
fn a_queue_pair_for_flushing_that_fails_ends_its_connection() {
    // Before anything was flushed: what has arrived could never be seen by the device that it is for.
    let fabric = fabric(1, 1);
    let (sending, mut receiving) = connection(&fabric);
    let hca = fabric.hca("r0").unwrap();
    let [flushing] = flushing(&hca)[..] else {
        panic!("one queue pair for flushing");
    };
    assert!(hca.fail_queue_pair(flushing.number));
    let error = eventually("the failure", || receiving_error(&mut receiving));
    expect_fatal(&error, "r0");
    drop(sending);
}

/// The numbers of all queue pairs that were made since this was asked for.
fn queue_pairs(fabric: &Fabric) -> Vec<u32> {
    let trace = fabric.take_trace();
    let mut numbers: Vec<u32> = trace
        .iter()
        .filter_map(|entry| match entry.event {
            TraceEvent::Entered { qp, .. } => Some(qp),
            _ => None,
        })
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[test]
fn a_completion_queue_that_overruns_ends_its_connection() {
    // The device's fault: we make them large enough (pitfall 46).
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let fault = fabric.faults().overrun_cq("r0", When::Nth(1));
    let receive = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    let send = sending.send(filled(&sending, 8, 1), 0).wait().unwrap();
    let error = receiving.finish(receive).wait().unwrap_err().error;
    assert!(
        matches!(error, Error::DeviceFatal { .. } | Error::Verbs(_)),
        "{error}"
    );
    assert_eq!(fault.struck(), 1);
    let _ = sending.finish(send).wait();
}

#[test]
fn who_does_not_want_events_is_not_ended_by_them() {
    // `NCCL_IB_RETURN_ASYNC_EVENTS=0`: a queue pair's failure shows by its completions alone.
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |config| config.return_async_events = false);
    let (mut sending, mut receiving) = join(&sender, &receiver);
    let hca = fabric.hca("s0").unwrap();
    let failed = queue_pairs(&fabric)
        .into_iter()
        .filter(|number| hca.fail_queue_pair(*number));
    assert_eq!(failed.count(), 1);
    std::thread::sleep(Duration::from_millis(50));
    assert!(
        sending_error(&mut sending).is_none(),
        "the event was returned"
    );
    let receive = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .wait()
        .unwrap();
    // The announcement finds no queue pair, or the data is flushed: either way there is an error.
    match sending.send(filled(&sending, 8, 1), 0).try_now() {
        Ok(Some(send)) => {
            let error = sending.finish(send).wait().unwrap_err().error;
            assert!(matches!(error, Error::Completion { .. }), "{error}");
        }
        Ok(None) => {}
        Err(failed) => panic!("{failed}"),
    }
    drop(sending);
    assert!(receiving.finish(receive).wait().is_err());
}

#[test]
fn a_device_that_recovers_serves_new_connections() {
    // Pitfall 8: a failure is of the connections that there are, not of the device for ever.
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |_| {});
    let (mut sending, receiving) = join(&sender, &receiver);
    fabric.hca("s0").unwrap().fail();
    expect_fatal(
        &eventually("the failure", || sending_error(&mut sending)),
        "s0",
    );
    let (mut fresh_sending, mut fresh_receiving) = join(&sender, &receiver);
    message(&mut fresh_sending, &mut fresh_receiving, 5000, 5000);
    drop((
        sending,
        receiving,
        fresh_sending,
        fresh_receiving,
        sender,
        receiver,
    ));
    expect_nothing_left(&fabric);
}

#[test]
fn a_device_removed_in_mid_transfer_ends_everything_in_time() {
    // Pitfall 97: closing afterwards is no trouble, and nothing hangs.
    let fabric = fabric(2, 2);
    let (mut sending, mut receiving) = connection(&fabric);
    let receives: Vec<_> = (0..32)
        .map(|_| {
            receiving
                .recv(receiving.registrar().buffer(1 << 20).unwrap(), 0)
                .wait()
                .unwrap()
        })
        .collect();
    let sends: Vec<_> = (0..16)
        .map(|_| {
            sending
                .send(filled(&sending, 1 << 20, 3), 0)
                .wait()
                .unwrap()
        })
        .collect();
    let start = std::time::Instant::now();
    fabric.hca("s1").unwrap().remove();
    let failed = sends
        .into_iter()
        .filter_map(|send| sending.finish(send).wait().err());
    for failed in failed {
        expect_fatal(&failed.error, "s0");
    }
    expect_fatal(
        &eventually("the failure", || sending_error(&mut sending)),
        "s0",
    );
    let failed = receives
        .into_iter()
        .filter_map(|receive| receiving.finish(receive).wait().err());
    assert!(failed.count() >= 16, "what was never sent has arrived");
    sending.close().unwrap();
    receiving.close().unwrap();
    assert!(start.elapsed() < PATIENCE);
}

#[test]
fn a_flush_ends_when_the_device_fails() {
    // Pitfalls 79 and 85.
    let fabric = fabric(1, 2);
    let (mut sending, mut receiving) = connection(&fabric);
    let mut memory = vec![0_u8; 4096];
    // SAFETY: the memory outlives the region and the connection, which are dropped before it.
    let region = unsafe {
        receiving
            .registrar()
            .register_device_memory(memory.as_mut_ptr(), memory.len())
    }
    .unwrap();
    message(&mut sending, &mut receiving, 10, 10);
    let hung = fabric.faults().hang_work("r1", When::Nth(1));
    // SAFETY: as above.
    let flush = unsafe { receiving.raw().iflush(&[(memory.as_ptr(), 4096, &region)]) }.unwrap();
    let Flush::Started(request) = flush else {
        panic!("{flush:?}");
    };
    for _ in 0..100 {
        assert!(
            receiving.raw().test(request).unwrap().is_none(),
            "half a flush"
        );
    }
    assert_eq!(hung.struck(), 1);
    break_device(&fabric, "r1", false);
    let error = eventually("the failure", || receiving.raw().test(request).err());
    expect_fatal(&error, "r0");
    drop((sending, receiving, region));
}

#[test]
fn a_flush_has_its_own_time_after_the_sender_has_left() {
    // Pitfall 97: what has arrived is the receiver's, however long ago the sender left.
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let mut memory = vec![0_u8; 4096];
    // SAFETY: the memory outlives the region and the connection, which are dropped before it.
    let region = unsafe {
        receiving
            .registrar()
            .register_device_memory(memory.as_mut_ptr(), memory.len())
    }
    .unwrap();
    message(&mut sending, &mut receiving, 10, 10);
    sending.close().unwrap();
    eventually("the Close", || receiving_error(&mut receiving));
    // Longer than requests get that were under way then.
    std::thread::sleep(Duration::from_millis(300));
    let hour = Duration::from_secs(3600);
    let slow = fabric.faults().delay_completions("r0", hour..=hour);
    // SAFETY: as above.
    let flush = unsafe { receiving.raw().iflush(&[(memory.as_ptr(), 4096, &region)]) }.unwrap();
    let Flush::Started(request) = flush else {
        panic!("{flush:?}");
    };
    assert!(
        receiving.raw().test(request).unwrap().is_none(),
        "it has not completed"
    );
    assert_eq!(slow.struck(), 1);
    // But no more than that.
    let error = eventually("the end", || receiving.raw().test(request).err());
    assert!(matches!(error, Error::PeerClosed { .. }), "{error}");
    drop((receiving, region));
}
