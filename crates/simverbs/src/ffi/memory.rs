//! Registering memory.

use std::os::raw::{c_int, c_uint, c_void};
use std::sync::Arc;

use ibnet_verbs::sys::{ibv_access_flags, ibv_mr, ibv_pd};

use super::objects::{SimMr, SimPd, object};
use super::{pointer, returned};
use crate::engine::regions::{check_access, is_mapped, map_dmabuf, page_size};
use crate::engine::slab::{DeviceId, Key};
use crate::engine::{Errno, Optional, Registration, State};
use crate::faults::Verb;
use crate::view::RegionKind;

/// `enum mlx5dv_reg_dmabuf_access` of mlx5dv.h.
const MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT: c_int = 1;

pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let start = address as u64;
    let access = access.cast_unsigned();
    pointer(register(
        pd,
        address,
        length,
        start,
        access,
        Optional::Refused,
    ))
}

pub(crate) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    pointer(register(
        pd,
        address,
        length,
        iova,
        access,
        Optional::Dropped,
    ))
}

fn register(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    start: u64,
    access: u32,
    optional: Optional,
) -> Result<*mut ibv_mr, Errno> {
    let (device, access) = begin(pd, start, length, access, optional)?;
    let memory = address as usize;
    let page = page_size();
    if memory % page != (start % page as u64) as usize {
        return Err(libc::EINVAL);
    }
    if !is_mapped(memory, length) {
        return Err(libc::EFAULT);
    }
    let (id,) = object!(pd => SimPd { id });
    let registration = Registration {
        pd: *id,
        start,
        length,
        memory,
        access,
        kind: RegionKind::Process,
        mapping: None,
    };
    finish(pd, device, address, registration)
}

pub(crate) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let access = access.cast_unsigned();
    pointer(register_dmabuf(
        pd,
        offset,
        length,
        iova,
        fd,
        access,
        RegionKind::DmaBuf,
    ))
}

/// `mlx5dv_reg_dmabuf_mr`, for devices that have Data Direct.
pub(crate) unsafe extern "C" fn mlx5_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
    mlx5_access: c_int,
) -> *mut ibv_mr {
    let access = access.cast_unsigned();
    let kind = match mlx5_access {
        0 => RegionKind::DmaBuf,
        MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT => RegionKind::DataDirect,
        _ => return pointer(Err(libc::EOPNOTSUPP)),
    };
    pointer(register_dmabuf(pd, offset, length, iova, fd, access, kind))
}

fn register_dmabuf(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: u32,
    kind: RegionKind,
) -> Result<*mut ibv_mr, Errno> {
    let (shared, id) = object!(pd => SimPd { shared, id });
    {
        let state = shared.lock();
        let device = state.device_of_pd(*id);
        let spec = &state.devices[device].spec;
        if !spec.dmabuf || (kind == RegionKind::DataDirect && spec.data_direct.is_none()) {
            return Err(libc::EOPNOTSUPP);
        }
    }
    let (device, access) = begin(pd, iova, length, access, Optional::Dropped)?;
    let page = page_size() as u64;
    if offset % page != iova % page {
        return Err(libc::EINVAL);
    }
    let writes = access & ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 != 0;
    let (mapping, memory) = map_dmabuf(fd, offset, length, writes)?;
    let registration = Registration {
        pd: *id,
        start: iova,
        length,
        memory,
        access,
        kind,
        mapping: Some(mapping),
    };
    finish(pd, device, std::ptr::null_mut(), registration)
}

/// What all kinds of registration check first.
fn begin(
    pd: *mut ibv_pd,
    start: u64,
    length: usize,
    access: u32,
    optional: Optional,
) -> Result<(DeviceId, u32), Errno> {
    let (shared, id) = object!(pd => SimPd { shared, id });
    let mut state = shared.lock();
    let device = state.device_of_pd(*id);
    state.admit_call(Verb::RegisterMemory, device)?;
    let relaxed = state.devices[device].spec.relaxed_ordering;
    let access = check_access(access, optional, relaxed)?;
    if length == 0 || start.checked_add(length as u64 - 1).is_none() {
        return Err(libc::EINVAL);
    }
    Ok((device, access))
}

fn finish(
    pd: *mut ibv_pd,
    device: DeviceId,
    address: *mut c_void,
    registration: Registration,
) -> Result<*mut ibv_mr, Errno> {
    let (shared,) = object!(pd => SimPd { shared });
    let length = registration.length;
    let (id, lkey, rkey) = shared.lock().register(registration)?;
    // SAFETY: the caller's handle. Its context does not change.
    let context = unsafe { (*pd).context };
    let mr = Box::new(SimMr {
        raw: ibv_mr {
            context,
            pd,
            addr: address,
            length,
            handle: id.index() as u32,
            lkey,
            rkey,
        },
        shared: Arc::clone(shared),
        id,
        device,
    });
    Ok(Box::into_raw(mr).cast())
}

pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    let (shared, id, device) = object!(mr => SimMr { shared, id, device });
    let (id, device) = (*id, *device);
    let deregister = || {
        let mut state = shared.lock();
        let is_removed = state.devices[device].is_removed;
        match state.admit_call(Verb::DeregisterMemory, device) {
            Err(errno) if !is_removed => return Err(errno),
            // The kernel has cleaned up after the device.
            _ => {}
        }
        if let Some(region) = state.devices[device].regions.get_mut(id) {
            region.revoke();
        }
        // The memory may be given back when this returns.
        let is_unused = |state: &State| state.devices[device].regions.pins(id) == 0;
        let mut state = shared.wait_until(state, is_unused);
        state.deregister(device, id);
        Ok(())
    };
    let result = deregister();
    if result.is_ok() {
        // SAFETY: the caller's handle, used for the last time.
        drop(unsafe { Box::from_raw(mr.cast::<SimMr>()) });
    }
    returned(result)
}
