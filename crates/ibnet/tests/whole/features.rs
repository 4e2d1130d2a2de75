//! That each setting does what it says, seen by what travels; and what both ends agree on.

use std::collections::BTreeMap;

use ibnet::{Config, ConnectOptions, PathPolicy, RecvConnection, SendConnection, Wait};
use ibnet_simverbs::{DeviceSpec, Fabric, LossReason, PortSpec, Target, TraceEvent, Verb, When};
use ibnet_verbs::{Ece, Mtu};

use crate::rig::{End, build, connection, ends, fabric, filled, join, join_with, message, roce};

const EOPNOTSUPP: i32 = 95;

/// Moves one message and gives what travelled meanwhile, announcements left out: queue pair and
/// bytes of each write, in the order of their arrival.
fn writes_of(
    fabric: &Fabric,
    (sending, receiving): (&mut SendConnection, &mut RecvConnection),
    size: usize,
) -> Vec<(u32, u64)> {
    let receive = receiving
        .recv(receiving.registrar().buffer(size).unwrap(), 0)
        .wait()
        .unwrap();
    fabric.take_trace();
    let send = sending.send(filled(sending, size, 1), 0).wait().unwrap();
    assert_eq!(receiving.finish(receive).wait().unwrap().len(), size);
    sending.finish(send).wait().unwrap();
    let trace = fabric.take_trace();
    let deliveries = trace.iter().filter_map(|entry| match entry.event {
        TraceEvent::Delivered { qp, bytes, .. } => Some((qp, bytes)),
        _ => None,
    });
    deliveries.collect()
}

fn sizes(writes: &[(u32, u64)]) -> Vec<u64> {
    let mut sizes: Vec<u64> = writes.iter().map(|(_, bytes)| *bytes).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn adaptive_routing_sends_large_messages_in_bulk() {
    // Whichever end knows of it; the threshold is the sender's. Pitfall 91: the empty write with
    // immediate that follows has no key and no address that it could get wrong.
    for (sender_knows, receiver_knows) in [(true, true), (true, false), (false, true)] {
        let fabric = fabric(1, 1);
        let sender = End::open(&fabric, "s", |config| {
            config.adaptive_routing = Some(sender_knows);
            config.adaptive_routing_threshold = 1000;
        });
        let receiver = End::open(&fabric, "r", |config| {
            config.adaptive_routing = Some(receiver_knows);
            config.adaptive_routing_threshold = 5;
        });
        let (mut sending, mut receiving) = join(&sender, &receiver);
        let mut writes = |size| sizes(&writes_of(&fabric, (&mut sending, &mut receiving), size));
        assert_eq!(writes(1000), [1000]);
        assert_eq!(writes(1001), [0, 1001]);
        assert_eq!(writes(0), [0]);
    }
    let fabric = fabric(1, 1);
    let (sender, receiver) = ends(&fabric, |config| {
        config.adaptive_routing = Some(false);
        config.adaptive_routing_threshold = 5;
    });
    let (mut sending, mut receiving) = join(&sender, &receiver);
    let writes = writes_of(&fabric, (&mut sending, &mut receiving), 100_000);
    assert_eq!(sizes(&writes), [100_000]);
}

#[test]
fn messages_are_cut_as_the_sender_is_set() {
    let cut = |devices: usize, set: fn(&mut Config), size: usize| {
        let fabric = fabric(devices, devices);
        let sender = End::open(&fabric, "s", set);
        let receiver = End::open(&fabric, "r", |_| {});
        let (mut sending, mut receiving) = join(&sender, &receiver);
        let writes = writes_of(&fabric, (&mut sending, &mut receiving), size);
        let mut paths: Vec<u32> = writes.iter().map(|(path, _)| *path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), writes.len(), "a path carries two parts");
        sizes(&writes)
    };
    // 64 KiB at least, over the pairs of devices.
    assert_eq!(cut(1, |_| {}, 1 << 20), [1 << 20]);
    assert_eq!(cut(2, |_| {}, (128 << 10) - 1), [(128 << 10) - 1]);
    assert_eq!(cut(2, |_| {}, 128 << 10), [64 << 10, 64 << 10]);
    assert_eq!(cut(2, |c| c.queue_pairs = 4, 1 << 20), [512 << 10; 2]);
    // `NCCL_IB_SPLIT_DATA_ON_QPS`.
    let split = |c: &mut Config| {
        c.queue_pairs = 4;
        c.split_data = true;
    };
    assert_eq!(cut(2, split, 1 << 20), [128 << 10; 8]);
    // Who asks for it gets it, from small messages on.
    assert_eq!(cut(2, split, 32 << 10), [4 << 10; 8]);
    assert_eq!(cut(2, split, 8 << 10), [4 << 10; 2]);
    assert_eq!(cut(2, split, (8 << 10) - 1), [(8 << 10) - 1]);
    // `IBNET_MIN_PART`; no part is empty, and cuts are at multiples of 128.
    let small = |c: &mut Config| {
        c.queue_pairs = 4;
        c.split_data = true;
        c.min_part = Some(128);
    };
    assert_eq!(cut(1, small, 1000), [232, 256, 256, 256]);
    assert_eq!(cut(1, small, 513), [1, 256, 256]);
    assert_eq!(cut(1, small, 255), [255]);
    assert_eq!(cut(1, small, 0), [0]);
}

#[test]
fn paths_take_their_turns() {
    // Pitfall 77: the sender alone chooses; there is no rotation that both ends must keep in step.
    let fabric = fabric(2, 2);
    let sender = End::open(&fabric, "s", |config| config.queue_pairs = 3);
    let receiver = End::open(&fabric, "r", |_| {});
    let (mut sending, mut receiving) = join(&sender, &receiver);
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for _ in 0..60 {
        for (path, _) in writes_of(&fabric, (&mut sending, &mut receiving), 100) {
            *counts.entry(path).or_default() += 1;
        }
    }
    assert_eq!(counts.len(), 6);
    assert!(counts.values().all(|count| *count == 10), "{counts:?}");
}

#[test]
fn announcements_take_their_turns_on_all_devices() {
    // Also those that come with a notice, for which the sender has receives posted.
    for notify in [false, true] {
        let fabric = fabric(2, 2);
        let (sender, receiver) = ends(&fabric, |config| config.queue_pairs = 2);
        let (mut sending, mut receiving) =
            join_with(&sender, &receiver, ConnectOptions::default().notify(notify));
        // Far more than there are receives for notices, so that these are replaced on each path.
        let mut announced: BTreeMap<u32, u32> = BTreeMap::new();
        for round in 0..100 {
            fabric.take_trace();
            let receives = [0; 8].map(|tag| {
                let buffer = receiving.registrar().buffer(10).unwrap();
                receiving.recv(buffer, tag).wait().unwrap()
            });
            for entry in fabric.take_trace() {
                if let TraceEvent::Delivered { qp, .. } = entry.event {
                    *announced.entry(qp).or_default() += 1;
                }
            }
            for receive in receives {
                let send = sending.send(filled(&sending, 10, round), 0).wait().unwrap();
                assert_eq!(receiving.finish(receive).wait().unwrap()[..], [round; 10]);
                sending.finish(send).wait().unwrap();
            }
        }
        let of_device = |name: &str| {
            let mut own = fabric.hca(name).unwrap().queue_pairs();
            own.retain(|view| view.attributes.remote_qp != view.number);
            own.iter()
                .map(|view| announced.get(&view.number).copied().unwrap_or(0))
                .collect::<Vec<_>>()
        };
        let paths = [of_device("r0"), of_device("r1")].concat();
        assert_eq!(paths, [200; 4], "notices: {notify}");
    }
}

#[test]
fn the_least_busy_path_is_taken_where_that_is_wanted() {
    for (policy, stuck) in [
        (PathPolicy::RoundRobin, 8),
        (PathPolicy::LeastOutstanding, 1),
    ] {
        let fabric = fabric(1, 1);
        let sender = End::open(&fabric, "s", |config| {
            config.queue_pairs = 4;
            config.path_policy = policy;
        });
        let receiver = End::open(&fabric, "r", |_| {});
        let (mut sending, mut receiving) = join(&sender, &receiver);
        let hung = fabric.faults().hang_work("s0", When::Nth(1));
        let receives: Vec<_> = (0..32)
            .map(|_| {
                receiving
                    .recv(receiving.registrar().buffer(8).unwrap(), 0)
                    .wait()
                    .unwrap()
            })
            .collect();
        let mut stuck_sends = Vec::new();
        for _ in 0..32 {
            let send = sending.send(filled(&sending, 8, 1), 0).wait().unwrap();
            let mut finishing = sending.finish(send);
            for _ in 0..20 {
                // What is done is handed back at the first or second time of asking.
                if finishing.try_now().unwrap().is_some() {
                    break;
                }
            }
            if let Some(ticket) = finishing.into_inner() {
                stuck_sends.push(ticket);
            }
        }
        // What hangs on the one path holds up whatever follows there.
        assert_eq!(hung.struck(), 1);
        assert_eq!(sending.outstanding(), stuck, "{policy:?}");
        drop((stuck_sends, receives));
    }
}

/// Adapters with options for enhanced connection establishment.
fn with_ece(senders: Option<u32>, receivers: Option<u32>) -> Fabric {
    let device = |name: &str, options: Option<u32>| {
        let spec = DeviceSpec::roce(name);
        match options {
            None => spec,
            Some(options) => spec.ece(Ece {
                vendor_id: 0x02c9,
                options,
                comp_mask: 0,
            }),
        }
    };
    build([device("s0", senders), device("r0", receivers)])
}

#[test]
fn ece_takes_both_ends_and_does_without_where_one_is_not_willing() {
    // Pitfall 44. That options are set at all is seen by refusing them: then it goes without.
    for (sender, receiver, sets) in [
        (true, true, 1),
        (true, false, 0),
        (false, true, 0),
        (false, false, 0),
    ] {
        let fabric = with_ece(Some(7), Some(5));
        let fault = fabric
            .faults()
            .fail_call(Verb::SetEce, Target::Any, When::ALWAYS, EOPNOTSUPP);
        let sender = End::open(&fabric, "s", |config| config.ece = sender);
        let receiver = End::open(&fabric, "r", |config| config.ece = receiver);
        let (mut sending, mut receiving) = join(&sender, &receiver);
        message(&mut sending, &mut receiving, 5000, 5000);
        // The sender refused, so the receiver has nothing to set.
        assert_eq!(fault.struck(), sets);
    }
}

#[test]
fn ece_that_one_adapter_does_not_have_or_refuses_is_done_without() {
    for (sender, receiver) in [
        (None, Some(3)),
        (Some(3), None),
        (None, None),
        (Some(3), Some(3)),
    ] {
        for refusing in ["s0", "r0", "none"] {
            let fabric = with_ece(sender, receiver);
            let faults = fabric.faults();
            let fault = match refusing {
                "none" => None,
                device => Some(faults.fail_call(Verb::SetEce, device, When::ALWAYS, EOPNOTSUPP)),
            };
            let (mut sending, mut receiving) = connection(&fabric);
            message(&mut sending, &mut receiving, 5000, 5000);
            if let (Some(fault), Some(_), Some(_)) = (fault, sender, receiver) {
                assert_eq!(fault.struck(), 1, "{refusing} was not asked");
            }
        }
    }
    // A driver that cannot tell.
    let fabric = with_ece(Some(3), Some(3));
    let fault = fabric
        .faults()
        .fail_call(Verb::QueryEce, Target::Any, When::ALWAYS, EOPNOTSUPP);
    let (mut sending, mut receiving) = connection(&fabric);
    message(&mut sending, &mut receiving, 5000, 5000);
    assert!(fault.struck() > 0);
}

#[test]
fn every_path_has_the_smaller_mtu_of_its_two_ports() {
    // Pitfall 40: of these two, whatever other paths and later connections have.
    let device = |name: &str, mtu| {
        let port = PortSpec::roce().mtu(mtu, Mtu::MTU_4096);
        DeviceSpec::roce(name).ports([port])
    };
    let fabric = build([
        device("s0", Mtu::MTU_256),
        device("s1", Mtu::MTU_4096),
        device("s2", Mtu::MTU_4096),
        device("r0", Mtu::MTU_4096),
        device("r1", Mtu::MTU_1024),
        device("r2", Mtu::MTU_4096),
    ]);
    let (sender, receiver) = ends(&fabric, |config| config.min_part = Some(1024));
    let told = |end: &End| -> Vec<u32> {
        end.transport
            .devices()
            .iter()
            .map(|info| info.mtu)
            .collect()
    };
    let before = (told(&sender), told(&receiver));
    let (mut sending, mut receiving) = join(&sender, &receiver);
    message(&mut sending, &mut receiving, 300_000, 300_001);
    // One of a pair that takes more than it may send would lose what is too long for the other.
    let counters = fabric.counters();
    assert_eq!(counters.lost(LossReason::TooLong), 0);
    assert_eq!(counters.lost_in_all(), 0);
    assert_eq!((told(&sender), told(&receiver)), before);
}

#[test]
fn sizes_told_in_the_table_go_to_the_right_device() {
    // Pitfall 42: the key is that of the device at the other end of the path. Device counts
    // differ, so that any other choice hits a key that is none.
    for (senders, receivers) in [(1, 3), (3, 1), (2, 5), (4, 4)] {
        let fabric = fabric(senders, receivers);
        let (sender, receiver) = ends(&fabric, |config| {
            config.adaptive_routing = Some(true);
            config.adaptive_routing_threshold = 0;
            config.min_part = Some(128);
        });
        let (mut sending, mut receiving) = join(&sender, &receiver);
        for size in (1..3000).step_by(97) {
            message(&mut sending, &mut receiving, size, size + 1);
        }
        assert_eq!(fabric.counters().refused, 0);
    }
}

#[test]
fn small_messages_travel_in_the_request_where_that_is_wanted() {
    // What is inline was copied when it was posted: changing the memory after that has no effect.
    for (inline, max_inline, expected) in
        [(true, 64, 1), (false, 64, 2), (true, 7, 2), (true, 8, 1)]
    {
        let limits = ibnet_simverbs::Limits {
            max_inline,
            ..ibnet_simverbs::Limits::default()
        };
        let builder = Fabric::builder().stepped(1);
        let devices = roce("s", 1)
            .chain(roce("r", 1))
            .map(|spec| spec.limits(limits));
        let fabric = devices
            .fold(builder, ibnet_simverbs::FabricBuilder::device)
            .build()
            .unwrap();
        let (sender, receiver) = ends(&fabric, |config| config.inline = inline);
        let (mut sending, mut receiving) = join(&sender, &receiver);
        let receive = receiving
            .recv(receiving.registrar().buffer(8).unwrap(), 0)
            .wait()
            .unwrap();
        let mut memory = vec![1_u8; 8];
        // SAFETY: the memory outlives the region; it is changed under a request, on purpose and
        // while the fabric stands still.
        let region = unsafe { sending.registrar().register(memory.as_mut_ptr(), 8) }.unwrap();
        fabric.run_until_idle();
        // SAFETY: as above.
        let send = unsafe { sending.raw().isend(memory.as_ptr(), 8, 0, Some(&region)) };
        let send = send.unwrap().unwrap();
        memory.fill(2);
        fabric.run_until_idle();
        assert_eq!(sending.raw().test(send).unwrap(), Some(8));
        let arrived = receiving.finish(receive).wait().unwrap();
        assert_eq!(
            arrived[..],
            [expected; 8],
            "inline {inline}, room {max_inline}"
        );
        drop((sending, region));
    }
}
