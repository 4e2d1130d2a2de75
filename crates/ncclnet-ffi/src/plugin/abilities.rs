//! What the transport can do of what NCCL may ask for: the one place that turns a wish of the interface
//! into a call of `ibnet`, or into a refusal that says so.
//!
//! Everything else in the plugin is written for the whole interface: kinds of memory, flushing, virtual
//! devices, rails, profiling. A wish that the transport learns to grant changes here, and nowhere else
//! but in what `docs/plugin.md` says of it.

use std::ffi::c_int;

use ibnet::{DeviceInfo, RecvBuffer, RecvConnection, Region, Registrar, RequestId, SendConnection};
use ibnet::{Error, Transport};

use crate::abi::{NET_ID_UNDEFINED, PTR_CUDA, PTR_HOST};
use crate::fault::Fault;
use crate::profiler::Parent;

/// Which memory can be registered on a device: `PTR_*` bits. NCCL stages what it cannot.
pub(super) fn pointer_support(_: &DeviceInfo) -> c_int {
    PTR_HOST
}

/// Whether every receive into GPU memory must be flushed, whatever the GPU.
pub(super) fn force_flush(_: &DeviceInfo) -> bool {
    false
}

/// Whether registering part of what is registered is nearly free: only registrations of the very same
/// pages are shared.
pub(super) fn registration_is_global() -> bool {
    false
}

/// Rail and plane of a device.
pub(super) fn rail_and_plane(_: &DeviceInfo) -> (i16, i16) {
    (NET_ID_UNDEFINED, NET_ID_UNDEFINED)
}

/// The physical devices that device `index` is made of: a physical one of itself.
pub(super) fn members(_: &DeviceInfo, index: usize) -> Vec<usize> {
    vec![index]
}

/// Makes one device of several, distinct ones, two at least: its index.
pub(super) fn merge(_: &Transport, members: &[usize]) -> Result<usize, Fault> {
    Err(Fault::usage(format!(
        "a virtual device of {} devices is not offered by this release: each is used by itself",
        members.len()
    )))
}

/// Has an `init` of API version 9 or 10 that finds the transport open show the physical devices only.
/// NCCL has unloaded and loaded the plugin in between, and counts them anew.
pub(super) fn forget_virtual_devices(_: &Transport) {
    // There are none.
}

/// Registers memory of a kind, `PTR_HOST` or `PTR_CUDA`.
///
/// # Safety
/// The memory must stay mapped for as long as the region lives.
pub(super) unsafe fn register(
    registrar: &Registrar,
    data: *mut u8,
    size: usize,
    kind: c_int,
) -> Result<Region, Fault> {
    if kind == PTR_CUDA {
        return Err(Fault::usage(
            "GPU memory is not offered by this release; its devices advertise host memory",
        ));
    }
    // SAFETY: handed on to the caller.
    Ok(unsafe { registrar.register(data, size) }?)
}

/// Registers memory of a DMA-BUF. NCCL does not ask for it unless `PTR_DMABUF` is advertised.
///
/// # Safety
/// The memory must stay what it is for as long as the region lives.
pub(super) unsafe fn register_dmabuf(
    _: &Registrar,
    _data: *mut u8,
    _size: usize,
    _offset: u64,
    _fd: c_int,
) -> Result<Region, Fault> {
    Err(Fault::usage(
        "DMA-BUF memory is not offered by this release; its devices advertise host memory",
    ))
}

/// Starts a send; its work requests are events of `parent`, once the transport announces them.
///
/// # Safety
/// That of [`SendConnection::isend`].
pub(super) unsafe fn isend(
    connection: &mut SendConnection,
    data: *const u8,
    size: usize,
    tag: c_int,
    region: Option<&Region>,
    _: Option<Parent>,
) -> Result<Option<RequestId>, Error> {
    // SAFETY: handed on to the caller.
    unsafe { connection.isend(data, size, tag, region) }
}

/// Starts a grouped receive; its work requests are events of the parents, one for each buffer, once the
/// transport announces them.
///
/// # Safety
/// That of [`RecvConnection::irecv`].
pub(super) unsafe fn irecv(
    connection: &mut RecvConnection,
    buffers: &[RecvBuffer<'_>],
    _: impl Iterator<Item = Option<Parent>>,
) -> Result<Option<RequestId>, Error> {
    // SAFETY: handed on to the caller.
    unsafe { connection.irecv(buffers) }
}

/// A buffer that was received into: where, bytes, registration.
pub(super) type Flushed<'a> = (*mut u8, usize, Option<&'a Region>);

/// Makes what was received visible to whoever owns the memory. None: it is already. What arrived in host
/// memory is visible when its request is done.
pub(super) fn iflush(
    _: &mut RecvConnection,
    _: &[Flushed<'_>],
) -> Result<Option<RequestId>, Error> {
    Ok(None)
}
