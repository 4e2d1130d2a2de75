//! The listener's decision: which devices talk to each other, and over which paths.

use crate::connect::pairing::{Unpairable, pair};
use crate::wire::message::{MAX_PATHS, PathPlan, PeerInfo};

/// Decides the paths from what both ends offer; both offers have been checked.
///
/// Each pair of devices gets `queue_pairs` paths, as many as both ends together may have. Paths
/// that follow each other are of different pairs, so that whoever takes a few in a row spreads
/// its load over the devices.
pub(crate) fn decide(
    connector: &PeerInfo,
    listener: &PeerInfo,
    queue_pairs: usize,
) -> Result<Vec<PathPlan>, Unpairable> {
    let pairs = pair(&connector.devices, &listener.devices)?;
    let rounds = queue_pairs.clamp(1, (MAX_PATHS / pairs.len().max(1)).max(1));
    let decisions = (0..rounds).flat_map(|_| {
        pairs.iter().map(|&(connector_device, listener_device)| {
            let theirs = &connector.devices[connector_device];
            let ours = &listener.devices[listener_device];
            PathPlan {
                // At most 8 are offered.
                connector_device: connector_device as u8,
                listener_device: listener_device as u8,
                // Of these two, nothing global changes.
                mtu: theirs.mtu.min(ours.mtu),
                // It takes only one end to know.
                reorders: theirs.reorders || ours.reorders,
            }
        })
    });
    Ok(decisions.collect())
}
