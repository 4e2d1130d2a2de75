//! Memory to send from and to receive into.

use std::ptr::NonNull;

use crate::net::{Error, Result};

/// Whole pages of memory, zeroed, that take room once they are touched.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    length: usize,
}

impl Buffer {
    /// Maps so many bytes.
    pub(crate) fn new(length: usize) -> Result<Self> {
        let length = length.max(1);
        // SAFETY: a new mapping, where the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let is_mapped = start != libc::MAP_FAILED;
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if is_mapped => Ok(Self { start, length }),
            _ => Err(Error::System {
                what: "mapping memory",
                source: std::io::Error::last_os_error(),
            }),
        }
    }

    /// The address `offset` bytes from the beginning.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.length, "{offset} is not in the buffer");
        // SAFETY: within the mapping, by the line above.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Touches every page, so that none is mapped while the clock runs.
    pub(crate) fn touch(&self) {
        for offset in (0..self.length).step_by(4096) {
            // SAFETY: within the mapping, which nothing else uses yet.
            unsafe { self.at(offset).write_volatile(0) };
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and is used for the last time.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
