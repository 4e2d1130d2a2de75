//! What registering memory costs while so much is registered already.

use std::time::Instant;

use super::buffer::Buffer;
use super::usage;
use crate::net::{Comm, Memory, Result};
use crate::protocol::Answer;

const PAGE: usize = 4096;
/// Pages from one registration to the next: with one between them, none is part of another.
const STRIDE: usize = 2 * PAGE;

/// Registrations that stay from one measurement to the next: making them takes longest.
#[derive(Default)]
pub(super) struct Held {
    // Before the memory that they are of.
    memories: Vec<Memory>,
    /// The address of each.
    addresses: Vec<*mut u8>,
    buffers: Vec<Buffer>,
}

impl Held {
    /// Registers pages until `live` are registered, and measures the last `samples` of them, as many
    /// hits, their release, and the release of the last.
    /// By the thread's processor time, or by the clock.
    pub(super) fn measure(
        &mut self,
        comm: &Comm,
        live: usize,
        samples: usize,
        processor: bool,
    ) -> Result<Answer> {
        let watch = Watch(processor.then(usage::thread), Instant::now());
        let samples = samples.clamp(1, live.max(1));
        self.memories.truncate(live - samples);
        self.addresses.truncate(live - samples);
        self.register(comm, live - samples - self.memories.len(), &watch)?;
        let new = self.register(comm, samples, &watch)?;

        // In no order that a cache could follow: a step that has no factor in common with `live`.
        let mut steps = live / 2 + 1..;
        let step = steps.find(|step| gcd(*step, live) == 1).unwrap_or(1);
        let mut hits = Vec::with_capacity(samples);
        let mut index = 0;
        let began = watch.nanoseconds();
        for _ in 0..samples {
            index = (index + step) % live;
            // SAFETY: the page is in a buffer that outlives the hits.
            hits.push(unsafe { comm.register(self.addresses[index], PAGE) }?);
        }
        let hit = watch.nanoseconds() - began;
        let began = watch.nanoseconds();
        drop(hits);
        let release_hit = watch.nanoseconds() - began;

        let last = self.memories.split_off(live - samples);
        self.addresses.truncate(live - samples);
        let began = watch.nanoseconds();
        drop(last);
        let release = watch.nanoseconds() - began;
        // The pages of these, which are not needed any more.
        self.buffers.pop();
        let each = |time: f64| time / samples as f64;
        Ok(Answer::Registered {
            new: each(new),
            hit: each(hit),
            release_hit: each(release_hit),
            release: each(release),
        })
    }

    /// Registers so many more pages; nanoseconds.
    fn register(&mut self, comm: &Comm, count: usize, watch: &Watch) -> Result<f64> {
        if count == 0 {
            return Ok(0.0);
        }
        let buffer = Buffer::new(count * STRIDE)?;
        let start = buffer.at(0);
        self.buffers.push(buffer);
        self.memories.reserve(count);
        self.addresses.reserve(count);
        let began = watch.nanoseconds();
        for index in 0..count {
            let address = start.wrapping_add(index * STRIDE);
            // SAFETY: the buffer is dropped after the registrations.
            self.memories.push(unsafe { comm.register(address, PAGE) }?);
            self.addresses.push(address);
        }
        Ok(watch.nanoseconds() - began)
    }

    /// Gives all of them back, from the end, which is cheap for a list, too.
    pub(super) fn release(&mut self) {
        while self.memories.pop().is_some() {}
        self.addresses.clear();
        self.buffers.clear();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

/// The thread's processor time when it was started, if that is what is measured; else the time.
struct Watch(Option<f64>, Instant);

impl Watch {
    /// Nanoseconds since it was started.
    fn nanoseconds(&self) -> f64 {
        match self.0 {
            Some(start) => (usage::thread() - start) * 1e9,
            None => self.1.elapsed().as_nanos() as f64,
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
