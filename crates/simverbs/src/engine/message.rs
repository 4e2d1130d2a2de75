//! Whether the next message of a queue pair can be carried out: what the sender checks of its own
//! memory, and what the responder checks of the packets.
//!
//! The checks are made anew for each part of a message that is placed in parts, because memory can
//! be deregistered and links can fail in between.

use ibnet_verbs::{EventType, WcStatus};

use super::State;
use super::copy::Span;
use super::qp::QpState;
use super::queue::{Opcode, SendHead};
use super::regions::{LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE};
use super::slab::{DeviceId, QpId, RegionId};
use crate::trace::LossReason;

/// A message that can be carried out. Its memory is in `local` and `remote` of the state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) index: u64,
    pub(crate) head: SendHead,
    pub(crate) peer: QpId,
    /// How many packet sequence numbers it takes.
    pub(crate) packets: u32,
}

/// Why a message cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The sender itself finds the request wrong.
    Failed(WcStatus),
    /// The packets do not arrive.
    Lost(LossReason),
    /// The peer has no receive posted.
    NotReady,
    /// The peer refuses, and goes to ERR.
    Refused {
        /// How the request ends.
        status: WcStatus,
        /// What the peer is told.
        event: EventType,
        /// How the peer's receive ends, if it is to be blamed.
        receive: Option<WcStatus>,
    },
}

/// The sequence numbers of packets have 24 bits.
pub(crate) const PSN_MASK: u32 = 0xff_ffff;

/// The peer finds the request itself wrong.
const INVALID: Stop = Stop::Refused {
    status: WcStatus::REM_INV_REQ_ERR,
    event: EventType::QP_REQ_ERR,
    receive: None,
};

/// The peer does not allow access to the memory that is named.
const DENIED: Stop = Stop::Refused {
    status: WcStatus::REM_ACCESS_ERR,
    event: EventType::QP_ACCESS_ERR,
    receive: None,
};

impl State {
    /// Checks the request that is sent next.
    pub(crate) fn admit_message(&mut self, id: QpId) -> Result<Plan, Stop> {
        let qp = &self.qps[id];
        let index = qp.requester.next;
        let head = qp.send.get(index).head;
        self.check_by_sender(id, index, &head)?;

        let peer = self.route(id).map_err(Stop::Lost)?;
        let packets = self.check_sequence(id, peer, &head)?;
        if !self.qps[peer].responder.is_established {
            self.establish(peer);
        }
        self.check_by_responder(id, peer, &head)?;
        Ok(Plan {
            index,
            head,
            peer,
            packets,
        })
    }

    fn check_by_sender(&mut self, id: QpId, index: u64, head: &SendHead) -> Result<(), Stop> {
        let qp = &self.qps[id];
        let port = &self.devices[qp.device].ports[qp.port()];
        if head.length > u64::from(port.spec.max_message) {
            return Err(Stop::Failed(WcStatus::LOC_LEN_ERR));
        }
        if head.opcode == Opcode::Read && qp.attributes.max_rd_atomic == 0 {
            return Err(Stop::Failed(WcStatus::LOC_QP_OP_ERR));
        }
        match self.find_local(id, index) {
            true => Ok(()),
            false => Err(Stop::Failed(WcStatus::LOC_PROT_ERR)),
        }
    }

    /// Finds the local memory of a send request. False if a key, range or access is wrong.
    pub(crate) fn find_local(&mut self, id: QpId, index: u64) -> bool {
        let qp = &self.qps[id];
        let wqe = qp.send.get(index);
        let regions = &self.devices[qp.device].regions;
        self.local.clear();
        self.pins.clear();
        if wqe.head.is_inline {
            self.local.push(Span {
                address: wqe.data.as_ptr() as usize,
                length: wqe.data.len(),
            });
            return true;
        }
        let access = if wqe.head.opcode == Opcode::Read {
            LOCAL_WRITE
        } else {
            0
        };
        for element in wqe.elements.iter().filter(|element| element.length != 0) {
            let (address, length) = (element.address, element.length);
            match regions.local(element.lkey, qp.pd, address, length, access) {
                Some((region, span)) => {
                    self.local.push(span);
                    self.pins.push((qp.device, region));
                }
                None => return false,
            }
        }
        true
    }

    /// What the responder checks of the packets' headers. Gives how many packets there are.
    fn check_sequence(&self, id: QpId, peer: QpId, head: &SendHead) -> Result<u32, Stop> {
        let (qp, target) = (&self.qps[id], &self.qps[peer]);
        if qp.requester.psn != target.responder.psn {
            return Err(Stop::Lost(LossReason::SequenceMismatch));
        }
        let (mtu, peer_mtu) = (qp.mtu(), target.mtu());
        let length = head.length as u32; // At most max_message, which has 32 bits.
        let port = &self.devices[target.device].ports[target.port()];
        if length.min(mtu) > port.mtu() && head.opcode != Opcode::Read {
            return Err(Stop::Lost(LossReason::TooLong));
        }
        // All packets but the last have to be exactly as long as the receiver's path MTU.
        if mtu != peer_mtu && length > mtu.min(peer_mtu) {
            return Err(match head.opcode {
                Opcode::Read => Stop::Failed(WcStatus::BAD_RESP_ERR),
                _ => INVALID,
            });
        }
        Ok(length.div_ceil(mtu).max(1))
    }

    /// The first packet of the peer has come.
    fn establish(&mut self, id: QpId) {
        let qp = &mut self.qps[id];
        qp.responder.is_established = true;
        let reports = self.devices[qp.device].spec.reports_established;
        if reports && qp.state == QpState::Rtr {
            self.raise_on_qp(id, EventType::COMM_EST);
        }
    }

    fn check_by_responder(&mut self, id: QpId, peer: QpId, head: &SendHead) -> Result<(), Stop> {
        self.remote.clear();
        match head.opcode {
            Opcode::Write | Opcode::WriteWithImmediate => {
                self.find_remote(peer, head, REMOTE_WRITE)
            }
            Opcode::Read => {
                // As the connection has two ends, the reads that the peer serves are these.
                let served = self.qps[id].requester.reads.len();
                if served >= usize::from(self.qps[peer].attributes.max_dest_rd_atomic) {
                    return Err(INVALID);
                }
                self.find_remote(peer, head, REMOTE_READ)
            }
            Opcode::Send | Opcode::SendWithImmediate => self.find_receive(peer, head),
        }
    }

    /// Finds the peer's memory of a write or a read.
    pub(crate) fn find_remote(
        &mut self,
        peer: QpId,
        head: &SendHead,
        access: u32,
    ) -> Result<(), Stop> {
        let target = &self.qps[peer];
        if target.attributes.qp_access_flags & access == 0 {
            return Err(INVALID);
        }
        if head.length == 0 {
            // Neither address nor key are looked at.
            return Ok(());
        }
        let length = head.length as u32; // At most max_message, which has 32 bits.
        let regions = &self.devices[target.device].regions;
        match regions.remote(head.rkey, target.pd, head.remote, length, access) {
            Some((region, span)) => {
                self.remote.push(span);
                self.pins.push((target.device, region));
                Ok(())
            }
            None => Err(DENIED),
        }
    }

    /// Finds the peer's memory of a send: that of its next receive.
    fn find_receive(&mut self, peer: QpId, head: &SendHead) -> Result<(), Stop> {
        let target = &self.qps[peer];
        if !target.has_receive() {
            return Err(Stop::NotReady);
        }
        let wqe = target.recv.get(target.responder.taken);
        let room: u64 = wqe
            .elements
            .iter()
            .map(|element| u64::from(element.length))
            .sum();
        if head.length > room {
            return Err(Stop::Refused {
                status: WcStatus::REM_INV_REQ_ERR,
                event: EventType::QP_REQ_ERR,
                receive: Some(WcStatus::LOC_LEN_ERR),
            });
        }
        let regions = &self.devices[target.device].regions;
        let mut left = head.length as u32; // At most max_message, which has 32 bits.
        for element in &wqe.elements {
            let length = element.length.min(left);
            if length == 0 {
                continue;
            }
            left -= length;
            // The whole element has to be covered, not only the part that is needed.
            let (address, whole) = (element.address, element.length);
            let found = regions.local(element.lkey, target.pd, address, whole, LOCAL_WRITE);
            let Some((region, span)) = found else {
                return Err(Stop::Refused {
                    status: WcStatus::REM_OP_ERR,
                    event: EventType::QP_ACCESS_ERR,
                    receive: Some(WcStatus::LOC_PROT_ERR),
                });
            };
            self.remote.push(Span {
                length: length as usize,
                ..span
            });
            self.pins.push((target.device, region));
        }
        Ok(())
    }

    /// Keeps the regions of the message at hand from being deregistered.
    pub(crate) fn pin(&mut self) -> Vec<(DeviceId, RegionId)> {
        for &(device, region) in &self.pins {
            if let Some(region) = self.devices[device].regions.get_mut(region) {
                region.pins += 1;
            }
        }
        self.pins.clone()
    }

    pub(crate) fn unpin(&mut self, pins: &[(DeviceId, RegionId)]) {
        for &(device, region) in pins {
            if let Some(region) = self.devices[device].regions.get_mut(region) {
                region.pins -= 1;
            }
        }
    }
}
