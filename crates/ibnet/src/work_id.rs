//! What a work request's id says about it when its completion comes back.
#![forbid(unsafe_code)]

use crate::requests::RequestId;

/// The meaning of `wr_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkId {
    /// The path it was posted on.
    pub(crate) path: u8,
    /// Work requests that it completes: itself and the unsignalled ones before it. At most 2^24 - 1.
    pub(crate) requests: u32,
    /// The request it belongs to.
    pub(crate) request: RequestId,
}

impl WorkId {
    pub(crate) fn encode(self) -> u64 {
        debug_assert!(self.requests < 1 << 24);
        u64::from(self.path) << 56
            | u64::from(self.requests) << 32
            | u64::from(self.request.into_raw())
    }

    pub(crate) fn decode(id: u64) -> Self {
        Self {
            path: (id >> 56) as u8,
            requests: (id >> 32) as u32 & 0xff_ffff,
            request: RequestId::from_raw(id as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for path in [0, 1, 127, 255] {
            for requests in [0, 1, 513, 0xff_ffff] {
                for raw in [0, 7, 0x1234_5678, u32::MAX] {
                    let id = WorkId {
                        path,
                        requests,
                        request: RequestId::from_raw(raw),
                    };
                    assert_eq!(WorkId::decode(id.encode()), id);
                }
            }
        }
    }
}
