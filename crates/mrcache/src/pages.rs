//! Ranges of whole pages.

use thiserror::Error;

/// A non-empty range of whole pages, as a registration covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRange {
    start: usize,
    last: usize,
}

/// A range that cannot be registered.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRange {
    /// The address is null.
    #[error("cannot register {length} bytes at a null address")]
    Null {
        /// Bytes asked for.
        length: usize,
    },
    /// The length is zero.
    #[error("cannot register zero bytes at {address:#x}")]
    Empty {
        /// Address asked for.
        address: usize,
    },
    /// The range ends beyond the address space.
    #[error("cannot register {length} bytes at {address:#x}: the range leaves the address space")]
    Overflow {
        /// Address asked for.
        address: usize,
        /// Bytes asked for.
        length: usize,
    },
}

impl PageRange {
    /// The pages of `page_size` bytes (a power of two) that `length` bytes at `address` touch.
    ///
    /// # Errors
    /// A null address, a zero length, or a range beyond the address space.
    pub fn covering(address: usize, length: usize, page_size: usize) -> Result<Self, InvalidRange> {
        debug_assert!(page_size.is_power_of_two());
        if address == 0 {
            return Err(InvalidRange::Null { length });
        }
        if length == 0 {
            return Err(InvalidRange::Empty { address });
        }
        let last = address
            .checked_add(length - 1)
            .ok_or(InvalidRange::Overflow { address, length })?;
        // The last byte is kept instead of the end, so that the very last page does not overflow.
        let mask = page_size - 1;
        let range = Self {
            start: address & !mask,
            last: last | mask,
        };
        if range.start == 0 && range.last == usize::MAX {
            return Err(InvalidRange::Overflow { address, length });
        }
        Ok(range)
    }

    /// Address of the first byte.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Bytes in the range.
    pub fn length(&self) -> usize {
        // `covering` excludes the one range whose length does not fit.
        self.last - self.start + 1
    }

    /// Whether `length` bytes at `address` lie inside. Zero bytes lie anywhere.
    pub fn contains(&self, address: usize, length: usize) -> bool {
        length == 0
            || (address >= self.start
                && address
                    .checked_add(length - 1)
                    .is_some_and(|last| last <= self.last))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn ranges_are_rounded_to_whole_pages() {
        let range = PageRange::covering(0x1fff, 2, PAGE).unwrap();
        assert_eq!((range.start(), range.length()), (0x1000, 2 * PAGE));
        let range = PageRange::covering(0x2000, PAGE, PAGE).unwrap();
        assert_eq!((range.start(), range.length()), (0x2000, PAGE));
    }

    #[test]
    fn degenerate_ranges_are_errors() {
        // Pitfall 64: size 0, a null address and overflow are refused, not registered.
        assert_eq!(
            PageRange::covering(0x1000, 0, PAGE),
            Err(InvalidRange::Empty { address: 0x1000 })
        );
        assert_eq!(
            PageRange::covering(0, 8, PAGE),
            Err(InvalidRange::Null { length: 8 })
        );
        assert!(matches!(
            PageRange::covering(usize::MAX, 2, PAGE),
            Err(InvalidRange::Overflow { .. })
        ));
        assert!(matches!(
            PageRange::covering(1, usize::MAX, PAGE),
            Err(InvalidRange::Overflow { .. })
        ));
    }

    #[test]
    fn the_last_page_of_the_address_space_does_not_overflow() {
        let range = PageRange::covering(usize::MAX - 10, 11, PAGE).unwrap();
        assert_eq!(range.length(), PAGE);
        assert!(range.contains(usize::MAX, 1));
        assert!(!range.contains(usize::MAX, 2));
    }

    #[test]
    fn containment() {
        let range = PageRange::covering(0x1000, PAGE, PAGE).unwrap();
        assert!(range.contains(0x1000, PAGE));
        assert!(!range.contains(0x1001, PAGE));
        assert!(!range.contains(0xfff, 1));
        assert!(range.contains(0, 0));
    }
}
