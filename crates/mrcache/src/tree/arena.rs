//! Where the nodes of a tree live: numbered places, taken and given back.

/// Nodes in pieces that never move once they are full, so that growing copies little and wastes
/// less than one piece.
pub(super) struct Arena<N> {
    pieces: Vec<Vec<N>>,
    free: Vec<u32>,
}

/// Nodes per piece. A power of two, so that a number splits into two by shifting.
const PIECE: usize = 64;

impl<N: Default> Arena<N> {
    pub(super) const fn new() -> Self {
        Self {
            pieces: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Takes a place for a new, empty node.
    pub(super) fn take(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        let piece = match self.pieces.last() {
            Some(piece) if piece.len() < PIECE => self.pieces.len() - 1,
            // The first piece grows as a vector does, because most trees are small.
            last => {
                let room = if last.is_none() { 1 } else { PIECE };
                self.pieces.push(Vec::with_capacity(room));
                self.pieces.len() - 1
            }
        };
        let nodes = &mut self.pieces[piece];
        nodes.push(N::default());
        let number = piece * PIECE + nodes.len() - 1;
        // 2^32 nodes would need terabytes.
        u32::try_from(number).unwrap_or_else(|_| unreachable!("more than 2^32 nodes"))
    }

    /// Gives a place back, and what was in it.
    pub(super) fn give_back(&mut self, number: u32) -> N {
        self.free.push(number);
        std::mem::take(self.at_mut(number))
    }

    pub(super) fn at(&self, number: u32) -> &N {
        let number = number as usize;
        &self.pieces[number / PIECE][number % PIECE]
    }

    pub(super) fn at_mut(&mut self, number: u32) -> &mut N {
        let number = number as usize;
        &mut self.pieces[number / PIECE][number % PIECE]
    }

    /// Heap bytes that the arena holds.
    pub(super) fn bytes(&self) -> usize {
        let nodes: usize = self.pieces.iter().map(Vec::capacity).sum();
        nodes * size_of::<N>()
            + self.pieces.capacity() * size_of::<Vec<N>>()
            + self.free.capacity() * size_of::<u32>()
    }
}
