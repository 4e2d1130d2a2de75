//! Queue pairs: making, modifying, querying and destroying them.

use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::sync::{Arc, MutexGuard};

use ibnet_verbs::QueuePairState;
use ibnet_verbs::sys::{
    ibv_cq, ibv_ece, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
};

use super::objects::{SimCq, SimPd, SimQp, Zeroed, object};
use super::{pointer, returned};
use crate::engine::events::Subject;
use crate::engine::qp::QpState;
use crate::engine::slab::{CqId, Key, QpId};
use crate::engine::{Errno, Handle, NewQp, State};
use crate::faults::Verb;
use crate::shared::Shared;

fn cq_id(cq: *mut ibv_cq) -> Result<CqId, Errno> {
    match cq.is_null() {
        true => Err(libc::EINVAL),
        false => Ok(*object!(cq => SimCq { id }).0),
    }
}

pub(crate) unsafe extern "C" fn create_qp(
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let (shared, pd_id) = object!(pd => SimPd { shared, id });
    // SAFETY: the caller's argument.
    let asked = unsafe { attributes.read() };
    let create = || {
        let mut state = shared.lock();
        let device = state.device_of_pd(*pd_id);
        state.admit_call(Verb::CreateQp, device)?;
        // Other transports and shared receive queues are not simulated.
        if asked.qp_type != ibv_qp_type::IBV_QPT_RC || !asked.srq.is_null() {
            return Err(libc::EOPNOTSUPP);
        }
        let (send_cq, recv_cq) = (cq_id(asked.send_cq)?, cq_id(asked.recv_cq)?);
        // The object needs the number, and the engine the address of the object.
        let place: *mut SimQp = Box::into_raw(Box::<SimQp>::new_uninit()).cast();
        let made = state.create_qp(NewQp {
            handle: Handle::new(place.cast()),
            pd: *pd_id,
            send_cq,
            recv_cq,
            capabilities: asked.cap,
            signal_all: asked.sq_sig_all != 0,
        });
        let id = made.inspect_err(|_| {
            // SAFETY: the box was made above, and nothing was put into it.
            drop(unsafe { Box::from_raw(place.cast::<MaybeUninit<SimQp>>()) });
        })?;
        let mut raw = ibv_qp::zeroed();
        // SAFETY: the caller's handle. Its context does not change.
        raw.context = unsafe { (*pd).context };
        raw.qp_context = asked.qp_context;
        raw.pd = pd;
        raw.send_cq = asked.send_cq;
        raw.recv_cq = asked.recv_cq;
        raw.handle = id.index() as u32;
        raw.qp_num = state.qps[id].number;
        raw.state = ibv_qp_state::IBV_QPS_RESET;
        raw.qp_type = asked.qp_type;
        // SAFETY: the box was made above for such an object; the argument is the caller's. Exactly
        // what was asked for is granted.
        unsafe {
            place.write(SimQp {
                raw,
                shared: Arc::clone(shared),
                id,
            });
            (*attributes).cap = state.qps[id].capabilities;
        }
        Ok(place.cast())
    };
    pointer(create())
}

/// Waits for copies from and to a queue pair that are under way outside the lock.
fn wait_for_copies<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    id: QpId,
) -> MutexGuard<'a, State> {
    shared.wait_until(state, |state| state.qps[id].copies == 0)
}

pub(crate) unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let (shared, id) = object!(qp => SimQp { shared, id });
    // SAFETY: the caller's argument.
    let new = unsafe { attributes.read() };
    let modify = || {
        let mut state = shared.lock();
        let to = QueuePairState::from_raw(new.qp_state);
        state.admit_qp_call(Verb::ModifyQpTo(to), *id)?;
        let change = state.check_modify(*id, &new, mask.cast_unsigned())?;
        if matches!(change.to, QpState::Reset | QpState::Error) {
            // When this returns, nothing of the peer lands any more, and nothing is read.
            state.stop_qp(*id, change.to);
            state = wait_for_copies(shared, state, *id);
        }
        state.apply_modify(*id, &change);
        // SAFETY: the caller's handle. Programs may read the state, as libibverbs keeps it.
        unsafe { (&raw mut (*qp).state).write(change.to as u32) };
        drop(shared.run(state));
        Ok(())
    };
    returned(modify())
}

pub(crate) unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let (shared, id) = object!(qp => SimQp { shared, id });
    let query = || {
        let mut state = shared.lock();
        state.admit_qp_call(Verb::QueryQp, *id)?;
        Ok(state.describe_qp(*id))
    };
    // SAFETY: the caller's handle and arguments. All attributes are given, whatever the mask: it
    // only says which are needed.
    returned(query().map(|(answer, signal_all)| unsafe {
        attributes.write(answer);
        init.write(ibv_qp_init_attr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: (*qp).srq,
            cap: answer.cap,
            qp_type: (*qp).qp_type,
            sq_sig_all: signal_all.into(),
        });
        (&raw mut (*qp).state).write(answer.qp_state);
    }))
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    let (shared, id) = object!(qp => SimQp { shared, id });
    let id = *id;
    let destroy = || {
        let mut state = shared.lock();
        let (context, device) = (state.qps[id].context, state.qps[id].device);
        if !state.devices[device].is_removed {
            state.admit_qp_call(Verb::DestroyQp, id)?;
        }
        state.disconnect_qp(id);
        let mut state = wait_for_copies(shared, state, id);
        state.forget_events(context, Subject::Qp(id));
        let is_acknowledged = |state: &State| state.qps[id].unacknowledged_events == 0;
        let mut state = shared.wait_until(state, is_acknowledged);
        state.remove_qp(id);
        Ok(())
    };
    let result = destroy();
    if result.is_ok() {
        // SAFETY: the caller's handle, used for the last time.
        drop(unsafe { Box::from_raw(qp.cast::<SimQp>()) });
    }
    returned(result)
}

pub(crate) unsafe extern "C" fn query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    let (shared, id) = object!(qp => SimQp { shared, id });
    let query = || {
        let mut state = shared.lock();
        state.admit_qp_call(Verb::QueryEce, *id)?;
        state.qps[*id].ece.ok_or(libc::EOPNOTSUPP)
    };
    // SAFETY: the caller's argument.
    returned(query().map(|answer| unsafe { ece.write(answer) }))
}

pub(crate) unsafe extern "C" fn set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    let (shared, id) = object!(qp => SimQp { shared, id });
    // SAFETY: the caller's argument.
    let wanted = unsafe { ece.read() };
    let set = || {
        let mut state = shared.lock();
        state.admit_qp_call(Verb::SetEce, *id)?;
        state.set_ece(*id, wanted)
    };
    // SAFETY: the caller's argument.
    returned(set().map(|accepted| unsafe { ece.write(accepted) }))
}
