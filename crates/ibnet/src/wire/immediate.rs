//! The 32 bits that travel with the last write of every part.
//!
//! The receiver learns from them alone which announced buffer the part belongs to, when the
//! message is whole and how large it is, so it need not know in advance which paths the sender
//! chose.
//!
//! | bits | what |
//! |---|---|
//! | 0..8 | slot of the entry in the announcement ring |
//! | 8..10 | how the size is told, [`SizeTold`] |
//! | 10..17 | number of parts of the message, less one |
//! | 17..32 | the bits of the entry's id above the slot, to recognise a stale part |
#![forbid(unsafe_code)]

/// How the receiver learns the size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SizeTold {
    /// It is the sum of the byte counts of the parts' completions: every part was one write.
    BySum = 0,
    /// It is the capacity that was announced.
    AsAnnounced = 1,
    /// It was written into the size table before the last part's immediate.
    InTable = 2,
    /// The message is longer than the buffer, and none of it was sent. Its length was written into the
    /// size table.
    TooLong = 3,
}

/// The parsed immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Immediate {
    pub(crate) slot: u8,
    pub(crate) size_told: SizeTold,
    /// 1..=[`MAX_PARTS`].
    pub(crate) parts: u8,
    /// See [`generation`].
    pub(crate) generation: u16,
}

/// The most parts that a message can have.
pub(crate) const MAX_PARTS: u8 = 128;

const LAP_BITS: u32 = 15;

/// The bits of an entry's id that tell one lap of the ring from the next ones.
pub(crate) fn generation(entry: u64) -> u16 {
    ((entry >> 8) & ((1 << LAP_BITS) - 1)) as u16
}

impl Immediate {
    pub(crate) fn encode(self) -> u32 {
        debug_assert!((1..=MAX_PARTS).contains(&self.parts));
        u32::from(self.slot)
            | (self.size_told as u32) << 8
            | (u32::from(self.parts) - 1) << 10
            | u32::from(self.generation) << 17
    }

    /// Every value has a meaning.
    pub(crate) fn decode(bits: u32) -> Self {
        let size_told = match (bits >> 8) & 3 {
            0 => SizeTold::BySum,
            1 => SizeTold::AsAnnounced,
            2 => SizeTold::InTable,
            _ => SizeTold::TooLong,
        };
        Self {
            slot: bits as u8,
            size_told,
            parts: ((bits >> 10) & 0x7f) as u8 + 1,
            generation: (bits >> 17) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn round_trip() {
        for slot in [0, 1, 127, 255] {
            for size_told in [
                SizeTold::BySum,
                SizeTold::AsAnnounced,
                SizeTold::InTable,
                SizeTold::TooLong,
            ] {
                for parts in [1, 2, 64, MAX_PARTS] {
                    for generation in [0, 1, 0x4000, 0x7fff] {
                        let immediate = Immediate {
                            slot,
                            size_told,
                            parts,
                            generation,
                        };
                        assert_eq!(Immediate::decode(immediate.encode()), immediate);
                    }
                }
            }
        }
    }

    #[test]
    fn every_value_has_one_meaning() {
        // Whatever 32 bits arrive, they encode to themselves.
        let mut bits = 1_u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            assert_eq!(Immediate::decode(bits).encode(), bits);
        }
    }

    #[test]
    fn laps_differ_for_neighbours_and_survive_wrap_around() {
        assert_ne!(generation(256), generation(512));
        assert_ne!(generation(u64::MAX), generation(u64::MAX.wrapping_add(1)));
        assert_eq!(generation(0), generation(1 << 23)); // 2^23 messages later the same bits return
    }
}
