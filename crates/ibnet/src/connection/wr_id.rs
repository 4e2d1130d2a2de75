//! What a work request's id says about it when its completion comes back.
#![forbid(unsafe_code)]

/// The meaning of the `wr_id` of a write. Whose it is tells the path's log
/// ([`crate::connection::in_flight`]); receives carry the number of their path alone, flushing reads that of
/// their request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrId {
    /// The path it was posted on.
    pub(crate) path: usize,
    /// Parts of messages that it completes; none if it is not of a message.
    pub(crate) parts: u8,
    /// Its number on the path: it, and all before it, are finished. See [`Path`](super::path::Path).
    pub(crate) number: u32,
}

/// Marks the ids of writes: after an error the id alone tells what failed.
const WRITE: u64 = 1 << 62;
/// Receives that announcements use up have all of these bits.
const KIND: u64 = 3 << 62;

impl WrId {
    #[inline]
    pub(crate) fn encode(self) -> u64 {
        WRITE | (self.path as u64) << 40 | u64::from(self.parts) << 32 | u64::from(self.number)
    }

    /// `None` if it is not that of a write.
    #[inline]
    pub(crate) fn decode(id: u64) -> Option<Self> {
        (id & KIND == WRITE).then_some(Self {
            path: (id >> 40) as usize & 0xff,
            parts: (id >> 32) as u8,
            number: id as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for path in [0, 1, 127] {
            for number in [0, 1, 513, u32::MAX] {
                for parts in [0, 1, 8, u8::MAX] {
                    let id = WrId {
                        path,
                        parts,
                        number,
                    };
                    assert_eq!(WrId::decode(id.encode()), Some(id));
                }
            }
        }
        for receive in [0, 127, crate::connect::queue_pair::CTS_RECEIVE + 3] {
            assert_eq!(WrId::decode(receive), None);
        }
    }
}
