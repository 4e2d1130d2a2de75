//! Moving a queue pair between states: which transitions there are, which attributes each needs
//! and allows, and what values these may have.
//!
//! The table is that of the InfiniBand specification (section 11.2.5.2, "Modify Queue Pair") for
//! reliable connections.

use std::ptr;

use ibnet_verbs::sys::{IBV_MTU_256, IBV_MTU_4096, ibv_ah_attr, ibv_qp_attr, ibv_qp_attr_mask};

use super::device::Port;
use super::message::PSN_MASK;
use super::qp::{Qp, QpState};
use super::regions::{LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE};
use super::route::destination_gid;
use super::slab::QpId;
use super::{Errno, State};
use crate::spec::{GidSlot, Limits};

const STATE: u32 = ibv_qp_attr_mask::IBV_QP_STATE.0;
const CUR_STATE: u32 = ibv_qp_attr_mask::IBV_QP_CUR_STATE.0;
const NOTIFY_DRAINED: u32 = ibv_qp_attr_mask::IBV_QP_EN_SQD_ASYNC_NOTIFY.0;
const ACCESS: u32 = ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0;
const PKEY: u32 = ibv_qp_attr_mask::IBV_QP_PKEY_INDEX.0;
const PORT: u32 = ibv_qp_attr_mask::IBV_QP_PORT.0;
const ADDRESS: u32 = ibv_qp_attr_mask::IBV_QP_AV.0;
const PATH_MTU: u32 = ibv_qp_attr_mask::IBV_QP_PATH_MTU.0;
const TIMEOUT: u32 = ibv_qp_attr_mask::IBV_QP_TIMEOUT.0;
const RETRIES: u32 = ibv_qp_attr_mask::IBV_QP_RETRY_CNT.0;
const RNR_RETRIES: u32 = ibv_qp_attr_mask::IBV_QP_RNR_RETRY.0;
const RQ_PSN: u32 = ibv_qp_attr_mask::IBV_QP_RQ_PSN.0;
const READS: u32 = ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
const RNR_TIMER: u32 = ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0;
const SQ_PSN: u32 = ibv_qp_attr_mask::IBV_QP_SQ_PSN.0;
const READS_SERVED: u32 = ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC.0;
const REMOTE_QP: u32 = ibv_qp_attr_mask::IBV_QP_DEST_QPN.0;

/// What a transition needs and allows. None if there is no such transition.
fn rule(from: QpState, to: QpState) -> Option<(u32, u32)> {
    use QpState::{Error, Init, Reset, Rtr, Rts, Sqd};
    Some(match (from, to) {
        (_, Reset | Error) if from != Reset || to == Reset => (0, 0),
        (Reset, Init) => (PKEY | PORT | ACCESS, 0),
        (Init, Init) => (0, PKEY | PORT | ACCESS),
        (Init, Rtr) => (
            ADDRESS | PATH_MTU | REMOTE_QP | RQ_PSN | READS_SERVED | RNR_TIMER,
            ACCESS | PKEY,
        ),
        (Rtr, Rts) => (
            SQ_PSN | TIMEOUT | RETRIES | RNR_RETRIES | READS,
            CUR_STATE | ACCESS | RNR_TIMER,
        ),
        (Rts, Rts) => (0, CUR_STATE | ACCESS | RNR_TIMER),
        (Rts, Sqd) => (0, NOTIFY_DRAINED),
        (Sqd, Rts) => (0, CUR_STATE | ACCESS | RNR_TIMER),
        (Sqd, Sqd) => (
            0,
            PORT | ADDRESS
                | TIMEOUT
                | RETRIES
                | RNR_RETRIES
                | READS
                | READS_SERVED
                | PKEY
                | ACCESS
                | RNR_TIMER,
        ),
        _ => return None,
    })
}

/// A modification that was checked.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) to: QpState,
    new: ibv_qp_attr,
    mask: u32,
    /// The own address, if an address vector with a global route is set.
    source: Option<GidSlot>,
}

impl State {
    /// Checks a modification against the present state and the device.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a transition that does not exist, attributes that are missing or not allowed
    /// in it, and values out of range. `ENETUNREACH` or `ETIMEDOUT` when the address of a RoCE
    /// peer cannot be resolved.
    pub(crate) fn check_modify(
        &self,
        id: QpId,
        new: &ibv_qp_attr,
        mask: u32,
    ) -> Result<Change, Errno> {
        let qp = &self.qps[id];
        let to = match mask & STATE {
            0 => qp.state,
            _ => QpState::from_raw(new.qp_state).ok_or(libc::EINVAL)?,
        };
        let (needed, allowed) = rule(qp.state, to).ok_or(libc::EINVAL)?;
        let given = mask & !STATE;
        if needed & !given != 0 || given & !(needed | allowed) != 0 {
            return Err(libc::EINVAL);
        }
        let device = &self.devices[qp.device];
        check_numbers(qp, new, mask, &device.spec.limits)?;

        let number = if mask & PORT != 0 {
            new.port_num
        } else {
            qp.attributes.port_num
        };
        if matches!(to, QpState::Reset | QpState::Error) {
            return Ok(Change {
                to,
                new: *new,
                mask,
                source: None,
            });
        }
        let port = device.port(number).ok_or(libc::EINVAL)?;
        if mask & PKEY != 0 && usize::from(new.pkey_index) >= port.spec.pkeys.len() {
            return Err(libc::EINVAL);
        }
        if mask & PATH_MTU != 0 {
            let is_known = (IBV_MTU_256..=IBV_MTU_4096).contains(&new.path_mtu);
            if !is_known || new.path_mtu > port.spec.active_mtu.raw() {
                return Err(libc::EINVAL);
            }
        }
        let source = match mask & ADDRESS {
            0 => qp.source,
            _ => self.check_address(number, port, &new.ah_attr)?,
        };
        Ok(Change {
            to,
            new: *new,
            mask,
            source,
        })
    }

    /// Checks an address vector. Gives the own address that goes with it.
    fn check_address(
        &self,
        number: u8,
        port: &Port,
        address: &ibv_ah_attr,
    ) -> Result<Option<GidSlot>, Errno> {
        let is_global = address.is_global != 0;
        let needs_global = port.is_ethernet() || port.spec.grh_required;
        if address.port_num != number
            || address.sl > 15
            || address.grh.flow_label > 0xf_ffff
            || (needs_global && !is_global)
            || (!port.is_ethernet() && address.dlid == 0)
        {
            return Err(libc::EINVAL);
        }
        let mut source = None;
        if is_global {
            let index = usize::from(address.grh.sgid_index);
            let slot = port.gids.get(index).copied().ok_or(libc::EINVAL)?;
            if slot.gid().is_none_or(|gid| gid.is_zero()) || destination_gid(address).is_zero() {
                return Err(libc::EINVAL);
            }
            source = Some(slot);
        }
        if port.is_ethernet() {
            self.resolve(port, address, source)?;
        }
        Ok(source)
    }

    /// Resolves the Ethernet address of a RoCE peer, as the kernel does when it is connected to.
    fn resolve(
        &self,
        port: &Port,
        address: &ibv_ah_attr,
        source: Option<GidSlot>,
    ) -> Result<(), Errno> {
        if !port.is_up {
            return Err(libc::ENETUNREACH);
        }
        let found = self.find_address(port, address, source);
        let answers = found.is_some_and(|(device, index)| {
            let device = &self.devices[device];
            let peer = &device.ports[index];
            let is_linked = ptr::eq(port, peer) || (port.cut.is_none() && peer.cut.is_none());
            !device.is_removed && peer.is_up && is_linked
        });
        match answers {
            true => Ok(()),
            false => Err(libc::ETIMEDOUT),
        }
    }

    /// First half of a modification to ERR or RESET: nothing more is sent or taken. What is being
    /// copied outside the lock still has to end.
    pub(crate) fn stop_qp(&mut self, id: QpId, to: QpState) {
        if to == QpState::Error {
            self.enter_error(id);
        } else {
            self.qps[id].state = QpState::Reset;
            self.network_changed();
        }
    }

    /// Carries out a modification that was checked. Nothing is being copied from or to the queue
    /// pair.
    pub(crate) fn apply_modify(&mut self, id: QpId, change: &Change) {
        match change.to {
            QpState::Reset => {
                self.drop_completions(id);
                self.qps[id].clear();
                self.qps[id].state = QpState::Reset;
                self.record_state(id);
            }
            QpState::Error => {
                self.enter_error(id);
            }
            _ => self.set_attributes(id, change),
        }
        self.network_changed();
        self.enqueue(id);
    }

    fn set_attributes(&mut self, id: QpId, change: &Change) {
        let Change {
            to,
            new,
            mask,
            source,
        } = change;
        let qp = &mut self.qps[id];
        let before = qp.state;
        qp.state = *to;
        qp.source = *source;
        let attributes = &mut qp.attributes;
        let mut set = |bit: u32, copy: &dyn Fn(&mut ibv_qp_attr)| {
            if mask & bit != 0 {
                copy(attributes);
            }
        };
        set(PORT, &|attributes| attributes.port_num = new.port_num);
        set(PKEY, &|attributes| attributes.pkey_index = new.pkey_index);
        set(ACCESS, &|attributes| {
            attributes.qp_access_flags = new.qp_access_flags;
        });
        set(ADDRESS, &|attributes| attributes.ah_attr = new.ah_attr);
        set(PATH_MTU, &|attributes| attributes.path_mtu = new.path_mtu);
        set(REMOTE_QP, &|attributes| {
            attributes.dest_qp_num = new.dest_qp_num;
        });
        set(RQ_PSN, &|attributes| attributes.rq_psn = new.rq_psn);
        set(SQ_PSN, &|attributes| attributes.sq_psn = new.sq_psn);
        set(READS, &|attributes| {
            attributes.max_rd_atomic = new.max_rd_atomic;
        });
        set(READS_SERVED, &|attributes| {
            attributes.max_dest_rd_atomic = new.max_dest_rd_atomic;
        });
        set(RNR_TIMER, &|attributes| {
            attributes.min_rnr_timer = new.min_rnr_timer;
        });
        set(TIMEOUT, &|attributes| attributes.timeout = new.timeout);
        set(RETRIES, &|attributes| attributes.retry_cnt = new.retry_cnt);
        set(RNR_RETRIES, &|attributes| {
            attributes.rnr_retry = new.rnr_retry
        });

        if mask & RQ_PSN != 0 {
            qp.responder.psn = new.rq_psn;
        }
        if mask & SQ_PSN != 0 {
            qp.requester.psn = new.sq_psn;
        }
        if mask & RETRIES != 0 {
            qp.requester.retries_left = new.retry_cnt;
        }
        if mask & RNR_RETRIES != 0 {
            qp.requester.not_ready_left = new.rnr_retry;
        }
        if mask & NOTIFY_DRAINED != 0 {
            qp.requester.wants_drained = new.en_sqd_async_notify != 0;
        }
        if before != *to {
            self.record_state(id);
        }
        self.report_drained(id);
    }
}

/// Checks values that do not depend on a port.
fn check_numbers(qp: &Qp, new: &ibv_qp_attr, mask: u32, limits: &Limits) -> Result<(), Errno> {
    let fits = |bit: u32, value: u32, largest: u32| mask & bit == 0 || value <= largest;
    let flags = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    let all_fit = fits(REMOTE_QP, new.dest_qp_num, PSN_MASK)
        && fits(RQ_PSN, new.rq_psn, PSN_MASK)
        && fits(SQ_PSN, new.sq_psn, PSN_MASK)
        && fits(TIMEOUT, new.timeout.into(), 31)
        && fits(RETRIES, new.retry_cnt.into(), 7)
        && fits(RNR_RETRIES, new.rnr_retry.into(), 7)
        && fits(RNR_TIMER, new.min_rnr_timer.into(), 31)
        && fits(
            READS_SERVED,
            new.max_dest_rd_atomic.into(),
            limits.max_qp_rd_atom,
        )
        && fits(READS, new.max_rd_atomic.into(), limits.max_qp_init_rd_atom)
        && (mask & ACCESS == 0 || new.qp_access_flags & !flags == 0)
        && (mask & CUR_STATE == 0 || new.cur_qp_state == qp.state as u32);
    match all_fit {
        true => Ok(()),
        false => Err(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [QpState; 6] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Error,
    ];

    #[test]
    fn the_way_up_is_one_step_at_a_time_and_the_way_down_is_always_open() {
        for from in ALL {
            assert_eq!(rule(from, QpState::Reset), Some((0, 0)), "{from:?}");
            let to_error = rule(from, QpState::Error);
            assert_eq!(to_error.is_some(), from != QpState::Reset, "{from:?}");
        }
        for (from, to) in [
            (QpState::Reset, QpState::Rtr),
            (QpState::Reset, QpState::Rts),
            (QpState::Init, QpState::Rts),
            (QpState::Rtr, QpState::Init),
            (QpState::Rtr, QpState::Rtr),
            (QpState::Rtr, QpState::Sqd),
            (QpState::Rts, QpState::Rtr),
            (QpState::Error, QpState::Init),
            (QpState::Error, QpState::Rts),
        ] {
            assert_eq!(rule(from, to), None, "{from:?} {to:?}");
        }
    }
}
