//! Millions of random steps against a naive model, and the fuzzer's corpus again.
#![allow(clippy::unwrap_used)]

#[path = "common/ledger.rs"]
mod ledger;
#[path = "common/model.rs"]
mod model;
#[path = "common/random.rs"]
mod random;

use std::fs;
use std::path::Path;
use std::thread;

use random::Random;

/// Enough for a few seconds. `MRCACHE_STEPS` asks for more.
const STEPS: u64 = 2_000_000;

#[test]
fn random_steps_agree_with_the_model() {
    let steps = std::env::var("MRCACHE_STEPS")
        .ok()
        .map_or(STEPS, |steps| steps.parse().unwrap());
    let played: u64 = thread::scope(|scope| {
        let halves: Vec<_> = (0..2)
            .map(|half| scope.spawn(move || play(1 + half, steps / 2)))
            .collect();
        halves.into_iter().map(|half| half.join().unwrap()).sum()
    });
    assert!(played >= steps, "{played} steps");
}

fn play(seed: u64, steps: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut played = 0;
    while played < steps {
        let length = 1 + random.below(20_000) as usize;
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        played += model::play(&bytes);
    }
    played
}

/// What the fuzzer has found worth keeping is played in every run, with a stable compiler.
#[test]
fn the_fuzzers_corpus_agrees_with_the_model() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/model");
    let mut count = 0;
    for file in fs::read_dir(folder).unwrap() {
        model::play(&fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "the corpus is empty");
}
