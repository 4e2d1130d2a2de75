//! Finding the queue pair that a message is for, and why it is not found.

use std::ptr;
use std::sync::atomic::Ordering;

use ibnet_verbs::Gid;
use ibnet_verbs::sys::ibv_ah_attr;

use super::State;
use super::device::Port;
use super::qp::Qp;
use super::slab::{DeviceId, QpId};
use crate::spec::GidSlot;
use crate::trace::LossReason;

/// The bit of a P_Key that marks full members of the partition.
const FULL_MEMBER: u16 = 0x8000;

/// The GID in an address vector.
pub(crate) fn destination_gid(address: &ibv_ah_attr) -> Gid {
    // SAFETY: both views of the union cover all 16 bytes, and any bytes are a valid array.
    Gid(unsafe { address.grh.dgid.raw })
}

impl State {
    /// The peer of a connected queue pair, if its packets arrive there and are taken.
    #[inline]
    pub(crate) fn route(&mut self, id: QpId) -> Result<QpId, LossReason> {
        match self.qps[id].responder.route {
            Some((network, peer)) if network == self.network => Ok(peer),
            _ => {
                let peer = self.find_peer(id)?;
                self.qps[id].responder.route = Some((self.network, peer));
                Ok(peer)
            }
        }
    }

    /// Whether an acknowledgement that the peer has sent arrives. That its queue pair may have
    /// gone meanwhile does not matter any more.
    #[inline]
    pub(crate) fn is_acknowledged(&self, id: QpId) -> Result<(), LossReason> {
        match self.qps[id].responder.route {
            Some((network, _)) if network == self.network => Ok(()),
            _ => self.find_peer_port(id).map(|_| ()),
        }
    }

    /// The port to which packets of a queue pair go, if the network between lets them through.
    fn find_peer_port(&self, id: QpId) -> Result<(DeviceId, usize), LossReason> {
        let own = &self.qps[id];
        let device = &self.devices[own.device];
        if device.is_removed {
            return Err(LossReason::DeviceRemoved);
        }
        let port = &device.ports[own.port()];
        if !port.is_up {
            return Err(LossReason::PortDown);
        }
        self.check_source(own, port)?;

        let found = self.find_address(port, &own.attributes.ah_attr, own.source);
        let (peer_device, peer_index) = found.ok_or(LossReason::NoSuchAddress)?;
        let peer_port = &self.devices[peer_device].ports[peer_index];
        if self.devices[peer_device].is_removed {
            return Err(LossReason::DeviceRemoved);
        }
        if !peer_port.is_up {
            return Err(LossReason::PortDown);
        }
        // What a port sends to itself does not use the link.
        if !ptr::eq(port, peer_port) {
            check_cut(port)?;
            check_cut(peer_port)?;
        }
        Ok((peer_device, peer_index))
    }

    fn find_peer(&self, id: QpId) -> Result<QpId, LossReason> {
        let (peer_device, peer_index) = self.find_peer_port(id)?;
        let own = &self.qps[id];
        let port = &self.devices[own.device].ports[own.port()];
        let peer_port = &self.devices[peer_device].ports[peer_index];
        let number = own.attributes.dest_qp_num;
        let peer_id = self.numbers.get(&number).copied();
        let peer_id = peer_id.filter(|&peer| self.qps[peer].device == peer_device);
        let peer_id = peer_id.ok_or(LossReason::NoSuchQueuePair)?;
        let peer = &self.qps[peer_id];
        if !peer.state.receives() {
            return Err(LossReason::NotReceiving);
        }
        if peer.port() != peer_index
            || peer.attributes.dest_qp_num != own.number
            || !is_from(peer, own, port)
        {
            return Err(LossReason::PeerMismatch);
        }
        check_partition(pkey(port, own), pkey(peer_port, peer))?;
        Ok(peer_id)
    }

    /// Packets carry the address that the queue pair found at its index when it was connected. If
    /// the table has changed there, the adapter has no address to send from.
    fn check_source(&self, own: &Qp, port: &Port) -> Result<(), LossReason> {
        let Some(source) = own.source else {
            return Ok(());
        };
        let index = usize::from(own.attributes.ah_attr.grh.sgid_index);
        let is_there = port
            .gids
            .get(index)
            .is_some_and(|slot| slot.gid() == source.gid());
        match is_there {
            true => Ok(()),
            false => Err(LossReason::SourceAddressGone),
        }
    }

    /// The port that has the address of an address vector.
    pub(crate) fn find_address(
        &self,
        from: &Port,
        address: &ibv_ah_attr,
        source: Option<GidSlot>,
    ) -> Option<(DeviceId, usize)> {
        let has_address = |port: &Port| {
            let by_gid = match source {
                None => true,
                Some(GidSlot::Entry { gid_type, .. }) => {
                    port.has_gid(destination_gid(address), gid_type)
                }
                Some(_) => false,
            };
            let by_lid = from.is_ethernet() || port.has_lid(address.dlid);
            by_gid && by_lid && port.shares_network(from)
        };
        // An address may have been taken over from a device that is gone.
        let among = |is_removed: bool| {
            let mut devices = self.devices.iter();
            devices.find_map(|(id, device)| {
                let is_one = device.is_removed == is_removed;
                let index = device.ports.iter().position(has_address)?;
                is_one.then_some((id, index))
            })
        };
        among(false).or_else(|| among(true))
    }
}

/// Whether the link of a port is whole. If it is not, one more message was lost there.
fn check_cut(port: &Port) -> Result<(), LossReason> {
    match &port.cut {
        Some(cut) => {
            cut.lost.fetch_add(1, Ordering::Relaxed);
            Err(LossReason::LinkCut)
        }
        None => Ok(()),
    }
}

/// Whether packets of `own`, sent from `port`, come from where `peer` expects its peer to be.
fn is_from(peer: &Qp, own: &Qp, port: &Port) -> bool {
    let expected = &peer.attributes.ah_attr;
    let by_gid = match (
        expected.is_global != 0,
        own.source.and_then(|slot| slot.gid()),
    ) {
        (false, _) => true,
        (true, Some(gid)) => gid == destination_gid(expected),
        (true, None) => false,
    };
    by_gid && (port.is_ethernet() || port.has_lid(expected.dlid))
}

fn pkey(port: &Port, qp: &Qp) -> u16 {
    let index = usize::from(qp.attributes.pkey_index);
    port.spec.pkeys.get(index).copied().unwrap_or(0)
}

fn check_partition(own: u16, peer: u16) -> Result<(), LossReason> {
    let same = own & !FULL_MEMBER == peer & !FULL_MEMBER;
    let may_talk = (own | peer) & FULL_MEMBER != 0;
    match same && may_talk {
        true => Ok(()),
        false => Err(LossReason::PartitionMismatch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_need_the_same_key_and_a_full_member() {
        assert_eq!(check_partition(0xffff, 0xffff), Ok(()));
        assert_eq!(check_partition(0x8001, 0x0001), Ok(()));
        let apart = Err(LossReason::PartitionMismatch);
        assert_eq!(check_partition(0x0001, 0x0001), apart);
        assert_eq!(check_partition(0x8001, 0x8002), apart);
    }
}
