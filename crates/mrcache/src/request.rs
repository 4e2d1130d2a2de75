//! [`Request`]: the memory that a lease is wanted for, and [`Target`]: what would be registered.

use crate::key::{Access, DmaBuf, DomainId, Key, Space};
use crate::range::{AddressRange, InvalidRange, RangeProblem};

/// What a lease is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    domain: DomainId,
    access: Access,
    address: usize,
    length: usize,
    /// The DMA-BUF and where in it the memory begins; none for host memory.
    buffer: Option<(DmaBuf, u64)>,
    data_direct: bool,
    by_address: bool,
}

impl Request {
    /// `length` bytes of host memory at `address`.
    pub const fn host(domain: DomainId, access: Access, address: usize, length: usize) -> Self {
        Self {
            domain,
            access,
            address,
            length,
            buffer: None,
            data_direct: false,
            by_address: false,
        }
    }

    /// `length` bytes that begin at `offset` of a DMA-BUF and that the device and its peers are to
    /// find at `address` (the `iova`).
    pub const fn dmabuf(
        domain: DomainId,
        access: Access,
        buffer: DmaBuf,
        offset: u64,
        address: usize,
        length: usize,
    ) -> Self {
        let mut request = Self::host(domain, access, address, length);
        request.buffer = Some((buffer, offset));
        request
    }

    /// Whether the DMA-BUF is to be reached by the adapter's direct path to the GPU (mlx5's
    /// data-direct), which is a registration of another kind. Without effect on host memory.
    #[must_use]
    pub const fn data_direct(mut self, data_direct: bool) -> Self {
        self.data_direct = data_direct;
        self
    }

    /// Names the DMA-BUF by its address instead of its inode: the caller promises that as long as
    /// there is a lease on any of this memory, its addresses are no other memory's. Then the same
    /// memory is found whatever descriptor it was exported with, as host memory is. (A driver may
    /// give each export an inode and an offset of its own, as NVIDIA's does.) Without effect on host
    /// memory.
    #[must_use]
    pub const fn by_address(mut self) -> Self {
        self.by_address = true;
        self
    }

    /// What is looked for in a cache that registers pages of `page_size` bytes.
    pub(crate) fn wanted(&self, page_size: usize) -> Result<Wanted, InvalidRange> {
        let bytes = AddressRange::new(self.address, self.length)?;
        let pages = bytes.whole_pages(page_size);
        if pages == AddressRange::ALL {
            return Err(self.invalid(RangeProblem::Overflow));
        }
        if let Some((buffer, offset)) = self.buffer {
            let end = offset.checked_add(self.length as u64);
            if end.is_none_or(|end| end > buffer.size) {
                return Err(self.invalid(RangeProblem::OutsideBuffer(offset)));
            }
        }
        Ok(Wanted {
            key: Key {
                domain: self.domain,
                space: self.space(),
                access: self.access,
            },
            bytes,
            pages,
            target: self.target(pages, page_size),
        })
    }

    /// What to register if nothing covers it.
    fn target(&self, pages: AddressRange, page_size: usize) -> Result<Target, InvalidRange> {
        let mut target = Target {
            range: pages,
            access: self.access,
            offset: None,
        };
        if let Some((buffer, offset)) = self.buffer {
            let before = (self.address - pages.start()) as u64;
            // Equal within a page, hence at least as large as what lies before it in its page.
            if offset % page_size as u64 != before {
                return Err(self.invalid(RangeProblem::Skewed(offset)));
            }
            target.offset = Some(offset - before);
            // The last page of a buffer may be a broken one.
            let left = buffer.size - (offset - before);
            target.range = pages.shortened(usize::try_from(left).unwrap_or(usize::MAX));
        }
        Ok(target)
    }

    fn invalid(&self, problem: RangeProblem) -> InvalidRange {
        InvalidRange {
            address: self.address,
            length: self.length,
            problem,
        }
    }

    fn space(&self) -> Space {
        let data_direct = self.data_direct;
        match self.buffer {
            None => Space::Host,
            Some(_) if self.by_address => Space::Addresses { data_direct },
            Some((buffer, offset)) => Space::Inode {
                device: buffer.device,
                inode: buffer.inode,
                skew: (self.address as u64).wrapping_sub(offset),
                data_direct,
            },
        }
    }
}

/// What a request looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: Key,
    /// The bytes that must be covered.
    pub(crate) bytes: AddressRange,
    /// The whole pages around them: all of a page is mapped if one byte is.
    pub(crate) pages: AddressRange,
    /// What to register if nothing covers it, or why that is impossible.
    pub(crate) target: Result<Target, InvalidRange>,
}

impl Wanted {
    /// Whether this is what would be registered for it.
    pub(crate) fn registers(&self, key: &Key, range: AddressRange) -> bool {
        self.key == *key && self.target.is_ok_and(|target| target.range == range)
    }
}

/// What is to be registered: whole pages, with the access that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub(crate) range: AddressRange,
    access: Access,
    offset: Option<u64>,
}

impl Target {
    /// Address of the first byte; for a DMA-BUF the `iova`.
    pub fn start(&self) -> usize {
        self.range.start()
    }

    /// Bytes to register.
    pub fn length(&self) -> usize {
        self.range.length()
    }

    /// The access to register with.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Where in the DMA-BUF [`start`](Self::start) is; none for host memory. It has moved with the
    /// start, so that the two agree within a page, as `ibv_reg_dmabuf_mr` demands.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAGE: usize = 4096;

    fn dmabuf(offset: u64, address: usize, length: usize, size: u64) -> Request {
        let (domain, buffer) = (DomainId::allocate(), DmaBuf::from_identity(1, 2, size));
        Request::dmabuf(domain, Access::default(), buffer, offset, address, length)
    }

    fn target(request: &Request) -> Result<Target, RangeProblem> {
        let wanted = request.wanted(PAGE).map_err(|invalid| invalid.problem);
        wanted?.target.map_err(|invalid| invalid.problem)
    }

    #[test]
    fn the_offset_moves_with_the_address() {
        // The address is rounded down and the offset with it.
        let target = target(&dmabuf(0x2010, 0x7010, 100, 0x10000)).unwrap();
        assert_eq!((target.start(), target.offset()), (0x7000, Some(0x2000)));
        assert_eq!(target.length(), PAGE);
    }

    #[test]
    fn an_offset_that_does_not_fit_the_address_is_refused() {
        // No rounding can make the two agree.
        let refused = target(&dmabuf(0x2000, 0x7010, 100, 0x10000));
        assert_eq!(refused, Err(RangeProblem::Skewed(0x2000)));
    }

    #[test]
    fn rounding_up_does_not_leave_the_buffer() {
        // The rounded length may exceed the buffer.
        let cut = target(&dmabuf(0x1000, 0x7000, 0x10, 0x1800)).unwrap();
        assert_eq!(cut.length(), 0x800);
        for (offset, length) in [(0x1000, 0x801), (0x2000, 1), (u64::MAX - 0xfff, 0x1000)] {
            let refused = target(&dmabuf(offset, 0x7000, length, 0x1800));
            assert_eq!(refused, Err(RangeProblem::OutsideBuffer(offset)));
        }
    }

    #[test]
    fn all_parts_of_a_mapping_are_in_one_space() {
        let space = |offset, address| dmabuf(offset, address, 1, 1 << 30).space();
        assert_eq!(space(0, 0x7000), space(0x2345, 0x9345));
        assert_ne!(space(0, 0x7000), space(0x1000, 0x7000));
        // An offset beyond the address is as good as any.
        assert_eq!(space(0x10_0000, 0x1000), space(0x10_1000, 0x2000));
    }

    #[test]
    fn huge_pages_are_respected_when_the_caller_says_so() {
        let domain = DomainId::allocate();
        let request = Request::host(domain, Access::default(), 0x40_0123, 10);
        let huge = request.wanted(2 << 20).unwrap().target.unwrap();
        assert_eq!((huge.start(), huge.length()), (0x40_0000, 2 << 20));
        let small = target(&request).unwrap();
        assert_eq!((small.start(), small.length()), (0x40_0000, PAGE));
    }
}
