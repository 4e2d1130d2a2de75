//! The corpus, and a bounded number of inputs made from it, on a stable compiler.
//!
//! An input that fails is printed with the command that runs it again, such as
//!
//! ```text
//! IBNET_FUZZ_INPUT=message:01ff00 cargo test -p ibnet --lib fuzzing::replay::one_input
//! ```
//!
//! and `IBNET_FUZZ_ROUNDS=100000` makes more of each input of the corpus than the usual number.

use std::fmt::Write;
use std::fs;

use ibnet_simverbs::Random;

use super::seeds::folder;
use super::{TARGETS, Target};

/// Inputs made from each one of the corpus.
const ROUNDS: u64 = 400;

/// Inputs do not grow beyond this many bytes.
const LONGEST: usize = 4096;

/// Values at the edges of what is allowed somewhere.
const EDGES: [u64; 16] = [
    0,
    1,
    7,
    8,
    9,
    127,
    128,
    129,
    255,
    256,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX,
];

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(folder(target))
        .unwrap_or_else(|error| panic!("the corpus of {target}: {error}"))
        .map(|entry| entry.unwrap().path())
        .collect();
    // Whatever order the file system has.
    files.sort();
    files
        .into_iter()
        .map(|file| fs::read(file).unwrap())
        .collect()
}

/// Runs a target on an input, and says how to run it again if it fails.
fn run((name, target): Target, input: &[u8]) {
    if std::panic::catch_unwind(|| target(input)).is_err() {
        let hex = input.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        panic!(
            "the target {name} has failed; this runs it again:\n\n    \
             IBNET_FUZZ_INPUT={name}:{hex} cargo test -p ibnet --lib fuzzing::replay::one_input\n"
        );
    }
}

fn rounds() -> u64 {
    match std::env::var("IBNET_FUZZ_ROUNDS") {
        Ok(text) => text.parse().expect("IBNET_FUZZ_ROUNDS is a whole number"),
        Err(_) => ROUNDS,
    }
}

/// Everything of the corpus of one target, and what comes of it.
fn replay(name: &str) {
    let target = *TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    let mut random = Random::new(0);
    for input in &corpus {
        run(target, input);
        for _ in 0..rounds() {
            let mut changed = input.clone();
            for _ in 0..=random.index(4) {
                change(&mut changed, &corpus, &mut random);
            }
            run(target, &changed);
        }
    }
}

/// One small change, of the kinds that find most.
fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.index(input.len() + 1);
    let some = random.index(input.len() - at + 1);
    let edge = EDGES[random.index(EDGES.len())];
    match random.index(8) {
        0 if at < input.len() => input[at] ^= 1 << random.index(8),
        1 if at < input.len() => input[at] = random.next_u32() as u8,
        2 if at < input.len() => input[at] = edge as u8,
        3 => {
            let width = [1, 2, 4, 8][random.index(4)];
            let mut bytes = edge.to_le_bytes()[..width].to_vec();
            if random.chance(2) {
                bytes.reverse();
            }
            let end = (at + width).min(input.len());
            input.splice(at..end, bytes);
        }
        4 => drop(input.drain(at..at + some.min(16))),
        5 => input.truncate(at),
        6 if input.len() + some <= LONGEST => {
            let twice = input[at..at + some].to_vec();
            input.splice(at..at, twice);
        }
        _ => {
            let other = &corpus[random.index(corpus.len())];
            let from = random.index(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
            input.truncate(LONGEST);
        }
    }
}

#[test]
fn config() {
    replay("config");
}

#[test]
fn control() {
    replay("control");
}

#[test]
fn handle() {
    replay("handle");
}

#[test]
fn inbox() {
    replay("inbox");
}

#[test]
fn matching() {
    replay("matching");
}

#[test]
fn message() {
    replay("message");
}

#[test]
fn one_input() {
    let Ok(text) = std::env::var("IBNET_FUZZ_INPUT") else {
        return;
    };
    let (name, hex) = text.split_once(':').expect("IBNET_FUZZ_INPUT=target:hex");
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let digits = |index: usize| u8::from_str_radix(&hex[index..index + 2], 16).expect("hex digits");
    let input: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
    (target.expect("a target of this name").1)(&input);
}

#[test]
fn every_target_has_a_test_here_and_a_program() {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    for (name, _) in TARGETS {
        assert!(
            include_str!("replay.rs").contains(&format!("replay(\"{name}\")")),
            "{name}"
        );
        assert!(
            sources.join(format!("{name}.rs")).exists(),
            "{name} in {}",
            sources.display()
        );
    }
}
