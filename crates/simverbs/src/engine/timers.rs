//! Time: virtual or real, and what is to happen when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use super::slab::{CqId, DeviceId, QpId};

/// Nanoseconds since the fabric was made.
pub(crate) type Nanos = u64;

/// Where the time comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// Stepped: time passes when the fabric is stepped.
    Virtual(Nanos),
    /// Free-running: time passes.
    Real(Instant),
}

impl Clock {
    pub(crate) fn now(&self) -> Nanos {
        match self {
            Self::Virtual(now) => *now,
            // 584 years fit.
            Self::Real(start) => start.elapsed().as_nanos() as Nanos,
        }
    }

    /// Moves virtual time forward; real time needs no help.
    pub(crate) fn move_to(&mut self, time: Nanos) {
        if let Self::Virtual(now) = self {
            *now = time.max(*now);
        }
    }
}

/// What a timer is for. A timer whose token is no longer the current one of its purpose is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Something that the queue pair sent was not acknowledged.
    Unacknowledged(QpId, u64),
    /// The peer was not ready to receive, and the time that it asked for is over.
    NotReady(QpId, u64),
    /// Completions that were held back may be seen.
    Release(CqId),
    /// A link that was cut is whole again.
    LinkRestored(DeviceId, u8, u64),
}

/// Pending timers, the earliest first; of those at the same time, the one that was set first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u64, Timer)>>,
    set: u64,
}

impl Timers {
    /// Sets a timer.
    pub(crate) fn set(&mut self, at: Nanos, timer: Timer) {
        self.set += 1;
        self.heap.push(Reverse((at, self.set, timer)));
    }

    /// When the next timer is due, if there is one.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next timer that is due.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, timer))| timer)
    }
}

/// The time until a packet counts as lost: 4.096 µs · 2^code; none (for ever) for code 0.
pub(crate) fn acknowledgement_timeout(code: u8) -> Option<Nanos> {
    (code != 0).then(|| 4096 << code.min(31))
}

/// The wait that a receiver asks for which is not ready, by the codes of the InfiniBand
/// specification (table "Encoding for RNR NAK Timer Field").
pub(crate) fn not_ready_delay(code: u8) -> Nanos {
    /// In units of 10 µs.
    const DELAYS: [Nanos; 32] = [
        65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
    ];
    DELAYS[usize::from(code % 32)] * 10_000
}

#[cfg(test)]
mod tests {
    use super::super::slab::Key;
    use super::*;

    #[test]
    fn timers_come_by_time_and_then_by_age() {
        let mut timers = Timers::default();
        let timer = |index| Timer::Release(CqId::new(index));
        timers.set(20, timer(1));
        timers.set(10, timer(3));
        timers.set(10, timer(2));
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.take_due(9), None);
        assert_eq!(timers.take_due(15), Some(timer(3)));
        assert_eq!(timers.take_due(15), Some(timer(2)));
        assert_eq!(timers.take_due(15), None);
        assert_eq!(timers.next(), Some(20));
    }

    #[test]
    fn codes_are_those_of_the_specification() {
        assert_eq!(acknowledgement_timeout(0), None);
        assert_eq!(acknowledgement_timeout(1), Some(8192));
        assert_eq!(acknowledgement_timeout(20), Some(4_294_967_296));
        assert_eq!(not_ready_delay(0), 655_360_000);
        assert_eq!(not_ready_delay(1), 10_000);
        assert_eq!(not_ready_delay(12), 640_000);
        assert_eq!(not_ready_delay(31), 491_520_000);
    }

    #[test]
    fn virtual_time_does_not_go_back() {
        let mut clock = Clock::Virtual(5);
        clock.move_to(9);
        clock.move_to(3);
        assert_eq!(clock.now(), 9);
    }
}
