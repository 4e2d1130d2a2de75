//! How a message is cut into RDMA writes.
//!
//! A part of a message goes over one path as one or more writes, because a write may not exceed
//! the port's maximum message size (`ibv_port_attr.max_msg_sz`). Cuts are at multiples of 128
//! bytes: NCCL's LL128 protocol needs 128-byte stores to land as a unit.
#![forbid(unsafe_code)]

/// Granularity of cuts, in bytes.
pub(crate) const GRANULE: u32 = 128;

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
    fn an_empty_message_is_one_write() {
        assert_eq!(cut(0, 4096), [(0, 0)]);
    }
}
