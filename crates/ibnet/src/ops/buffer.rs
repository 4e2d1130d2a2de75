//! [`Buffer`]: memory that is registered for as long as it lives.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;

use crate::error::Error;
use crate::memory::area::Mapping;
use crate::memory::region::{Region, Registrar};

/// Memory of its own, registered with a connection's device. Dereferences to its bytes.
///
/// Made by [`Registrar::buffer`]; can be used for any number of requests, one at a time.
pub struct Buffer {
    // Deregistered before it is unmapped.
    pub(super) region: Region,
    pub(super) mapping: Mapping,
    pub(super) length: usize,
}

impl Registrar {
    /// A zeroed buffer of `length` bytes for requests of this connection.
    ///
    /// # Errors
    /// Memory or registration limits of the system or the device.
    pub fn buffer(&self, length: usize) -> Result<Buffer, Error> {
        let mapping = Mapping::new(length)?;
        // SAFETY: the mapping belongs to the buffer, whose fields are dropped region first, and no
        // clone of the region leaves it.
        let region = unsafe { self.register(mapping.as_ptr(), mapping.length()) }?;
        Ok(Buffer {
            region,
            mapping,
            length,
        })
    }
}

impl Buffer {
    /// Bytes that there is memory for.
    pub fn capacity(&self) -> usize {
        self.mapping.length()
    }

    /// The registration, for the raw calls.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Makes the buffer `length` bytes long: what a send sends, or the most that a receive takes.
    ///
    /// # Panics
    /// If `length` exceeds the [`capacity`](Self::capacity).
    pub fn set_length(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "a buffer cannot grow beyond its memory"
        );
        self.length = length;
    }
}

impl fmt::Debug for Buffer {
    /// Without the bytes, which may be many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("length", &self.length)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has at least `length` bytes, initialised to zero by the kernel; while
        // this can be called no request holds the buffer, and a peer that keeps to the protocol
        // does not write to it any more (see the head of [`crate::ops`] for one that does not).
        unsafe { slice::from_raw_parts(self.mapping.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow makes this the only reference.
        unsafe { slice::from_raw_parts_mut(self.mapping.as_ptr(), self.length) }
    }
}
