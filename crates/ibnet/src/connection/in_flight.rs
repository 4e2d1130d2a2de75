//! Which requests the parts on a path belong to, in the order posted.
#![forbid(unsafe_code)]

use crate::wire::cts;
use crate::wire::message::Close;

/// A part of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Slot of its request in the table.
    pub(crate) request: u16,
    /// Which of the message's parts it is.
    pub(crate) index: u8,
}

/// The parts posted on one path, oldest first: reliable connections complete in order. No more than 256 can
/// be in flight, because each has an entry of the ring.
pub(crate) struct InFlight {
    parts: Box<[Part; cts::ENTRIES as usize]>,
    posted: u64,
    /// Known to have arrived, by whatever tells of it.
    completed: u64,
    /// Parts that completions of the queue pair have told of, also those that the peer's count told
    /// of before.
    seen: u64,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self {
            parts: Box::new([Part::default(); cts::ENTRIES as usize]),
            posted: 0,
            completed: 0,
            seen: 0,
        }
    }

    /// A part was posted.
    #[inline]
    pub(crate) fn push(&mut self, part: Part) {
        self.parts[cts::slot(self.posted)] = part;
        self.posted += 1;
    }

    /// The queue pair has completed its next part: gives it, unless the peer's count has
    /// told of this part already.
    #[inline]
    pub(crate) fn complete(&mut self) -> Option<Part> {
        if self.seen == self.posted {
            return None;
        }
        self.seen += 1;
        self.complete_if_before(self.seen)
    }

    /// The oldest part has completed if fewer than `count` had before it: gives it.
    #[inline]
    fn complete_if_before(&mut self, count: u64) -> Option<Part> {
        if self.completed == self.posted || self.completed >= count {
            return None;
        }
        let part = self.parts[cts::slot(self.completed)];
        self.completed += 1;
        Some(part)
    }

    /// The queue pair is gone, after the peer has taken `taken` parts from the path since the beginning. Calls
    /// `arrived` with each that has completed by that and `lost` with each that has to be sent again, in order.
    pub(crate) fn settle(
        &mut self,
        taken: u64,
        mut arrived: impl FnMut(Part),
        mut lost: impl FnMut(Part),
    ) -> Result<(), ImpossibleCount> {
        if taken > self.posted || taken < self.completed {
            return Err(ImpossibleCount);
        }
        while let Some(part) = self.complete_if_before(taken) {
            arrived(part);
        }
        while let Some(part) = self.complete_if_before(u64::MAX) {
            lost(part);
        }
        // What is posted again counts anew, from where the peer has got to.
        (self.posted, self.completed, self.seen) = (taken, taken, taken);
        Ok(())
    }
}

/// The peer's counts are not those of this connection, or of more parts than were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImpossibleCount;

/// The receiver has left after taking so many parts from each path: these have arrived, though
/// their acknowledgements may never come. Calls `arrived` with the path and the request of each; with
/// none if any of the counts cannot be.
pub(crate) fn credit(
    logs: &mut [InFlight],
    closing: &Close,
    mut arrived: impl FnMut(usize, Part),
) -> Result<(), ImpossibleCount> {
    let taken = &closing.parts_taken;
    if taken.len() != logs.len()
        || logs
            .iter()
            .zip(taken)
            .any(|(log, taken)| *taken > log.posted)
    {
        return Err(ImpossibleCount);
    }
    for (path, (log, taken)) in logs.iter_mut().zip(taken).enumerate() {
        while let Some(part) = log.complete_if_before(*taken) {
            arrived(path, part);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn part(request: u16) -> Part {
        Part { request, index: 0 }
    }

    #[test]
    fn parts_complete_in_the_order_posted() {
        let mut log = InFlight::new();
        assert_eq!(log.complete(), None);
        for request in 0..1000_u16 {
            log.push(part(request));
            if request >= 255 {
                assert_eq!(log.complete(), Some(part(request - 255)));
            }
        }
    }

    #[test]
    fn the_peers_count_completes_so_many_and_no_more() {
        let mut log = InFlight::new();
        (0..10).for_each(|request| log.push(part(request)));
        assert_eq!(log.complete(), Some(part(0)));
        let by_count: Vec<_> = std::iter::from_fn(|| log.complete_if_before(4)).collect();
        assert_eq!(by_count, [1, 2, 3].map(part));
    }

    #[test]
    fn what_the_peer_counted_does_not_complete_a_second_part() {
        let mut log = InFlight::new();
        (0..10).for_each(|request| log.push(part(request)));
        assert_eq!(log.complete(), Some(part(0)));
        while log.complete_if_before(4).is_some() {}
        // The completions of the parts that were counted come late.
        for _ in 1..4 {
            assert_eq!(log.complete(), None);
        }
        assert_eq!(log.complete(), Some(part(4)));
    }

    #[test]
    fn impossible_counts_complete_nothing() {
        // The peer's numbers are bounded before they are used.
        let mut logs = [InFlight::new(), InFlight::new()];
        logs.iter_mut().for_each(|log| log.push(part(7)));
        for counts in [
            vec![],
            vec![1],
            vec![1, 1, 0],
            vec![1, 2],
            vec![u64::MAX, 0],
        ] {
            let closing = Close {
                parts_taken: counts,
            };
            let refused = credit(&mut logs, &closing, |_, _| panic!("believed {closing:?}"));
            assert_eq!(refused, Err(ImpossibleCount));
        }
        let mut arrived = 0;
        let closing = Close {
            parts_taken: vec![0, 1],
        };
        credit(&mut logs, &closing, |_, _| arrived += 1).unwrap();
        assert_eq!(arrived, 1);
    }

    #[test]
    fn what_the_peer_has_not_taken_is_lost_and_counts_anew() {
        let mut log = InFlight::new();
        (0..6).for_each(|request| log.push(part(request)));
        assert_eq!(log.complete(), Some(part(0)));
        let (mut arrived, mut lost) = (Vec::new(), Vec::new());
        // Less than its own completions, or more than was posted, cannot be.
        for impossible in [0, 7] {
            let refused = log.settle(impossible, |_| panic!(), |_| panic!());
            assert_eq!(refused, Err(ImpossibleCount));
        }
        log.settle(3, |part| arrived.push(part), |part| lost.push(part))
            .unwrap();
        assert_eq!(
            (arrived, lost),
            ([1, 2].map(part).to_vec(), [3, 4, 5].map(part).to_vec())
        );
        log.push(part(3));
        assert_eq!((log.posted, log.complete()), (4, Some(part(3))));
    }
}
