//! What a work request's id says about it when its completion comes back.
#![forbid(unsafe_code)]

/// The meaning of the `wr_id` of a write. Whose it is tells the path's log
/// ([`crate::connection::in_flight`]); receives carry the number of their path alone, flushing reads
/// ([`crate::connection::flush`]) that of their request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrId {
    /// The path it was posted on.
    pub(crate) path: usize,
    /// Parts of messages that it completes; none if it is not of a message.
    pub(crate) parts: u8,
    /// Work requests that it completes: itself and the unsignalled ones before it.
    pub(crate) requests: u32,
}

impl WrId {
    pub(crate) fn encode(self) -> u64 {
        (self.path as u64) << 40 | u64::from(self.parts) << 32 | u64::from(self.requests)
    }

    pub(crate) fn decode(id: u64) -> Self {
        Self {
            path: (id >> 40) as usize,
            parts: (id >> 32) as u8,
            requests: id as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for path in [0, 1, 127] {
            for requests in [0, 1, 513, u32::MAX] {
                for parts in [0, 1, 8, u8::MAX] {
                    let id = WrId {
                        path,
                        parts,
                        requests,
                    };
                    assert_eq!(WrId::decode(id.encode()), id);
                }
            }
        }
    }
}
