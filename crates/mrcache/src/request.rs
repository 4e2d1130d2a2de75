//! [`Request`]: the memory that a lease is wanted for, and [`Target`]: what would be registered.

use crate::access::Access;
use crate::memory::{DmaBuf, Domain, Key, Space};
use crate::pages::{InvalidRange, PageRange};

/// What a lease is wanted for.
///
/// ```
/// use ibnet_mrcache::{Access, Domain, Request};
///
/// let domain = Domain::unique();
/// let (write, buffer) = (Access::new(1), vec![0_u8; 4096]);
/// let request = Request::host(domain, write, buffer.as_ptr() as usize, buffer.len());
/// let request = request.page_size(2 << 20); // the buffer is known to lie in huge pages
/// # let _ = request;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request {
    domain: Domain,
    access: Access,
    source: Source,
    address: usize,
    length: usize,
    page_size: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Host,
    DmaBuf {
        buffer: DmaBuf,
        offset: u64,
        data_direct: bool,
        by_address: bool,
    },
}

impl Request {
    /// `length` bytes of host memory at `address`.
    pub const fn host(domain: Domain, access: Access, address: usize, length: usize) -> Self {
        Self {
            domain,
            access,
            source: Source::Host,
            address,
            length,
            page_size: None,
        }
    }

    /// `length` bytes that begin at `offset` of a DMA-BUF and that the device and its peers are to
    /// find at `address` (the `iova`).
    pub const fn dmabuf(
        domain: Domain,
        access: Access,
        buffer: DmaBuf,
        offset: u64,
        address: usize,
        length: usize,
    ) -> Self {
        Self {
            domain,
            access,
            source: Source::DmaBuf {
                buffer,
                offset,
                data_direct: false,
                by_address: false,
            },
            address,
            length,
            page_size: None,
        }
    }

    /// The DMA-BUF is to be reached by the adapter's direct path to the GPU (mlx5's data-direct),
    /// which is a registration of another kind. Without effect on host memory.
    #[must_use]
    pub const fn data_direct(mut self) -> Self {
        if let Source::DmaBuf { data_direct, .. } = &mut self.source {
            *data_direct = true;
        }
        self
    }

    /// The address names the DMA-BUF: the caller vouches that for as long as there is a lease on
    /// any of this memory, its addresses are no other memory's. Then the same memory is found
    /// whatever descriptor it was exported with, as host memory is. (A driver may give each export
    /// an inode of its own, as NVIDIA's does, and an offset of its own.) Without effect on host
    /// memory.
    #[must_use]
    pub const fn by_address(mut self) -> Self {
        if let Source::DmaBuf { by_address, .. } = &mut self.source {
            *by_address = true;
        }
        self
    }

    /// If this has to be registered, whole pages of `bytes` bytes are: the caller knows that the
    /// memory lies in such. Without it the cache's page size counts.
    ///
    /// # Panics
    /// If `bytes` is no power of two.
    #[must_use]
    pub const fn page_size(mut self, bytes: usize) -> Self {
        assert!(bytes.is_power_of_two(), "a page size is a power of two");
        self.page_size = Some(bytes);
        self
    }

    /// What is looked for.
    ///
    /// # Errors
    /// A null address, a length of zero, a range beyond the address space or the DMA-BUF.
    pub(crate) fn wanted(&self, system_page: usize) -> Result<Wanted, InvalidRange> {
        let page = self.page_size.unwrap_or(system_page);
        let pages = PageRange::covering(self.address, self.length, page)?;
        if let Source::DmaBuf { buffer, offset, .. } = self.source {
            check_inside(buffer, offset, self.length)?;
        }
        Ok(Wanted {
            key: self.key(),
            first: self.address,
            last: self.address + (self.length - 1),
            pages,
        })
    }

    fn key(&self) -> Key {
        let space = match self.source {
            Source::Host => Space::Host,
            Source::DmaBuf {
                data_direct,
                by_address: true,
                ..
            } => Space::Vouched { data_direct },
            Source::DmaBuf {
                buffer,
                offset,
                data_direct,
                by_address: false,
            } => Space::DmaBuf {
                device: buffer.device,
                inode: buffer.inode,
                skew: (self.address as u64).wrapping_sub(offset),
                data_direct,
            },
        };
        Key {
            domain: self.domain,
            access: self.access,
            space,
        }
    }

    /// What to register if nothing covers it.
    ///
    /// # Errors
    /// An offset that does not fit the address.
    pub(crate) fn target(
        &self,
        wanted: &Wanted,
        system_page: usize,
    ) -> Result<Target, InvalidRange> {
        let page = self.page_size.unwrap_or(system_page);
        let (pages, access) = (wanted.pages, self.access);
        let Source::DmaBuf { buffer, offset, .. } = self.source else {
            let offset = None;
            return Ok(Target {
                pages,
                access,
                offset,
            });
        };
        let before = self.address - pages.start();
        // Equal within a page, hence at least as large as what lies before it in its page.
        if offset % page as u64 != before as u64 {
            return Err(InvalidRange::Skewed {
                address: self.address,
                offset,
                page_size: page,
            });
        }
        let offset = offset - before as u64;
        // The last page of a buffer may be a broken one.
        let left = buffer.size.map_or(u64::MAX, |size| size - offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX);
        Ok(Target {
            pages: pages.shortened(length),
            access,
            offset: Some(offset),
        })
    }
}

fn check_inside(buffer: DmaBuf, offset: u64, length: usize) -> Result<(), InvalidRange> {
    let end = offset.checked_add(length as u64);
    match (end, buffer.size) {
        (Some(end), Some(size)) if end <= size => Ok(()),
        (Some(_), None) => Ok(()),
        (_, size) => Err(InvalidRange::OutsideBuffer {
            offset,
            length,
            size: size.unwrap_or(u64::MAX),
        }),
    }
}

/// What a request looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: Key,
    /// The first byte that must be covered.
    pub(crate) first: usize,
    /// The last one.
    pub(crate) last: usize,
    /// The whole pages around them: all are mapped if one of their bytes is.
    pub(crate) pages: PageRange,
}

/// What is to be registered: whole pages, with the access that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pages: PageRange,
    access: Access,
    offset: Option<u64>,
}

impl Target {
    /// Address of the first byte; for a DMA-BUF the `iova`.
    pub fn start(&self) -> usize {
        self.pages.start()
    }

    /// Bytes to register.
    pub fn length(&self) -> usize {
        self.pages.length()
    }

    /// The same as a range.
    pub fn pages(&self) -> PageRange {
        self.pages
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
        let buffer = DmaBuf::from_identity(1, 2, size);
        Request::dmabuf(
            Domain::unique(),
            Access::new(1),
            buffer,
            offset,
            address,
            length,
        )
    }

    fn target(request: &Request) -> Result<Target, InvalidRange> {
        request.target(&request.wanted(PAGE)?, PAGE)
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
        assert!(
            matches!(refused, Err(InvalidRange::Skewed { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn rounding_up_does_not_leave_the_buffer() {
        // The rounded length may exceed the buffer.
        let cut = target(&dmabuf(0x1000, 0x7000, 0x10, 0x1800)).unwrap();
        assert_eq!(cut.length(), 0x800);
        for (offset, length) in [(0x1000, 0x801), (0x2000, 1), (u64::MAX - 0xfff, 0x1000)] {
            let request = dmabuf(offset, 0x7000, length, 0x1800);
            assert!(matches!(
                request.wanted(PAGE),
                Err(InvalidRange::OutsideBuffer { .. })
            ));
        }
    }

    #[test]
    fn all_parts_of_a_mapping_have_one_key() {
        let domain = Domain::unique();
        let buffer = DmaBuf::from_identity(1, 2, 1 << 30);
        let key = |offset, address| {
            Request::dmabuf(domain, Access::new(1), buffer, offset, address, 1).key()
        };
        assert_eq!(key(0, 0x7000), key(0x2345, 0x9345));
        assert_ne!(key(0, 0x7000), key(0x1000, 0x7000));
        // An offset beyond the address is as good as any.
        assert_eq!(key(0x10_0000, 0x1000), key(0x10_1000, 0x2000));
    }

    #[test]
    fn huge_pages_are_respected_when_the_caller_says_so() {
        let request = Request::host(Domain::unique(), Access::new(1), 0x40_0123, 10);
        let huge = target(&request.page_size(2 << 20)).unwrap();
        assert_eq!((huge.start(), huge.length()), (0x40_0000, 2 << 20));
        let small = target(&request).unwrap();
        assert_eq!((small.start(), small.length()), (0x40_0000, PAGE));
    }
}
