//! Listening, connecting, accepting and closing.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ibnet::Handle;

use super::lifecycle;
use super::listening::{Listening, PAUSE};
use super::objects::{Communicator, LISTENERS, Listener, RECEIVERS, REGIONS, SENDERS};
use super::pending::{self, Key};
use crate::fault::Fault;
use crate::handles::{Kind, ObjectId};
use crate::profiler;

/// When a listener accepts: see [`listening`](super::listening).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepting {
    /// In [`accept`].
    WhenAsked,
    /// At any time, for [`connect_waiting`] and [`accept_waiting`].
    ByItself,
}

/// `listen` on a device: the communicator, and the handle for the peer.
///
/// `context` is null or what `init` gave.
pub(crate) fn listen(
    context: *mut c_void,
    device: c_int,
    accepting: Accepting,
) -> Result<(ObjectId, [u8; Handle::SIZE]), Fault> {
    let (_, context) = lifecycle::context(context)?;
    let properties = context.devices.get(device)?;
    let listener = context.devices.transport().listen(properties.device)?;
    let handle = listener.handle().to_bytes();
    let listening = match accepting {
        Accepting::WhenAsked => Listening::when_asked(listener),
        Accepting::ByItself => Listening::by_itself(listener)?,
    };
    let listener = Listener {
        listening: Mutex::new(listening),
        device: properties,
    };
    Ok((LISTENERS.insert(listener)?, handle))
}

/// `connect` from a device to the listener of a handle. None: not yet.
///
/// `traffic_class` is the wish that comes with the call (API version 10); the context may have one.
pub(crate) fn connect(
    context: *mut c_void,
    device: c_int,
    traffic_class: Option<u8>,
    handle: [u8; Handle::SIZE],
) -> Result<Option<ObjectId>, Fault> {
    let (id, context) = lifecycle::context(context)?;
    let properties = context.devices.get(device)?;
    let traffic_class = traffic_class.or(context.traffic_class);
    let key = Key {
        context: id,
        device: properties.device,
        traffic_class,
        handle,
    };
    let Some(mut connection) = pending::poll(&key, context.devices.transport())? else {
        return Ok(None);
    };
    if let Some(observer) = profiler::observer(properties.members()) {
        connection.observe(observer);
    }
    let registrar = connection.registrar();
    let communicator = Communicator::new(connection, registrar);
    Ok(Some(SENDERS.insert(communicator)?))
}

/// `accept` on a listening communicator. None: not yet.
pub(crate) fn accept(listener: *mut c_void) -> Result<Option<ObjectId>, Fault> {
    let listener = ObjectId::from_pointer(listener, Kind::Listener)?;
    // SAFETY: NCCL closes a listener when no call uses it.
    let listener = unsafe { LISTENERS.get(listener) }?;
    let accepted = {
        let listening = listener.listening.lock();
        listening
            .unwrap_or_else(PoisonError::into_inner)
            .poll_accept()?
    };
    let Some(mut connection) = accepted else {
        return Ok(None);
    };
    if let Some(observer) = profiler::observer(listener.device.members()) {
        connection.observe(observer);
    }
    let registrar = connection.registrar();
    let communicator = Communicator::new(connection, registrar);
    Ok(Some(RECEIVERS.insert(communicator)?))
}

/// `connect` of API versions 2 to 4: waits until the connection stands.
pub(crate) fn connect_waiting(
    context: *mut c_void,
    device: c_int,
    traffic_class: Option<u8>,
    handle: [u8; Handle::SIZE],
) -> Result<Option<ObjectId>, Fault> {
    loop {
        match connect(context, device, traffic_class, handle)? {
            Some(sender) => return Ok(Some(sender)),
            None => thread::sleep(PAUSE),
        }
    }
}

/// `accept` of API versions 2 to 4: waits until there is a connection. Another thread may close the
/// listener meanwhile.
pub(crate) fn accept_waiting(listener: *mut c_void) -> Result<Option<ObjectId>, Fault> {
    loop {
        if let Some(receiver) = accept(listener)? {
            return Ok(Some(receiver));
        }
        thread::sleep(PAUSE);
    }
}

/// `closeListen`. Null is nothing to do.
pub(crate) fn close_listener(listener: *mut c_void) -> Result<(), Fault> {
    if listener.is_null() {
        return Ok(());
    }
    let id = ObjectId::from_pointer(listener, Kind::Listener)?;
    drop(LISTENERS.take(id)?);
    Ok(())
}

/// `closeSend`. Null is nothing to do.
pub(crate) fn close_sender(sender: *mut c_void) -> Result<(), Fault> {
    if sender.is_null() {
        return Ok(());
    }
    let id = ObjectId::from_pointer(sender, Kind::Sender)?;
    let (connection, regions) = SENDERS.take(id)?.into_parts();
    let closed = connection.close();
    release(regions);
    Ok(closed?)
}

/// `closeRecv`. Null is nothing to do.
pub(crate) fn close_receiver(receiver: *mut c_void) -> Result<(), Fault> {
    if receiver.is_null() {
        return Ok(());
    }
    let id = ObjectId::from_pointer(receiver, Kind::Receiver)?;
    let (connection, regions) = RECEIVERS.take(id)?.into_parts();
    let closed = connection.close();
    release(regions);
    Ok(closed?)
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
