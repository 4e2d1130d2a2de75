//! Which requests the parts on a path belong to, in the order posted.
#![forbid(unsafe_code)]

use crate::wire::cts;
use crate::wire::message::Close;

/// The requests of the parts posted on one path, oldest first: reliable connections complete in
/// order. No more than 256 can be under way, because each has an entry of the ring.
pub(crate) struct InFlight {
    requests: Box<[u16; cts::ENTRIES as usize]>,
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
            requests: Box::new([0; cts::ENTRIES as usize]),
            posted: 0,
            completed: 0,
            seen: 0,
        }
    }

    /// A part of `request` was posted.
    pub(crate) fn push(&mut self, request: u16) {
        self.requests[cts::slot(self.posted)] = request;
        self.posted += 1;
    }

    /// The queue pair has completed its next part: gives the request, unless the peer's count has
    /// told of this part already.
    pub(crate) fn complete(&mut self) -> Option<u16> {
        if self.seen == self.posted {
            return None;
        }
        self.seen += 1;
        self.complete_if_before(self.seen)
    }

    /// The oldest part has completed if fewer than `count` had before it: gives its request.
    fn complete_if_before(&mut self, count: u64) -> Option<u16> {
        if self.completed == self.posted || self.completed >= count {
            return None;
        }
        let request = self.requests[cts::slot(self.completed)];
        self.completed += 1;
        Some(request)
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
    mut arrived: impl FnMut(usize, u16),
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
        while let Some(request) = log.complete_if_before(*taken) {
            arrived(path, request);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_complete_in_the_order_posted() {
        let mut log = InFlight::new();
        assert_eq!(log.complete(), None);
        for request in 0..1000_u16 {
            log.push(request);
            if request >= 255 {
                assert_eq!(log.complete(), Some(request - 255));
            }
        }
    }

    #[test]
    fn the_peers_count_completes_so_many_and_no_more() {
        let mut log = InFlight::new();
        (0..10).for_each(|request| log.push(request));
        assert_eq!(log.complete(), Some(0));
        let by_count: Vec<_> = std::iter::from_fn(|| log.complete_if_before(4)).collect();
        assert_eq!(by_count, [1, 2, 3]);
    }

    #[test]
    fn what_the_peer_counted_does_not_complete_a_second_part() {
        let mut log = InFlight::new();
        (0..10).for_each(|request| log.push(request));
        assert_eq!(log.complete(), Some(0));
        while log.complete_if_before(4).is_some() {}
        // The completions of the parts that were counted come late.
        for _ in 1..4 {
            assert_eq!(log.complete(), None);
        }
        assert_eq!(log.complete(), Some(4));
    }

    #[test]
    fn impossible_counts_complete_nothing() {
        // The peer's numbers are bounded before they are used.
        let mut logs = [InFlight::new(), InFlight::new()];
        logs.iter_mut().for_each(|log| log.push(7));
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
}
