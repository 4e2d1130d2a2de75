//! Connections that are being made.
//!
//! NCCL calls `connect` with the same handle again and again until it gets a communicator. The state
//! in between lives here and not in NCCL's handle memory: a handle that is copied, reused or garbage
//! does no harm. An attempt that NCCL gives up (it just stops calling) goes with its context. Those of API
//! versions before 11, which have none, stay: a later `init` does not say that nobody goes on with them.
//!
//! An attempt is known by who asks (context, device, traffic class) and the bytes of the handle, which
//! contain the listener's random cookie. One thread at a time asks for it. It is not given up for want of being
//! asked for: a thread may be busy for minutes.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ibnet::{ConnectOptions, Connecting, Handle, SendConnection, Transport, Wait};

use crate::fault::Fault;
use crate::handles::ObjectId;

/// What tells attempts apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) context: Option<ObjectId>,
    pub(crate) device: usize,
    pub(crate) traffic_class: Option<u8>,
    pub(crate) handle: [u8; Handle::SIZE],
}

type Attempts = BTreeMap<Key, Connecting>;

static ATTEMPTS: Mutex<Attempts> = Mutex::new(BTreeMap::new());

/// Makes the connection of `key`, or goes on making it. None: not yet.
pub(crate) fn poll(key: &Key, transport: &Transport) -> Result<Option<SendConnection>, Fault> {
    // The lock is not held while it is polled.
    let attempt = attempts().remove(key);
    let mut attempt = match attempt {
        Some(attempt) => attempt,
        None => begin(key, transport)?,
    };
    let connection = attempt.try_now()?;
    if connection.is_none() {
        attempts().insert(key.clone(), attempt);
    }
    Ok(connection)
}

/// Begins to make the connection of `key`.
pub(crate) fn begin(key: &Key, transport: &Transport) -> Result<Connecting, Fault> {
    let handle = Handle::from_bytes(&key.handle)?;
    let options = ConnectOptions::default().traffic_class(key.traffic_class);
    Ok(transport.connect(key.device, &handle, options)?)
}

/// Gives up the attempts of a context.
pub(crate) fn abandon_context(context: ObjectId) {
    abandon(|key| key.context == Some(context));
}

/// Gives up all attempts.
pub(crate) fn abandon_all() {
    abandon(|_| true);
}

fn abandon(chosen: impl Fn(&Key) -> bool) {
    let given_up: Attempts = {
        let mut attempts = attempts();
        let all = mem::take(&mut *attempts);
        let (given_up, left) = all.into_iter().partition(|(key, _)| chosen(key));
        *attempts = left;
        given_up
    };
    if !given_up.is_empty() {
        tracing::info!(
            "{} connection attempts were given up by the caller",
            given_up.len()
        );
    }
    // Closes sockets and queue pairs, without the lock.
    drop(given_up);
}

fn attempts() -> MutexGuard<'static, Attempts> {
    ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner)
}
