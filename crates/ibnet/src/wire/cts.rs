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

pub(crate) const ADDRESS: usize = 0;
pub(crate) const CAPACITY: usize = 8;
pub(crate) const TAG: usize = 12;
pub(crate) const GROUP: usize = 16;
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
pub(crate) struct CtsEntry {
    pub(crate) address: u64,
    pub(crate) capacity: u32,
    pub(crate) tag: u32,
    /// Entries in the group: 1..=[`MAX_GROUP`].
    pub(crate) group: u8,
    /// Position in the group.
    pub(crate) position: u8,
}

impl CtsEntry {
    /// Whether it can be the entry at `position` of a group of `length`.
    pub(crate) fn is_possible(&self, length: u8, position: u8) -> bool {
        self.group == length && self.position == position && self.capacity <= MAX_CAPACITY
    }
}

/// Where in a ring the ready word of slot `slot` is.
pub(crate) fn ready_offset(slot: usize, entry_bytes: usize) -> usize {
    slot * entry_bytes + entry_bytes - 8
}

/// Where in an entry the key for device `device` is. A ring for fewer devices than that has none,
/// and gets the place of the last that fits.
#[inline]
pub(crate) fn rkey_offset(device: usize, entry_bytes: usize) -> usize {
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
