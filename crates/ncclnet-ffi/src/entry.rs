//! The C functions whose signature is the same in several API versions, and the functions with which
//! the files of the versions turn C arguments into calls of [`plugin`](crate::plugin).
//!
//! Every function here and in `v8.rs` to `v12.rs` is called by NCCL through a table. Out-parameters
//! are written in every case: null, zero or "not done" first, the result when there is one.
//!
//! # Safety
//!
//! For all of them: a pointer that is not null points to what its type says, valid for as long as
//! NCCL's interface says (the call; for message memory until the request is done; for registered
//! memory until it is deregistered). Null is checked wherever it can be. Values that are handles of
//! this plugin may be anything at all: they are checked, not followed.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;

use ibnet::{Handle, MAX_GROUP};

use crate::abi::{CommConfig, DeviceHandle, HANDLE_MAX_SIZE, NcclResult};
use crate::fault::Fault;
use crate::guard::{guard, required};
use crate::handles::RequestToken;
use crate::plugin::data::{Buffer, Outcome, group_len};
use crate::plugin::device::{self, Properties};
use crate::plugin::{connect, data, lifecycle, memory};

const _: () = assert!(Handle::SIZE <= HANDLE_MAX_SIZE);

/// The network's name: what `NCCL_NET` selects by. None of NCCL's or RCCL's own networks has it.
pub(crate) const NAME: *const c_char = c"IBNET".as_ptr();

/// `devices`.
pub(crate) unsafe extern "C" fn devices(count: *mut c_int) -> NcclResult {
    guard("devices", || {
        let count = required(count, "ndev")?;
        // SAFETY: not null, and the caller's to write: see the module.
        unsafe { count.write(0) };
        let number = device::count()?;
        // SAFETY: as above.
        unsafe { count.write(number) };
        Ok(())
    })
}

/// `getProperties`, with the version's struct made by `convert`.
///
/// # Safety
/// `properties` is null or can be written.
pub(crate) unsafe fn get_properties<P>(
    index: c_int,
    properties: *mut P,
    convert: impl FnOnce(&Properties) -> P,
) -> NcclResult {
    guard("getProperties", || {
        let out = required(properties, "props")?;
        let properties = device::properties(index)?;
        // SAFETY: not null, and the caller's to write. The whole struct is written, so no field keeps
        // what was there.
        unsafe { out.write(convert(&properties)) };
        Ok(())
    })
}

/// `makeVDevice`, with the members that the version's struct holds.
///
/// # Safety
/// `index` is null or can be written.
pub(crate) unsafe fn make_vdevice<const LIMIT: usize>(
    index: *mut c_int,
    count: c_int,
    devices: &[c_int; LIMIT],
) -> Result<(), Fault> {
    let index = required(index, "d")?;
    let members = usize::try_from(count)
        .ok()
        .and_then(|count| devices.get(..count));
    let members = members.ok_or_else(|| {
        Fault::usage(format!(
            "a virtual device of {count} devices; 1 to {LIMIT} are possible"
        ))
    })?;
    let made = device::make_virtual(members, LIMIT)?;
    // SAFETY: not null, and the caller's to write.
    unsafe { index.write(made) };
    Ok(())
}

/// `listen` with a context that may be null.
///
/// # Safety
/// `handle` is null or has [`HANDLE_MAX_SIZE`] bytes; `communicator` is null or can be written.
pub(crate) unsafe fn listen(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    guard("listen", || {
        let out = Out::new(communicator, "listenComm")?;
        let handle = required(handle.cast::<[u8; HANDLE_MAX_SIZE]>(), "handle")?;
        let (listener, bytes) = connect::listen(context, device)?;
        // NCCL ships all of it to the peer, so the rest is zeros and not what was there.
        let mut whole = [0; HANDLE_MAX_SIZE];
        whole[..bytes.len()].copy_from_slice(&bytes);
        // SAFETY: not null, and as long as NCCL's handles are; bytes have no alignment.
        unsafe { handle.write(whole) };
        out.set(listener.to_pointer());
        Ok(())
    })
}

/// `connect` with a context and a configuration that may be null.
///
/// # Safety
/// `config` is null or can be read; `handle` is null or has [`HANDLE_MAX_SIZE`] bytes;
/// `communicator` and `device_handle` are null or can be written.
pub(crate) unsafe fn connect(
    context: *mut c_void,
    device: c_int,
    config: *const CommConfig,
    handle: *const c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    guard("connect", || {
        let out = Out::new(communicator, "sendComm")?;
        // SAFETY: as this function requires.
        unsafe { no_device_handle(device_handle) };
        let handle = required(handle.cast_mut().cast::<[u8; Handle::SIZE]>(), "handle")?;
        // SAFETY: not null, and NCCL's handles are longer than ours; bytes have no alignment.
        let handle = unsafe { handle.read() };
        // SAFETY: as this function requires.
        let traffic_class = unsafe { traffic_class(config) }?;
        if let Some(sender) = connect::connect(context, device, traffic_class, handle)? {
            out.set(sender.to_pointer());
        }
        Ok(())
    })
}

/// `accept`.
pub(crate) unsafe extern "C" fn accept(
    listener: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    guard("accept", || {
        let out = Out::new(communicator, "recvComm")?;
        // SAFETY: null or the caller's to write: see the module.
        unsafe { no_device_handle(device_handle) };
        if let Some(receiver) = connect::accept(listener)? {
            out.set(receiver.to_pointer());
        }
        Ok(())
    })
}

/// `regMr`.
pub(crate) unsafe extern "C" fn reg_mr(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    handle: *mut *mut c_void,
) -> NcclResult {
    guard("regMr", || {
        let out = Out::new(handle, "mhandle")?;
        // SAFETY: NCCL keeps the memory until it deregisters it or closes the communicator.
        let region = unsafe { memory::register(communicator, data, size, kind) }?;
        out.set(region.to_pointer());
        Ok(())
    })
}

/// `regMrDmaBuf`.
pub(crate) unsafe extern "C" fn reg_mr_dmabuf(
    communicator: *mut c_void,
    _data: *mut c_void,
    _size: usize,
    _kind: c_int,
    _offset: u64,
    _fd: c_int,
    handle: *mut *mut c_void,
) -> NcclResult {
    guard("regMrDmaBuf", || {
        let out = Out::new(handle, "mhandle")?;
        let region = memory::register_dmabuf(communicator)?;
        out.set(region.to_pointer());
        Ok(())
    })
}

/// `deregMr`.
pub(crate) unsafe extern "C" fn dereg_mr(
    communicator: *mut c_void,
    handle: *mut c_void,
) -> NcclResult {
    guard("deregMr", || memory::deregister(communicator, handle))
}

/// `isend` of API version 9; `isend_v10` of the later ones has the profiler's parent in addition.
pub(crate) unsafe extern "C" fn isend_v9(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    region: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("isend", || {
        let out = Out::new(request, "request")?;
        // SAFETY: NCCL keeps the memory until the request is done or the communicator closed.
        let sent = unsafe { data::isend(communicator, data, size, tag, region) }?;
        out.set_request(sent);
        Ok(())
    })
}

/// `isend` of API versions 10 to 12.
pub(crate) unsafe extern "C" fn isend_v10(
    communicator: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    region: *mut c_void,
    _profiler_parent: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the same contract.
    unsafe { isend_v9(communicator, data, size, tag, region, request) }
}

/// `irecv` of API version 9; `irecv_v10` of the later ones has the profiler's parents in addition.
pub(crate) unsafe extern "C" fn irecv_v9(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the same contract; every `usize` is one.
    unsafe { irecv(communicator, count, data, sizes, Ok, tags, regions, request) }
}

/// `irecv` of API versions 10 to 12.
pub(crate) unsafe extern "C" fn irecv_v10(
    communicator: *mut c_void,
    count: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    tags: *mut c_int,
    regions: *mut *mut c_void,
    _profiler_parents: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the same contract.
    unsafe { irecv_v9(communicator, count, data, sizes, tags, regions, request) }
}

/// `irecv` with the sizes of a version, each turned into bytes by `bytes`.
///
/// # Safety
/// Each array is null or has `count` elements; `request` is null or can be written.
#[allow(
    clippy::too_many_arguments,
    reason = "NCCL's signature and one conversion"
)]
pub(crate) unsafe fn irecv<S: Copy>(
    communicator: *mut c_void,
    count: c_int,
    data: *const *mut c_void,
    sizes: *const S,
    bytes: impl Fn(S) -> Result<usize, Fault>,
    tags: *const c_int,
    regions: *const *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("irecv", || {
        // What NCCL may have put there (a completion that is optional) is a wish that costs more to
        // honour than it saves here: the receiver posts nothing for a receive anyway.
        let out = Out::new(request, "request")?;
        let count = group_len(count)?;
        // SAFETY: arrays of `count` elements, as this function requires.
        let (data, sizes) = unsafe { (array(data, count, "data")?, array(sizes, count, "sizes")?) };
        // SAFETY: as above.
        let (tags, regions) = unsafe {
            (
                array(tags, count, "tags")?,
                array(regions, count, "mhandles")?,
            )
        };
        let nothing = Buffer {
            data: ptr::null_mut(),
            size: 0,
            tag: 0,
            region: ptr::null_mut(),
        };
        let mut group = [nothing; MAX_GROUP];
        for (index, buffer) in group[..count].iter_mut().enumerate() {
            *buffer = Buffer {
                data: data[index],
                size: bytes(sizes[index])?,
                tag: tags[index],
                region: regions[index],
            };
        }
        // SAFETY: NCCL keeps the memory until the request is done or the communicator closed.
        let received = unsafe { data::irecv(communicator, &group[..count]) }?;
        out.set_request(received);
        Ok(())
    })
}

/// `iflush`.
pub(crate) unsafe extern "C" fn iflush(
    communicator: *mut c_void,
    count: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _regions: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guard("iflush", || {
        // Stays null: there is nothing to wait for.
        let _out = Out::new(request, "request")?;
        data::iflush(communicator, count)
    })
}

/// `test`.
pub(crate) unsafe extern "C" fn test(
    request: *mut c_void,
    done: *mut c_int,
    sizes: *mut c_int,
) -> NcclResult {
    guard("test", || {
        let done = required(done, "done")?;
        // SAFETY: not null, and the caller's to write: see the module.
        unsafe { done.write(0) };
        match data::test(request)? {
            Outcome::Pending => return Ok(()),
            Outcome::Sent(size) => {
                if let Some(sizes) = NonNull::new(sizes) {
                    // SAFETY: not null, so there is room for one.
                    unsafe { sizes.write(size) };
                }
            }
            Outcome::Received(received) => {
                if let Some(sizes) = NonNull::new(sizes) {
                    for (index, size) in received.sizes().iter().enumerate() {
                        let size = data::size_for_c(*size as usize)?;
                        // SAFETY: not null, so there is room for as many as the receive had buffers,
                        // which is how many sizes there are: one for each, and no more.
                        unsafe { sizes.add(index).write(size) };
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe { done.write(1) };
        Ok(())
    })
}

/// `closeSend`.
pub(crate) unsafe extern "C" fn close_send(communicator: *mut c_void) -> NcclResult {
    guard("closeSend", || connect::close_sender(communicator))
}

/// `closeRecv`.
pub(crate) unsafe extern "C" fn close_recv(communicator: *mut c_void) -> NcclResult {
    guard("closeRecv", || connect::close_receiver(communicator))
}

/// `closeListen`.
pub(crate) unsafe extern "C" fn close_listen(communicator: *mut c_void) -> NcclResult {
    guard("closeListen", || connect::close_listener(communicator))
}

/// The traffic class that a configuration asks for, if there is one.
///
/// # Safety
/// `config` is null or can be read.
pub(crate) unsafe fn traffic_class(config: *const CommConfig) -> Result<Option<u8>, Fault> {
    // SAFETY: as this function requires.
    match unsafe { config.as_ref() } {
        Some(config) => lifecycle::traffic_class(config.traffic_class),
        None => Ok(None),
    }
}

/// An out-parameter for a handle: null from the start, and until there is one.
pub(crate) struct Out(NonNull<*mut c_void>);

impl Out {
    /// Writes null to `pointer`, which must not be null itself but can be written.
    pub(crate) fn new(pointer: *mut *mut c_void, name: &'static str) -> Result<Self, Fault> {
        let out = Self(required(pointer, name)?);
        out.set(ptr::null_mut());
        Ok(out)
    }

    pub(crate) fn set(&self, value: *mut c_void) {
        // SAFETY: not null, and the caller of the entry point lets it be written: see the module.
        unsafe { self.0.write(value) };
    }

    fn set_request(&self, request: Option<RequestToken>) {
        if let Some(request) = request {
            self.set(request.to_pointer());
        }
    }
}

/// There is no device handle: the host drives the network.
///
/// # Safety
/// `device_handle` is null or can be written.
unsafe fn no_device_handle(device_handle: *mut *mut DeviceHandle) {
    if let Some(device_handle) = NonNull::new(device_handle) {
        // SAFETY: not null, and writable as this function requires.
        unsafe { device_handle.write(ptr::null_mut()) };
    }
}

/// An array from C.
///
/// # Safety
/// `pointer` is null or has `count` elements that nobody changes during the call.
unsafe fn array<'a, T>(
    pointer: *const T,
    count: usize,
    name: &'static str,
) -> Result<&'a [T], Fault> {
    let pointer = required(pointer.cast_mut(), name)?;
    // SAFETY: not null, and the rest as this function requires.
    Ok(unsafe { slice::from_raw_parts(pointer.as_ptr(), count) })
}
