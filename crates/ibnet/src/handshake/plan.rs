//! The listener's decision: which devices talk to each other, and over which paths.
//!
//! A connection has one path, between the first devices of both ends.

use crate::handshake::message::{DeviceOffer, Invalid, Party};

/// One path before its queue pairs exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathDecision {
    pub(crate) connector_device: usize,
    pub(crate) listener_device: usize,
    /// Bytes.
    pub(crate) mtu: u32,
}

/// Decides the paths from what both ends offer; both offers have been checked.
pub(crate) fn decide(connector: &Party, listener: &Party) -> Result<Vec<PathDecision>, Invalid> {
    let pair = (connector.devices.first(), listener.devices.first());
    let (Some(theirs), Some(ours)) = pair else {
        return Err(Invalid("one end has no device"));
    };
    if theirs.link != ours.link {
        return Err(Invalid("one end is InfiniBand and the other Ethernet"));
    }
    Ok(vec![PathDecision {
        connector_device: 0,
        listener_device: 0,
        mtu: common_mtu(theirs, ours),
    }])
}

fn common_mtu(one: &DeviceOffer, other: &DeviceOffer) -> u32 {
    one.mtu.min(other.mtu)
}
