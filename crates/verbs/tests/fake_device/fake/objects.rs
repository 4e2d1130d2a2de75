//! What is made from an open device: domains, regions, channels, queues and queue pairs.

use std::os::raw::{c_int, c_uint, c_void};
use std::ptr;

use ibnet_verbs::sys::*;

use super::{close, descriptor, fake, free, new, or_errno, or_null, set_errno, zeroed};

pub(super) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    or_null("alloc_pd", || new(ibv_pd { context, handle: 1 }))
}

pub(super) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    or_errno("dealloc_pd", || {
        // SAFETY: the domain was made by `alloc_pd` and is deallocated once.
        unsafe { free(pd) };
        0
    })
}

/// Makes a region whose keys differ from each other.
pub(super) fn region(
    function: &'static str,
    pd: *mut ibv_pd,
    length: usize,
    at: u64,
    access: u32,
) -> *mut ibv_mr {
    fake(|fake| fake.registered = Some((function, length, at, access)));
    new(ibv_mr {
        pd,
        length,
        lkey: 0x11,
        rkey: 0x22,
        ..Default::default()
    })
}

pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    or_null("reg_mr", || {
        region("reg_mr", pd, length, address as u64, access.cast_unsigned())
    })
}

pub(super) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    or_null("reg_mr_iova2", || {
        assert_eq!(address as u64, iova);
        region("reg_mr_iova2", pd, length, iova, access)
    })
}

pub(super) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    _offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    or_null("reg_dmabuf_mr", || {
        if fd < 0 {
            set_errno(libc::EBADF);
            return ptr::null_mut();
        }
        region("reg_dmabuf_mr", pd, length, iova, access.cast_unsigned())
    })
}

pub(super) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    or_errno("dereg_mr", || {
        // SAFETY: the region was made by `region` and is deregistered once.
        unsafe { free(mr) };
        0
    })
}

pub(super) unsafe extern "C" fn create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    or_null("create_comp_channel", || {
        new(ibv_comp_channel {
            context,
            fd: descriptor(),
            refcnt: 0,
        })
    })
}

pub(super) unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    or_errno("destroy_comp_channel", || {
        // SAFETY: the channel was made by `create_comp_channel` and is destroyed once.
        unsafe {
            close((*channel).fd);
            free(channel);
        }
        0
    })
}

/// Grants four entries more than were asked for.
pub(super) unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    depth: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    or_null("create_cq", || {
        assert!(cq_context.is_null() && vector == 0);
        // SAFETY: zeros are valid: all fields are plain.
        let mut cq: ibv_cq = unsafe { zeroed() };
        (cq.context, cq.channel, cq.cqe) = (context, channel, depth + 4);
        new(cq)
    })
}

pub(super) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    or_errno("destroy_cq", || {
        // SAFETY: the queue was made by `create_cq` and is destroyed once.
        unsafe { free(cq) };
        0
    })
}

pub(super) unsafe extern "C" fn create_qp(
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    or_null("create_qp", || {
        // SAFETY: the caller gives a domain that exists and attributes, to be read and written.
        let (context, requested) = unsafe { ((*pd).context, *attributes) };
        // SAFETY: as above.
        unsafe { (*attributes).cap = fake(|fake| fake.granted) };
        fake(|fake| fake.requested = Some(requested));
        // SAFETY: zeros are valid: all fields are plain.
        let mut qp: ibv_qp = unsafe { zeroed() };
        (qp.context, qp.pd, qp.qp_num) = (context, pd, 0xabc);
        new(qp)
    })
}

pub(super) unsafe extern "C" fn modify_qp(
    _: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    or_errno("modify_qp", || {
        // SAFETY: the caller gives attributes.
        let attributes = unsafe { *attributes };
        fake(|fake| fake.modified.push((attributes, mask)));
        0
    })
}

/// Gives back what the last modification said.
pub(super) unsafe extern "C" fn query_qp(
    _: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    or_errno("query_qp", || {
        let last = fake(|fake| fake.modified.last().map(|(attributes, _)| *attributes));
        // SAFETY: the caller gives valid places for both.
        unsafe {
            *attributes = last.unwrap_or_default();
            (*attributes).cap = fake(|fake| fake.granted);
            (*init).qp_type = ibv_qp_type::IBV_QPT_RC;
        }
        0
    })
}

pub(super) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    or_errno("destroy_qp", || {
        // SAFETY: the queue pair was made by `create_qp` and is destroyed once.
        unsafe { free(qp) };
        0
    })
}

pub(super) unsafe extern "C" fn query_ece(_: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    or_errno("query_ece", || {
        // SAFETY: the caller gives a valid place for the options.
        unsafe { *ece = fake(|fake| fake.ece) };
        0
    })
}

pub(super) unsafe extern "C" fn set_ece(_: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    or_errno("set_ece", || {
        // SAFETY: the caller gives options.
        fake(|fake| fake.ece = unsafe { *ece });
        0
    })
}

pub(super) unsafe extern "C" fn fork_init() -> c_int {
    or_errno("fork_init", || 0)
}

pub(super) unsafe extern "C" fn is_fork_initialized() -> ibv_fork_status {
    fake(|fake| fake.fork_status)
}
