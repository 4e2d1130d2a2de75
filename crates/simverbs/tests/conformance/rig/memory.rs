//! [`Memory`]: what a device may write at any time, read and written through pointers only.

use std::io;
use std::ptr;

/// Whole pages of the process's memory, unmapped on drop.
pub(crate) struct Memory {
    start: *mut u8,
    length: usize,
}

impl Memory {
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: start.cast(),
            length,
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Sets `length` bytes from `at` on.
    pub(crate) fn fill(&self, at: usize, length: usize, byte: u8) {
        assert!(at + length <= self.length);
        for index in at..at + length {
            // SAFETY: within the memory.
            unsafe { self.start.add(index).write_volatile(byte) };
        }
    }

    /// Whether all of `length` bytes from `at` on are `byte`.
    pub(crate) fn holds(&self, at: usize, length: usize, byte: u8) -> bool {
        assert!(at + length <= self.length);
        // SAFETY: within the memory.
        (at..at + length).all(|index| unsafe { self.start.add(index).read_volatile() } == byte)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no region of it is left: the registering code keeps
        // it longer than the region.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
