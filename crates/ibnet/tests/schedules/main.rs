//! The transport under random schedules, on the simulator with virtual time: random devices,
//! sizes, offsets, groups, tags and numbers of requests, and a seeded choice of what happens next.
//!
//! A failure prints its seed. One seed alone runs with
//!
//! ```text
//! IBNET_SEED=123 cargo test -p ibnet --test schedules
//! ```
//!
//! and `IBNET_SEEDS=100000` runs that many instead of the usual number.
#![allow(clippy::unwrap_used)]

mod plan;
mod run;
mod world;

use run::{End, Run};
use simverbs::{Fabric, Stage, When};
use verbs::WcStatus;
use world::World;

/// The seeds to run: one that is named, or the first `usual` after `from`.
fn seeds(from: u64, usual: u64) -> Vec<u64> {
    let variable = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    match variable("IBNET_SEED") {
        Some(seed) => vec![seed],
        None => (from..from + variable("IBNET_SEEDS").unwrap_or(usual)).collect(),
    }
}

/// Runs every seed, and names the one that fails.
fn for_each_seed(from: u64, usual: u64, test: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds(from, usual) {
        let outcome = std::panic::catch_unwind(|| test(seed));
        assert!(
            outcome.is_ok(),
            "run again with IBNET_SEED={seed} cargo test -p ibnet --test schedules"
        );
    }
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
    for_each_seed(10_000, 200, |seed| {
        let world = World::new(seed);
        let mut run = Run::new(&world, seed);
        let faults = world.fabric.faults();
        let torn = faults.tear_messages(simverbs::Target::Any, When::ALWAYS);
        let late = faults.delay_completions(
            simverbs::Target::Any,
            std::time::Duration::ZERO..=std::time::Duration::from_micros(50),
        );
        let partial = faults.partial_polls(simverbs::Target::Any, When::ALWAYS);
        assert_eq!(run.play(), End::AllDone);
        assert!(
            late.struck() > 0 && partial.struck() > 0,
            "the faults did not strike"
        );
        // Only messages of more than one line can be torn; nearly every run has some.
        assert!(torn.struck() > 0 || run.largest() <= 64, "nothing was torn");
        run.check_memory();
        run.close();
        world.expect_nothing_left();
    });
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
                simverbs::Target::Any,
                When::Nth(1 + seed % 20),
                status,
                stage,
            )
        });
    });
}

#[test]
fn a_flipped_rkey_ends_in_an_error_and_never_in_wrong_data() {
    for_each_seed(30_000, 10, |seed| {
        fails(seed, |fabric| {
            fabric
                .faults()
                .flip_rkey(simverbs::Target::Any, When::Nth(1 + seed % 20))
        });
    });
}

#[test]
fn a_post_that_fails_ends_in_an_error_and_never_in_wrong_data() {
    for_each_seed(40_000, 20, |seed| {
        fails(seed, |fabric| {
            let when = When::Nth(1 + seed % 20);
            fabric
                .faults()
                .fail_call(simverbs::Verb::PostSend, simverbs::Target::Any, when, 12)
        });
    });
}

/// Plays with a fault that breaks the connection. Both ends must learn of it.
fn fails(seed: u64, arm: impl Fn(&Fabric) -> simverbs::Fault) {
    let world = World::new(seed);
    let mut run = Run::new(&world, seed);
    let fault = arm(&world.fabric);
    let end = run.play();
    if fault.struck() > 0 {
        assert!(
            matches!(end, End::Broken(_)),
            "the fault struck and nobody noticed: {end:?}"
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
    for seed in [1, 77, 4_711] {
        let history = |_| {
            let world = World::new(seed);
            let mut run = Run::new(&world, seed);
            assert_eq!(run.play(), End::AllDone);
            let history = run.history();
            run.close();
            history
        };
        let [first, second] = [0, 1].map(history);
        assert!(first.len() > 100, "hardly anything happened");
        assert_eq!(first, second, "seed {seed}");
    }
}
