//! What memory is registered: of which protection domain, and of which kind.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::Access;

/// A protection domain, or whatever else a registration is valid within. Never reused: a device that
/// is opened again is another domain, so that a registration of its former life is not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub(crate) u64);

impl Domain {
    /// A domain unlike all others of this process.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A DMA-BUF, by what it is and not by the descriptor that names it at the moment.
///
/// Descriptor numbers are reused and duplicated; the device and inode of a DMA-BUF stay. They are
/// not given to another DMA-BUF while this one exists, and a registration keeps it in existence.
/// (The kernel has told DMA-BUFs apart by inode since 5.3; registering them needs 5.12.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DmaBuf {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: Option<u64>,
}

impl DmaBuf {
    /// The DMA-BUF behind a descriptor, which may be closed afterwards.
    ///
    /// # Errors
    /// What the system said to `fcntl(F_DUPFD_CLOEXEC)` or `fstat`.
    pub fn of(descriptor: impl AsFd) -> io::Result<Self> {
        let metadata = File::from(descriptor.as_fd().try_clone_to_owned()?).metadata()?;
        Ok(Self::from_identity(
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
        ))
    }

    /// A DMA-BUF whose `st_dev`, `st_ino` and `st_size` (fstat(2)) are known. A size of 0 means
    /// that it is not.
    pub const fn from_identity(device: u64, inode: u64, size: u64) -> Self {
        Self {
            device,
            inode,
            size: if size == 0 { None } else { Some(size) },
        }
    }
}

/// The space that an address is in, as far as the cache is concerned: two ranges of addresses are of
/// the same memory only if their spaces are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    Host,
    /// A DMA-BUF that its address names, as the caller vouches.
    Vouched {
        data_direct: bool,
    },
    /// A DMA-BUF that its inode names.
    DmaBuf {
        /// The file system that the buffer is in: the same for all, as far as is known.
        device: u64,
        inode: u64,
        /// Address minus offset, modulo 2^64. Rounding down to pages changes both alike, so that all
        /// ranges of one mapping have the same, and any two with the same agree on every byte.
        skew: u64,
        data_direct: bool,
    },
}

impl Space {
    /// What an inode names does not change while it is registered; what an address names may.
    pub(crate) fn is_named_by_address(self) -> bool {
        !matches!(self, Self::DmaBuf { .. })
    }
}

/// Everything but the range. Keys that differ only in rights follow each other, those with more of the
/// same later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) domain: Domain,
    pub(crate) space: Space,
    pub(crate) access: Access,
}

impl Key {
    /// Whether a registration with this key does for `wanted`, if its range does.
    pub(crate) fn serves(&self, wanted: &Self) -> bool {
        self.domain == wanted.domain
            && self.space == wanted.space
            && self.access.serves(wanted.access)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn domains_are_unique() {
        assert_ne!(Domain::unique(), Domain::unique());
    }

    #[test]
    fn a_buffer_is_what_it_is_whatever_names_it() {
        // The number of a descriptor says nothing.
        let one = File::open("/proc/self/exe").unwrap();
        let again = one.try_clone().unwrap();
        let other = File::open("/proc/self/status").unwrap();
        assert_eq!(DmaBuf::of(&one).unwrap(), DmaBuf::of(&again).unwrap());
        let id = |buffer: DmaBuf| (buffer.device, buffer.inode);
        assert_ne!(
            id(DmaBuf::of(&one).unwrap()),
            id(DmaBuf::of(&other).unwrap())
        );
    }
}
