//! Ranges of whole pages.

use thiserror::Error;

/// A non-empty range of whole pages, as a registration covers it. (The last page may be cut short by
/// the end of a DMA-BUF.)
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
    /// The offset in the DMA-BUF and the address lie differently within a page.
    #[error(
        "cannot register offset {offset:#x} of a DMA-BUF at {address:#x}: they lie differently \
         within a page of {page_size} bytes"
    )]
    Skewed {
        /// Address asked for.
        address: usize,
        /// Offset asked for.
        offset: u64,
        /// Bytes of a page.
        page_size: usize,
    },
    /// The range is not wholly in the DMA-BUF.
    #[error(
        "cannot register {length} bytes at offset {offset:#x} of a DMA-BUF of {size} bytes: they \
         are not in it"
    )]
    OutsideBuffer {
        /// Offset asked for.
        offset: u64,
        /// Bytes asked for.
        length: usize,
        /// Bytes of the DMA-BUF.
        size: u64,
    },
}

/// The address of the last of `length` bytes at `address`.
///
/// # Errors
/// A null address, a zero length, or a range beyond the address space.
#[inline]
pub(crate) fn last_byte(address: usize, length: usize) -> Result<usize, InvalidRange> {
    if address == 0 {
        return Err(InvalidRange::Null { length });
    }
    if length == 0 {
        return Err(InvalidRange::Empty { address });
    }
    address
        .checked_add(length - 1)
        .ok_or(InvalidRange::Overflow { address, length })
}

/// Bytes of a page of this system.
pub(crate) fn system_page_size() -> usize {
    match nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE) {
        Ok(Some(size)) => usize::try_from(size).unwrap_or(4096),
        // POSIX requires the value to be there.
        _ => 4096,
    }
}

impl PageRange {
    /// The pages of `page_size` bytes (a power of two) that `length` bytes at `address` touch.
    ///
    /// # Errors
    /// A null address, a zero length, or a range beyond the address space.
    pub fn covering(address: usize, length: usize, page_size: usize) -> Result<Self, InvalidRange> {
        debug_assert!(page_size.is_power_of_two());
        let last = last_byte(address, length)?;
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

    /// The last byte's address. The end would not fit if it is the end of the address space.
    pub fn last(&self) -> usize {
        self.last
    }

    /// At most the first `length` bytes, which are not zero.
    pub(crate) fn shortened(self, length: usize) -> Self {
        Self {
            last: self.last.min(self.start.saturating_add(length - 1)),
            ..self
        }
    }

    /// Whether `length` bytes at `address` lie inside. Zero bytes lie anywhere.
    pub fn contains(&self, address: usize, length: usize) -> bool {
        length == 0
            || (address >= self.start
                && address
                    .checked_add(length - 1)
                    .is_some_and(|last| last <= self.last))
    }

    /// Whether all of `other` lies inside.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.start <= other.start && self.last >= other.last
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
        // Size 0, a null address and overflow are refused, not registered.
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
