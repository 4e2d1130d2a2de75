//! Memory that is exported as DMA-BUFs, each export with an inode of its own, as NVIDIA's driver
//! does it.

use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

/// The argument of `UDMABUF_CREATE` (linux/udmabuf.h).
#[repr(C)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

const UDMABUF_CREATE: libc::c_ulong = 0x4018_7542;

/// Shared memory of this process, mapped for as long as this lives.
pub(crate) struct Exported {
    file: OwnedFd,
    start: NonNull<libc::c_void>,
    length: usize,
}

impl Exported {
    pub(crate) fn new(length: usize) -> Self {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"ibnet-exported", flags).unwrap();
        ftruncate(&file, i64::try_from(length).unwrap()).unwrap();
        // What udmabuf asks for.
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let size = NonZeroUsize::new(length).unwrap();
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start =
            unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, &file, 0) }.unwrap();
        Self {
            file,
            start,
            length,
        }
    }

    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.length);
        self.start.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The bytes, which nothing writes to at the moment.
    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length);
        let bytes = std::ptr::slice_from_raw_parts(self.at(offset).cast_const(), length);
        // SAFETY: the range is mapped, and the caller has seen the writes end.
        unsafe { &*bytes }.to_vec()
    }

    /// What is registered: a descriptor of the memory.
    pub(crate) fn export(&self) -> OwnedFd {
        self.file.try_clone().unwrap()
    }

    /// Another export of the `length` bytes at `offset`: a descriptor with an inode of its own, by
    /// udmabuf where the kernel has it. Elsewhere another file plays it, whose memory is not this
    /// one's: so it must not be used, as it is not if it is known to be an export of the same
    /// addresses.
    pub(crate) fn export_again(&self, offset: usize, length: usize) -> OwnedFd {
        self.udmabuf(offset, length).unwrap_or_else(|| {
            let other = memfd_create(c"ibnet-stand-in", MFdFlags::MFD_CLOEXEC).unwrap();
            ftruncate(&other, i64::try_from(length).unwrap()).unwrap();
            other
        })
    }

    fn udmabuf(&self, offset: usize, length: usize) -> Option<OwnedFd> {
        let device = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/udmabuf")
            .ok()?;
        let create = UdmabufCreate {
            memfd: self.file.as_raw_fd().cast_unsigned(),
            flags: 1, // UDMABUF_FLAGS_CLOEXEC
            offset: offset as u64,
            size: length as u64,
        };
        // SAFETY: the argument is what the request takes.
        let fd = unsafe { libc::ioctl(device.as_raw_fd(), UDMABUF_CREATE as _, &raw const create) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new and has no other owner.
        Some(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; registrations map the file for themselves.
        unsafe { munmap(self.start, self.length) }.unwrap();
    }
}
