//! The memory regions of a device, and the checks of its keys.

use std::ops::Range;
use std::os::fd::RawFd;

use ibnet_verbs::Access;
use ibnet_verbs::sys::ibv_access_flags;

use super::copy::Span;
use super::slab::{Key, PdId, RegionId, Slab};
use super::{Errno, mapping::Mapping};
use crate::view::{RegionKind, RegionView};

pub(crate) const LOCAL_WRITE: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
pub(crate) const REMOTE_WRITE: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
pub(crate) const REMOTE_READ: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
pub(crate) const REMOTE_ATOMIC: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
const RELAXED_ORDERING: u32 = ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;
/// Bits that kernels without support for them ignore.
const OPTIONAL: u32 = 0x3ff0_0000;
const SUPPORTED: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;

/// A registered range.
pub(crate) struct Region {
    pub(crate) pd: PdId,
    /// The first address by which work requests name it.
    start: u64,
    length: u64,
    /// Where its first byte is in the process.
    memory: usize,
    access: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    /// Copies that are under way outside the lock.
    pub(crate) pins: u32,
    /// It is being deregistered: its keys are good for nothing any more.
    is_revoked: bool,
    kind: RegionKind,
    /// The mapping of a DMA-BUF, which ends with the region.
    mapping: Option<Mapping>,
}

/// All regions of a device.
pub(crate) struct Regions {
    slab: Slab<RegionId, Region>,
    /// Makes the keys of one device wrong on every other.
    salt: u32,
    /// Makes the keys of a region wrong for the next one under the same number.
    generation: u32,
}

/// What is to be registered.
pub(crate) struct Registration {
    pub(crate) pd: PdId,
    pub(crate) start: u64,
    pub(crate) length: usize,
    pub(crate) memory: usize,
    pub(crate) access: u32,
    pub(crate) kind: RegionKind,
    pub(crate) mapping: Option<Mapping>,
}

/// How access flags reach the kernel.
#[derive(Clone, Copy)]
pub(crate) enum Optional {
    /// By `ibv_reg_mr`: optional bits are refused.
    Refused,
    /// By `ibv_reg_mr_iova2`: optional bits that the kernel does not know are dropped.
    Dropped,
}

impl Regions {
    pub(crate) const fn new(salt: u32) -> Self {
        Self {
            slab: Slab::new(),
            salt: salt & 0xff_ffff,
            generation: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn uses(&self, pd: PdId) -> bool {
        self.slab.iter().any(|(_, region)| region.pd == pd)
    }

    pub(crate) fn get_mut(&mut self, id: RegionId) -> Option<&mut Region> {
        self.slab.get_mut(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Region> {
        self.slab.iter().map(|(_, region)| region)
    }

    /// How many copies outside the lock use a region.
    pub(crate) fn pins(&self, id: RegionId) -> u32 {
        self.slab.get(id).map_or(0, |region| region.pins)
    }

    pub(crate) fn remove(&mut self, id: RegionId) -> Option<Region> {
        self.slab.remove(id)
    }

    /// Adds a region, whose access flags were checked. Gives its keys.
    pub(crate) fn insert(&mut self, new: Registration) -> (RegionId, u32, u32) {
        self.generation = self.generation.wrapping_add(1);
        let id = self.slab.insert(Region {
            pd: new.pd,
            start: new.start,
            length: new.length as u64,
            memory: new.memory,
            access: new.access,
            lkey: 0,
            rkey: 0,
            pins: 0,
            is_revoked: false,
            kind: new.kind,
            mapping: new.mapping,
        });
        let number = id.index() as u32 + 1;
        let base = (number ^ self.salt) << 8;
        // The two keys differ in the lowest bit, so that one never passes for the other.
        let tag = (self.generation << 1) & 0xfe;
        let region = &mut self.slab[id];
        (region.lkey, region.rkey) = (base | tag, base | tag | 1);
        (id, region.lkey, region.rkey)
    }

    /// What is registered, for tests.
    pub(crate) fn views(&self) -> Vec<RegionView> {
        let regions = self.slab.iter().map(|(_, region)| RegionView {
            start: region.start,
            length: region.length,
            access: Access::from_bits_retain(region.access),
            lkey: region.lkey,
            rkey: region.rkey,
            kind: region.kind,
        });
        regions.collect()
    }

    /// Finds a region by either of its keys.
    #[inline]
    fn find(&self, key: u32) -> Option<(RegionId, &Region)> {
        let number = (key >> 8) ^ self.salt;
        let id = RegionId::new((number as usize).wrapping_sub(1));
        self.slab.get(id).map(|region| (id, region))
    }

    /// The memory of a local element, if key, domain, range and access are right.
    #[inline]
    pub(crate) fn local(
        &self,
        lkey: u32,
        pd: PdId,
        address: u64,
        length: u32,
        access: u32,
    ) -> Option<(RegionId, Span)> {
        let (id, region) = self.find(lkey)?;
        (region.lkey == lkey).then_some(())?;
        region
            .span(pd, address, length, access)
            .map(|span| (id, span))
    }

    /// The memory that a peer names, if key, domain, range and access are right.
    #[inline]
    pub(crate) fn remote(
        &self,
        rkey: u32,
        pd: PdId,
        address: u64,
        length: u32,
        access: u32,
    ) -> Option<(RegionId, Span)> {
        let (id, region) = self.find(rkey)?;
        (region.rkey == rkey).then_some(())?;
        region
            .span(pd, address, length, access)
            .map(|span| (id, span))
    }
}

impl Region {
    /// The pages of the process that it is in.
    pub(crate) fn pages(&self) -> Range<usize> {
        let end = self.memory + self.length as usize;
        self.memory - self.memory % page_size()..end.next_multiple_of(page_size())
    }

    pub(crate) fn is_dmabuf(&self) -> bool {
        self.mapping.is_some()
    }

    /// Lets no new message use it.
    pub(crate) fn revoke(&mut self) {
        self.is_revoked = true;
    }

    #[inline]
    fn span(&self, pd: PdId, address: u64, length: u32, access: u32) -> Option<Span> {
        let offset = address.checked_sub(self.start)?;
        let fits = offset <= self.length && u64::from(length) <= self.length - offset;
        let is_allowed = self.pd == pd && self.access & access == access && !self.is_revoked;
        (is_allowed && fits).then(|| Span {
            // The offset is within the region, which is within the address space.
            address: self.memory + offset as usize,
            length: length as usize,
        })
    }
}

/// The access flags that the kernel keeps, or why it refuses them.
pub(crate) fn check_access(
    access: u32,
    optional: Optional,
    relaxed_ordering: bool,
) -> Result<u32, Errno> {
    let kept = match optional {
        Optional::Refused if access & OPTIONAL != 0 => return Err(libc::EINVAL),
        Optional::Dropped if relaxed_ordering => access & !(OPTIONAL & !RELAXED_ORDERING),
        Optional::Refused | Optional::Dropped => access & !OPTIONAL,
    };
    let plain = kept & !RELAXED_ORDERING;
    let writes = plain & (REMOTE_WRITE | REMOTE_ATOMIC) != 0;
    if plain & !SUPPORTED != 0 || (writes && plain & LOCAL_WRITE == 0) {
        return Err(libc::EINVAL);
    }
    Ok(kept)
}

/// Whether a range of the process's memory is wholly mapped. As for the kernel, the first and last
/// page count whole.
pub(crate) fn is_mapped(address: usize, length: usize) -> bool {
    let page = page_size();
    let start = address - address % page;
    let Some(length) = address.checked_add(length).map(|end| end - start) else {
        return false;
    };
    // SAFETY: with MS_ASYNC the call only checks that the range is mapped; it touches no memory.
    unsafe { libc::msync(start as *mut libc::c_void, length, libc::MS_ASYNC) == 0 }
}

/// Tells the kernel whether forked children get a copy of the pages of a range. As libibverbs does it
/// where fork support was initialised.
pub(crate) fn advise(memory: usize, length: usize, advice: libc::c_int) {
    let page = page_size();
    let start = memory - memory % page;
    let length = memory + length - start;
    // SAFETY: the advice changes nothing in this process.
    if unsafe { libc::madvise(start as *mut libc::c_void, length, advice) } != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, "forked children and {length} bytes at {start:#x}");
    }
}

/// The size of a page, in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: the call takes and gives plain numbers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // POSIX requires the value, so that the smallest page there is stands in only on paper.
    usize::try_from(size).unwrap_or(4096)
}

/// The part of a DMA-BUF, or of any file that can be mapped, that a region is to cover.
pub(crate) fn map_dmabuf(
    fd: RawFd,
    offset: u64,
    length: usize,
    writable: bool,
) -> Result<(Mapping, usize), Errno> {
    let page = page_size() as u64;
    let skew = (offset % page) as usize;
    let whole = length.checked_add(skew).ok_or(libc::EINVAL)?;
    let mapping = Mapping::of_file(fd, offset - skew as u64, whole, writable)?;
    let memory = mapping.address() + skew;
    Ok((mapping, memory))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn register(regions: &mut Regions, pd: usize, access: u32) -> (RegionId, u32, u32) {
        regions.insert(Registration {
            pd: PdId::new(pd),
            start: 0x1000,
            length: 100,
            memory: 0x9000,
            access,
            kind: RegionKind::Process,
            mapping: None,
        })
    }

    #[test]
    fn keys_are_good_for_their_own_range_domain_side_and_device_only() {
        let mut regions = Regions::new(5);
        let (_, lkey, rkey) = register(&mut regions, 1, LOCAL_WRITE | REMOTE_WRITE);
        let pd = PdId::new(1);
        let local = |key, address, length| regions.local(key, pd, address, length, 0);
        let span = local(lkey, 0x1010, 0x10).unwrap().1;
        assert_eq!((span.address, span.length), (0x9010, 0x10));
        assert!(local(lkey, 0x1000, 100).is_some());
        assert!(local(lkey, 0x1064, 0).is_some());
        for (key, address, length) in [
            (lkey, 0x1000, 101),
            (lkey, 0xfff, 1),
            (lkey, 0x1065, 0),
            (lkey, u64::MAX, u32::MAX),
            (rkey, 0x1000, 1),
            (lkey ^ 2, 0x1000, 1),
            (lkey ^ 0x100, 0x1000, 1),
        ] {
            assert!(
                local(key, address, length).is_none(),
                "{key:#x} {address:#x} {length}"
            );
        }
        assert!(regions.remote(rkey, pd, 0x1000, 1, REMOTE_WRITE).is_some());
        assert!(regions.remote(lkey, pd, 0x1000, 1, REMOTE_WRITE).is_none());
        assert!(regions.remote(rkey, pd, 0x1000, 1, REMOTE_READ).is_none());
        assert!(regions.remote(rkey, PdId::new(2), 0x1000, 1, 0).is_none());
        let mut other = Regions::new(6);
        register(&mut other, 1, LOCAL_WRITE);
        assert!(other.local(lkey, pd, 0x1000, 1, 0).is_none());
    }

    #[test]
    fn a_key_dies_with_its_region() {
        let mut regions = Regions::new(0);
        let (id, old, _) = register(&mut regions, 1, 0);
        assert!(regions.remove(id).is_some());
        let (again, new, _) = register(&mut regions, 1, 0);
        assert_eq!(id, again);
        assert_ne!(old, new);
        assert!(regions.local(old, PdId::new(1), 0x1000, 1, 0).is_none());
    }

    #[test]
    fn a_region_that_is_being_deregistered_is_denied() {
        let mut regions = Regions::new(0);
        let (id, lkey, rkey) = register(&mut regions, 1, REMOTE_READ);
        regions.get_mut(id).unwrap().revoke();
        let pd = PdId::new(1);
        assert!(regions.local(lkey, pd, 0x1000, 1, 0).is_none());
        assert!(regions.remote(rkey, pd, 0x1000, 1, REMOTE_READ).is_none());
    }

    #[test]
    fn access_is_checked_as_by_the_kernel() {
        use Optional::{Dropped, Refused};
        let relaxed = LOCAL_WRITE | RELAXED_ORDERING;
        assert_eq!(
            check_access(LOCAL_WRITE | REMOTE_WRITE, Refused, true),
            Ok(3)
        );
        assert_eq!(check_access(REMOTE_READ, Refused, true), Ok(REMOTE_READ));
        assert_eq!(check_access(REMOTE_WRITE, Refused, true), Err(libc::EINVAL));
        assert_eq!(check_access(relaxed, Refused, true), Err(libc::EINVAL));
        assert_eq!(check_access(relaxed, Dropped, true), Ok(relaxed));
        assert_eq!(check_access(relaxed, Dropped, false), Ok(LOCAL_WRITE));
        assert_eq!(check_access(1 << 25, Dropped, true), Ok(0));
        assert_eq!(check_access(1 << 4, Dropped, true), Err(libc::EINVAL));
    }

    #[test]
    fn unmapped_memory_is_noticed() {
        let memory = Box::new([0_u8; 100]);
        assert!(is_mapped(memory.as_ptr() as usize, 100));
        assert!(!is_mapped(0x1000, 100));
        assert!(!is_mapped(usize::MAX - 10, 100));
    }
}
