//! `listen`, `connect`, `accept`, `closeSend`, `closeRecv`, `closeListen`.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use ibnet::Handle;

use super::{Out, init};
use crate::abi::{CommConfig, DeviceHandle, HANDLE_MAX_SIZE, HANDLE_MAX_SIZE_V2, NcclResult};
use crate::fault::Fault;
use crate::guard::{guard, required};
use crate::handles::ObjectId;
use crate::plugin::connect::{self, Accepting};

// The handle fits those of every version.
const _: () = assert!(Handle::SIZE <= HANDLE_MAX_SIZE_V2);

/// `listen` of API versions 5 to 10.
pub(crate) unsafe extern "C" fn listen_v5(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `listen`.
    unsafe {
        listen::<HANDLE_MAX_SIZE>(
            ptr::null_mut(),
            device,
            handle,
            communicator,
            Accepting::WhenAsked,
        )
    }
}

/// `listen` of API versions 11 and 12.
pub(crate) unsafe extern "C" fn listen_v11(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: the contract of `listen`.
    unsafe {
        listen::<HANDLE_MAX_SIZE>(context, device, handle, communicator, Accepting::WhenAsked)
    }
}

/// `listen` with a context that may be null.
///
/// # Safety
/// `handle` is null or has `SIZE` bytes; `communicator` is null or can be written.
pub(crate) unsafe fn listen<const SIZE: usize>(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    accepting: Accepting,
) -> NcclResult {
    guard("listen", || {
        let out = Out::new(communicator, "listenComm")?;
        let handle = required(handle.cast::<[u8; SIZE]>(), "handle")?;
        let (listener, bytes) = connect::listen(context, device, accepting)?;
        // NCCL ships all of it to the peer, so the rest is zeros and not what was there.
        let mut whole = [0; SIZE];
        whole[..bytes.len()].copy_from_slice(&bytes);
        // SAFETY: not null, and as long as NCCL's handles are; bytes have no alignment.
        unsafe { handle.write(whole) };
        out.set(listener.to_pointer());
        Ok(())
    })
}

/// `connect` of API versions 7 to 9.
pub(crate) unsafe extern "C" fn connect_v7(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    let (context, config) = (ptr::null_mut(), ptr::null());
    // SAFETY: the contract of `connect`.
    unsafe {
        connect(
            context,
            device,
            config,
            handle,
            communicator,
            device_handle,
            connect::connect,
        )
    }
}

/// `connect` of API versions 11 and 12: the traffic class is the context's.
pub(crate) unsafe extern "C" fn connect_v11(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    let config = ptr::null();
    // SAFETY: the contract of `connect`.
    unsafe {
        connect(
            context,
            device,
            config,
            handle,
            communicator,
            device_handle,
            connect::connect,
        )
    }
}

/// How a connection is made: context, device, wish for a traffic class, handle; none is "not yet".
pub(crate) type Connect =
    fn(*mut c_void, c_int, Option<u8>, [u8; Handle::SIZE]) -> Result<Option<ObjectId>, Fault>;

/// `connect` with a context and a configuration that may be null.
///
/// # Safety
/// `config` is null or can be read; `handle` is null or has at least [`Handle::SIZE`] bytes;
/// `communicator` and `device_handle` are null or can be written.
pub(crate) unsafe fn connect(
    context: *mut c_void,
    device: c_int,
    config: *const CommConfig,
    handle: *const c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
    how: Connect,
) -> NcclResult {
    guard("connect", || {
        let out = Out::new(communicator, "sendComm")?;
        // SAFETY: as this function requires.
        unsafe { no_device_handle(device_handle) };
        let handle = required(handle.cast_mut().cast::<[u8; Handle::SIZE]>(), "handle")?;
        // SAFETY: not null, and NCCL's handles are at least as long as ours; bytes have no alignment.
        let handle = unsafe { handle.read() };
        // SAFETY: as this function requires.
        let traffic_class = unsafe { init::traffic_class(config) };
        if let Some(sender) = how(context, device, traffic_class, handle)? {
            out.set(sender.to_pointer());
        }
        Ok(())
    })
}

/// `accept` of API version 7 and later.
pub(crate) unsafe extern "C" fn accept_v7(
    listener: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    // SAFETY: the contract of `accept`.
    unsafe { accept(listener, communicator, device_handle, connect::accept) }
}

/// `accept`, by `how` connections are waited for.
///
/// # Safety
/// `communicator` and `device_handle` are null or can be written.
pub(crate) unsafe fn accept(
    listener: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
    how: fn(*mut c_void) -> Result<Option<ObjectId>, Fault>,
) -> NcclResult {
    guard("accept", || {
        let out = Out::new(communicator, "recvComm")?;
        // SAFETY: as this function requires.
        unsafe { no_device_handle(device_handle) };
        if let Some(receiver) = how(listener)? {
            out.set(receiver.to_pointer());
        }
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
