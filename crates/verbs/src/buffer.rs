//! [`Buffer`]: registered memory that belongs to the program.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::access::Access;
use crate::error::Error;
use crate::mr::MemoryRegion;
use crate::operation::Operation;
use crate::pd::ProtectionDomain;
use crate::wr::{RemoteAddress, Sge};

/// On a page of its own, so that nothing else is registered with it.
const ALIGNMENT: usize = 4096;

/// Memory that was allocated to be registered, zeroed, and is registered as long as it lives.
///
/// The device and peers may read and write it at any time, so that there are no references into it:
/// bytes are copied in and out. If it cannot be deregistered when it is dropped, it is leaked.
#[derive(Debug)]
pub struct Buffer {
    memory: NonNull<u8>,
    layout: Layout,
    /// None once it is dropped.
    region: Option<MemoryRegion>,
}

// SAFETY: the memory belongs to the buffer, and is accessed by copying only.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared buffer is read only, by this program.
unsafe impl Sync for Buffer {}

impl ProtectionDomain {
    /// Allocates and registers `length` bytes.
    ///
    /// # Errors
    ///
    /// As for [`register`](Self::register).
    pub fn allocate(&self, length: usize, access: Access) -> Result<Buffer, Error> {
        let layout = Layout::from_size_align(length, ALIGNMENT);
        let Some(layout) = layout.ok().filter(|_| length > 0) else {
            let operation = Operation::Register {
                address: 0,
                length,
                access,
            };
            let problem = format!("no memory has {length} bytes");
            return Err(Error::invalid(
                operation,
                self.context().device_name(),
                problem,
            ));
        };
        // SAFETY: the layout has a size.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout);
        };
        let mut buffer = Buffer {
            memory,
            layout,
            region: None,
        };
        // SAFETY: the memory lives until the region is deregistered, and no reference is made to it.
        let region = unsafe { self.register(memory.as_ptr(), length, access) }?;
        buffer.region = Some(region);
        Ok(buffer)
    }
}

impl Buffer {
    /// The registration.
    pub fn region(&self) -> &MemoryRegion {
        // It is taken out by `drop` alone.
        self.region.as_ref().expect("a buffer is registered")
    }

    /// How many bytes it has.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// `length` bytes from `offset` on, for a work request of this process.
    ///
    /// # Panics
    ///
    /// If they are not all inside the buffer.
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        self.check(offset, length as usize);
        Sge {
            address: self.region().address() + offset as u64,
            length,
            lkey: self.region().lkey(),
        }
    }

    /// The byte at `offset`, for a work request of a peer.
    ///
    /// # Panics
    ///
    /// If it is not inside the buffer.
    pub fn remote(&self, offset: usize) -> RemoteAddress {
        self.check(offset, 0);
        RemoteAddress {
            address: self.region().address() + offset as u64,
            rkey: self.region().rkey(),
        }
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    ///
    /// If they are not all inside the buffer.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: the range was checked, and the two do not overlap: no reference is into the buffer.
        unsafe {
            let from = self.memory.as_ptr().add(offset);
            from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len());
        }
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Panics
    ///
    /// If they do not all fit the buffer.
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: as above.
        unsafe {
            let into = self.memory.as_ptr().add(offset);
            into.copy_from_nonoverlapping(from.as_ptr(), from.len());
        }
    }

    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{length} bytes from {offset} on exceed a buffer of {} bytes",
            self.len()
        );
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let deregistered = self.region.take().map_or(Ok(()), MemoryRegion::deregister);
        match deregistered {
            // SAFETY: the memory came from this layout, and no device reaches it any more.
            Ok(()) => unsafe { dealloc(self.memory.as_ptr(), self.layout) },
            Err(error) => tracing::warn!(%error, "the buffer is leaked"),
        }
    }
}
