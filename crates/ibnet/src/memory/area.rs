//! Page-aligned memory, and the small registered areas that the NIC and the CPU share.
//!
//! An [`Area`] is written either by this CPU or by the NIC, never by both; no Rust reference to its
//! bytes is ever formed. It is read and written through atomics and volatile accesses only.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use ibnet_verbs::{Access, MemoryRegion, ProtectionDomain};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::Error;

/// Anonymous, zeroed, page-aligned memory of this process.
pub(crate) struct Mapping {
    start: NonNull<c_void>,
    length: NonZeroUsize,
    /// Which process has it.
    forks: u32,
}

// SAFETY: the mapping belongs to this value alone, and the memory is the same from every thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared `Mapping` only gives its address and length; what is done with the address is
// the business of its unsafe users.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// At least `length` bytes, and at least one.
    pub(crate) fn new(length: usize) -> Result<Self, Error> {
        let length = NonZeroUsize::new(length).unwrap_or(NonZeroUsize::MIN);
        // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            mmap_anonymous(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE,
            )
        }
        .map_err(|errno| Error::system("reserving memory", errno))?;
        Ok(Self {
            start,
            length,
            forks: ibnet_verbs::forks(),
        })
    }

    /// Keeps the memory out of forked children, whose copy-on-write would otherwise part the CPU's
    /// pages from the NIC's, where the kernel does not see to that.
    fn exclude_from_fork(&self) -> Result<(), Error> {
        // SAFETY: the range is this mapping's; the advice changes nothing in this process.
        unsafe { madvise(self.start, self.length.get(), MmapAdvise::MADV_DONTFORK) }
            .map_err(|errno| Error::system("keeping memory out of forked processes", errno))
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    pub(crate) fn length(&self) -> usize {
        self.length.get()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.forks != ibnet_verbs::forks() {
            // A forked child, which may not have it, and other memory in its place.
            return;
        }
        // SAFETY: the range was mapped by `new` and no reference into it can exist: areas form
        // none, and owned buffers lend theirs for no longer than they live.
        if let Err(errno) = unsafe { munmap(self.start, self.length.get()) } {
            tracing::warn!(%errno, "cannot unmap memory; it stays reserved");
        }
    }
}

/// A small piece of memory that is part of the protocol, registered with every device of an end.
pub(crate) struct Area {
    // Deregistered before it is unmapped.
    regions: Box<[MemoryRegion]>,
    mapping: Mapping,
}

impl Area {
    /// `length` zeroed bytes, registered with `access` in each of `domains`.
    pub(crate) fn new<'a>(
        domains: impl IntoIterator<Item = &'a ProtectionDomain>,
        length: usize,
        access: Access,
    ) -> Result<Self, Error> {
        let mapping = Mapping::new(length)?;
        let mut domains = domains.into_iter().peekable();
        let copies_on_fork = |pd: &&ProtectionDomain| pd.context().library().copies_on_fork();
        if !domains.peek().is_some_and(copies_on_fork) {
            mapping.exclude_from_fork()?;
        }
        // What was registered before a failure is deregistered when the collection is dropped.
        let regions = domains
            // SAFETY: the mapping stays until this value is dropped, which deregisters first.
            .map(|pd| unsafe { pd.register(mapping.as_ptr(), length, access) })
            .collect::<Result<_, _>>()?;
        Ok(Self { regions, mapping })
    }

    pub(crate) fn address(&self) -> u64 {
        self.mapping.as_ptr() as u64
    }

    /// The local key on device `device`.
    pub(crate) fn lkey(&self, device: usize) -> u32 {
        self.regions[device].lkey()
    }

    /// The remote keys, one for each device.
    pub(crate) fn rkeys(&self) -> Vec<u32> {
        self.regions.iter().map(MemoryRegion::rkey).collect()
    }

    pub(crate) fn read_u32(&self, offset: usize) -> u32 {
        // SAFETY: `word` checks that the word lies aligned in the mapping, which is live; volatile,
        // because the NIC may have written since.
        unsafe { self.word::<u32>(offset).read_volatile() }
    }

    pub(crate) fn write_u64(&self, offset: usize, value: u64) {
        // SAFETY: as in `read_u32`; only the owner of a locally written area writes.
        unsafe { self.word::<u64>(offset).write_volatile(value) }
    }

    pub(crate) fn write_u32(&self, offset: usize, value: u32) {
        // SAFETY: as in `write_u64`.
        unsafe { self.word::<u32>(offset).write_volatile(value) }
    }

    /// The start of the bytes, for owners that have checked their offsets once and for all. What is
    /// behind it is read and written as here: through atomics and volatile accesses only.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }

    fn word<T>(&self, offset: usize) -> *mut T {
        let size = size_of::<T>();
        assert!(
            offset.is_multiple_of(size) && offset + size <= self.mapping.length(),
            "offset {offset} is no place for a word of {size} bytes"
        );
        // SAFETY: checked above to stay inside the mapping.
        unsafe { self.mapping.as_ptr().add(offset).cast() }
    }
}
