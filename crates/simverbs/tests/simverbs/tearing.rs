//! Messages that become visible line by line.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ibnet_simverbs::{Random, When};
use ibnet_verbs::{SendRequest, WcStatus};

use crate::pairs::{Pair, Setup, two_roce};

/// Which of the 64-byte lines of the target have arrived.
fn arrived(pair: &Pair, lines: usize) -> Vec<bool> {
    let at = |line| pair.b.memory.load(line * 64 + 56) != 0;
    (0..lines).map(at).collect()
}

#[test]
fn lines_arrive_in_any_order_over_several_steps() {
    const LINES: usize = 4;
    let mut firsts = BTreeSet::new();
    for seed in 0..200 {
        let pair = Pair::stepped(seed, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        let tear = fabric.faults().tear_messages("sim0", When::Nth(1));
        a.memory.write(0, &[1; LINES * 64]);
        let write = SendRequest::write(1, a.sge(0, LINES * 64), b.remote(0)).signaled();
        a.send(&mut [write]).unwrap();
        assert!(fabric.step_until(10, || arrived(&pair, LINES).contains(&true)));
        let first = arrived(&pair, LINES);
        assert!(first.contains(&false), "seed {seed}");
        assert!(a.outcomes().is_empty());
        firsts.insert(first);
        fabric.run_until_idle();
        assert_eq!(arrived(&pair, LINES), [true; LINES]);
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        assert_eq!(tear.struck(), 1);
    }
    // Any line can be the first, and the first two any pair.
    let number = |lines: &&Vec<bool>| lines.iter().filter(|is_there| **is_there).count();
    for (wanted, ways) in [(1, 4), (2, 6)] {
        let found = firsts.iter().filter(|lines| number(lines) == wanted);
        assert_eq!(found.count(), ways, "{firsts:?}");
    }
}

/// What was placed before a reset of the receiver says nothing about after it.
#[test]
fn a_receiver_that_was_reset_gets_the_whole_message() {
    let setup = Setup::default();
    for seed in 0..20 {
        let pair = Pair::stepped(seed, &setup);
        let Pair { a, b, fabric } = &pair;
        let tear = fabric.faults().tear_messages("sim0", When::ALWAYS);
        a.memory.write(0, &[1; 512]);
        a.send(&mut [SendRequest::write(1, a.sge(0, 512), b.remote(0)).signaled()])
            .unwrap();
        assert!(fabric.step_until(10, || arrived(&pair, 8).contains(&true)));
        b.qp.to_reset().unwrap();
        b.memory.write(0, &[0; 512]);
        b.connect_to(a, &setup).unwrap();
        fabric.advance(std::time::Duration::from_secs(1));
        assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        assert_eq!(arrived(&pair, 8), [true; 8], "seed {seed}");
        assert!(tear.struck() > 0);
    }
}

#[test]
fn a_single_line_is_never_torn() {
    let pair = Pair::stepped(1, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let tear = fabric.faults().tear_messages("sim0", When::ALWAYS);
    a.memory.write(0, &[1; 64]);
    a.send(&mut [SendRequest::write(1, a.sge(0, 64), b.remote(64))])
        .unwrap();
    while b.memory.read(64..128) != [1; 64] {
        assert_eq!(b.memory.read(64..128), [0; 64]);
        assert!(fabric.step());
    }
    fabric.run_until_idle();
    assert_eq!(tear.struck(), 0);
    // The same bytes across a boundary are two.
    a.send(&mut [SendRequest::write(1, a.sge(0, 64), b.remote(160))])
        .unwrap();
    fabric.run_until_idle();
    assert_eq!(b.memory.read(160..224), [1; 64]);
    assert_eq!(tear.struck(), 1);
}

#[test]
fn reads_are_torn_as_well() {
    let pair = Pair::stepped(1, &Setup::default());
    let Pair { a, b, fabric } = &pair;
    let tear = fabric.faults().tear_messages(&a.qp, When::ALWAYS);
    b.memory.write(0, &[1; 256]);
    a.send(&mut [SendRequest::read(1, a.sge(0, 256), b.remote(0)).signaled()])
        .unwrap();
    let mut partial = false;
    while a.outcomes().is_empty() {
        fabric.step();
        let now = a.memory.read(0..256);
        partial |= now.contains(&0) && now.contains(&1);
    }
    assert!(partial);
    assert_eq!(a.memory.read(0..256), [1; 256]);
    assert_eq!(tear.struck(), 1);
}

/// What a transport relies on when it polls the last word of a line.
#[test]
fn a_line_whose_last_word_is_there_is_there() {
    let pair = Pair::free_running(&Setup::default());
    let Pair { a, b, fabric } = &pair;
    let tear = fabric.faults().tear_messages("sim0", When::ALWAYS);
    let (looks, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let ready = b.memory.load(192 + 56);
                let words: Vec<_> = (0..7).map(|word| b.memory.load(192 + word * 8)).collect();
                // The words are of this round, or already of a later one.
                assert!(
                    words.iter().all(|&word| word >= ready),
                    "{ready}: {words:?}"
                );
                looks.fetch_add(u64::from(ready > 0), Ordering::Relaxed);
            }
        });
        let mut round = 0_u64;
        // Both threads have to get their share of the processor.
        while round < 20_000 || looks.load(Ordering::Relaxed) < 20_000 {
            assert!(!watcher.is_finished(), "it saw something wrong");
            round += 1;
            let lines: Vec<u8> = round.to_ne_bytes().repeat(32);
            a.memory.write(0, &lines);
            let write = SendRequest::write(1, a.sge(0, 256), b.remote(64)).signaled();
            a.send(&mut [write]).unwrap();
            assert_eq!(a.outcomes(), [(1, WcStatus::SUCCESS)]);
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(tear.struck(), round);
    });
}

/// The same seed gives the same run wherever the memory happens to be, and what lies in one line of
/// memory is never torn there.
#[test]
fn a_run_does_not_depend_on_addresses() {
    let run = |seed, offset: usize| {
        let fabric = two_roce().stepped(seed).trace().build().unwrap();
        let pair = Pair::of(fabric, &Setup::default());
        let Pair { a, b, fabric } = &pair;
        let tear = fabric.faults().tear_messages("sim0", When::From(2));
        a.memory.write(0, &[1; 1024]);
        let mut random = Random::new(seed);
        let mut expected = vec![0; 2048];
        let mut at = offset;
        // In how many portions each line may get its bytes: one for each message in it.
        let mut messages = vec![0; 2048 / 64];
        let mut chain = [1, 2, 3, 4, 5].map(|wr_id| {
            let length = 1 + random.index(300);
            expected[at..at + length].fill(1);
            (at / 64..=(at + length - 1) / 64).for_each(|line| messages[line] += 1);
            let write = SendRequest::write(wr_id, a.sge(0, length), b.remote(at)).signaled();
            at += length;
            write
        });
        a.send(&mut chain).unwrap();
        // How much of each line is there.
        let filled = || -> Vec<usize> {
            let memory = b.memory.read(0..2048);
            let count = |line: &[u8]| line.iter().filter(|byte| **byte == 1).count();
            memory.chunks(64).map(count).collect()
        };
        let mut portions = vec![0; 2048 / 64];
        let mut before = filled();
        while fabric.step() {
            let now = filled();
            for (portions, (before, now)) in portions.iter_mut().zip(before.iter().zip(&now)) {
                *portions += usize::from(before != now);
            }
            before = now;
        }
        assert_eq!(b.memory.read(0..2048), expected);
        let torn = portions
            .iter()
            .zip(&messages)
            .find(|(portions, most)| portions > most);
        assert_eq!(torn, None, "seed {seed}, offset {offset}");
        assert!(tear.struck() > 0);
        fabric.take_trace()
    };
    for seed in 0..20 {
        let aligned = run(seed, 64);
        for offset in [65, 80, 96, 120, 127] {
            assert_eq!(run(seed, offset), aligned, "seed {seed}, offset {offset}");
        }
    }
}
