//! Being told of the pieces that messages travel in: for profilers.
//!
//! An [`Observer`] hears of the start and the end of each piece, exactly once each, also when the
//! connection fails or is closed in between. Without one, every send and receive costs one branch
//! more.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use crate::wire::cts::ENTRIES;

/// Hears of the pieces of one connection's messages.
///
/// It is called on the data path, by the thread that has it: it must not block, nor panic. After a panic
/// the memory of outstanding requests is as safe as before, but they may never be done, and what the
/// observer is told from then on, if anything, need not be whole.
pub trait Observer: Send {
    /// A piece begins, of the message for which the caller gave `parent`. What it returns is given
    /// to [`finished`](Self::finished); without, that is not called for this piece.
    fn started(&mut self, parent: NonZeroUsize, piece: &Piece) -> Option<NonZeroUsize>;

    /// The piece for which [`started`](Self::started) returned `handle` has ended.
    fn finished(&mut self, handle: NonZeroUsize);
}

/// What is known of a piece. Sending, a piece is a part of a message on its way over one queue pair;
/// receiving, it is the wait for the message in one announced buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which member of the connection's device carries it, from 0.
    pub device: usize,
    /// The number of the queue pair that the data, or the announcement, takes.
    pub queue_pair: u32,
    /// The identifier that its completion carries, which may be that of several pieces.
    pub wr_id: u64,
    /// What the queue pair does (`enum ibv_wr_opcode`): a write with immediate, or for an
    /// announcement a write.
    pub opcode: u32,
    /// Bytes of data, or that there is room for.
    pub length: usize,
}

/// `IBV_WR_RDMA_WRITE` of `enum ibv_wr_opcode`.
pub(crate) const WRITE: u32 = 0;
/// `IBV_WR_RDMA_WRITE_WITH_IMM`.
pub(crate) const WRITE_WITH_IMMEDIATE: u32 = 1;

/// An observer, and the handles of the pieces under way: a queue of them for each path of a sender,
/// whose parts end in order; a place for each entry of a receiver's ring.
pub(crate) struct Watched {
    observer: Box<dyn Observer>,
    queues: Vec<VecDeque<Option<NonZeroUsize>>>,
    places: Vec<Option<NonZeroUsize>>,
}

impl Watched {
    /// For a sender with `paths` paths.
    pub(crate) fn sender(observer: Box<dyn Observer>, paths: usize) -> Self {
        // No more parts than entries can be under way on a path: nothing is allocated later.
        let queue = || VecDeque::with_capacity(ENTRIES as usize);
        Self {
            observer,
            queues: (0..paths).map(|_| queue()).collect(),
            places: Vec::new(),
        }
    }

    /// For a receiver.
    pub(crate) fn receiver(observer: Box<dyn Observer>) -> Self {
        Self {
            observer,
            queues: Vec::new(),
            places: vec![None; ENTRIES as usize],
        }
    }

    /// A part goes over path `path`.
    pub(crate) fn part_started(
        &mut self,
        path: usize,
        parent: Option<NonZeroUsize>,
        piece: &Piece,
    ) {
        let handle = parent.and_then(|parent| self.observer.started(parent, piece));
        self.queues[path].push_back(handle);
    }

    /// The oldest part on path `path` has ended.
    pub(crate) fn part_finished(&mut self, path: usize) {
        if let Some(Some(handle)) = self.queues[path].pop_front() {
            self.observer.finished(handle);
        }
    }

    /// The buffer in slot `slot` of the ring is announced.
    pub(crate) fn announced(&mut self, slot: usize, parent: Option<NonZeroUsize>, piece: &Piece) {
        self.places[slot] = parent.and_then(|parent| self.observer.started(parent, piece));
    }

    /// The message in slot `slot` is whole.
    pub(crate) fn arrived(&mut self, slot: usize) {
        if let Some(handle) = self.places[slot].take() {
            self.observer.finished(handle);
        }
    }
}

impl Drop for Watched {
    /// What is still under way ends with the connection (every start has its stop).
    fn drop(&mut self) {
        let queued = self.queues.iter_mut().flat_map(|queue| queue.drain(..));
        for handle in queued.chain(self.places.drain(..)).flatten() {
            self.observer.finished(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Counts starts and stops of each piece.
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<Vec<(u32, u32)>>>);

    impl Observer for Counts {
        fn started(&mut self, parent: NonZeroUsize, _: &Piece) -> Option<NonZeroUsize> {
            if parent.get() == 99 {
                return None;
            }
            let mut counts = self.0.lock().unwrap();
            counts.push((1, 0));
            NonZeroUsize::new(counts.len())
        }

        fn finished(&mut self, handle: NonZeroUsize) {
            self.0.lock().unwrap()[handle.get() - 1].1 += 1;
        }
    }

    const PIECE: Piece = Piece {
        device: 0,
        queue_pair: 7,
        wr_id: 0,
        opcode: WRITE,
        length: 8,
    };

    #[test]
    fn every_start_has_one_stop_whatever_happens() {
        let counts = Counts::default();
        let parent = NonZeroUsize::new(1);
        let mut sender = Watched::sender(Box::new(counts.clone()), 2);
        for (path, parent) in [
            (0, parent),
            (1, parent),
            (0, None),
            (0, NonZeroUsize::new(99)),
        ] {
            sender.part_started(path, parent, &PIECE);
        }
        sender.part_finished(0);
        sender.part_finished(0);
        sender.part_finished(0);
        sender.part_finished(0); // more than there were
        drop(sender);
        let mut receiver = Watched::receiver(Box::new(counts.clone()));
        receiver.announced(3, parent, &PIECE);
        receiver.announced(4, None, &PIECE);
        receiver.announced(5, parent, &PIECE);
        receiver.arrived(3);
        receiver.arrived(3);
        receiver.arrived(4);
        drop(receiver);
        let counts = counts.0.lock().unwrap();
        assert_eq!(counts.len(), 4);
        assert!(counts.iter().all(|count| *count == (1, 1)), "{counts:?}");
    }
}
