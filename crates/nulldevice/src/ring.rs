//! A queue of fixed capacity.

/// A ring. Pushing and popping never allocate.
pub(crate) struct Ring<T> {
    entries: Box<[T]>,
    /// Entries are counted from the beginning of time; the low bits are the place.
    first: usize,
    next: usize,
}

impl<T: Copy + Default> Ring<T> {
    /// A ring with room for at least so many entries.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1).next_power_of_two();
        Self {
            entries: vec![T::default(); capacity].into(),
            first: 0,
            next: 0,
        }
    }

    /// Adds an entry, unless the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.first) == self.entries.len() {
            return false;
        }
        let place = self.next & (self.entries.len() - 1);
        self.entries[place] = entry;
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Takes the oldest entry.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.first == self.next {
            return None;
        }
        let entry = self.entries[self.first & (self.entries.len() - 1)];
        self.first = self.first.wrapping_add(1);
        Some(entry)
    }

    /// Forgets the entries that do not pass.
    pub(crate) fn retain(&mut self, mut passes: impl FnMut(&T) -> bool) {
        for _ in 0..self.next.wrapping_sub(self.first) {
            if let Some(entry) = self.pop()
                && passes(&entry)
            {
                self.push(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_first_in_first_out_and_bounded() {
        let mut ring = Ring::new(3);
        for lap in 0..5 {
            assert_eq!(
                (0..6)
                    .map(|n| ring.push(lap * 10 + n))
                    .filter(|&p| p)
                    .count(),
                4
            );
            ring.retain(|n| n % 10 != 1);
            let left: Vec<i32> = std::iter::from_fn(|| ring.pop()).collect();
            assert_eq!(left, [lap * 10, lap * 10 + 2, lap * 10 + 3]);
        }
    }
}
