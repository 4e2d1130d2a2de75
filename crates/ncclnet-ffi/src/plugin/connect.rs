//! Listening, connecting, accepting and closing.

use std::ffi::{c_int, c_void};

use ibnet::Handle;

use super::objects::{LISTENERS, Memory, RECEIVERS, REGIONS, SENDERS};
use super::pending::{self, Key};
use super::{device, lifecycle};
use crate::fault::Fault;
use crate::handles::{Kind, ObjectId};

/// `listen` on a device: the communicator, and the handle for the peer.
///
/// `context` is null or what `init` gave.
pub(crate) fn listen(
    context: *mut c_void,
    device: c_int,
) -> Result<(ObjectId, [u8; Handle::SIZE]), Fault> {
    let (_, context) = lifecycle::context(context)?;
    let device = device::check_index(device, device::visible(&context.transport).len())?;
    let listener = context.transport.listen(device)?;
    let handle = listener.handle().to_bytes();
    Ok((LISTENERS.insert(listener, ())?, handle))
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
    let device = device::check_index(device, device::visible(&context.transport).len())?;
    let traffic_class = traffic_class.or(context.traffic_class);
    let key = Key {
        context: id,
        device,
        traffic_class,
        handle,
    };
    let Some(connection) = pending::poll(&key, &context.transport)? else {
        return Ok(None);
    };
    let memory = Memory::new(connection.registrar());
    Ok(Some(SENDERS.insert(connection, memory)?))
}

/// `accept` on a listening communicator. None: not yet.
pub(crate) fn accept(listener: *mut c_void) -> Result<Option<ObjectId>, Fault> {
    let listener = ObjectId::from_pointer(listener, Kind::Listener)?;
    let Some(connection) = LISTENERS.enter(listener)?.poll_accept()? else {
        return Ok(None);
    };
    let memory = Memory::new(connection.registrar());
    Ok(Some(RECEIVERS.insert(connection, memory)?))
}

/// `closeListen`. Null is nothing to do.
pub(crate) fn close_listener(listener: *mut c_void) -> Result<(), Fault> {
    if listener.is_null() {
        return Ok(());
    }
    let id = ObjectId::from_pointer(listener, Kind::Listener)?;
    Ok(LISTENERS.close(id, |listener, ()| drop(listener))?)
}

/// `closeSend`. Null is nothing to do.
pub(crate) fn close_sender(sender: *mut c_void) -> Result<(), Fault> {
    if sender.is_null() {
        return Ok(());
    }
    let id = ObjectId::from_pointer(sender, Kind::Sender)?;
    SENDERS.close(id, |connection, memory| {
        let closed = connection.close();
        release(id, memory);
        closed
    })??;
    Ok(())
}

/// `closeRecv`. Null is nothing to do.
pub(crate) fn close_receiver(receiver: *mut c_void) -> Result<(), Fault> {
    if receiver.is_null() {
        return Ok(());
    }
    let id = ObjectId::from_pointer(receiver, Kind::Receiver)?;
    RECEIVERS.close(id, |connection, memory| {
        let closed = connection.close();
        release(id, memory);
        closed
    })??;
    Ok(())
}

/// Drops the registrations of a closed communicator that were not deregistered. After the connection,
/// so that no work request uses them any more.
fn release(owner: ObjectId, memory: Memory) {
    if memory.regions.is_empty() {
        return;
    }
    tracing::info!(
        "closed with {} memory registrations left; they are released",
        memory.regions.len()
    );
    for region in memory.regions {
        // The communicator is being closed by this thread: no call can be inside. An error says that
        // deregMr is at it in another thread.
        drop(REGIONS.retire(region, owner, || ()));
    }
}
