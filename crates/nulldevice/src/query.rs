//! What devices and ports say of themselves.

use std::mem::offset_of;
use std::os::raw::c_int;

use ibnet_verbs::sys::{
    __be16, _compat_ibv_port_attr, IBV_GID_TYPE_IB, IBV_MTU_4096, ibv_context, ibv_device_attr,
    ibv_gid, ibv_gid_entry, ibv_port_attr, ibv_port_state,
};

use crate::context::device_index;
use crate::device::guid;
use crate::set_errno;

const PORT: u8 = 1;
/// Bytes of inline data that a queue pair may have.
pub(crate) const MAX_INLINE: u32 = 512;
/// Work requests that a queue may have.
pub(crate) const MAX_WORK_REQUESTS: u32 = 1 << 15;
/// Completions that a queue may have.
pub(crate) const MAX_COMPLETIONS: c_int = 1 << 22;
/// Pieces of memory in one work request.
pub(crate) const MAX_PIECES: u32 = 16;
/// The prefix of an InfiniBand subnet that has none of its own.
const SUBNET_PREFIX: u64 = 0xfe80 << 48;
/// From the InfiniBand specification: the physical state LinkUp, width 4x, NDR.
const LINK_UP: u8 = 5;
const WIDTH_4X: u8 = 2;
const SPEED_NDR: u8 = 128;
/// `IBV_LINK_LAYER_INFINIBAND`
const INFINIBAND: u8 = 1;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attributes: *mut ibv_device_attr,
) -> c_int {
    let guid = guid(device_index(context)).to_be();
    let answer = ibv_device_attr {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: 0x02_0000,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: 1 << 20,
        max_qp_wr: MAX_WORK_REQUESTS as c_int,
        max_sge: MAX_PIECES as c_int,
        max_sge_rd: MAX_PIECES as c_int,
        max_cq: 1 << 20,
        max_cqe: MAX_COMPLETIONS,
        max_mr: 1 << 24,
        max_pd: 1 << 20,
        max_qp_rd_atom: 16,
        max_res_rd_atom: 1 << 24,
        max_qp_init_rd_atom: 16,
        max_pkeys: 1,
        phys_port_cnt: PORT,
        local_ca_ack_delay: 15,
        ..Default::default()
    };
    // SAFETY: the caller's argument.
    unsafe { attributes.write(answer) };
    0
}

fn describe_port(device: usize) -> ibv_port_attr {
    ibv_port_attr {
        state: ibv_port_state::IBV_PORT_ACTIVE,
        max_mtu: IBV_MTU_4096,
        active_mtu: IBV_MTU_4096,
        gid_tbl_len: 1,
        max_msg_sz: 1 << 31,
        pkey_tbl_len: 1,
        // There are at most a few devices.
        lid: device as u16 + 1,
        sm_lid: 1,
        active_width: WIDTH_4X,
        active_speed: SPEED_NDR,
        phys_state: LINK_UP,
        link_layer: INFINIBAND,
        ..Default::default()
    }
}

/// The exported function fills the attributes only up to `flags`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut _compat_ibv_port_attr,
) -> c_int {
    let size = offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller's argument has room for this many bytes.
    unsafe { query_port_extended(context, port, attributes.cast(), size) }
}

pub(crate) unsafe extern "C" fn query_port_extended(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    if port != PORT {
        return libc::EINVAL;
    }
    let answer = describe_port(device_index(context));
    let size = size.min(size_of::<ibv_port_attr>());
    // SAFETY: the caller's argument has room for `size` bytes.
    unsafe {
        attributes
            .cast::<u8>()
            .copy_from_nonoverlapping((&raw const answer).cast(), size);
    }
    0
}

fn gid_of(device: usize) -> ibv_gid {
    let mut gid = ibv_gid { raw: [0; 16] };
    let halves = [SUBNET_PREFIX.to_be_bytes(), guid(device).to_be_bytes()];
    gid.raw = [0; 16];
    // SAFETY: writing an array into a union of plain data.
    unsafe { gid.raw.copy_from_slice(halves.as_flattened()) };
    gid
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    if port != PORT || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's argument.
    unsafe { gid.write(gid_of(device_index(context))) };
    0
}

fn gid_entry(device: usize) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: gid_of(device),
        gid_index: 0,
        port_num: PORT.into(),
        gid_type: IBV_GID_TYPE_IB,
        ndev_ifindex: 0,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    _flags: u32,
    entry_size: usize,
) -> c_int {
    if port != PORT.into() || entry_size < size_of::<ibv_gid_entry>() {
        return libc::EINVAL;
    }
    if index != 0 {
        return libc::ENODATA;
    }
    // SAFETY: the caller's argument, with room for an entry.
    unsafe { entry.write(gid_entry(device_index(context))) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    capacity: usize,
    _flags: u32,
    entry_size: usize,
) -> isize {
    if capacity == 0 || entry_size < size_of::<ibv_gid_entry>() {
        return -(libc::EINVAL as isize);
    }
    // SAFETY: the caller's argument, with room for at least one entry.
    unsafe { entries.write(gid_entry(device_index(context))) };
    1
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut __be16,
) -> c_int {
    if port != PORT || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's argument. The default partition, as a full member.
    unsafe { pkey.write(0xffff) };
    0
}
