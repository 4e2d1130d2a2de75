//! The announcement ring: how the receiver tells the sender what it may write, and where.
//!
//! The ring lies in the *sender's* memory and is written only by the receiver, through RDMA. An
//! entry announces one buffer; a grouped receive of n buffers is n entries in a row. Entries have
//! ids that count up; entry `id` lies in slot `id mod 256`, so 256 can be outstanding.
//!
//! | offset | what |
//! |---|---|
//! | 0 | address of the buffer, 8 bytes |
//! | 8 | capacity in bytes, 4 bytes |
//! | 12 | tag, 4 bytes |
//! | 16 | entries in the group, 1 byte |
//! | 17 | position of this entry in the group, 1 byte |
//! | 20 | one rkey for each device of the receiver, 4 bytes each |
//! | last 8 | the ready word: the entry's id |
//!
//! An entry has 32 bytes if the receiver has one device and 64 otherwise, and is aligned to its
//! size: it lies in one cache line, and the ready word, its last, guards only what is in that line.
//! Nothing is ever cleared: an entry is recognised as new by its id.
//!
//! Both ends are on machines of one byte order in practice (every RDMA host that NCCL runs on is
//! little-endian), and the layout says so: all numbers are little-endian.

use std::sync::atomic::{AtomicU64, Ordering};

use ibnet_verbs::{Access, ProtectionDomain};

use crate::error::Error;
use crate::memory::area::Area;

/// Entries in the ring.
pub(crate) const ENTRIES: u64 = 256;

/// The most bytes that a buffer can be announced with: sizes fit NCCL's `int`.
pub(crate) const MAX_CAPACITY: u32 = i32::MAX as u32;

/// Alignment of every area that the peer writes, in bytes.
pub(crate) const AREA_ALIGNMENT: usize = 64;

/// Bytes of the largest ring.
pub(crate) const LARGEST_RING_BYTES: usize = ENTRIES as usize * 64;

/// Bytes of a size in the table into which the sender writes them.
pub(crate) const SIZE_BYTES: u32 = 4;

/// Bytes of that table: a size for each slot.
pub(crate) const SIZE_TABLE_BYTES: usize = ENTRIES as usize * SIZE_BYTES as usize;

/// The most buffers in one grouped receive (`maxRecvs` of NCCL's IB transport).
pub const MAX_GROUP: usize = 8;

const ADDRESS: usize = 0;
const CAPACITY: usize = 8;
const TAG: usize = 12;
const GROUP: usize = 16;
const RKEYS: usize = 20;

/// Bytes of an entry for a receiver with `devices` devices.
pub(crate) fn entry_bytes(devices: usize) -> usize {
    if devices <= 1 { 32 } else { 64 }
}

/// The slot of entry `id`.
pub(crate) fn slot(id: u64) -> usize {
    (id % ENTRIES) as usize
}

/// One announced buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) address: u64,
    pub(crate) capacity: u32,
    pub(crate) tag: u32,
    /// Entries in the group: 1..=[`MAX_GROUP`].
    pub(crate) group: u8,
    /// Position in the group.
    pub(crate) position: u8,
}

impl Announcement {
    /// Whether it can be the entry at `position` of a group of `length`.
    pub(crate) fn is_possible(&self, length: u8, position: u8) -> bool {
        self.group == length && self.position == position && self.capacity <= MAX_CAPACITY
    }
}

/// The ring as the sender sees it: memory that the receiver writes.
pub(crate) struct Announced {
    area: Area,
    entry_bytes: usize,
}

impl Announced {
    /// A ring in which nothing from `first_entry` on is announced yet.
    pub(crate) fn new<'a>(
        domains: impl IntoIterator<Item = &'a ProtectionDomain>,
        entry_bytes: usize,
        first_entry: u64,
    ) -> Result<Self, Error> {
        // Not with relaxed ordering: the ready word must come last (pitfall 93).
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
    pub(crate) fn read(&self, id: u64) -> Option<Announcement> {
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
            Some(Announcement {
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

/// The receiver's copy of the ring, from which the NIC sends the entries.
pub(crate) struct Staging {
    area: Area,
    entry_bytes: usize,
}

impl Staging {
    pub(crate) fn new<'a>(
        domains: impl IntoIterator<Item = &'a ProtectionDomain>,
        entry_bytes: usize,
    ) -> Result<Self, Error> {
        let area = Area::new(domains, ENTRIES as usize * entry_bytes, Access::empty())?;
        Ok(Self { area, entry_bytes })
    }

    /// Prepares entry `id`, with one of `rkeys` for each device.
    #[inline]
    pub(crate) fn write(
        &self,
        id: u64,
        entry: &Announcement,
        rkeys: impl IntoIterator<Item = u32>,
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
            for (device, rkey) in rkeys.into_iter().enumerate() {
                let offset = rkey_offset(device, self.entry_bytes);
                start.add(offset).cast::<u32>().write_volatile(rkey);
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

fn ready_offset(slot: usize, entry_bytes: usize) -> usize {
    slot * entry_bytes + entry_bytes - 8
}

/// Where entry `id` lies in an area of a whole ring.
#[inline]
fn entry_at(area: &Area, id: u64, entry_bytes: usize) -> *mut u8 {
    // SAFETY: a slot is less than `ENTRIES`, and both kinds of rings are made with an area of
    // `ENTRIES` entries of this length.
    unsafe { area.as_ptr().add(slot(id) * entry_bytes) }
}

/// Where in an entry the key for device `device` is. A ring for fewer devices than that has none,
/// and gets the place of the last that fits.
#[inline]
fn rkey_offset(device: usize, entry_bytes: usize) -> usize {
    let last = (entry_bytes - 8 - RKEYS) / 4 - 1;
    RKEYS + 4 * device.min(last)
}

#[cfg(target_endian = "big")]
compile_error!("the announcement ring is laid out for little-endian machines");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_lie_in_one_cache_line_with_the_ready_word_last() {
        for devices in 1..=8 {
            let bytes = entry_bytes(devices);
            assert_eq!(64 % bytes, 0);
            assert!(
                RKEYS + 4 * devices <= bytes - 8,
                "{devices} rkeys fit before the ready word"
            );
            assert!(ENTRIES as usize * bytes <= LARGEST_RING_BYTES);
        }
    }

    #[test]
    fn slots_repeat_every_lap_also_around_the_end_of_numbers() {
        assert_eq!(slot(0), slot(ENTRIES));
        assert_eq!(slot(u64::MAX), 255);
        assert_eq!(slot(u64::MAX.wrapping_add(1)), 0);
    }
}
