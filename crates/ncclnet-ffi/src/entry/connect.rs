//! `listen`, `connect`, `accept`, `closeSend`, `closeRecv`, `closeListen`.

use ibnet::Wait;
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError};

use ibnet::Handle;

use super::{Out, init};
use crate::abi::{CommConfig, DeviceHandle, HANDLE_MAX_SIZE, HANDLE_MAX_SIZE_V2, NcclResult};
use crate::fault::Fault;
use crate::guard::{guard, required};
use crate::handles::{Kind, ObjectId};
use crate::plugin::lifecycle;
use crate::plugin::objects::{
    Communicator, LISTENERS, Listener, Listening, RECEIVERS, REGIONS, SENDERS,
};
use crate::plugin::pending::{self, Key};
use crate::profiler;

// The handle fits those of every version.
const _: () = assert!(Handle::SIZE <= HANDLE_MAX_SIZE_V2);

/// `listen` of API versions 5 to 10.
pub(crate) unsafe extern "C" fn listen_v5(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    let context = ptr::null_mut();
    let begin = Listening::when_asked;
    // SAFETY: the contract of `listen`.
    unsafe { listen::<HANDLE_MAX_SIZE>(context, device, handle, communicator, begin) }
}

/// `listen` of API versions 11 and 12.
pub(crate) unsafe extern "C" fn listen_v11(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    let begin = Listening::when_asked;
    // SAFETY: the contract of `listen`.
    unsafe { listen::<HANDLE_MAX_SIZE>(context, device, handle, communicator, begin) }
}

/// `listen` with a context that may be null; `begin` says when it accepts.
///
/// # Safety
/// `handle` is null or has `SIZE` bytes; `communicator` is null or can be written.
pub(crate) unsafe fn listen<const SIZE: usize>(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    begin: fn(ibnet::Listener) -> Result<Listening, Fault>,
) -> NcclResult {
    guard("listen", || {
        let out = Out::new(communicator, "listenComm")?;
        let handle = required(handle.cast::<[u8; SIZE]>(), "handle")?;
        let (_, context) = lifecycle::context(context)?;
        let device = context.devices.get(device)?;
        let listener = context.devices.transport().listen(device.device)?;
        let bytes = listener.handle().to_bytes();
        let listening = begin(listener)?;
        let listener = LISTENERS.insert(Listener { listening, device })?;
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
    let context = ptr::null_mut();
    // SAFETY: the contract of `connect`.
    unsafe { connect_v11(context, device, handle, communicator, device_handle) }
}

/// `connect` of API versions 11 and 12: the traffic class is the context's.
pub(crate) unsafe extern "C" fn connect_v11(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    let (config, until) = (ptr::null(), Until::NotYet);
    // SAFETY: the contract of `connect`.
    unsafe {
        connect(
            context,
            device,
            config,
            handle,
            communicator,
            device_handle,
            until,
        )
    }
}

/// When `connect` returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// At once: null is "not yet", and NCCL asks again.
    NotYet,
    /// When the connection stands, as API versions 2 to 4 have it.
    Connected,
}

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
    until: Until,
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
        let (id, context) = lifecycle::context(context)?;
        let device = context.devices.get(device)?;
        let key = Key {
            context: id,
            device: device.device,
            // That of the call (API version 10), else the context's.
            traffic_class: traffic_class.or(context.traffic_class),
            handle,
        };
        let transport = context.devices.transport();
        let connection = match until {
            Until::NotYet => pending::poll(&key, transport)?,
            Until::Connected => Some(pending::begin(&key, transport)?.wait()?),
        };
        let Some(mut connection) = connection.map(ibnet::SendConnection::into_raw) else {
            return Ok(());
        };
        if let Some(observer) = profiler::observer(device.members()) {
            connection.observe(observer);
        }
        let registrar = connection.registrar();
        let sender = SENDERS.insert(Communicator::new(connection, registrar))?;
        out.set(sender.to_pointer());
        Ok(())
    })
}

/// `accept` of API version 7 and later, and without a device handle of all others.
pub(crate) unsafe extern "C" fn accept_v7(
    listener: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    guard("accept", || {
        let out = Out::new(communicator, "recvComm")?;
        // SAFETY: see the module.
        unsafe { no_device_handle(device_handle) };
        let id = ObjectId::from_pointer(listener, Kind::Listener)?;
        // SAFETY: NCCL closes a listener when no call uses it; while `wait` waits, nothing of it is borrowed.
        let listener = unsafe { LISTENERS.get(id) }?;
        let device = Arc::clone(&listener.device);
        let accepted = match &listener.listening {
            Listening::WhenAsked(listener) => {
                let mut listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
                listener.accept().try_now()?
            }
            Listening::ByItself(accepted) => Some(Arc::clone(accepted).wait()?),
        };
        let Some(mut connection) = accepted.map(ibnet::RecvConnection::into_raw) else {
            return Ok(());
        };
        if let Some(observer) = profiler::observer(device.members()) {
            connection.observe(observer);
        }
        let registrar = connection.registrar();
        let receiver = RECEIVERS.insert(Communicator::new(connection, registrar))?;
        out.set(receiver.to_pointer());
        Ok(())
    })
}

/// `closeSend`. Null is nothing to do.
pub(crate) unsafe extern "C" fn close_send(communicator: *mut c_void) -> NcclResult {
    guard("closeSend", || {
        if communicator.is_null() {
            return Ok(());
        }
        let id = ObjectId::from_pointer(communicator, Kind::Sender)?;
        let (connection, regions) = SENDERS.take(id)?.into_parts();
        let closed = connection.close();
        release(regions);
        Ok(closed?)
    })
}

/// `closeRecv`. Null is nothing to do.
pub(crate) unsafe extern "C" fn close_recv(communicator: *mut c_void) -> NcclResult {
    guard("closeRecv", || {
        if communicator.is_null() {
            return Ok(());
        }
        let id = ObjectId::from_pointer(communicator, Kind::Receiver)?;
        let (connection, regions) = RECEIVERS.take(id)?.into_parts();
        let closed = connection.close();
        release(regions);
        Ok(closed?)
    })
}

/// `closeListen`. Null is nothing to do.
pub(crate) unsafe extern "C" fn close_listen(communicator: *mut c_void) -> NcclResult {
    guard("closeListen", || {
        if communicator.is_null() {
            return Ok(());
        }
        drop(LISTENERS.take(ObjectId::from_pointer(communicator, Kind::Listener)?)?);
        Ok(())
    })
}

/// Drops the registrations of a closed communicator that were not deregistered. After the connection,
/// so that no work request uses them any more.
fn release(regions: HashSet<ObjectId>) {
    if regions.is_empty() {
        return;
    }
    tracing::info!(
        "closed with {} memory registrations left; they are released",
        regions.len()
    );
    for region in regions {
        drop(REGIONS.take(region));
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
