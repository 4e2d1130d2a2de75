//! The two copies of the CTS ring: the sender's, which the receiver's NIC writes, and the receiver's, from which
//! it is sent. The layout of an entry is [`cts`](crate::wire::cts).

use std::sync::atomic::{AtomicU64, Ordering};

use ibnet_verbs::{Access, ProtectionDomain};

use super::area::Area;
use crate::error::Error;
use crate::wire::cts::{
    ADDRESS, CAPACITY, CtsEntry, ENTRIES, GROUP, TAG, ready_offset, rkey_offset, slot,
};

/// The ring as the sender sees it: memory that the receiver writes.
pub(crate) struct CtsRing {
    area: Area,
    entry_bytes: usize,
}

impl CtsRing {
    /// A ring in which nothing from `first_entry` on is announced yet.
    pub(crate) fn new<'a>(
        domains: impl IntoIterator<Item = &'a ProtectionDomain>,
        entry_bytes: usize,
        first_entry: u64,
    ) -> Result<Self, Error> {
        // Not with relaxed ordering: the ready word must come last.
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let area = Area::new(domains, ENTRIES as usize * entry_bytes, access)?;
        // The peer does not know the address yet, so this is the one time that we write.
        for ahead in 0..ENTRIES {
            let id = first_entry.wrapping_add(ahead);
            area.write_u64(
                ready_offset(slot(id), entry_bytes),
                id.wrapping_sub(ENTRIES),
            );
        }
        Ok(Self { area, entry_bytes })
    }

    pub(crate) fn area(&self) -> &Area {
        &self.area
    }

    /// Entry `id`, if it has been announced.
    #[inline]
    pub(crate) fn read(&self, id: u64) -> Option<CtsEntry> {
        let entry = entry_at(&self.area, id, self.entry_bytes);
        // SAFETY: an entry is as long as this says and aligned to its length, so the ready word is
        // an aligned word of it. An atomic may be read while the NIC writes.
        let ready = unsafe { AtomicU64::from_ptr(entry.add(self.entry_bytes - 8).cast()) };
        if ready.load(Ordering::Acquire) != id {
            return None;
        }
        // SAFETY: aligned words of the entry; volatile, because the NIC wrote them.
        unsafe {
            let group = entry.add(GROUP).cast::<u32>().read_volatile();
            Some(CtsEntry {
                address: entry.add(ADDRESS).cast::<u64>().read_volatile(),
                capacity: entry.add(CAPACITY).cast::<u32>().read_volatile(),
                tag: entry.add(TAG).cast::<u32>().read_volatile(),
                group: group as u8,
                position: (group >> 8) as u8,
            })
        }
    }

    /// The key for the receiver's device `device` in entry `id`, which has been read. An entry is
    /// written anew only after its message has arrived.
    #[inline]
    pub(crate) fn rkey(&self, id: u64, device: usize) -> u32 {
        let offset = rkey_offset(device, self.entry_bytes);
        // SAFETY: an aligned word of the entry, as `rkey_offset` says; volatile as above.
        unsafe {
            entry_at(&self.area, id, self.entry_bytes)
                .add(offset)
                .cast::<u32>()
                .read_volatile()
        }
    }
}

/// The receiver's copy of the ring, from which the NIC sends the entries; and behind it a byte of scratch, which is
/// the only one that the NIC writes.
pub(crate) struct CtsStaging {
    area: Area,
    entry_bytes: usize,
}

impl CtsStaging {
    pub(crate) fn new<'a>(
        domains: impl IntoIterator<Item = &'a ProtectionDomain>,
        entry_bytes: usize,
    ) -> Result<Self, Error> {
        let length = ENTRIES as usize * entry_bytes + 1;
        let area = Area::new(domains, length, Access::LOCAL_WRITE)?;
        Ok(Self { area, entry_bytes })
    }

    /// Where flushing reads a byte to. Nothing looks at it.
    pub(crate) fn scratch(&self) -> u64 {
        self.address_of(ENTRIES as usize)
    }

    /// Prepares entry `id`, with the key that `rkey` gives for each device.
    #[inline]
    pub(crate) fn write(
        &self,
        id: u64,
        entry: &CtsEntry,
        devices: usize,
        rkey: impl Fn(usize) -> u32,
    ) {
        let start = entry_at(&self.area, id, self.entry_bytes);
        // SAFETY: aligned words of the entry, which is as long as this says and aligned to its
        // length. This end alone writes them; volatile, because the NIC reads them.
        unsafe {
            start
                .add(ADDRESS)
                .cast::<u64>()
                .write_volatile(entry.address);
            start
                .add(CAPACITY)
                .cast::<u32>()
                .write_volatile(entry.capacity);
            start.add(TAG).cast::<u32>().write_volatile(entry.tag);
            let group = u32::from(entry.group) | u32::from(entry.position) << 8;
            start.add(GROUP).cast::<u32>().write_volatile(group);
            for device in 0..devices {
                let offset = rkey_offset(device, self.entry_bytes);
                start.add(offset).cast::<u32>().write_volatile(rkey(device));
            }
            start
                .add(self.entry_bytes - 8)
                .cast::<u64>()
                .write_volatile(id);
        }
    }

    pub(crate) fn lkey(&self, device: usize) -> u32 {
        self.area.lkey(device)
    }

    /// Where the entries of slot `slot` on lie in this copy.
    pub(crate) fn address_of(&self, slot: usize) -> u64 {
        self.area.address() + (slot * self.entry_bytes) as u64
    }

    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }
}

/// Where entry `id` lies in an area of a whole ring.
#[inline]
fn entry_at(area: &Area, id: u64, entry_bytes: usize) -> *mut u8 {
    // SAFETY: a slot is less than `ENTRIES`, and both kinds of rings are made with an area of
    // `ENTRIES` entries of this length.
    unsafe { area.as_ptr().add(slot(id) * entry_bytes) }
}
