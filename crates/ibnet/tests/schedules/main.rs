//! The transport under random schedules, on the simulator with virtual time: random devices,
//! sizes, offsets, groups, tags and numbers of requests, and a seeded choice of what happens next.
//!
//! A failure prints the command that runs the same again, such as
//!
//! ```text
//! IBNET_SEED=123 cargo test -p ibnet --test schedules whatever_order
//! ```
//!
//! and `IBNET_SEEDS=100000` makes each test run that many seeds instead of its usual number. With
//! either of them the output says which seeds ran.
#![allow(clippy::unwrap_used)]

mod plan;
#[path = "../rig/mod.rs"]
mod rig;
mod run;
mod world;

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use ibnet_simverbs::{Fabric, Stage, When};
use ibnet_verbs::WcStatus;
use run::{End, Run};
use world::World;

/// The number in a variable of the environment, if it is set.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var_os(name)?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    assert!(
        number.is_some(),
        "{name}={}: expected a whole number from 0 to {}",
        text.to_string_lossy(),
        u64::MAX
    );
    number
}

/// Runs the seed that the environment names, or else the first `usual` from `from` on, and names the
/// one that fails. Gives how many there were.
fn for_each_seed(from: u64, usual: u64, test: impl Fn(u64) + std::panic::RefUnwindSafe) -> u64 {
    // The harness calls the thread of a test by the test's name.
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let (one, many) = (number("IBNET_SEED"), number("IBNET_SEEDS"));
    let seeds = match one {
        Some(seed) => seed..=seed,
        None => from..=from + many.unwrap_or(usual).max(1) - 1,
    };
    for seed in seeds.clone() {
        if std::panic::catch_unwind(|| test(seed)).is_err() {
            let command = format!("IBNET_SEED={seed} cargo test -p ibnet --test schedules {name}");
            panic!("seed {seed} has failed; this runs it again:\n\n    {command}\n");
        }
    }
    if one.is_some() || many.is_some() {
        // Not by `eprintln`, which the harness keeps to itself.
        let (first, last) = (seeds.start(), seeds.end());
        let _ = writeln!(std::io::stderr(), "{name}: passed seeds {first} to {last}");
    }
    seeds.end() - seeds.start() + 1
}

fn whole_run(seed: u64) {
    let world = World::new(seed);
    let mut run = Run::new(&world, seed);
    assert_eq!(run.play(), End::AllDone);
    run.check_memory();
    run.close();
    world.expect_nothing_left();
}

#[test]
fn every_byte_is_right_and_every_request_ends_once() {
    for_each_seed(0, 400, whole_run);
}

/// The same with what a device may do at any time: completions late and overtaking those of other
/// queue pairs, lines of a message in any order, polls that give less than there is.
#[test]
fn whatever_order_things_become_visible_in() {
    // Of each fault, in how many runs it struck: not in all of them, as some are short.
    let struck = [const { AtomicU64::new(0) }; 3];
    let runs = for_each_seed(10_000, 200, |seed| {
        let world = World::new(seed);
        let mut run = Run::new(&world, seed);
        let faults = world.fabric.faults();
        let torn = faults.tear_messages(ibnet_simverbs::Target::Any, When::ALWAYS);
        let late = faults.delay_completions(
            ibnet_simverbs::Target::Any,
            std::time::Duration::ZERO..=std::time::Duration::from_micros(50),
        );
        let partial = faults.partial_polls(ibnet_simverbs::Target::Any, When::ALWAYS);
        assert_eq!(run.play(), End::AllDone);
        for (count, fault) in struck.iter().zip([torn, late, partial]) {
            count.fetch_add(u64::from(fault.struck() > 0), Ordering::Relaxed);
        }
        run.check_memory();
        run.close();
        world.expect_nothing_left();
    });
    let struck = struck.map(AtomicU64::into_inner);
    let is_usual = struck.iter().all(|count| *count >= runs * 9 / 10);
    assert!(
        is_usual || runs == 1,
        "of {runs} runs the faults struck in {struck:?} only"
    );
}

/// A request of the sender fails: what has not arrived ends in an error, and nothing is wrong.
#[test]
fn a_failed_request_ends_in_an_error_and_never_in_wrong_data() {
    let stages = [Stage::NotSent, Stage::CarriedOut];
    let statuses = [
        WcStatus::RETRY_EXC_ERR,
        WcStatus::REM_ACCESS_ERR,
        WcStatus::LOC_PROT_ERR,
    ];
    for_each_seed(20_000, 30, |seed| {
        fails(seed, |fabric| {
            let status = statuses[seed as usize % statuses.len()];
            let stage = stages[seed as usize / 3 % 2];
            fabric.faults().fail_work(
                ibnet_simverbs::Target::Any,
                When::Nth(1 + seed % 20),
                status,
                stage,
            )
        });
    });
}

/// What the network does to a queue pair, at any point of any run, is not noticed by the application.
#[test]
fn a_queue_pair_that_fails_is_replaced_and_every_byte_is_right() {
    let struck = AtomicU64::new(0);
    let statuses = [
        WcStatus::RETRY_EXC_ERR,
        WcStatus::LOC_QP_OP_ERR,
        WcStatus::RNR_RETRY_EXC_ERR,
    ];
    let stages = [Stage::NotSent, Stage::CarriedOut];
    let runs = for_each_seed(80_000, 300, |seed| {
        let world = World::recovering(seed);
        let mut run = Run::new(&world, seed);
        let faults = world.fabric.faults();
        // One failure, or two: the second may come while the first is being mended.
        let times = [vec![1 + seed % 40], vec![1 + seed % 7, 20 + seed % 30]];
        let faults: Vec<_> = times[seed as usize / 6 % 2]
            .iter()
            .map(|nth| {
                let status = statuses[seed as usize % statuses.len()];
                let stage = stages[seed as usize / 3 % 2];
                faults.fail_work(ibnet_simverbs::Target::Any, When::Nth(*nth), status, stage)
            })
            .collect();
        assert_eq!(run.play(), End::AllDone);
        let strikes: u64 = faults.iter().map(ibnet_simverbs::Fault::struck).sum();
        struck.fetch_add(strikes.min(1), Ordering::Relaxed);
        run.check_memory();
        run.close();
        world.expect_nothing_left();
    });
    let struck = struck.into_inner();
    assert!(struck >= runs / 2 || runs == 1, "{struck} of {runs} runs");
}

/// Some queue pairs hang for ever when their link goes down at the wrong moment.
#[test]
fn a_queue_pair_that_completes_nothing_is_replaced() {
    let struck = AtomicU64::new(0);
    // Each takes as long as the least time after which a queue pair is taken for one that hangs.
    for_each_seed(95_000, 1, |seed| {
        let world = World::recovering(seed);
        let mut run = Run::new(&world, seed);
        let faults = world.fabric.faults();
        let sender = ibnet_simverbs::Target::from("s0");
        let fault = faults.hang_work(sender, When::Nth(5));
        assert_eq!(run.play(), End::AllDone);
        struck.fetch_add(fault.struck(), Ordering::Relaxed);
        run.check_memory();
        run.close();
        world.expect_nothing_left();
    });
    assert!(struck.into_inner() > 0);
}

/// Of what is wrong in itself a new queue pair is no cure.
#[test]
fn what_cannot_be_mended_ends_in_an_error_at_once() {
    let statuses = [
        WcStatus::REM_ACCESS_ERR,
        WcStatus::LOC_PROT_ERR,
        WcStatus::REM_INV_REQ_ERR,
    ];
    for_each_seed(90_000, 30, |seed| {
        let world = World::recovering(seed);
        let mut run = Run::new(&world, seed);
        let (status, when) = (statuses[seed as usize % 3], When::Nth(1 + seed % 20));
        let target = ibnet_simverbs::Target::Any;
        let faults = world.fabric.faults();
        let fault = faults.fail_work(target, when, status, Stage::NotSent);
        let end = run.play();
        assert_eq!(fault.struck() > 0, matches!(end, End::Broken(_)), "{end:?}");
        run.check_what_arrived();
        run.close();
        world.expect_nothing_left();
    });
}

#[test]
fn a_flipped_rkey_ends_in_an_error_and_never_in_wrong_data() {
    for_each_seed(30_000, 10, |seed| {
        fails(seed, |fabric| {
            fabric
                .faults()
                .flip_rkey(ibnet_simverbs::Target::Any, When::Nth(1 + seed % 20))
        });
    });
}

#[test]
fn a_post_that_fails_ends_in_an_error_and_never_in_wrong_data() {
    for_each_seed(40_000, 20, |seed| {
        fails(seed, |fabric| {
            let when = When::Nth(1 + seed % 20);
            fabric.faults().fail_call(
                ibnet_simverbs::Verb::PostSend,
                ibnet_simverbs::Target::Any,
                when,
                12,
            )
        });
    });
}

/// Plays with a fault that breaks the connection. Both ends must learn of it.
fn fails(seed: u64, arm: impl Fn(&Fabric) -> ibnet_simverbs::Fault) {
    let world = World::new(seed);
    let mut run = Run::new(&world, seed);
    let fault = arm(&world.fabric);
    let end = run.play();
    if fault.struck() > 0 {
        assert!(
            matches!(end, End::Broken(_)),
            "the fault struck unnoticed: {end:?}"
        );
    } else {
        // The run was over before the fault's turn came.
        assert_eq!(end, End::AllDone);
    }
    run.check_what_arrived();
    run.close();
    world.expect_nothing_left();
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let struck = AtomicU64::new(0);
    let runs = for_each_seed(50_000, 5, |seed| {
        // What is kept makes the second run have its buffers elsewhere.
        let mut kept = Vec::new();
        let history = |_| {
            let world = World::new(seed);
            let faults = world.fabric.faults();
            let torn = faults.tear_messages(ibnet_simverbs::Target::Any, When::ALWAYS);
            let mut run = Run::new(&world, seed);
            assert_eq!(run.play(), End::AllDone);
            struck.fetch_add(torn.struck(), Ordering::Relaxed);
            let history = run.history();
            run.close();
            kept.extend((1..100).map(|step| vec![0_u8; 40 * step]));
            history
        };
        let [first, second] = [0, 1].map(history);
        assert!(!first.is_empty());
        assert_eq!(first, second);
    });
    let is_usual = struck.into_inner() >= runs;
    assert!(is_usual || runs == 1, "hardly anything was torn");
}

/// An end leaves with requests under way: what the other one is told is done has arrived.
#[test]
fn an_end_that_leaves_takes_nothing_with_it_that_was_told_of() {
    for_each_seed(60_170, 20, |seed| {
        let world = World::new(seed);
        let mut run = Run::new(&world, seed);
        let faults = world.fabric.faults();
        let _late = faults.delay_completions(
            ibnet_simverbs::Target::Any,
            std::time::Duration::ZERO..=std::time::Duration::from_micros(50),
        );
        run.let_one_leave();
        run.play();
        run.check_what_arrived();
        run.close();
        world.expect_nothing_left();
    });
}

/// As in [`whatever_order_things_become_visible_in`], with many devices and paths, queues as shallow
/// as are taken, and parts as small as can be.
#[test]
fn many_paths_with_next_to_no_room() {
    let connected = AtomicU64::new(0);
    let runs = for_each_seed(70_000, 20, |seed| {
        let world = World::cramped(seed);
        let Some(mut run) = Run::try_new(&world, seed) else {
            world.expect_nothing_left();
            return;
        };
        connected.fetch_add(1, Ordering::Relaxed);
        let faults = world.fabric.faults();
        let _torn = faults.tear_messages(ibnet_simverbs::Target::Any, When::ALWAYS);
        let _partial = faults.partial_polls(ibnet_simverbs::Target::Any, When::ALWAYS);
        assert_eq!(run.play(), End::AllDone);
        run.check_memory();
        run.close();
        let counters = world.fabric.counters();
        assert_eq!(counters.overruns, 0);
        // A sender that waits has few receives for announcements there, which then come later.
        assert!(counters.not_ready == 0 || world.is_sender_notified());
        world.expect_nothing_left();
    });
    let connected = connected.into_inner();
    assert!(connected >= runs / 2 || runs == 1, "{connected} of {runs}");
}
