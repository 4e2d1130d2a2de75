//! [`AddressRange`]: bytes or whole pages, and [`InvalidRange`]: what cannot be registered.

use thiserror::Error;

/// A non-empty range of addresses. The last byte counts, since what follows it may have no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    start: usize,
    last: usize,
}

/// A range that cannot be registered.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("cannot register {length} bytes at {address:#x}: {problem}")]
#[non_exhaustive]
pub struct InvalidRange {
    /// Address asked for.
    pub address: usize,
    /// Bytes asked for.
    pub length: usize,
    /// What is wrong with it.
    pub problem: RangeProblem,
}

/// What is wrong with an [`InvalidRange`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeProblem {
    /// The address is null.
    #[error("the address is null")]
    Null,
    /// The length is zero.
    #[error("the length is zero")]
    Empty,
    /// The range ends beyond the address space.
    #[error("the range leaves the address space")]
    Overflow,
    /// The address and this offset in the DMA-BUF lie differently within a page.
    #[error("the address and the offset {0:#x} in the DMA-BUF lie differently within a page")]
    Skewed(u64),
    /// The range begins at this offset of the DMA-BUF and is not wholly in it.
    #[error("the range begins at offset {0:#x} of a DMA-BUF and is not wholly in it")]
    OutsideBuffer(u64),
}

impl AddressRange {
    pub(crate) const ALL: Self = Self {
        start: 0,
        last: usize::MAX,
    };

    pub(crate) fn new(address: usize, length: usize) -> Result<Self, InvalidRange> {
        let problem = match address.checked_add(length.saturating_sub(1)) {
            _ if address == 0 => RangeProblem::Null,
            _ if length == 0 => RangeProblem::Empty,
            None => RangeProblem::Overflow,
            Some(last) => {
                let start = address;
                return Ok(Self { start, last });
            }
        };
        Err(InvalidRange {
            address,
            length,
            problem,
        })
    }

    /// The pages of `page_size` bytes (a power of two) that have a byte of this range. All of a page is
    /// mapped if one byte is.
    pub(crate) fn whole_pages(self, page_size: usize) -> Self {
        Self {
            start: self.start & !(page_size - 1),
            last: self.last | (page_size - 1),
        }
    }

    /// At most the first `length` bytes, which are not zero.
    pub(crate) fn shortened(self, length: usize) -> Self {
        Self {
            last: self.last.min(self.start.saturating_add(length - 1)),
            ..self
        }
    }

    /// Address of the first byte.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Address of the last byte.
    pub fn last(&self) -> usize {
        self.last
    }

    /// Bytes in the range.
    pub fn length(&self) -> usize {
        // A request for all addresses is refused, so that it fits.
        self.last - self.start + 1
    }

    /// Whether `length` bytes at `address` lie inside. Zero bytes lie anywhere.
    pub fn contains(&self, address: usize, length: usize) -> bool {
        length == 0 || Self::new(address, length).is_ok_and(|range| self.covers(range))
    }

    pub(crate) fn covers(self, other: Self) -> bool {
        self.start <= other.start && self.last >= other.last
    }

    pub(crate) fn meets(self, other: Self) -> bool {
        self.start <= other.last && self.last >= other.start
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAGE: usize = 4096;

    fn pages(address: usize, length: usize) -> AddressRange {
        AddressRange::new(address, length)
            .unwrap()
            .whole_pages(PAGE)
    }

    #[test]
    fn ranges_are_rounded_to_whole_pages() {
        let range = pages(0x1fff, 2);
        assert_eq!((range.start(), range.length()), (0x1000, 2 * PAGE));
        let range = pages(0x2000, PAGE);
        assert_eq!((range.start(), range.length()), (0x2000, PAGE));
    }

    #[test]
    fn degenerate_ranges_are_errors() {
        let problem = |address, length| AddressRange::new(address, length).unwrap_err().problem;
        assert_eq!(problem(0x1000, 0), RangeProblem::Empty);
        assert_eq!(problem(0, 8), RangeProblem::Null);
        assert_eq!(problem(usize::MAX, 2), RangeProblem::Overflow);
        assert_eq!(problem(2, usize::MAX), RangeProblem::Overflow);
        let error = AddressRange::new(0x1000, 0).unwrap_err();
        let text = "cannot register 0 bytes at 0x1000: the length is zero";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn the_last_page_of_the_address_space_does_not_overflow() {
        let range = pages(usize::MAX - 10, 11);
        assert_eq!(range.length(), PAGE);
        assert!(range.contains(usize::MAX, 1));
        assert!(!range.contains(usize::MAX, 2));
    }

    #[test]
    fn containment() {
        let range = pages(0x1000, PAGE);
        assert!(range.contains(0x1000, PAGE));
        assert!(!range.contains(0x1001, PAGE));
        assert!(!range.contains(0xfff, 1));
        assert!(range.contains(0, 0));
    }
}
