//! Placing the bytes of a message: all at once, line by line in random order, or outside the lock.

use super::State;
use super::copy::{self, LINE, Span};
use super::message::Plan;
use super::qp::Partial;
use super::slab::{DeviceId, QpId, RegionId};
use super::timers::Clock;
use crate::faults::Kind;

/// Messages from this length on are copied outside the lock by a free-running fabric, so that
/// other threads get ahead meanwhile.
const LARGE: usize = 16 << 10;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From `local` to `remote`: writes and sends.
    Out,
    /// From `remote` to `local`: reads.
    In,
}

/// How far the placing of a message came.
pub(crate) enum Placed {
    All,
    Part(Partial),
    /// It is to be copied outside the lock.
    Aside,
}

/// A copy to be made outside the lock.
pub(crate) struct CopyJob {
    pub(crate) qp: QpId,
    pub(crate) plan: Plan,
    pub(crate) direction: Direction,
    /// How often the two ends were reset when it began.
    pub(crate) epochs: [u32; 2],
    from: Vec<Span>,
    to: Vec<Span>,
    pub(crate) pins: Vec<(DeviceId, RegionId)>,
}

impl CopyJob {
    pub(crate) fn run(&self) {
        let length = self.plan.head.length as usize;
        // SAFETY: the spans are of regions that are pinned, so that their memory is registered
        // until the copy has ended; the caller that registered it promised to keep it mapped as long.
        unsafe { copy::scatter(&self.from, &self.to, 0, length) };
    }
}

impl State {
    /// Places bytes of the message at hand. `partial` is what was left of it before.
    pub(crate) fn place(
        &mut self,
        id: QpId,
        direction: Direction,
        plan: &Plan,
        partial: Option<Partial>,
    ) -> Placed {
        let length = plan.head.length as usize;
        let peer_epoch = self.qps[plan.peer].epoch;
        if let Some(partial) = partial.filter(|partial| partial.peer_epoch == peer_epoch) {
            return self.place_part(direction, partial);
        }
        if self.faults.is_armed(Kind::Tear) {
            let mut left = lines(self.spans(direction).1, length);
            let is_torn = left.iter().filter(|(_, length)| *length > 0).count() > 1;
            if left.len() > 1 && self.tears(id, is_torn) {
                self.random.shuffle(&mut left);
                return self.place_part(direction, Partial { peer_epoch, left });
            }
        }
        let is_large = length >= LARGE && !plan.head.is_inline;
        if is_large && matches!(self.clock, Clock::Real(_)) {
            return Placed::Aside;
        }
        self.copy(direction, 0, length);
        Placed::All
    }

    /// Places some of what is left; all of it if the fabric is not stepped.
    fn place_part(&mut self, direction: Direction, mut partial: Partial) -> Placed {
        let number = match self.is_stepped() {
            // Never all of several lines, so that it takes several steps.
            true => 1 + self.random.index(partial.left.len().div_ceil(2)),
            false => partial.left.len(),
        };
        let rest = partial.left.len().saturating_sub(number);
        for (offset, length) in partial.left.split_off(rest) {
            self.copy(direction, offset, length);
        }
        if partial.left.is_empty() {
            Placed::All
        } else {
            Placed::Part(partial)
        }
    }

    fn copy(&mut self, direction: Direction, offset: usize, length: usize) {
        self.counters.bytes += length as u64;
        let (from, to) = self.spans(direction);
        // SAFETY: the spans were just found by keys that are good, so that their memory is
        // registered; the caller that registered it promised to keep it mapped as long. The lock is held,
        // which deregistering takes first.
        unsafe { copy::scatter(from, to, offset, length) };
    }

    fn spans(&self, direction: Direction) -> (&[Span], &[Span]) {
        match direction {
            Direction::Out => (&self.local, &self.remote),
            Direction::In => (&self.remote, &self.local),
        }
    }

    /// Prepares a copy outside the lock. What it concerns waits for it.
    pub(crate) fn begin_copy(&mut self, id: QpId, direction: Direction, plan: Plan) -> CopyJob {
        let epochs = [self.qps[id].epoch, self.qps[plan.peer].epoch];
        let pins = self.pin();
        let (from, to) = self.spans(direction);
        let job = CopyJob {
            qp: id,
            plan,
            direction,
            epochs,
            from: from.to_vec(),
            to: to.to_vec(),
            pins,
        };
        self.qps[id].requester.is_copying = true;
        self.qps[id].copies += 1;
        self.qps[plan.peer].copies += 1;
        job
    }

    /// Ends a copy outside the lock. Whether its message still counts: both ends may have gone to
    /// another state meanwhile.
    pub(crate) fn end_copy(&mut self, job: &CopyJob) -> bool {
        self.unpin(&job.pins);
        self.counters.bytes += job.plan.head.length;
        let (id, peer) = (job.qp, job.plan.peer);
        self.qps[id].copies -= 1;
        self.qps[peer].copies -= 1;
        let counts = self.qps[id].epoch == job.epochs[0]
            && self.qps[peer].epoch == job.epochs[1]
            && self.qps[id].state.sends()
            && self.qps[peer].state.receives();
        self.qps[id].requester.is_copying = false;
        counts
    }
}

/// The first `length` bytes of what lies scattered over spans, cut where 64-byte lines of memory
/// end: offsets and lengths.
///
/// In how many lines a span lies depends on its address, which is another one in each run of a
/// program. A seeded run must not: so there are always as many pieces as there can be lines, and
/// one that is not needed is empty.
fn lines(to: &[Span], length: usize) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    let mut offset = 0;
    for span in to {
        let start = offset;
        let end = start + span.length.min(length - start);
        let number = pieces.len() + most_lines(end - start);
        while offset < end {
            let address = span.address + (offset - start);
            let piece = (LINE - address % LINE).min(end - offset);
            pieces.push((offset, piece));
            offset += piece;
        }
        pieces.resize(number, (end, 0));
    }
    pieces
}

/// In how many lines so many bytes lie at most, wherever they begin.
const fn most_lines(length: usize) -> usize {
    match length {
        0 | 1 => length,
        // The first byte is the last of its line.
        _ => 1 + (length - 1).div_ceil(LINE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_where_lines_of_memory_end() {
        let span = |address, length| Span { address, length };
        assert_eq!(lines(&[span(128, 64)], 64), [(0, 64), (64, 0)]);
        assert_eq!(lines(&[span(120, 100)], 80), [(0, 8), (8, 64), (72, 8)]);
        assert_eq!(
            lines(&[span(0, 10), span(63, 9)], 15),
            [(0, 10), (10, 0), (10, 1), (11, 4)]
        );
        assert_eq!(lines(&[span(63, 1)], 1), [(0, 1)]);
        assert_eq!(lines(&[span(0, 10)], 0), []);
    }

    #[test]
    fn the_number_of_pieces_does_not_depend_on_the_address() {
        for length in 0..300 {
            let pieces = |address| lines(&[Span { address, length }], length);
            for address in 0..64 {
                let pieces = pieces(address);
                assert_eq!(pieces.len(), most_lines(length), "{address} {length}");
                let mut end = 0;
                for (offset, piece) in pieces {
                    assert_eq!(offset, end);
                    end += piece;
                    assert!(end == length || (address + end).is_multiple_of(LINE));
                }
                assert_eq!(end, length);
            }
            // And is no larger than some address needs.
            let needed = |address| pieces(address).iter().all(|(_, piece)| *piece > 0);
            assert!((0..64).any(needed), "{length}");
        }
    }
}
