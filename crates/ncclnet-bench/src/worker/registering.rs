//! What registering memory costs while so much is registered already.

use std::time::Instant;

use super::buffer::Buffer;
use crate::net::{Comm, Memory, Result};
use crate::protocol::Answer;

const PAGE: usize = 4096;
/// Pages from one registration to the next: with one between them, none is part of another.
const STRIDE: usize = 2 * PAGE;

/// Registers pages until `live` are registered, measures the last `samples` of them, as many hits,
/// their release, and the release of the last registrations.
pub(super) fn measure(comm: &Comm, live: usize, samples: usize) -> Result<Answer> {
    let samples = samples.clamp(1, live.max(1));
    let buffer = Buffer::new(live * STRIDE)?;
    let register = |index: usize| {
        // SAFETY: the buffer outlives the registrations, which are dropped before it.
        unsafe { comm.register(buffer.at(index * STRIDE), PAGE) }
    };
    let mut memories: Vec<Memory<'_>> = Vec::with_capacity(live);
    for index in 0..live - samples {
        memories.push(register(index)?);
    }
    let began = Instant::now();
    for index in live - samples..live {
        memories.push(register(index)?);
    }
    let new = began.elapsed();

    // In no order that a cache could follow: a step that has no factor in common with `live`.
    let step = (live / 2 + 1..)
        .find(|step| gcd(*step, live) == 1)
        .unwrap_or(1);
    let mut hits = Vec::with_capacity(samples);
    let mut index = 0;
    let began = Instant::now();
    for _ in 0..samples {
        index = (index + step) % live;
        hits.push(register(index)?);
    }
    let hit = began.elapsed();
    let began = Instant::now();
    drop(hits);
    let release_hit = began.elapsed();

    let last = memories.split_off(live - samples);
    let began = Instant::now();
    drop(last);
    let release = began.elapsed();
    // From the end, which is cheap for a list, too.
    while memories.pop().is_some() {}
    let each = |time: std::time::Duration| time.as_nanos() as f64 / samples as f64;
    Ok(Answer::Registered {
        new: each(new),
        hit: each(hit),
        release_hit: each(release_hit),
        release: each(release),
    })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
