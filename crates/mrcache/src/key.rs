//! What makes two ranges comparable: the protection domain, the kind of memory, and the access.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is wanted of a registration, or what it allows, in bits that are the registrar's own, for
/// instance those of `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    // First, so that keys that differ only in rights follow each other.
    /// What changes the registration itself, so that only the same will do. For verbs these are
    /// `IBV_ACCESS_RELAXED_ORDERING`, `ZERO_BASED`, `ON_DEMAND` and `HUGETLB`.
    pub modes: u32,
    /// What the device may do. More is enough: a registration that it may write serves for reading.
    pub rights: u32,
}

impl Access {
    /// Takes those of `flags` that are in `rights` for rights, and the others for modes. A flag that
    /// is in doubt is a mode.
    pub const fn split(flags: u32, rights: u32) -> Self {
        Self {
            modes: flags & !rights,
            rights: flags & rights,
        }
    }

    /// All flags that are set, of both kinds.
    pub const fn flags(self) -> u32 {
        self.modes | self.rights
    }

    /// Whether a registration with this access does for `wanted`.
    pub const fn serves(self, wanted: Self) -> bool {
        self.modes == wanted.modes && self.rights & wanted.rights == wanted.rights
    }
}

/// The identity of a protection domain, or of whatever else a registration is valid within.
///
/// A number that is given once: a device that is opened again gets another, so that a registration of
/// its former life is not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(u64);

impl DomainId {
    /// A number for a protection domain that was allocated just now. No other domain of this process
    /// has it.
    pub fn allocate() -> Self {
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
    /// The largest there is if it is not known.
    pub(crate) size: u64,
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
    /// that it is not known.
    pub const fn from_identity(device: u64, inode: u64, size: u64) -> Self {
        Self {
            device,
            inode,
            size: if size == 0 { u64::MAX } else { size },
        }
    }
}

/// What an address is an address of: two ranges of addresses are of the same memory only if their
/// spaces are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    Host,
    /// DMA-BUFs that are named by their addresses, as the caller promises.
    Addresses {
        data_direct: bool,
    },
    /// A DMA-BUF that is named by its inode.
    Inode {
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
        !matches!(self, Self::Inode { .. })
    }
}

/// Everything but the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) domain: DomainId,
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
    fn more_rights_serve_and_other_modes_do_not() {
        let [read, both, other] = [1, 3, 9].map(|flags| Access::split(flags, 7));
        assert!(both.serves(read));
        assert!(!read.serves(both));
        assert!(!both.serves(other));
        assert!(!other.serves(read));
        assert_eq!((other.modes, other.rights, other.flags()), (8, 1, 9));
    }

    #[test]
    fn domains_are_unique() {
        assert_ne!(DomainId::allocate(), DomainId::allocate());
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
