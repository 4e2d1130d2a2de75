//! Functions that must be there, for things that these devices do not have.

use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::ptr;

use ibnet_verbs::sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_event_type, ibv_port_state, ibv_wc_status,
};

use crate::set_errno;

/// There are no completion channels: who uses these devices polls.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    _context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    set_errno(libc::EOPNOTSUPP);
    ptr::null_mut()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(_channel: *mut ibv_comp_channel) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    _channel: *mut ibv_comp_channel,
    _cq: *mut *mut ibv_cq,
    _cq_context: *mut *mut c_void,
) -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(_cq: *mut ibv_cq, _number: c_uint) {}

pub(crate) unsafe extern "C" fn req_notify_cq(_cq: *mut ibv_cq, _solicited_only: c_int) -> c_int {
    libc::EOPNOTSUPP
}

/// The device touches memory in the process that owns it only, so that forking needs nothing.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_event_type_str(_event: ibv_event_type) -> *const c_char {
    c"an event, though the null device has none".as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_wc_status_str(status: ibv_wc_status::Type) -> *const c_char {
    let text = match status {
        ibv_wc_status::IBV_WC_SUCCESS => c"success",
        ibv_wc_status::IBV_WC_WR_FLUSH_ERR => c"Work Request Flushed Error",
        ibv_wc_status::IBV_WC_RETRY_EXC_ERR => c"transport retry counter exceeded",
        ibv_wc_status::IBV_WC_REM_ACCESS_ERR => c"remote access error",
        ibv_wc_status::IBV_WC_LOC_PROT_ERR => c"local protection error",
        _ => c"a status that the null device does not use",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_port_state_str(_state: ibv_port_state::Type) -> *const c_char {
    c"PORT_ACTIVE".as_ptr()
}
