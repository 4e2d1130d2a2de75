//! The listener's decision: which devices talk to each other, and over which paths.

use crate::connect::pairing::{Unpairable, pair};
use crate::wire::message::{MAX_PATHS, PeerInfo};

/// One path before its queue pairs exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathDecision {
    pub(crate) connector_device: usize,
    pub(crate) listener_device: usize,
    /// Bytes: the smaller of the two devices' (pitfall 40: of these two, nothing global changes).
    pub(crate) mtu: u32,
    /// Packets may be reordered: it takes only one end to know.
    pub(crate) reorders: bool,
}

/// Decides the paths from what both ends offer; both offers have been checked.
///
/// Each pair of devices gets `queue_pairs` paths, as many as both ends together may have. Paths
/// that follow each other are of different pairs, so that whoever takes a few in a row spreads
/// its load over the devices.
pub(crate) fn decide(
    connector: &PeerInfo,
    listener: &PeerInfo,
    queue_pairs: usize,
) -> Result<Vec<PathDecision>, Unpairable> {
    let pairs = pair(&connector.devices, &listener.devices)?;
    let rounds = queue_pairs.clamp(1, (MAX_PATHS / pairs.len().max(1)).max(1));
    let decisions = (0..rounds).flat_map(|_| {
        pairs.iter().map(|&(connector_device, listener_device)| {
            let theirs = &connector.devices[connector_device];
            let ours = &listener.devices[listener_device];
            PathDecision {
                connector_device,
                listener_device,
                mtu: theirs.mtu.min(ours.mtu),
                reorders: theirs.reorders || ours.reorders,
            }
        })
    });
    Ok(decisions.collect())
}
