//! Devices with little of everything.

use ibnet::raw::Flush;
use ibnet::{Error, Wait};
use ibnet_simverbs::{DeviceSpec, Fabric, Limits, PortSpec};

use crate::rig::{
    PATIENCE, build, connection, ends, eventually, fabric, filled, join, message, try_join,
};

fn limited(senders: usize, receivers: usize, limits: Limits, port: &PortSpec) -> Fabric {
    let names = |side: &'static str, count| (0..count).map(move |index| format!("{side}{index}"));
    let all = names("s", senders).chain(names("r", receivers));
    build(all.map(|name| DeviceSpec::roce(name).limits(limits).ports([port.clone()])))
}

#[test]
fn shallow_queues_slow_down_and_nothing_else() {
    // Pitfalls 46 and 47: what a device grants is what is used; nothing overruns, whatever is
    // outstanding.
    for (max_qp_wr, max_cqe) in [(8, 1 << 20), (64, 600), (300, 300), (1 << 14, 200)] {
        for (senders, receivers, queue_pairs) in [(1, 1, 1), (1, 1, 3), (2, 1, 1), (1, 2, 2)] {
            let limits = Limits {
                max_qp_wr,
                max_cqe,
                ..Limits::default()
            };
            let fabric = limited(senders, receivers, limits, &PortSpec::roce());
            let (sender, receiver) = ends(&fabric, |config| {
                config.queue_pairs = queue_pairs;
                config.min_part = Some(256);
                config.split_data = true;
            });
            let (mut sending, mut receiving) = join(&sender, &receiver);
            let mut received = 0;
            while received < 600 {
                let (mut receives, mut sends) = (Vec::new(), Vec::new());
                // As much as can be outstanding, and then everything is asked for.
                let mut refusals = 0;
                while refusals < 20 && receives.len() < 200 {
                    let buffer = receiving.registrar().buffer(1000).unwrap();
                    match receiving.recv(buffer, 0).try_now().unwrap() {
                        Some(ticket) => receives.push(ticket),
                        None => refusals += 1,
                    }
                }
                while sends.len() < receives.len() {
                    sends.push(sending.send(filled(&sending, 1000, 9), 0).wait().unwrap());
                }
                received += receives.len();
                for ticket in receives {
                    assert!(
                        receiving
                            .finish(ticket)
                            .wait()
                            .unwrap()
                            .iter()
                            .all(|byte| *byte == 9)
                    );
                }
                for ticket in sends {
                    sending.finish(ticket).wait().unwrap();
                }
            }
            let counters = fabric.counters();
            assert_eq!(
                (counters.overruns, counters.not_ready),
                (0, 0),
                "{limits:?}"
            );
        }
    }
}

#[test]
fn queues_that_are_too_small_are_named() {
    let few = |max_qp_wr, max_cqe| Limits {
        max_qp_wr,
        max_cqe,
        ..Limits::default()
    };
    for (limits, queue_pairs) in [
        (few(4, 1 << 20), 1),
        (few(1 << 14, 40), 1),
        (few(1 << 14, 300), 100),
    ] {
        let fabric = limited(1, 1, limits, &PortSpec::roce());
        let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = queue_pairs);
        let before = fabric.live_objects();
        let (sending, receiving) = try_join(&sender, &receiver);
        let error = receiving.unwrap().err().unwrap().to_string();
        assert!(
            error.contains("max_qp_wr") && error.contains("max_cqe"),
            "{error}"
        );
        // The client is told the same.
        let told = sending.err().unwrap();
        assert!(matches!(told, Error::Refused { .. }), "{told}");
        assert!(told.to_string().contains("max_cqe"), "{told}");
        assert_eq!(fabric.live_objects(), before);
    }
}

#[test]
fn the_largest_message_that_is_promised_arrives_and_one_more_byte_is_an_error() {
    // Pitfall 73: the promise is what the port's longest message and the queue allow.
    let limits = Limits {
        max_qp_wr: 32,
        ..Limits::default()
    };
    let fabric = limited(1, 1, limits, &PortSpec::roce().max_message(4096));
    let (sender, receiver) = ends(&fabric, |_| {});
    let promised = sender.transport.devices()[0].max_message;
    assert!((4096..=32 * 4096).contains(&promised), "{promised}");
    let (mut sending, mut receiving) = join(&sender, &receiver);
    message(&mut sending, &mut receiving, promised, promised);
    message(&mut sending, &mut receiving, promised, promised + 1000);
    let room = receiving.registrar().buffer(promised + 1).unwrap();
    drop(receiving.recv(room, 0).wait().unwrap());
    let refused = sending.send(filled(&sending, promised + 1, 1), 0).wait();
    assert!(matches!(
        refused.unwrap_err().error,
        Error::InvalidArgument(_)
    ));
    // The connection is none the worse for it.
    let send = sending
        .send(filled(&sending, promised, 1), 0)
        .wait()
        .unwrap();
    sending.finish(send).wait().unwrap();
}

#[test]
fn announcements_go_inline_only_as_far_as_there_is_room() {
    // Pitfall 76: simulated devices refuse to take more inline than they granted.
    for max_inline in [0, 1, 31, 32, 63, 64, 100, 255, 256, 512] {
        for receivers in [1, 2] {
            let limits = Limits {
                max_inline,
                ..Limits::default()
            };
            let fabric = limited(1, receivers, limits, &PortSpec::roce());
            let (mut sending, mut receiving) = connection(&fabric);
            for members in 1..=8 {
                let group = (0..members)
                    .map(|tag| (receiving.registrar().buffer(70).unwrap(), tag))
                    .collect();
                let receive = receiving.recv_group(group).wait().unwrap();
                for tag in 0..members {
                    let size = 63 + tag as usize % 3;
                    let send = sending
                        .send(filled(&sending, size, tag as u8), tag)
                        .wait()
                        .unwrap();
                    sending.finish(send).wait().unwrap();
                }
                for (tag, buffer) in receiving.finish(receive).wait().unwrap().iter().enumerate() {
                    assert!(buffer.iter().all(|byte| usize::from(*byte) == tag));
                }
            }
        }
    }
}

#[test]
fn a_device_without_queue_pairs_left_says_so() {
    // Pitfall 47.
    let limits = Limits {
        max_qp: 5,
        ..Limits::default()
    };
    let fabric = limited(1, 1, limits, &PortSpec::roce());
    let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = 3);
    let (mut sending, mut receiving) = join(&sender, &receiver);
    let before = fabric.live_objects();
    let (second, accepted) = try_join(&sender, &receiver);
    assert!(second.is_err() && !matches!(accepted, Some(Ok(_))));
    assert_eq!(fabric.live_objects(), before);
    // Those that there are go on.
    message(&mut sending, &mut receiving, 1000, 1000);
    drop((sending, receiving));
    let (mut sending, mut receiving) = join(&sender, &receiver);
    message(&mut sending, &mut receiving, 1000, 1000);
}

#[test]
fn memory_that_cannot_be_registered_is_an_error_and_undone_on_every_device() {
    // Pitfall 59: also where the last of several devices refuses.
    let fabric = fabric(3, 1);
    let (mut sending, mut receiving) = connection(&fabric);
    for device in ["s0", "s1", "s2"] {
        let before = fabric.live_objects();
        let verb = ibnet_simverbs::Verb::RegisterMemory;
        let fault = fabric
            .faults()
            .fail_call(verb, device, ibnet_simverbs::When::Nth(1), 12);
        let refused = sending.registrar().buffer(5000);
        assert!(matches!(refused, Err(Error::NoMemory { .. })));
        assert_eq!(fault.struck(), 1);
        assert_eq!(fabric.live_objects(), before);
    }
    message(&mut sending, &mut receiving, 5000, 5000);
}

#[test]
fn a_group_of_eight_fits_the_shallowest_queues_that_are_taken() {
    // Pitfall 46: what will never have room is no "try again".
    for (max_qp_wr, max_cqe, queue_pairs) in [
        (8, 1 << 20, 1),
        (9, 1 << 20, 1),
        (16, 1 << 20, 1),
        (1 << 14, 200, 3),
    ] {
        let limits = Limits {
            max_qp_wr,
            max_cqe,
            ..Limits::default()
        };
        let fabric = limited(1, 1, limits, &PortSpec::roce());
        let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = queue_pairs);
        let (sending, receiving) = try_join(&sender, &receiver);
        let (Ok(mut sending), Some(Ok(mut receiving))) = (sending, receiving) else {
            continue;
        };
        for _ in 0..40 {
            let group = (0..8)
                .map(|tag| (receiving.registrar().buffer(70).unwrap(), tag))
                .collect();
            let receive = receiving.recv_group(group).wait_for(PATIENCE / 30).unwrap();
            let receive = receive.unwrap_or_else(|| panic!("{limits:?}: no room"));
            for tag in 0..8 {
                let send = sending
                    .send(filled(&sending, 70, tag as u8), tag)
                    .wait()
                    .unwrap();
                sending.finish(send).wait().unwrap();
            }
            receiving.finish(receive).wait().unwrap();
        }
    }
}

#[test]
fn flushes_fit_the_shallowest_queues() {
    // Pitfalls 46 and 47.
    let limits = Limits {
        max_qp_wr: 8,
        ..Limits::default()
    };
    let fabric = limited(1, 2, limits, &PortSpec::roce());
    let (_sending, mut receiving) = connection(&fabric);
    let mut memory = vec![1_u8; 4096];
    // SAFETY: the memory outlives the region and the connection, which are dropped before it.
    let region = unsafe {
        receiving
            .registrar()
            .register_device_memory(memory.as_mut_ptr(), memory.len())
    }
    .unwrap();
    let mut under_way = Vec::new();
    for _ in 0..50 {
        // SAFETY: as above.
        match unsafe { receiving.raw().iflush(&[(memory.as_ptr(), 4096, &region)]) }.unwrap() {
            Flush::Started(flush) => under_way.push(flush),
            Flush::NotReady => {}
            Flush::NotNeeded => panic!("it is the memory of a device"),
        }
    }
    for flush in under_way {
        eventually("the flush", || receiving.raw().test(flush).unwrap());
    }
    assert_eq!(fabric.counters().overruns, 0);
    drop((receiving, region));
}
