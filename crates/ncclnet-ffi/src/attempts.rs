//! Connections that are being made.
//!
//! NCCL calls `connect` with the same handle again and again until it gets a communicator. What is between the
//! calls is kept here and not in NCCL's handle memory: a handle that is copied, reused or garbage does no harm.
//!
//! An attempt is known by who asks (context, device, traffic class) and the bytes of the handle, which contain
//! the listener's random cookie. One that NCCL gives up (it just stops calling) goes with its context; those of
//! API versions before 11, which have none, stay. It is not given up for want of calls: a thread may be busy for
//! minutes.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use ibnet::{ConnectOptions, Connecting, Handle, SendConnection, Transport, Wait};

use crate::fault::Fault;
use crate::handles;

/// What tells attempts apart.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) context: Option<handles::Handle>,
    pub(crate) device: usize,
    pub(crate) traffic_class: Option<u8>,
    pub(crate) handle: [u8; Handle::SIZE],
}

static ATTEMPTS: LazyLock<Mutex<HashMap<Attempt, Connecting>>> = LazyLock::new(Mutex::default);

impl Attempt {
    /// Begins to connect, or goes on with it. `None`: not yet.
    pub(crate) fn poll(self, transport: &Transport) -> Result<Option<SendConnection>, Fault> {
        // The lock is not held while it is polled.
        let begun = attempts().remove(&self);
        let mut connecting = match begun {
            Some(connecting) => connecting,
            None => self.begin(transport)?,
        };
        let connection = connecting.try_now()?;
        if connection.is_none() {
            attempts().insert(self, connecting);
        }
        Ok(connection)
    }

    /// Begins to connect.
    pub(crate) fn begin(&self, transport: &Transport) -> Result<Connecting, Fault> {
        let handle = Handle::from_bytes(&self.handle)?;
        let options = ConnectOptions::default().traffic_class(self.traffic_class);
        Ok(transport.connect(self.device, &handle, options)?)
    }
}

/// Gives up the attempts of a context, or all of them.
pub(crate) fn abandon(context: Option<handles::Handle>) {
    let is_meant = |attempt: &Attempt| context.is_none() || attempt.context == context;
    let given_up: Vec<_> = attempts()
        .extract_if(|attempt, _| is_meant(attempt))
        .collect();
    if !given_up.is_empty() {
        tracing::info!(
            "{} connection attempts were given up by the caller",
            given_up.len()
        );
    }
    // Closes sockets and queue pairs, without the lock.
    drop(given_up);
}

fn attempts() -> MutexGuard<'static, HashMap<Attempt, Connecting>> {
    ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner)
}
