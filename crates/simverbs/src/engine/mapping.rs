//! [`Mapping`]: a DMA-BUF made visible to the simulated device.

use std::os::fd::RawFd;
use std::ptr;

use super::Errno;

/// A shared mapping of a part of a file. Unmapped on drop.
pub(crate) struct Mapping {
    address: usize,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes from `offset` on, a multiple of the page size.
    ///
    /// # Errors
    ///
    /// `EBADF` if there is no such descriptor, `EINVAL` if the file ends before the range does or
    /// cannot be mapped.
    pub(crate) fn of_file(
        fd: RawFd,
        offset: u64,
        length: usize,
        writable: bool,
    ) -> Result<Self, Errno> {
        let size = size_of_file(fd)?;
        let end = offset.checked_add(length as u64).ok_or(libc::EINVAL)?;
        if length == 0 || end > size {
            return Err(libc::EINVAL);
        }
        let offset = libc::off_t::try_from(offset).map_err(|_| libc::EINVAL)?;
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                fd,
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(libc::EINVAL);
        }
        Ok(Self {
            address: address as usize,
            length,
        })
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value, and only copies of the region that owned it
        // used it; those have ended.
        if unsafe { libc::munmap(self.address as *mut libc::c_void, self.length) } != 0 {
            tracing::warn!(
                length = self.length,
                "cannot unmap a DMA-BUF; it stays mapped"
            );
        }
    }
}

/// The size of a file, in bytes. Other than fstat(2), this works for a DMA-BUF, too.
fn size_of_file(fd: RawFd) -> Result<u64, Errno> {
    // SAFETY: the call takes and gives plain numbers.
    let end = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    u64::try_from(end).map_err(|_| {
        // SAFETY: the pointer is to this thread's own errno.
        match unsafe { *libc::__errno_location() } {
            libc::EBADF => libc::EBADF,
            _ => libc::EINVAL,
        }
    })
}
