//! `listen`, `connect`, `accept`, `closeSend`, `closeRecv`, `closeListen`.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use ibnet::{Error, RecvConnection, SendConnection, Wait};

use crate::abi::{CommConfig, DeviceHandle, HANDLE_MAX_SIZE, HANDLE_MAX_SIZE_V2, NcclResult};
use crate::accepting::Accepting;
use crate::attempts::Attempt;
use crate::device::Device;
use crate::fault::Fault;
use crate::guard::{Out, guard, required};
use crate::handles::{Handle, Kind};
use crate::lifecycle;
use crate::objects::{Communicator, LISTENERS, Listener, Listening, RECEIVERS, REGIONS, SENDERS};
use crate::profiler;

/// Bytes of the transport's handle, which fit into those of every version.
const HANDLE_SIZE: usize = ibnet::Handle::SIZE;
const _: () = assert!(HANDLE_SIZE <= HANDLE_MAX_SIZE_V2);

/// `listen` of API versions 2 to 10. In 2 to 4, connecting `WAITS`: handles are shorter, and such a listener
/// accepts by itself.
pub(crate) unsafe extern "C" fn listen_v2<const WAITS: bool>(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    let context = ptr::null_mut();
    // SAFETY: the contract of `listen`.
    unsafe {
        if WAITS {
            let handle = handle.cast::<[u8; HANDLE_MAX_SIZE_V2]>();
            let begin = |listener| Ok(Listening::ByItself(Accepting::by_itself(listener)?));
            listen(context, device, handle, communicator, begin)
        } else {
            listen_v11(context, device, handle, communicator)
        }
    }
}

/// `listen` of API versions 11 and 12.
pub(crate) unsafe extern "C" fn listen_v11(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    let handle = handle.cast::<[u8; HANDLE_MAX_SIZE]>();
    let begin = |listener| Ok(Listening::WhenAsked(Box::new(Mutex::new(listener))));
    // SAFETY: the contract of `listen`.
    unsafe { listen(context, device, handle, communicator, begin) }
}

/// `listen` with a context that may be null; `begin` says when it accepts.
///
/// # Safety
/// That of a C function: see `guard`.
unsafe fn listen<const SIZE: usize>(
    context: *mut c_void,
    device: c_int,
    handle: *mut [u8; SIZE],
    communicator: *mut *mut c_void,
    begin: impl FnOnce(ibnet::Listener) -> Result<Listening, Fault>,
) -> NcclResult {
    guard("listen", || {
        let out = Out::handle(communicator, "listenComm")?;
        let handle = required(handle, "handle")?;
        let (_, context) = lifecycle::context(context)?;
        let device = context.devices.get(device)?;
        let listener = context.devices.transport().listen(device.index)?;
        // NCCL ships all of it to the peer, so the rest is zeros and not what was there.
        let mut whole = [0; SIZE];
        whole[..HANDLE_SIZE].copy_from_slice(&listener.handle().to_bytes());
        let listening = begin(listener)?;
        let listener = LISTENERS.insert(Listener { listening, device })?;
        // SAFETY: not null, and as long as NCCL's handles are; bytes have no alignment.
        unsafe { handle.write(whole) };
        out.set(listener.to_pointer());
        Ok(())
    })
}

/// `connect` of API versions 2 to 6. In 2 to 4 it `WAITS` until the connection stands.
pub(crate) unsafe extern "C" fn connect_v2<const WAITS: bool>(
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    let context = ptr::null_mut();
    // SAFETY: the contract of `connect`; there is no configuration.
    unsafe { connect(context, device, ptr::null(), handle, communicator, WAITS) }
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

/// `connect` of API version 10.
pub(crate) unsafe extern "C" fn connect_v10(
    device: c_int,
    config: *mut CommConfig,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    let context = ptr::null_mut();
    no_device_handle(device_handle);
    // SAFETY: the contract of `connect`.
    unsafe { connect(context, device, config, handle, communicator, false) }
}

/// `connect` of API versions 11 and 12: the traffic class is the context's.
pub(crate) unsafe extern "C" fn connect_v11(
    context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    communicator: *mut *mut c_void,
    device_handle: *mut *mut DeviceHandle,
) -> NcclResult {
    no_device_handle(device_handle);
    // SAFETY: the contract of `connect`; there is no configuration.
    unsafe { connect(context, device, ptr::null(), handle, communicator, false) }
}

/// `connect` with a context and a configuration that may be null. Unless it `waits`, it returns at once: null is
/// "not yet", and NCCL asks again.
///
/// # Safety
/// That of a C function: see `guard`.
unsafe fn connect(
    context: *mut c_void,
    device: c_int,
    config: *const CommConfig,
    handle: *const c_void,
    communicator: *mut *mut c_void,
    waits: bool,
) -> NcclResult {
    guard("connect", || {
        let out = Out::handle(communicator, "sendComm")?;
        let handle = required(handle.cast_mut().cast::<[u8; HANDLE_SIZE]>(), "handle")?;
        // SAFETY: not null, and NCCL's handles are at least as long as ours; bytes have no alignment.
        let handle = unsafe { handle.read() };
        // SAFETY: as this function requires.
        let traffic_class = unsafe { lifecycle::traffic_class(config) };
        let (asker, context) = lifecycle::context(context)?;
        let device = context.devices.get(device)?;
        let attempt = Attempt {
            context: asker,
            device: device.index,
            // That of the call (API version 10), else the context's.
            traffic_class: traffic_class.or(context.traffic_class),
            handle,
        };
        let transport = context.devices.transport();
        let connection = if waits {
            Some(attempt.begin(transport)?.wait()?)
        } else {
            attempt.poll(transport)?
        };
        if let Some(connection) = connection {
            out.set(sender(connection, &device)?.to_pointer());
        }
        Ok(())
    })
}

fn sender(connection: SendConnection, device: &Device) -> Result<Handle, Fault> {
    let mut connection = connection.into_raw();
    if let Some(observer) = profiler::observer(device.members()) {
        connection.observe(observer);
    }
    let registrar = connection.registrar();
    SENDERS.insert(Communicator::new(connection, registrar))
}

fn receiver(connection: RecvConnection, device: &Device) -> Result<Handle, Fault> {
    let mut connection = connection.into_raw();
    if let Some(observer) = profiler::observer(device.members()) {
        connection.observe(observer);
    }
    let registrar = connection.registrar();
    RECEIVERS.insert(Communicator::new(connection, registrar))
}

/// `accept` of API versions 2 to 6. In 2 to 4 it waits, because of how such a listener accepts.
pub(crate) unsafe extern "C" fn accept_v2(
    listener: *mut c_void,
    communicator: *mut *mut c_void,
) -> NcclResult {
    guard("accept", || {
        let out = Out::handle(communicator, "recvComm")?;
        // SAFETY: NCCL closes a listener when no call uses it.
        let listener = unsafe { LISTENERS.get(Handle::of(Kind::Listener, listener)?) }?;
        let accepted = match &listener.listening {
            Listening::WhenAsked(listener) => {
                let mut listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
                listener.accept().try_now()?
            }
            Listening::ByItself(accepting) => Some(accepting.wait()?),
        };
        if let Some(connection) = accepted {
            out.set(receiver(connection, &listener.device)?.to_pointer());
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
    no_device_handle(device_handle);
    // SAFETY: the contract of `accept`.
    unsafe { accept_v2(listener, communicator) }
}

/// There is no device handle: the host drives the network.
fn no_device_handle(device_handle: *mut *mut DeviceHandle) {
    if !device_handle.is_null() {
        // SAFETY: not null, and the caller's to write: see `guard`.
        unsafe { device_handle.write(ptr::null_mut()) };
    }
}

/// `closeSend`. Null is nothing to do.
pub(crate) unsafe extern "C" fn close_send(communicator: *mut c_void) -> NcclResult {
    close("closeSend", communicator, Kind::Sender, |handle| {
        let (connection, regions) = SENDERS.take(handle)?.into_parts();
        Ok(release(connection.close(), regions)?)
    })
}

/// `closeRecv`. Null is nothing to do.
pub(crate) unsafe extern "C" fn close_recv(communicator: *mut c_void) -> NcclResult {
    close("closeRecv", communicator, Kind::Receiver, |handle| {
        let (connection, regions) = RECEIVERS.take(handle)?.into_parts();
        Ok(release(connection.close(), regions)?)
    })
}

/// `closeListen`. Null is nothing to do.
pub(crate) unsafe extern "C" fn close_listen(communicator: *mut c_void) -> NcclResult {
    close("closeListen", communicator, Kind::Listener, |handle| {
        drop(LISTENERS.take(handle)?);
        Ok(())
    })
}

fn close(
    entry: &'static str,
    communicator: *mut c_void,
    kind: Kind,
    take: impl FnOnce(Handle) -> Result<(), Fault>,
) -> NcclResult {
    guard(entry, || {
        if communicator.is_null() {
            return Ok(());
        }
        take(Handle::of(kind, communicator)?)
    })
}

/// Drops the registrations of a closed communicator that were not deregistered. After the connection,
/// so that no work request uses them any more.
fn release(closed: Result<(), Error>, regions: HashSet<Handle>) -> Result<(), Error> {
    if !regions.is_empty() {
        tracing::info!(
            "closed with {} memory registrations left; they are released",
            regions.len()
        );
    }
    for region in regions {
        drop(REGIONS.take(region));
    }
    closed
}
