//! How a message is cut into parts, and a part into RDMA writes.
//!
//! A large message is cut into parts, each of which goes over one path, so that several paths and
//! devices carry it. A part is one or more writes, because a write may not exceed the port's
//! maximum message size (`ibv_port_attr.max_msg_sz`). Cuts are at multiples of 128 bytes: NCCL's
//! LL128 protocol needs 128-byte stores to land as a unit.
#![forbid(unsafe_code)]

/// Granularity of cuts, in bytes.
pub(crate) const GRANULE: u32 = 128;

/// The parts of a message: all have the same size, but for the last, which has what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) parts: u32,
    /// Bytes of each part but the last: a multiple of [`GRANULE`], unless there is but one.
    pub(crate) part_bytes: u32,
}

/// Cuts `length` bytes into at most `most` parts of at least `least` bytes, as equal as cuts at
/// [`GRANULE`] allow. No part is empty, but for the one part of an empty message.
#[inline]
pub(crate) fn split(length: u32, most: u32, least: u32) -> Split {
    // Cuts are no finer than this, whatever is asked for.
    let least = least.max(GRANULE);
    if length <= largest_whole(most, least) {
        return Split {
            parts: 1,
            part_bytes: length,
        };
    }
    let wanted = (length / least).min(most);
    let part_bytes = length.div_ceil(wanted).next_multiple_of(GRANULE);
    Split {
        // Rounding up may have made the last one superfluous.
        parts: length.div_ceil(part_bytes),
        part_bytes,
    }
}

/// Bytes of the largest message that [`split`] leaves whole.
pub(crate) fn largest_whole(most: u32, least: u32) -> u32 {
    if most <= 1 {
        u32::MAX
    } else {
        least.max(GRANULE).saturating_mul(2) - 1
    }
}

impl Split {
    /// The `index`-th part of a message of `length` bytes: (offset, bytes).
    pub(crate) fn part(&self, length: u32, index: u32) -> (u32, u32) {
        let offset = index * self.part_bytes;
        (offset, self.part_bytes.min(length - offset))
    }
}

/// The largest write to use where the ports allow `max_message` bytes: a multiple of
/// [`GRANULE`]. Zero if the port allows less than one granule, which no real port does.
pub(crate) fn largest_write(max_message: u32) -> u32 {
    max_message / GRANULE * GRANULE
}

/// The number of writes for `length` bytes. An empty message is one empty write.
pub(crate) fn write_count(length: u32, largest_write: u32) -> u32 {
    length.div_ceil(largest_write).max(1)
}

/// The `index`-th write of `length` bytes: (offset, bytes).
pub(crate) fn write_at(length: u32, largest_write: u32, index: u32) -> (u32, u32) {
    let offset = index * largest_write;
    (offset, largest_write.min(length - offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(length: u32, max_message: u32) -> Vec<(u32, u32)> {
        let largest = largest_write(max_message);
        (0..write_count(length, largest))
            .map(|index| write_at(length, largest, index))
            .collect()
    }

    #[test]
    fn writes_cover_the_message_once() {
        for length in [
            0,
            1,
            127,
            128,
            129,
            4095,
            4096,
            4097,
            8192,
            100_000,
            i32::MAX as u32,
        ] {
            for max_message in [128, 255, 4096, 1 << 23, 1 << 31] {
                if length / max_message > 1 << 20 {
                    continue;
                }
                let writes = cut(length, max_message);
                let mut end = 0;
                for (number, (offset, bytes)) in writes.iter().enumerate() {
                    assert_eq!(*offset, end);
                    assert!(*bytes <= max_message);
                    assert!(
                        *bytes > 0 || length == 0,
                        "no empty writes but for empty messages"
                    );
                    assert!(number + 1 == writes.len() || offset % GRANULE == 0);
                    end += bytes;
                }
                assert_eq!(end, length);
            }
        }
    }

    #[test]
    fn parts_cover_the_message_once_and_none_is_empty() {
        for length in [
            0,
            1,
            128,
            1000,
            65_535,
            65_536,
            131_072,
            131_073,
            1 << 20,
            7_654_321,
        ] {
            for most in [1, 2, 3, 4, 8, 127, 128] {
                for least in [128, 4096, 65_536] {
                    let split = split(length, most, least);
                    assert!((1..=most).contains(&split.parts));
                    let mut end = 0;
                    for index in 0..split.parts {
                        let (offset, bytes) = split.part(length, index);
                        assert_eq!(offset, end);
                        assert!(bytes > 0 || length == 0);
                        assert!(index == 0 || offset % GRANULE == 0);
                        // The last one may have given up to a granule to each of the others.
                        let is_last = index + 1 == split.parts;
                        assert!(split.parts == 1 || is_last || bytes >= least);
                        assert!(split.parts == 1 || bytes + GRANULE * most >= least);
                        end += bytes;
                    }
                    assert_eq!(end, length);
                }
            }
        }
        let largest = i32::MAX as u32;
        let split = split(largest, 128, 65_536);
        let last = split.parts - 1;
        let (offset, bytes) = split.part(largest, last);
        assert_eq!(offset + bytes, largest);
    }

    #[test]
    fn an_empty_message_is_one_write() {
        assert_eq!(cut(0, 4096), [(0, 0)]);
    }
}
