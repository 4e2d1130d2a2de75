//! [`Connection`]: one end of a connection, and the buffers of its requests.

use std::fmt;

use super::tickets::Owned;
use super::transfer::Transfer;
use crate::connection::observer::Observer;
use crate::connection::raw;
use crate::error::Error;
use crate::memory::region::Registrar;

/// One end of a connection: [`SendConnection`] or [`RecvConnection`].
///
/// It belongs to one thread at a time; memory may meanwhile be registered on another through a
/// [`Registrar`].
///
/// [`close`](Self::close) tells the peer that this end is done. A connection that is dropped without it is
/// torn down just as completely, but to the peer it looks like a process that died.
pub struct Connection<S: Transfer> {
    // First, so that the queue pairs are gone before the buffers that they reach.
    pub(super) raw: raw::Connection<S>,
    pub(super) owned: Owned,
}

/// The sending end of a connection.
pub type SendConnection = Connection<raw::Sender>;

/// The receiving end of a connection.
pub type RecvConnection = Connection<raw::Receiver>;

impl<S: Transfer> Connection<S> {
    pub(crate) fn new(raw: raw::Connection<S>) -> Self {
        Self {
            raw,
            owned: Owned::default(),
        }
    }

    /// Registers memory for this connection, also from other threads.
    pub fn registrar(&self) -> Registrar {
        self.raw.registrar()
    }

    /// Both ends, in words.
    pub fn description(&self) -> String {
        self.raw.description()
    }

    /// Requests that are not done, or whose end has not been asked for.
    pub fn outstanding(&self) -> usize {
        self.raw.outstanding()
    }

    /// Lets `observer` hear of the pieces of messages: see [`raw::Connection::observe`].
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.raw.observe(observer);
    }

    /// The raw calls, which take pointers. Requests of both layers can be outstanding at once.
    pub fn raw(&mut self) -> &mut raw::Connection<S> {
        &mut self.raw
    }

    /// The raw calls alone, for callers that never give buffers away. The buffers of requests of the safe
    /// layer that are outstanding are leaked.
    pub fn into_raw(self) -> raw::Connection<S> {
        self.owned.leak();
        self.raw
    }

    /// Closes the connection, whatever is outstanding, and tells the peer; never waits.
    ///
    /// # Errors
    /// The first thing that could not be torn down.
    pub fn close(self) -> Result<(), Error> {
        self.raw.close()
    }
}

impl<S: Transfer> fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection")
            .field(&self.description())
            .finish()
    }
}
