//! What is ordered, and what is not.

use std::collections::BTreeSet;

use ibnet_verbs::{SendRequest, WcStatus};

use crate::pairs::{End, Pair, Setup, in_both_modes, open_all, two_roce};

/// Several connections between two devices.
fn connections(seed: u64, number: usize) -> (ibnet_simverbs::Fabric, Vec<(End, End)>) {
    let fabric = two_roce().stepped(seed).build().unwrap();
    let contexts = open_all(&fabric);
    let setup = Setup::default();
    let pairs = (0..number).map(|_| {
        let (a, b) = (
            End::new(&contexts[0], &setup),
            End::new(&contexts[1], &setup),
        );
        a.connect_to(&b, &setup).unwrap();
        b.connect_to(&a, &setup).unwrap();
        (a, b)
    });
    (fabric, pairs.collect())
}

#[test]
fn completions_of_one_queue_pair_are_in_order() {
    for seed in 0..100 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        b.receive_immediates(100..104);
        let mut chain: Vec<_> = (0..12)
            .map(|wr_id| match wr_id % 3 {
                0 => SendRequest::write(wr_id, a.sge(0, 100), b.remote(0)),
                1 => SendRequest::read(wr_id, a.sge(200, 100), b.remote(200)),
                _ => SendRequest::write_with_immediate(wr_id, None, b.remote(0), wr_id as u32),
            })
            .map(SendRequest::signaled)
            .collect();
        a.send(&mut chain).unwrap();
        fabric.run_until_idle();
        let expected: Vec<_> = (0..12).map(|wr_id| (wr_id, WcStatus::SUCCESS)).collect();
        assert_eq!(a.outcomes(), expected, "seed {seed}");
        let received = b.poll();
        let order: Vec<_> = received
            .iter()
            .map(|wc| (wc.wr_id(), wc.immediate()))
            .collect();
        let expected = [2, 5, 8, 11].map(|imm: u32| (99 + u64::from(imm + 1) / 3, Some(imm)));
        assert_eq!(order, expected, "seed {seed}");
    }
}

#[test]
fn completions_of_different_queue_pairs_are_in_any_order() {
    let mut orders = BTreeSet::new();
    for seed in 0..200 {
        let (fabric, pairs) = connections(seed, 3);
        for (index, (a, b)) in pairs.iter().enumerate() {
            let write = SendRequest::write(index as u64, a.sge(0, 8), b.remote(0)).signaled();
            a.send(&mut [write]).unwrap();
        }
        let mut order = Vec::new();
        while fabric.step() {
            order.extend(
                pairs
                    .iter()
                    .flat_map(|(a, _)| a.outcomes())
                    .map(|(wr_id, _)| wr_id),
            );
        }
        orders.insert(order);
    }
    assert_eq!(orders.len(), 6, "{orders:?}");
}

/// Whether one end can be far ahead of another: bugs hide in schedules that are not fair.
#[test]
fn one_queue_pair_can_get_far_ahead_of_another() {
    let mut furthest = 0;
    for seed in 0..100 {
        let (fabric, pairs) = connections(seed, 2);
        for (a, b) in &pairs {
            let mut chain = [SendRequest::write(1, a.sge(0, 8), b.remote(0)).signaled(); 16];
            a.send(&mut chain).unwrap();
        }
        let mut done = [0, 0];
        while done.iter().all(|&done| done < 16) {
            fabric.step();
            for (done, (a, _)) in done.iter_mut().zip(&pairs) {
                *done += a.outcomes().len();
            }
        }
        furthest = furthest.max(done[0].abs_diff(done[1]));
    }
    assert!(furthest >= 14, "{furthest}");
}

#[test]
fn data_is_there_before_its_completion() {
    for seed in 0..100 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        let tear = fabric
            .faults()
            .tear_messages("sim0", ibnet_simverbs::When::ALWAYS);
        b.receive_immediates([5]);
        a.memory.write(0, &[3; 1000]);
        let data = SendRequest::write(1, a.sge(0, 500), b.remote(0));
        let tail = SendRequest::write_with_immediate(2, a.sge(500, 500), b.remote(500), 1);
        a.send(&mut [data, tail.signaled()]).unwrap();
        let mut received = false;
        let mut sent = false;
        while fabric.step() {
            received |= !b.outcomes().is_empty();
            sent |= !a.outcomes().is_empty();
            if received || sent {
                // The completion of a message stands for all before it.
                assert_eq!(b.memory.read(0..1000), [3; 1000], "seed {seed}");
            }
        }
        assert!(received && sent);
        assert_eq!(tear.struck(), 2);
    }
}

/// Acknowledgements are combined or not, as it comes.
#[test]
fn completions_come_one_by_one_or_several_at_once() {
    let mut sizes = BTreeSet::new();
    for seed in 0..50 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        let mut chain = [SendRequest::write(1, a.sge(0, 8), b.remote(0)).signaled(); 6];
        a.send(&mut chain).unwrap();
        let delivered = || fabric.counters().messages == 6;
        assert!(fabric.step_until(100, delivered));
        let waiting = 6 - a.outcomes().len();
        assert!(fabric.step_until(100, || fabric.counters().completions > 6 - waiting as u64));
        sizes.insert((waiting, a.outcomes().len()));
    }
    // Of six that wait, any number comes first.
    let of_six: Vec<_> = sizes.iter().filter(|(waiting, _)| *waiting >= 3).collect();
    assert!(
        of_six.iter().any(|(waiting, first)| first < waiting),
        "{sizes:?}"
    );
    assert!(of_six.iter().any(|(_, first)| *first > 1), "{sizes:?}");
}

/// Also when the place in the queue was used by a read before.
#[test]
fn data_of_a_read_is_there_before_its_completion() {
    for seed in 0..20 {
        let pair = Pair::stepped(
            seed,
            &Setup {
                send_wr: 1,
                ..Setup::default()
            },
        );
        let Pair { a, b, fabric } = &pair;
        for round in 1..5 {
            b.memory.write(0, &[round; 100]);
            a.send(&mut [SendRequest::read(1, a.sge(0, 100), b.remote(0)).signaled()])
                .unwrap();
            assert!(fabric.step_until(100, || !a.outcomes().is_empty()));
            assert_eq!(a.memory.read(0..100), [round; 100], "seed {seed}");
        }
    }
}

#[test]
fn inline_data_is_copied_when_it_is_posted_and_other_data_is_not() {
    let pair = Pair::stepped(1, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    a.memory.write(0, b"before");
    let inline = SendRequest::write(1, a.sge(0, 6), b.remote(0)).inline();
    let plain = SendRequest::write(2, a.sge(0, 6), b.remote(100));
    a.send(&mut [inline, plain]).unwrap();
    a.memory.write(0, b"after!");
    fabric.run_until_idle();
    assert_eq!(b.memory.read(0..6), b"before");
    assert_eq!(b.memory.read(100..106), b"after!");

    let free = Pair::free_running(&Setup::default());
    free.a.memory.write(0, b"before");
    let inline = SendRequest::write(1, free.a.sge(0, 6), free.b.remote(0)).inline();
    free.a.send(&mut [inline]).unwrap();
    free.a.memory.write(0, b"after!");
    assert_eq!(free.b.memory.read(0..6), b"before");
}

#[test]
fn nothing_happens_in_a_stepped_fabric_by_itself() {
    let pair = Pair::stepped(1, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let before = fabric.now();
    a.memory.write(0, b"x");
    a.send(&mut [SendRequest::write(1, a.sge(0, 1), b.remote(0)).signaled()])
        .unwrap();
    for _ in 0..10 {
        assert!(a.outcomes().is_empty());
    }
    assert_eq!(b.memory.read(0..1), [0]);
    assert_eq!(fabric.now(), before);
    assert!(fabric.run_until_idle() > 0);
    let after = fabric.now();
    assert!(after > before);
    assert!(!fabric.step());
    assert_eq!(
        fabric.now(),
        after,
        "time does not pass while nothing happens"
    );
}

#[test]
fn a_free_running_fabric_is_done_when_the_post_returns() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        a.memory.write(0, &[9; 60_000]);
        a.send(&mut [SendRequest::write(1, a.sge(0, 60_000), b.remote(0)).signaled()])
            .unwrap();
        let at_once = !a.outcomes().is_empty();
        assert_eq!(at_once, b.memory.read(59_999..60_000) == [9]);
        assert_eq!(at_once, fabric.run_until_idle() == 0);
    });
}

#[test]
fn waiting_has_an_end() {
    in_both_modes(&Setup::default(), |pair| {
        let Pair { a, b, fabric } = pair;
        a.send(&mut [SendRequest::write(1, a.sge(0, 8), b.remote(0)).signaled()])
            .unwrap();
        assert!(fabric.step_until(100, || !a.outcomes().is_empty()));
        // It will never come.
        assert!(!fabric.step_until(30, || !a.outcomes().is_empty()));
        // A receiver that is never ready keeps the fabric busy for ever.
        a.send(&mut [SendRequest::send(2, None)]).unwrap();
        assert!(!fabric.step_until(30, || !a.outcomes().is_empty()));
    });
}
