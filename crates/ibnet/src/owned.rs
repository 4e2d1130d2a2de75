//! The safe interface: buffers that move into a request and come back when it is done.
//!
//! Memory that a device may read or write must neither move nor be touched until the request is
//! done. Here that is guaranteed by ownership: the connection keeps the buffer meanwhile, whatever
//! happens to the ticket, and frees it only after its queue pairs are gone.
//!
//! The peer is trusted in one point: an announcement stays technically valid after its message has
//! arrived, so a peer that breaks the protocol on purpose could write into a buffer that was handed
//! back. Only who was given the listener's handle can be a peer.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::memory::Mapping;
use crate::receiver::{RecvBuffer, RecvConnection};
use crate::region::{Region, Registrar};
use crate::requests::{CAPACITY, RequestId};
use crate::ring::MAX_GROUP;
use crate::sender::SendConnection;

/// Memory of its own, registered with a connection's device. Dereferences to its bytes.
///
/// Made by [`Registrar::buffer`]; can be used for any number of requests, one at a time.
pub struct Buffer {
    // Deregistered before it is unmapped.
    region: Region,
    mapping: Mapping,
    length: usize,
}

impl Registrar {
    /// A zeroed buffer of `length` bytes for requests of this connection.
    ///
    /// # Errors
    /// Memory or registration limits of the system or the device.
    pub fn buffer(&self, length: usize) -> Result<Buffer, Error> {
        let mapping = Mapping::new(length)?;
        // SAFETY: the mapping belongs to the buffer, whose fields are dropped region first, and no
        // clone of the region leaves it.
        let region = unsafe { self.register(mapping.as_ptr(), mapping.length()) }?;
        Ok(Buffer {
            region,
            mapping,
            length,
        })
    }
}

impl Buffer {
    /// Bytes that there is memory for.
    pub fn capacity(&self) -> usize {
        self.mapping.length()
    }

    /// Makes the buffer `length` bytes long: what a send sends, or the most that a receive takes.
    ///
    /// # Panics
    /// If `length` exceeds the [`capacity`](Self::capacity).
    pub fn set_length(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "a buffer cannot grow beyond its memory"
        );
        self.length = length;
    }
}

impl fmt::Debug for Buffer {
    /// Without the bytes, which may be many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("length", &self.length)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has at least `length` bytes, initialised to zero by the kernel; while
        // somebody can call this no request holds the buffer, and a peer that keeps to the protocol
        // does not write to it any more (see the module's head for one that does not).
        unsafe { slice::from_raw_parts(self.mapping.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow makes this the only reference.
        unsafe { slice::from_raw_parts_mut(self.mapping.as_ptr(), self.length) }
    }
}

/// What is held for the request in each slot of a connection's table. The table of slots is only
/// made when the safe interface is used.
pub(crate) struct Owned<T> {
    slots: Vec<Option<T>>,
    /// Tells this connection from all others of the process.
    connection: u64,
}

impl<T> Owned<T> {
    pub(crate) fn new() -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        Self {
            slots: Vec::new(),
            connection: CONNECTIONS.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn put(&mut self, request: RequestId, value: T) -> Ticket {
        if self.slots.is_empty() {
            self.slots.resize_with(usize::from(CAPACITY), || None);
        }
        self.slots[usize::from(request.index())] = Some(value);
        Ticket {
            request,
            connection: self.connection,
        }
    }

    /// The request of a ticket, if it is of this connection.
    fn check(&self, ticket: &Ticket) -> Result<RequestId, Error> {
        if ticket.connection == self.connection {
            Ok(ticket.request)
        } else {
            Err(Error::InvalidArgument(
                "a ticket of another connection".to_owned(),
            ))
        }
    }

    fn take(&mut self, request: RequestId) -> Option<T> {
        self.slots.get_mut(usize::from(request.index()))?.take()
    }
}

/// An outstanding send. Give it to [`SendConnection::wait`] to get the buffer back. If it is
/// dropped, the connection keeps the buffer until it is closed.
#[derive(Debug)]
#[must_use = "the buffer comes back through `wait` or `poll`"]
pub struct SendTicket(Ticket);

/// An outstanding receive. Give it to [`RecvConnection::wait`] to get the buffers back. If it is
/// dropped, the connection keeps the buffers until it is closed.
#[derive(Debug)]
#[must_use = "the buffers come back through `wait` or `poll`"]
pub struct RecvTicket(Ticket);

/// A request and the connection that it is of: ids repeat from connection to connection.
#[derive(Debug)]
struct Ticket {
    request: RequestId,
    connection: u64,
}

/// A request that could not be made, and its buffers.
pub enum Unposted<T> {
    /// Nothing is announced yet, or too much is outstanding: try again.
    NotReady(T),
    /// It will never be possible.
    Failed(Error, T),
}

impl SendConnection {
    /// Sends the bytes of `buffer` to the receiver's buffer with tag `tag`, if one is announced.
    ///
    /// # Errors
    /// The buffer, with the reason.
    pub fn try_send(&mut self, buffer: Buffer, tag: i32) -> Result<SendTicket, Unposted<Buffer>> {
        // SAFETY: the buffer moves into this connection, where nobody can touch it, and is freed
        // after the queue pairs or handed back when the request is done.
        let posted = unsafe {
            self.isend(
                buffer.mapping.as_ptr(),
                buffer.length,
                tag,
                Some(&buffer.region),
            )
        };
        match posted {
            Ok(Some(request)) => Ok(SendTicket(self.owned.put(request, buffer))),
            Ok(None) if self.is_full_of_finished() => {
                Err(Unposted::Failed(dropped_tickets(), buffer))
            }
            Ok(None) => Err(Unposted::NotReady(buffer)),
            Err(error) => Err(Unposted::Failed(error, buffer)),
        }
    }

    /// Sends the bytes of `buffer`, waiting until the receiver has announced a buffer with tag
    /// `tag`.
    ///
    /// # Errors
    /// The connection has failed or fails while waiting.
    pub fn send(&mut self, mut buffer: Buffer, tag: i32) -> Result<SendTicket, Error> {
        let mut pause = Pause::default();
        loop {
            match self.try_send(buffer, tag) {
                Ok(ticket) => return Ok(ticket),
                Err(Unposted::Failed(error, _)) => return Err(error),
                Err(Unposted::NotReady(back)) => buffer = back,
            }
            // Nothing is outstanding, perhaps, but whoever has left is noticed all the same.
            pause.once();
        }
    }

    /// Whether the send is done: its buffer, or the ticket again.
    ///
    /// # Errors
    /// The connection has failed before the send was done.
    pub fn poll(&mut self, ticket: SendTicket) -> Result<Result<Buffer, SendTicket>, Error> {
        let request = self.owned.check(&ticket.0)?;
        if self.test(request)?.is_none() {
            return Ok(Err(ticket));
        }
        let buffer = self.owned.take(request);
        buffer.map(Ok).ok_or_else(|| foreign(request))
    }

    /// Waits until the send is done and gives its buffer back.
    ///
    /// # Errors
    /// The connection has failed before the send was done.
    pub fn wait(&mut self, mut ticket: SendTicket) -> Result<Buffer, Error> {
        let mut pause = Pause::default();
        loop {
            match self.poll(ticket)? {
                Ok(buffer) => return Ok(buffer),
                Err(again) => ticket = again,
            }
            pause.once();
        }
    }
}

impl RecvConnection {
    /// Announces `buffers`, each with its tag, as one receive of 1 to [`MAX_GROUP`].
    ///
    /// # Errors
    /// The buffers, with the reason.
    pub fn try_recv(
        &mut self,
        buffers: Vec<(Buffer, i32)>,
    ) -> Result<RecvTicket, Unposted<Vec<(Buffer, i32)>>> {
        if !(1..=MAX_GROUP).contains(&buffers.len()) {
            let error = Error::InvalidArgument(format!(
                "a receive of {} buffers; 1 to {MAX_GROUP} are possible",
                buffers.len()
            ));
            return Err(Unposted::Failed(error, buffers));
        }
        let raw: Vec<RecvBuffer<'_>> = buffers
            .iter()
            .map(|(buffer, tag)| RecvBuffer {
                data: buffer.mapping.as_ptr(),
                capacity: buffer.length,
                tag: *tag,
                region: Some(&buffer.region),
            })
            .collect();
        // SAFETY: as in `try_send`.
        let posted = unsafe { self.irecv(&raw) };
        match posted {
            Ok(Some(request)) => {
                let buffers = buffers.into_iter().map(|(buffer, _)| buffer).collect();
                Ok(RecvTicket(self.owned.put(request, buffers)))
            }
            Ok(None) if self.is_full_of_finished() => {
                Err(Unposted::Failed(dropped_tickets(), buffers))
            }
            Ok(None) => Err(Unposted::NotReady(buffers)),
            Err(error) => Err(Unposted::Failed(error, buffers)),
        }
    }

    /// Announces `buffers` as one receive, waiting until there is room for it.
    ///
    /// # Errors
    /// The connection has failed or fails while waiting, or there are too many buffers.
    pub fn recv_group(&mut self, mut buffers: Vec<(Buffer, i32)>) -> Result<RecvTicket, Error> {
        let mut pause = Pause::default();
        loop {
            match self.try_recv(buffers) {
                Ok(ticket) => return Ok(ticket),
                Err(Unposted::Failed(error, _)) => return Err(error),
                Err(Unposted::NotReady(back)) => buffers = back,
            }
            pause.once();
        }
    }

    /// Announces one buffer.
    ///
    /// # Errors
    /// As for [`recv_group`](Self::recv_group).
    pub fn recv(&mut self, buffer: Buffer, tag: i32) -> Result<RecvTicket, Error> {
        self.recv_group(vec![(buffer, tag)])
    }

    /// Whether the receive is done: its buffers, each as long as its message, or the ticket again.
    ///
    /// # Errors
    /// The connection has failed before the receive was done.
    pub fn poll(&mut self, ticket: RecvTicket) -> Result<Result<Vec<Buffer>, RecvTicket>, Error> {
        let request = self.owned.check(&ticket.0)?;
        let Some(received) = self.test(request)? else {
            return Ok(Err(ticket));
        };
        let mut buffers = self.owned.take(request).ok_or_else(|| foreign(request))?;
        for (buffer, size) in buffers.iter_mut().zip(received.sizes()) {
            buffer.set_length(*size as usize);
        }
        Ok(Ok(buffers))
    }

    /// Waits until the receive is done and gives its buffers back, each as long as its message.
    ///
    /// # Errors
    /// The connection has failed before the receive was done.
    pub fn wait_group(&mut self, mut ticket: RecvTicket) -> Result<Vec<Buffer>, Error> {
        let mut pause = Pause::default();
        loop {
            match self.poll(ticket)? {
                Ok(buffers) => return Ok(buffers),
                Err(again) => ticket = again,
            }
            pause.once();
        }
    }

    /// Waits for a receive of one buffer.
    ///
    /// # Errors
    /// As for [`wait_group`](Self::wait_group).
    pub fn wait(&mut self, ticket: RecvTicket) -> Result<Buffer, Error> {
        let request = ticket.0.request;
        self.wait_group(ticket)?
            .pop()
            .ok_or_else(|| foreign(request))
    }
}

/// Finished requests hold their places until their buffers are asked for, which nobody can do any
/// more without the tickets.
fn dropped_tickets() -> Error {
    Error::InvalidArgument(format!(
        "all {CAPACITY} requests of the connection are finished and none was waited for; their \
         tickets may have been dropped"
    ))
}

fn foreign(request: RequestId) -> Error {
    Error::StaleRequest {
        raw: request.into_raw(),
    }
}

/// Waiting without a completion channel: spins while an answer may come within microseconds, then
/// lets others run, then sleeps.
#[derive(Default)]
pub(crate) struct Pause {
    rounds: u32,
    since: Option<Instant>,
}

impl Pause {
    pub(crate) fn once(&mut self) {
        const SPINS: u32 = 200;
        const YIELD_FOR: Duration = Duration::from_millis(20);
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < SPINS {
            std::hint::spin_loop();
            return;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < YIELD_FOR {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
