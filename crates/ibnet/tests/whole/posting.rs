//! Requests that fail, hang or cannot be posted, on one path of several.

use std::time::Duration;

use ibnet::raw::RecvBuffer;
use ibnet::{Error, SendConnection, Wait};
use ibnet_simverbs::{DeviceSpec, Fabric, Stage, Verb, When};
use ibnet_verbs::WcStatus;

use crate::rig::{connection, ends, fabric, filled, join};

const ENOMEM: i32 = 12;
/// So large that each of 8 devices carries a part.
const LARGE: usize = 8 << 16;

#[test]
fn a_message_is_done_only_when_the_part_of_every_device_is() {
    // Pitfall 69: one counter, whatever the number of devices; those beyond the fourth count.
    for slow in ["s3", "s4", "s7"] {
        let fabric = fabric(8, 8);
        let (mut sending, mut receiving) = connection(&fabric);
        let hung = fabric.faults().hang_work(slow, When::Nth(1));
        let receive = receiving
            .recv(receiving.registrar().buffer(LARGE).unwrap(), 0)
            .wait()
            .unwrap();
        let send = sending.send(filled(&sending, LARGE, 1), 0).wait().unwrap();
        let (mut send, mut receive) = (sending.finish(send), receiving.finish(receive));
        for _ in 0..100 {
            assert!(send.try_now().unwrap().is_none(), "done without a part");
            assert!(
                receive.try_now().unwrap().is_none(),
                "arrived without a part"
            );
        }
        assert_eq!(hung.struck(), 1, "{slow} carries nothing");
        drop(sending);
        assert!(receive.wait().is_err());
    }
}

#[test]
fn every_device_carries_its_part() {
    // Seven of eight parts would be seen as a message that does not arrive; this is about
    // connections that leave a device idle.
    for (senders, receivers) in [(2, 2), (1, 8), (8, 1), (8, 8), (3, 2)] {
        let fabric = fabric(senders, receivers);
        let (mut sending, mut receiving) = connection(&fabric);
        let latest = Duration::from_micros(1);
        let watch = |side: &str, count: usize| -> Vec<_> {
            let names = (0..count).map(|index| format!("{side}{index}"));
            let delay = Duration::ZERO..=latest;
            names
                .map(|name| {
                    fabric
                        .faults()
                        .delay_completions(name.as_str(), delay.clone())
                })
                .collect()
        };
        let watched = [watch("s", senders), watch("r", receivers)];
        for _ in 0..8 {
            crate::rig::message(&mut sending, &mut receiving, LARGE, LARGE);
        }
        for fault in watched.iter().flatten() {
            assert!(fault.struck() >= 8, "{senders}-{receivers}: {fault:?}");
        }
    }
}

#[test]
fn a_post_that_fails_half_way_breaks_the_connection_and_leaks_no_request() {
    // Pitfall 78: of a message over two devices the first part is under way.
    let fabric = fabric(2, 2);
    let (mut sending, mut receiving) = connection(&fabric);
    let fault = fabric
        .faults()
        .fail_call(Verb::PostSend, "s1", When::Nth(1), ENOMEM);
    let receive = receiving
        .recv(receiving.registrar().buffer(LARGE).unwrap(), 0)
        .wait()
        .unwrap();
    let error = sending
        .send(filled(&sending, LARGE, 1), 0)
        .wait()
        .unwrap_err()
        .error;
    assert!(matches!(error, Error::Post { .. }), "{error}");
    assert_eq!(fault.struck(), 1);
    expect_latched(&mut sending, |error| matches!(error, Error::Post { .. }));
    let told = receiving.finish(receive).wait().unwrap_err().error;
    assert!(matches!(told, Error::PeerFailed { .. }), "{told}");
    sending.close().unwrap();
    receiving.close().unwrap();
}

fn expect_latched(sending: &mut SendConnection, is_expected: fn(&Error) -> bool) {
    for _ in 0..3 {
        match sending.send(filled(sending, 8, 1), 0).try_now() {
            Err(failed) => assert!(is_expected(&failed.error), "{failed}"),
            _ => panic!("a broken connection takes requests"),
        }
    }
}

#[test]
fn an_announcement_that_cannot_be_posted_breaks_the_connection() {
    // Pitfall 78, at the other end.
    let fabric = fabric(1, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    let fault = fabric
        .faults()
        .fail_call(Verb::PostSend, "r0", When::Nth(1), ENOMEM);
    let refused = receiving
        .recv(receiving.registrar().buffer(8).unwrap(), 0)
        .wait();
    assert!(matches!(refused.unwrap_err().error, Error::Post { .. }));
    assert_eq!(fault.struck(), 1);
    let told = sending
        .send(filled(&sending, 8, 1), 0)
        .wait()
        .unwrap_err()
        .error;
    assert!(matches!(told, Error::PeerFailed { .. }), "{told}");
}

#[test]
fn nothing_lands_any_more_when_the_receiver_has_failed() {
    // Pitfall 78: the application is told that its buffer is its own again.
    let builder = Fabric::builder().stepped(1);
    let builder = builder.device(DeviceSpec::roce("s0"));
    let fabric = builder.device(DeviceSpec::roce("r0")).build().unwrap();
    let (mut sending, mut receiving) = connection(&fabric);
    let mut memory = vec![0_u8; 4096];
    // SAFETY: the memory outlives the region and the connection, which are dropped before it.
    let region = unsafe {
        receiving
            .registrar()
            .register(memory.as_mut_ptr(), memory.len())
    }
    .unwrap();
    let buffers = [RecvBuffer {
        data: memory.as_mut_ptr(),
        capacity: memory.len(),
        tag: 0,
        region: Some(&region),
    }];
    // SAFETY: as above.
    let request = unsafe { receiving.raw().irecv(&buffers) }.unwrap().unwrap();
    fabric.run_until_idle();
    drop(sending.send(filled(&sending, 4096, 1), 0).wait().unwrap());
    // The message is posted and on its way; now the receiver fails.
    let fault = fabric
        .faults()
        .fail_call(Verb::PostSend, "r0", When::Nth(1), ENOMEM);
    assert!(
        receiving
            .recv(receiving.registrar().buffer(8).unwrap(), 0)
            .wait()
            .is_err()
    );
    assert_eq!(fault.struck(), 1);
    assert!(receiving.raw().test(request).is_err());
    fabric.advance(Duration::from_secs(1));
    assert!(memory.iter().all(|byte| *byte == 0), "something has landed");
    drop((sending, receiving, region));
}

#[test]
fn a_failed_completion_is_seen_by_every_request_and_names_its_path() {
    // Pitfall 82: the error is the connection's, and names both ends of the path that failed.
    let fabric = fabric(2, 2);
    let (mut sending, mut receiving) = connection(&fabric);
    let fault =
        fabric
            .faults()
            .fail_work("s1", When::Nth(1), WcStatus::RETRY_EXC_ERR, Stage::NotSent);
    let receives: Vec<_> = (0..4)
        .map(|_| {
            receiving
                .recv(receiving.registrar().buffer(LARGE).unwrap(), 0)
                .wait()
                .unwrap()
        })
        .collect();
    let sends: Vec<_> = (0..4)
        .map(|_| sending.send(filled(&sending, LARGE, 1), 0).wait().unwrap())
        .collect();
    for send in sends {
        let error = sending.finish(send).wait().unwrap_err().error;
        let text = error.to_string();
        assert!(matches!(error, Error::Completion { .. }), "{text}");
        for word in ["s1", "r1", "RETRY_EXC_ERR", "queue pair"] {
            assert!(text.contains(word), "{word} is missing: {text}");
        }
        // What failed is a path of s1; s0 has nothing to do with it.
        assert!(!text.contains("s0"), "{text}");
    }
    assert_eq!(fault.struck(), 1);
    expect_latched(&mut sending, |error| {
        matches!(error, Error::Completion { .. })
    });
    for receive in receives {
        let told = receiving.finish(receive).wait().unwrap_err().error;
        assert!(matches!(told, Error::PeerFailed { .. }), "{told}");
    }
}

#[test]
fn a_failed_announcement_is_not_blamed_on_a_request() {
    // Pitfall 82: announcements are mostly unsignalled; the error is the connection's.
    let fabric = fabric(1, 1);
    let (sending, mut receiving) = connection(&fabric);
    let fault =
        fabric
            .faults()
            .fail_work("r0", When::Nth(2), WcStatus::REM_ACCESS_ERR, Stage::NotSent);
    let receives: Vec<_> = (0..3)
        .map(|_| {
            receiving
                .recv(receiving.registrar().buffer(8).unwrap(), 0)
                .wait()
                .unwrap()
        })
        .collect();
    for receive in receives {
        let error = receiving.finish(receive).wait().unwrap_err().error;
        assert!(error.to_string().contains("REM_ACCESS_ERR"), "{error}");
    }
    assert_eq!(fault.struck(), 1);
    drop(sending);
}

#[test]
fn a_flush_that_cannot_be_posted_on_one_device_breaks_the_connection() {
    // Pitfall 85: of two reads one is under way; it is neither lost nor waited for in vain.
    let fabric = fabric(2, 2);
    let (sender, receiver) = ends(&fabric, |_| {});
    let (sending, mut receiving) = join(&sender, &receiver);
    let mut memory = vec![0_u8; 4096];
    // SAFETY: the memory outlives the region and the connection, which are dropped before it.
    let region = unsafe {
        receiving
            .registrar()
            .register_device_memory(memory.as_mut_ptr(), memory.len())
    }
    .unwrap();
    let fault = fabric
        .faults()
        .fail_call(Verb::PostSend, "r1", When::Nth(1), ENOMEM);
    // SAFETY: as above.
    let mut flush = || unsafe { receiving.raw().iflush(&[(memory.as_ptr(), 4096, &region)]) };
    let error = flush().unwrap_err();
    assert!(matches!(error, Error::Post { .. }), "{error}");
    assert_eq!(fault.struck(), 1);
    assert!(flush().is_err(), "a broken connection flushes");
    drop((sending, receiving, region));
}
