//! What the fuzzer runs: one function for each place where bytes from outside become meaning.
//!
//! A target takes any bytes and panics if what it tests does anything but answer or refuse: if it
//! panics itself, believes a number that is out of range, or disagrees with a model that is
//! simpler than it. What is tested is private in ibnet, so this is compiled as its module `fuzzing`,
//! in its own tests and under the feature `fuzzing`, which only the programs in `fuzz_targets` use;
//! it is no part of the interface. The README says how to run it.
//!
//! On a stable compiler `replay` gives every target the committed corpus and some thousands of
//! inputs made from it.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a panic is how a target tells what it found"
)]
#![allow(missing_docs, reason = "not part of the interface")]

mod control;
mod inbox;
mod input;
mod matching;
mod messages;
#[cfg(test)]
mod replay;
#[cfg_attr(not(test), allow(dead_code, reason = "most of it is for the seeds"))]
mod samples;
#[cfg(test)]
mod seeds;
mod texts;

pub use control::control;
pub use inbox::inbox;
pub use matching::matching;
pub use messages::message;
pub use texts::{config, handle};

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target. The corpus of each is in the folder of `fuzz/corpus` with its name.
pub const TARGETS: &[Target] = &[
    ("config", config),
    ("control", control),
    ("handle", handle),
    ("inbox", inbox),
    ("matching", matching),
    ("message", message),
];
