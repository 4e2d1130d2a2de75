//! The algorithm: reduce-scatter and all-gather round a ring, in slices.
//!
//! The vector is cut into one chunk per rank, and each chunk into slices. In each of the 2(n-1) steps a
//! rank sends one chunk to the right and receives one from the left. In the first n-1 steps what is
//! received is added to the rank's own, after which every rank has one chunk of the sum; in the others it
//! is stored. What a rank sends in one step is what it received in the step before.
//!
//! *Operation k* of a direction is slice `k % slices` of step `k / slices`; operations of a direction
//! are done in order. Three rules keep them apart:
//!
//! 1. Operation k is sent after operation k - slices was received (which is the same slice).
//! 2. At most [`DEPTH`] receives are posted, each into a place of its own in the scratch buffer, as long
//!    as they are added.
//! 3. A receive that is stored goes where operation k - (n-1)·slices was sent from: after that is done.

use std::collections::VecDeque;
use std::error::Error;
use std::ffi::c_int;
use std::num::NonZero;
use std::ops::Range;
use std::rc::Rc;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::plugin::{Connection, Registered, Request};

/// Receives that are posted ahead, and sends that may be outstanding.
const DEPTH: usize = 8;

/// Elements of a slice: small enough for the work on one to overlap with the transfer of others.
pub(crate) const SLICE: usize = 128 << 10;

/// The one tag: all groups have one buffer.
const TAG: c_int = 1;

/// One rank's place in the ring.
pub(crate) struct Ring {
    rank: usize,
    ranks: usize,
    /// To the right neighbour.
    right: Connection,
    /// From the left neighbour.
    left: Connection,
    vector: Rc<Buffer>,
    scratch: Rc<Buffer>,
    vector_right: Registered,
    vector_left: Registered,
    scratch_left: Registered,
    timeout: Duration,
}

impl Ring {
    /// A ring for vectors of at most `len` elements.
    pub(crate) fn new(
        (rank, ranks): (usize, usize),
        mut right: Connection,
        mut left: Connection,
        len: usize,
        timeout: Duration,
    ) -> Result<Self, Box<dyn Error>> {
        let vector = Rc::new(Buffer::new(len));
        let scratch = Rc::new(Buffer::new(DEPTH * SLICE.min(len.div_ceil(ranks))));
        Ok(Self {
            rank,
            ranks,
            vector_right: right.register(&vector)?,
            vector_left: left.register(&vector)?,
            scratch_left: left.register(&scratch)?,
            right,
            left,
            vector,
            scratch,
            timeout,
        })
    }

    /// The vector: what is to be summed before a round, the sum after it.
    pub(crate) fn vector(&self) -> &Buffer {
        &self.vector
    }

    /// Sums the first `len` elements of all ranks' vectors.
    pub(crate) fn all_reduce(&mut self, len: usize) -> Result<(), Box<dyn Error>> {
        let plan = Plan {
            rank: self.rank,
            ranks: self.ranks,
            len,
        };
        let operations = plan.operations();
        let mut sending = Progress::default();
        let mut receiving = Progress::default();
        let mut idle = Idle::new(self.timeout, self.ranks);
        while sending.done < operations || receiving.done < operations {
            let moved = self.post_receives(&plan, &sending, &mut receiving)?
                | self.post_sends(&plan, &mut sending, &receiving)?
                | self.finish_receive(&plan, &mut receiving)?
                | self.finish_send(&plan, &mut sending)?;
            idle.pause(moved).map_err(|waited| {
                format!(
                    "nothing moved for {} s: {} of {operations} slices sent, {} received",
                    waited.as_secs(),
                    sending.done,
                    receiving.done
                )
            })?;
        }
        Ok(())
    }

    fn post_receives(
        &mut self,
        plan: &Plan,
        sending: &Progress,
        receiving: &mut Progress,
    ) -> Result<bool, Box<dyn Error>> {
        let mut moved = false;
        while receiving.posted < plan.operations() && receiving.outstanding() < DEPTH {
            let operation = receiving.posted;
            let range = plan.received(operation);
            let request = if plan.is_reduced(operation) {
                let start = self.scratch_place(operation);
                self.left
                    .receive(self.scratch_left, start, range.len(), TAG)?
            } else {
                // Rule 3.
                if sending.done <= operation - plan.reduced_operations() {
                    break;
                }
                self.left
                    .receive(self.vector_left, range.start, range.len(), TAG)?
            };
            let Some(request) = request else { break };
            receiving.push(request);
            moved = true;
        }
        Ok(moved)
    }

    fn post_sends(
        &mut self,
        plan: &Plan,
        sending: &mut Progress,
        receiving: &Progress,
    ) -> Result<bool, Box<dyn Error>> {
        let mut moved = false;
        while sending.posted < plan.operations() && sending.outstanding() < DEPTH {
            // Rule 1; the first step sends what the rank has.
            if sending.posted >= plan.slices() + receiving.done {
                break;
            }
            let range = plan.sent(sending.posted);
            let request = self
                .right
                .send(self.vector_right, range.start, range.len(), TAG)?;
            let Some(request) = request else { break };
            sending.push(request);
            moved = true;
        }
        Ok(moved)
    }

    fn finish_receive(
        &mut self,
        plan: &Plan,
        receiving: &mut Progress,
    ) -> Result<bool, Box<dyn Error>> {
        let Some(request) = receiving.requests.front() else {
            return Ok(false);
        };
        let Some(bytes) = self.left.test(request)? else {
            return Ok(false);
        };
        let operation = receiving.done;
        let range = plan.received(operation);
        if bytes != range.len() * crate::buffer::ELEMENT {
            return Err(format!("received {bytes} bytes of slice {operation}, {range:?}").into());
        }
        if plan.is_reduced(operation) {
            self.vector
                .add(range, &self.scratch, self.scratch_place(operation));
        }
        receiving.pop();
        Ok(true)
    }

    fn finish_send(&mut self, plan: &Plan, sending: &mut Progress) -> Result<bool, Box<dyn Error>> {
        let Some(request) = sending.requests.front() else {
            return Ok(false);
        };
        let Some(bytes) = self.right.test(request)? else {
            return Ok(false);
        };
        let range = plan.sent(sending.done);
        if bytes != range.len() * crate::buffer::ELEMENT {
            return Err(format!("sent {bytes} bytes of slice {}, {range:?}", sending.done).into());
        }
        sending.pop();
        Ok(true)
    }

    /// Where a receive that is added goes meanwhile.
    fn scratch_place(&self, operation: usize) -> usize {
        operation % DEPTH * (self.scratch.len() / DEPTH)
    }
}

/// Operations of one direction.
#[derive(Default)]
struct Progress {
    posted: usize,
    done: usize,
    /// Those between, oldest first.
    requests: VecDeque<Request>,
}

impl Progress {
    fn outstanding(&self) -> usize {
        self.requests.len()
    }

    fn push(&mut self, request: Request) {
        self.requests.push_back(request);
        self.posted += 1;
    }

    fn pop(&mut self) {
        self.requests.pop_front();
        self.done += 1;
    }
}

/// Which elements which operation moves.
struct Plan {
    rank: usize,
    ranks: usize,
    len: usize,
}

impl Plan {
    fn steps(&self) -> usize {
        2 * (self.ranks - 1)
    }

    /// Slices of each chunk. At least one, which may be empty.
    fn slices(&self) -> usize {
        self.len.div_ceil(self.ranks).div_ceil(SLICE).max(1)
    }

    fn operations(&self) -> usize {
        self.steps() * self.slices()
    }

    /// Operations whose elements are added where they are received.
    fn reduced_operations(&self) -> usize {
        (self.ranks - 1) * self.slices()
    }

    fn is_reduced(&self, operation: usize) -> bool {
        operation < self.reduced_operations()
    }

    fn sent(&self, operation: usize) -> Range<usize> {
        self.slice_of(self.rank, operation)
    }

    /// What the left neighbour sends.
    fn received(&self, operation: usize) -> Range<usize> {
        self.slice_of((self.rank + self.ranks - 1) % self.ranks, operation)
    }

    /// What `rank` sends: its own chunk first, then always the one to the left of the last.
    fn slice_of(&self, rank: usize, operation: usize) -> Range<usize> {
        let (step, slice) = (operation / self.slices(), operation % self.slices());
        let chunk = (rank + 2 * self.ranks - step) % self.ranks;
        let chunk = self.len * chunk / self.ranks..self.len * (chunk + 1) / self.ranks;
        let start = (chunk.start + slice * SLICE).min(chunk.end);
        start..(start + SLICE).min(chunk.end)
    }
}

/// Waiting without taking the processor from those who are waited for.
pub(crate) struct Idle {
    timeout: Duration,
    eager: u32,
    polls: u32,
    since: Instant,
}

impl Idle {
    /// Polls that come right after each other, where each rank can have a processor. Then others get
    /// the processor, if they want it.
    const EAGER: u32 = 64;
    /// After so long the processor is left alone in between: where there are more ranks than
    /// processors, and one of them moves the packets, polling keeps away what is polled for.
    const LAZY_AFTER: Duration = Duration::from_millis(1);
    const NAP: Duration = Duration::from_micros(50);

    /// For one of `ranks` ranks on this machine.
    pub(crate) fn new(timeout: Duration, ranks: usize) -> Self {
        static PROCESSORS: LazyLock<usize> =
            LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));
        let is_crowded = ranks > *PROCESSORS;
        Self {
            timeout,
            eager: if is_crowded { 0 } else { Self::EAGER },
            polls: 0,
            since: Instant::now(),
        }
    }

    /// Called after each poll with whether anything moved. The error is how long nothing has.
    pub(crate) fn pause(&mut self, moved: bool) -> Result<(), Duration> {
        if moved {
            self.polls = 0;
            return Ok(());
        }
        if self.polls == 0 {
            self.since = Instant::now();
        }
        self.polls = self.polls.saturating_add(1);
        if self.polls > self.eager {
            let waited = self.since.elapsed();
            if waited > self.timeout {
                return Err(waited);
            }
            if waited < Self::LAZY_AFTER {
                thread::yield_now();
            } else {
                thread::sleep(Self::NAP);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the plan of all ranks in memory, one operation of every rank at a time.
    fn simulate(ranks: usize, len: usize) {
        let plans: Vec<Plan> = (0..ranks).map(|rank| Plan { rank, ranks, len }).collect();
        let mut vectors: Vec<Vec<u64>> = (0..ranks)
            .map(|rank| (0..len).map(|i| ((i + 1) << rank) as u64).collect())
            .collect();
        for operation in 0..plans[0].operations() {
            let sent: Vec<Vec<u64>> = (0..ranks)
                .map(|rank| vectors[rank][plans[rank].sent(operation)].to_vec())
                .collect();
            for rank in 0..ranks {
                let from = &sent[(rank + ranks - 1) % ranks];
                let to = &mut vectors[rank][plans[rank].received(operation)];
                assert_eq!(from.len(), to.len(), "both neighbours mean the same slice");
                for (to, from) in to.iter_mut().zip(from) {
                    *to = if plans[rank].is_reduced(operation) {
                        *to + from
                    } else {
                        *from
                    };
                }
            }
        }
        for vector in &vectors {
            for (i, value) in vector.iter().enumerate() {
                assert_eq!(
                    *value,
                    (i as u64 + 1) * ((1 << ranks) - 1),
                    "{ranks} ranks, {len}"
                );
            }
        }
    }

    #[test]
    fn every_rank_gets_the_sum() {
        for ranks in 2..6 {
            for len in [1, 2, 3, 4, 5, 7, 100, 1001] {
                simulate(ranks, len);
            }
        }
    }

    #[test]
    fn chunks_of_several_slices_with_a_short_last_one() {
        simulate(2, 5 * SLICE + 3);
        simulate(3, 7 * SLICE - 1);
    }

    #[test]
    fn a_send_is_the_same_slice_as_the_receive_before_it() {
        let plan = Plan {
            rank: 1,
            ranks: 4,
            len: 10 * SLICE,
        };
        for operation in plan.slices()..plan.operations() {
            assert_eq!(
                plan.sent(operation),
                plan.received(operation - plan.slices())
            );
        }
        for operation in plan.reduced_operations()..plan.operations() {
            let before = operation - plan.reduced_operations();
            assert_eq!(plan.received(operation), plan.sent(before), "rule 3");
        }
    }

    #[test]
    fn waiting_ends() {
        let mut idle = Idle::new(Duration::from_millis(1), 2);
        let waited = loop {
            if let Err(waited) = idle.pause(false) {
                break waited;
            }
        };
        assert!(waited >= Duration::from_millis(1));
        assert!(idle.pause(true).is_ok());
    }
}
