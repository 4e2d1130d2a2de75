//! Asking devices and ports about themselves.

use std::mem::offset_of;
use std::os::raw::c_int;
use std::ptr;

use ibnet_verbs::sys::{
    __be16, _compat_ibv_port_attr, ibv_context, ibv_device_attr, ibv_gid, ibv_gid_entry,
    ibv_port_attr, ibv_port_state,
};

use super::objects::{SimContext, context_of, object};
use super::{minus_one, put, returned};
use crate::engine::Errno;
use crate::engine::device::{Device, Port};
use crate::faults::Verb;
use crate::spec::GidSlot;

/// `IBV_QPF_GRH_REQUIRED`, which the generated bindings lack.
const GRH_REQUIRED: u8 = 1;
/// By the InfiniBand specification.
const PHYSICAL_DISABLED: u8 = 3;
const PHYSICAL_LINK_UP: u8 = 5;

/// Looks at the device of a context, if the verb may.
fn ask<T>(
    context: *mut ibv_context,
    verb: Verb,
    look: impl FnOnce(&Device) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let (shared, device) = object!(context_of(context) => SimContext { shared, device });
    let mut state = shared.lock();
    state.admit_call(verb, device.id)?;
    look(&state.devices[device.id])
}

/// The port with that number.
fn port_of(device: &Device, number: u8) -> Result<&Port, Errno> {
    device.port(number).ok_or(libc::EINVAL)
}

pub(crate) unsafe extern "C" fn query_device(
    context: *mut ibv_context,
    attributes: *mut ibv_device_attr,
) -> c_int {
    let answer = ask(context, Verb::QueryDevice, |device| Ok(describe(device)));
    // SAFETY: the caller's argument.
    returned(answer.map(|answer| unsafe { attributes.write(answer) }))
}

fn describe(device: &Device) -> ibv_device_attr {
    let limits = &device.spec.limits;
    let int = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    let pkeys = device.ports.iter().map(|port| port.spec.pkeys.len()).max();
    let mut attributes = ibv_device_attr {
        node_guid: device.guid.to_be(),
        sys_image_guid: device.system_guid.to_be(),
        max_mr_size: limits.max_mr_size,
        // Pages from 4 KiB on.
        page_size_cap: !0xfff,
        // Of no vendor: the bit for locally administered addresses.
        vendor_id: 0x02_0000,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: int(limits.max_qp),
        max_qp_wr: int(limits.max_qp_wr),
        max_sge: int(limits.max_sge),
        max_sge_rd: int(limits.max_sge),
        max_cq: int(limits.max_cq),
        max_cqe: int(limits.max_cqe),
        max_mr: int(limits.max_mr),
        max_pd: int(limits.max_pd),
        max_qp_rd_atom: int(limits.max_qp_rd_atom),
        max_res_rd_atom: int(limits.max_qp_rd_atom.saturating_mul(limits.max_qp)),
        max_qp_init_rd_atom: int(limits.max_qp_init_rd_atom),
        // The builder keeps both within bounds.
        max_pkeys: pkeys.unwrap_or(1) as u16,
        phys_port_cnt: device.ports.len() as u8,
        local_ca_ack_delay: 15,
        ..Default::default()
    };
    put(&mut attributes.fw_ver, device.spec.firmware.as_bytes());
    attributes
}

fn describe_port(port: &Port) -> ibv_port_attr {
    let spec = &port.spec;
    let speed = spec.lane_speed as u32;
    ibv_port_attr {
        state: match port.is_up {
            true => ibv_port_state::IBV_PORT_ACTIVE,
            false => ibv_port_state::IBV_PORT_DOWN,
        },
        max_mtu: spec.max_mtu.raw(),
        active_mtu: spec.active_mtu.raw(),
        gid_tbl_len: port.gids.len() as c_int,
        max_msg_sz: spec.max_message,
        pkey_tbl_len: spec.pkeys.len() as u16,
        lid: port.lid,
        sm_lid: if port.is_ethernet() { 0 } else { 1 },
        lmc: spec.lmc,
        active_width: spec.width as u8,
        // What does not fit is only in the newer field. XDR reads as NDR here, as from a driver.
        active_speed: u8::try_from(speed).unwrap_or(128),
        phys_state: match port.is_up {
            true => PHYSICAL_LINK_UP,
            false => PHYSICAL_DISABLED,
        },
        link_layer: spec.link_layer.raw(),
        flags: if spec.grh_required { GRH_REQUIRED } else { 0 },
        active_speed_ex: if speed > 255 { speed } else { 0 },
        ..Default::default()
    }
}

/// The exported function fills the attributes only up to `flags`.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    number: u8,
    attributes: *mut _compat_ibv_port_attr,
) -> c_int {
    let size = offset_of!(ibv_port_attr, port_cap_flags2);
    // SAFETY: the caller's argument has room for this many bytes.
    unsafe { query_port_extended(context, number, attributes.cast(), size) }
}

/// The operation of the extended context fills as much as the caller has room for.
pub(crate) unsafe extern "C" fn query_port_extended(
    context: *mut ibv_context,
    number: u8,
    attributes: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    let answer = ask(context, Verb::QueryPort, |device| {
        port_of(device, number).map(describe_port)
    });
    returned(answer.map(|answer| {
        let size = size.min(size_of::<ibv_port_attr>());
        let from = (&raw const answer).cast::<u8>();
        // SAFETY: the caller's argument has room for `size` bytes, and the answer has as many.
        unsafe { ptr::copy_nonoverlapping(from, attributes.cast(), size) };
    }))
}

pub(crate) unsafe extern "C" fn query_port_speed(
    context: *mut ibv_context,
    number: u32,
    hundreds: *mut u64,
) -> c_int {
    let answer = ask(context, Verb::QueryPort, |device| {
        let number = u8::try_from(number).map_err(|_| libc::EINVAL)?;
        let speed = port_of(device, number)?.spec.speed;
        speed.map(|megabits| megabits / 100).ok_or(libc::EOPNOTSUPP)
    });
    // SAFETY: the caller's argument.
    returned(answer.map(|answer| unsafe { hundreds.write(answer) }))
}

/// The place in a port's GID table, if it can be read.
fn gid_slot(context: *mut ibv_context, number: u32, index: u32) -> Result<GidSlot, Errno> {
    ask(context, Verb::QueryGid, |device| {
        let number = u8::try_from(number).map_err(|_| libc::EINVAL)?;
        let gids = &port_of(device, number)?.gids;
        match gids.get(index as usize) {
            Some(GidSlot::Unreadable(errno)) => Err(*errno),
            Some(slot) => Ok(*slot),
            None => Err(libc::EINVAL),
        }
    })
}

pub(crate) unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    number: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let index = u32::try_from(index).map_err(|_| libc::EINVAL);
    let slot = index.and_then(|index| gid_slot(context, number.into(), index));
    minus_one(slot.map(|slot| {
        let raw = slot.gid().unwrap_or_default().0;
        // SAFETY: the caller's argument.
        unsafe { gid.write(ibv_gid { raw }) };
        0
    }))
}

/// The entry that the C interface gives for a place, none if it is empty.
fn entry(number: u32, index: usize, slot: &GidSlot) -> Option<ibv_gid_entry> {
    match slot {
        GidSlot::Entry {
            gid,
            gid_type,
            netdev,
        } => Some(ibv_gid_entry {
            gid: ibv_gid { raw: gid.0 },
            gid_index: index as u32,
            port_num: number,
            gid_type: gid_type.raw(),
            ndev_ifindex: netdev.unwrap_or(0),
        }),
        GidSlot::Empty | GidSlot::Unreadable(_) => None,
    }
}

pub(crate) unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    number: u32,
    index: u32,
    result: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 || size < size_of::<ibv_gid_entry>() {
        return libc::EINVAL;
    }
    let slot = gid_slot(context, number, index);
    let entry = slot.and_then(|slot| entry(number, index as usize, &slot).ok_or(libc::ENODATA));
    // SAFETY: the caller's argument.
    returned(entry.map(|entry| unsafe { result.write(entry) }))
}

pub(crate) unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    capacity: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 || size != size_of::<ibv_gid_entry>() {
        return -(libc::EINVAL as isize);
    }
    let table = ask(context, Verb::QueryGid, |device| {
        let mut table = Vec::new();
        for (port, number) in device.ports.iter().zip(1..) {
            for (index, slot) in port.gids.iter().enumerate() {
                // Like some kernels: one place that cannot be read fails the whole.
                if let GidSlot::Unreadable(errno) = slot {
                    return Err(*errno);
                }
                table.extend(entry(number, index, slot));
            }
        }
        match table.len() <= capacity {
            true => Ok(table),
            false => Err(libc::EINVAL),
        }
    });
    match table {
        Ok(table) => {
            // SAFETY: the caller's argument has room for `capacity` entries.
            unsafe { ptr::copy_nonoverlapping(table.as_ptr(), entries, table.len()) };
            table.len() as isize
        }
        Err(errno) => -(errno as isize),
    }
}

pub(crate) unsafe extern "C" fn query_pkey(
    context: *mut ibv_context,
    number: u8,
    index: c_int,
    pkey: *mut __be16,
) -> c_int {
    let answer = ask(context, Verb::QueryPort, |device| {
        let index = usize::try_from(index).map_err(|_| libc::EINVAL)?;
        let pkeys = &port_of(device, number)?.spec.pkeys;
        pkeys.get(index).copied().ok_or(libc::EINVAL)
    });
    minus_one(answer.map(|answer| {
        // SAFETY: the caller's argument.
        unsafe { pkey.write(answer.to_be()) };
        0
    }))
}

pub(crate) unsafe extern "C" fn get_pkey_index(
    context: *mut ibv_context,
    number: u8,
    pkey: __be16,
) -> c_int {
    minus_one(ask(context, Verb::QueryPort, |device| {
        let pkeys = &port_of(device, number)?.spec.pkeys;
        let place = pkeys.iter().position(|entry| entry.to_be() == pkey);
        // A table has at most 2^16 entries.
        place.map(|index| index as c_int).ok_or(libc::ENOENT)
    }))
}
