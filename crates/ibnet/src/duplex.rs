//! [`Duplex`]: two connections, one in each direction, with receive buffers that are posted in advance.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::connect::options::{ConnectOptions, ListenOptions};
use crate::connection::raw::Sender;
use crate::error::Error;
use crate::ops::{
    Buffer, Finish, OpError, Operation, Post, RecvConnection, RecvTicket, SendConnection,
    SendTicket, Wait,
};
use crate::transport::{Listener, Transport};
use crate::wire::handle::Handle;

/// All messages of a [`Duplex`] have this tag.
const TAG: i32 = 0;

/// Both directions between two peers, for messages in order.
///
/// Receive buffers are posted in advance ([`DuplexOptions::buffers`]); [`next`](Self::next) gives the one
/// with the next message, and [`post`](Self::post) gives it back for another. A peer that sends waits while
/// none is posted here.
///
/// ```no_run
/// use ibnet::{Config, Duplex, DuplexOptions, Transport, Wait};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let transport = Transport::open(Config::from_env()?)?;
/// let mut listener = transport.listen(0)?; // its handle goes to the other end, which calls `Duplex::connect`
/// let options = DuplexOptions::default();
/// let mut peer = Duplex::accept(&transport, 0, &mut listener, options).wait()?;
/// while let Some(message) = peer.next().wait()? {
///     let mut answer = peer.buffer(message.len())?;
///     answer.copy_from_slice(&message);
///     peer.post(message)?;
///     let ticket = peer.send(answer).wait()?;
///     peer.finish(ticket).wait()?;
/// }
/// peer.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Duplex {
    sending: SendConnection,
    receiving: RecvConnection,
    /// The buffers that are posted, in the order in which messages come.
    posted: VecDeque<RecvTicket>,
    /// Bytes of a posted buffer.
    capacity: usize,
}

/// What the two connections of a [`Duplex`] are to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DuplexOptions {
    /// As [`ConnectOptions::notify`] and [`ListenOptions::notify`]. The listener of the accepting end has its
    /// own.
    pub notify: bool,
    /// Receive buffers that are posted at the beginning, 256 at most.
    pub buffers: usize,
    /// Bytes of each of them: of the longest message that can be received.
    pub capacity: usize,
}

impl Default for DuplexOptions {
    /// 16 buffers of 64 KiB, made for polling.
    fn default() -> Self {
        Self {
            notify: false,
            buffers: 16,
            capacity: 1 << 16,
        }
    }
}

impl DuplexOptions {
    /// Sets [`notify`](Self#structfield.notify).
    #[must_use]
    pub fn notify(mut self, notify: bool) -> Self {
        self.notify = notify;
        self
    }

    /// Sets [`buffers`](Self#structfield.buffers).
    #[must_use]
    pub fn buffers(mut self, buffers: usize) -> Self {
        self.buffers = buffers;
        self
    }

    /// Sets [`capacity`](Self#structfield.capacity).
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity;
        self
    }
}

/// A [`Duplex`] in the making: a future with the methods of [`Wait`]. Drop it to give up.
#[must_use = "nothing happens until it is tried, waited for or awaited"]
pub struct Establishing<'a>(Pin<Box<dyn Future<Output = Result<Duplex, Error>> + Send + 'a>>);

impl Future for Establishing<'_> {
    type Output = Result<Duplex, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.as_mut().poll(context)
    }
}

impl fmt::Debug for Establishing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Establishing").finish_non_exhaustive()
    }
}

impl Duplex {
    /// Connects device `device` to the listener that gave out `handle`, whose end calls
    /// [`accept`](Self::accept): it is told the handle of a listener here, and connects back.
    ///
    /// It fails as [`Transport::connect`] and [`Transport::listen`] do.
    pub fn connect<'a>(
        transport: &'a Transport,
        device: usize,
        handle: &'a Handle,
        options: DuplexOptions,
    ) -> Establishing<'a> {
        Establishing(Box::pin(async move {
            let connecting = ConnectOptions::default().notify(options.notify);
            let mut sending = transport.connect(device, handle, connecting)?.await?;
            let listening = ListenOptions::default().notify(options.notify);
            let mut listener = transport.listen_with(device, listening)?;
            let mut back = sending.registrar().buffer(Handle::SIZE)?;
            back.copy_from_slice(&listener.handle().to_bytes());
            let ticket = sending.send(back, TAG).await?;
            let receiving = listener.accept().await?;
            sending.finish(ticket).await?;
            Self::with_buffers(sending, receiving, options)
        }))
    }

    /// Accepts a peer that calls [`connect`](Self::connect), and connects back from device `device`.
    ///
    /// It fails as [`Accept`](crate::Accept) and [`Transport::connect`] do; the listener remains usable.
    pub fn accept<'a>(
        transport: &'a Transport,
        device: usize,
        listener: &'a mut Listener,
        options: DuplexOptions,
    ) -> Establishing<'a> {
        Establishing(Box::pin(async move {
            let mut receiving = listener.accept().await?;
            let back = receiving.registrar().buffer(Handle::SIZE)?;
            let ticket = receiving.recv(back, TAG).await?;
            let back = receiving.finish(ticket).await?;
            let handle = Handle::from_bytes(&back)?;
            let connecting = ConnectOptions::default().notify(options.notify);
            let sending = transport.connect(device, &handle, connecting)?.await?;
            Self::with_buffers(sending, receiving, options)
        }))
    }

    fn with_buffers(
        sending: SendConnection,
        receiving: RecvConnection,
        options: DuplexOptions,
    ) -> Result<Self, Error> {
        let mut duplex = Self {
            sending,
            receiving,
            posted: VecDeque::new(),
            capacity: options.capacity,
        };
        for _ in 0..options.buffers {
            let buffer = duplex.receiving.registrar().buffer(options.capacity)?;
            duplex.post(buffer)?;
        }
        Ok(duplex)
    }

    /// Both ends, in words.
    pub fn description(&self) -> String {
        self.sending.description()
    }

    /// A zeroed buffer of `length` bytes to send.
    ///
    /// # Errors
    /// Memory or registration limits of the system or the device.
    pub fn buffer(&self, length: usize) -> Result<Buffer, Error> {
        self.sending.registrar().buffer(length)
    }

    /// Sends the bytes of `buffer`, once the peer has posted one for them.
    pub fn send(&mut self, buffer: Buffer) -> Operation<'_, Post<Sender, Buffer>> {
        self.sending.send(buffer, TAG)
    }

    /// The end of the send of `ticket`: gives its buffer back.
    pub fn finish(&mut self, ticket: SendTicket) -> Operation<'_, Finish<Sender, Buffer>> {
        self.sending.finish(ticket)
    }

    /// The next message, in a buffer as long as it. `None` when the peer has closed in an orderly way and
    /// all its messages were taken.
    ///
    /// Dropped before its end, it has taken nothing: a later call gives the message.
    #[allow(
        clippy::should_implement_trait,
        reason = "it is awaited, as the next of a stream"
    )]
    pub fn next(&mut self) -> Next<'_> {
        Next(self)
    }

    /// Posts `buffer`, which [`next`](Self::next) has given, for another message.
    ///
    /// # Errors
    /// The connection has failed, or 256 buffers are posted already. The buffer comes back with it.
    pub fn post(&mut self, mut buffer: Buffer) -> Result<(), OpError<Buffer>> {
        buffer.set_length(self.capacity.min(buffer.capacity()));
        let mut posting = self.receiving.recv(buffer, TAG);
        if let Some(ticket) = posting.try_now()? {
            self.posted.push_back(ticket);
            return Ok(());
        }
        let text = format!(
            "{} buffers are posted, and no more can be",
            self.posted.len()
        );
        Err(OpError {
            returned: posting.into_inner(),
            error: Error::InvalidArgument(text),
        })
    }

    /// Closes both connections, whatever is outstanding, and tells the peer; never waits.
    ///
    /// # Errors
    /// The first thing that could not be torn down.
    pub fn close(self) -> Result<(), Error> {
        let sending = self.sending.close();
        self.receiving.close()?;
        sending
    }
}

impl fmt::Debug for Duplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duplex")
            .field("sending", &self.sending)
            .field("receiving", &self.receiving)
            .field("posted", &self.posted.len())
            .finish()
    }
}

/// Waiting for a message: a future with the methods of [`Wait`].
#[must_use = "nothing happens until it is tried, waited for or awaited"]
#[derive(Debug)]
pub struct Next<'a>(&'a mut Duplex);

impl Future for Next<'_> {
    type Output = Result<Option<Buffer>, OpError<Buffer>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Duplex {
            receiving, posted, ..
        } = &mut *self.get_mut().0;
        let Some(oldest) = posted.pop_front() else {
            let text = "no buffer is posted for a message".to_owned();
            return Poll::Ready(Err(OpError {
                error: Error::InvalidArgument(text),
                returned: None,
            }));
        };
        let mut finishing = receiving.finish(oldest);
        match Pin::new(&mut finishing).poll(context) {
            Poll::Pending => {
                posted.extend(finishing.into_inner());
                posted.rotate_right(1);
                Poll::Pending
            }
            Poll::Ready(Ok(message)) => Poll::Ready(Ok(Some(message))),
            Poll::Ready(Err(failed)) => Poll::Ready(match failed.error {
                Error::PeerClosed { .. } => Ok(None),
                _ => Err(failed),
            }),
        }
    }
}
