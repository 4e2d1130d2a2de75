//! Listening: lets clients in and drives the handshakes of all that are pending.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::assembly::Budget;
use crate::channel::{self, Channel};
use crate::client::{Client, Progress};
use crate::error::Error;
use crate::future::Accept;
use crate::handle::{Cookie, Handle};
use crate::interface;
use crate::monitor::{Interest, SocketWatch};
use crate::need::Waiter;
use crate::nic::Nic;
use crate::owned::{block_on, block_until, later};
use crate::random;
use crate::receiver::RecvConnection;
use crate::transport::Inner;

/// Clients that may be in the middle of a handshake. Beyond it, those that do not show the cookie
/// make room, and if there are none the others wait.
const MAX_PENDING: usize = 256;

/// Greetings are sent at once; this is many times the way round the world.
const TIME_TO_GREET: Duration = Duration::from_secs(1);

/// What the connections of a listener are to be like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenOptions {
    /// Waiting for a receive costs no processor time, and receives can be
    /// [awaited](crate::future): the devices tell of completions. Each of these costs an interrupt,
    /// so whoever polls all the time goes without.
    pub notify: bool,
}

/// Waits for peers that want to send to one device. Can be used for any number of connections.
///
/// Strangers, wrong cookies and clients that stall cost it nothing but their own attempt.
pub struct Listener {
    pending: VecDeque<Client>,
    /// Of the socket, if somebody waits rather than polls.
    watch: Option<SocketWatch>,
    waiter: Option<Waiter>,
    socket: Arc<TcpListener>,
    options: ListenOptions,
    handle: Handle,
    cookie: Cookie,
    nic: Arc<Nic>,
    inner: Arc<Inner>,
}

impl Listener {
    pub(crate) fn new(
        inner: Arc<Inner>,
        nic: Arc<Nic>,
        options: ListenOptions,
    ) -> Result<Self, Error> {
        let config = &inner.config;
        let addresses = interface::local_addresses()?;
        let chosen = interface::choose(&addresses, &config.interfaces, config.family)?;
        let socket = channel::listen(chosen.address, config.ports.as_ref())?;
        let address = socket
            .local_addr()
            .map_err(|error| Error::socket("asking for the listener's own address", error))?;
        let cookie = random::bytes()?;
        tracing::debug!(
            "{} listens on {} {address}",
            nic.info().name,
            chosen.interface
        );
        let handle = Handle::new(address, cookie);
        Ok(Self {
            pending: VecDeque::new(),
            watch: None,
            waiter: None,
            socket: Arc::new(socket),
            options,
            handle,
            cookie,
            nic,
            inner,
        })
    }

    /// What a peer needs to connect.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Advances all pending clients as far as possible without waiting. Gives a connection when
    /// one is ready.
    ///
    /// # Errors
    /// A peer that knew the cookie and then failed, or no descriptor or memory for another client;
    /// the listener remains usable. Strangers are dropped without an error.
    pub fn poll_accept(&mut self) -> Result<Option<RecvConnection>, Error> {
        self.inner.monitor.check_process()?;
        self.admit()?;
        let now = Instant::now();
        // All clients share it, so that a poll takes no longer for many of them.
        let mut budget = Budget::of_a_poll();
        for _ in 0..self.pending.len() {
            let Some(mut client) = self.pending.pop_front() else {
                break;
            };
            match client.drive(&mut budget, now) {
                Progress::Pending => self.pending.push_back(client),
                Progress::Connected => return client.finish().map(Some),
                Progress::Nobody(why) => {
                    tracing::debug!("{} dropped: {why}", client.peer());
                }
                Progress::Failed(error) => {
                    client.give_up(&error);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Waits until there is a connection, or an error. Costs no processor time meanwhile.
    ///
    /// # Errors
    /// As for [`poll_accept`](Self::poll_accept).
    pub fn accept(&mut self) -> Result<RecvConnection, Error> {
        block_on(|context| self.poll_accept_with(context))
    }

    /// As [`accept`](Self::accept), but gives `None` when `deadline` comes first. Clients that are
    /// in the middle of their handshake are not lost by that.
    ///
    /// # Errors
    /// As for [`poll_accept`](Self::poll_accept).
    pub fn accept_until(&mut self, deadline: Instant) -> Result<Option<RecvConnection>, Error> {
        let waited = block_until(deadline, |context| self.poll_accept_with(context));
        waited.transpose()
    }

    /// As [`accept_until`](Self::accept_until), `time` from now.
    ///
    /// # Errors
    /// As for [`poll_accept`](Self::poll_accept).
    pub fn accept_timeout(&mut self, time: Duration) -> Result<Option<RecvConnection>, Error> {
        self.accept_until(later(Instant::now(), time))
    }

    /// As [`accept`](Self::accept), to be awaited. Dropped, it has done nothing: a later call
    /// accepts what it would have.
    pub fn accept_async(&mut self) -> Accept<'_> {
        Accept::new(self)
    }

    /// As [`poll_accept`](Self::poll_accept); if there is no connection, whoever waits is woken
    /// when it is worth another look.
    pub(crate) fn poll_accept_with(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<RecvConnection, Error>> {
        if let Some(connection) = self.poll_accept()? {
            return Poll::Ready(Ok(connection));
        }
        let monitor = &self.inner.monitor;
        let waiter = self.waiter.get_or_insert_with(|| Waiter::new(monitor));
        let attention = waiter.begin(context.waker());
        let mut until = None;
        if self.pending.len() < MAX_PENDING || self.pending.iter().any(is_silent) {
            match &self.watch {
                Some(watch) => watch.arm(Interest::Read)?,
                None => {
                    let socket = Arc::clone(&self.socket);
                    self.watch = Some(monitor.watch_socket(socket, attention, Interest::Read)?);
                }
            }
        } else {
            // There is no room for whoever comes: the next may be made by a stranger's silence.
            let patience = self.pending.iter().filter(|client| !client.is_known());
            let patience = patience.map(|client| TIME_TO_GREET.saturating_sub(client.age()));
            until = patience.min().map(|patience| Instant::now() + patience);
        }
        for client in &mut self.pending {
            let need = client.need();
            if need.socket {
                client.listen(attention)?;
            }
            until = Some(until.map_or(need.until, |until| until.min(need.until)));
        }
        if let Some(until) = until {
            waiter.until(until, context.waker())?;
        }
        Poll::Pending
    }

    /// Takes in everybody who has connected since the last call, as far as there is room: the
    /// others wait in the system's queue.
    fn admit(&mut self) -> Result<(), Error> {
        use nix::libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
        for _ in 0..MAX_PENDING {
            let is_full = self.pending.len() >= MAX_PENDING;
            let stranger = is_full.then(|| self.silent_stranger()).flatten();
            if is_full && stranger.is_none() {
                break;
            }
            match self.socket.accept() {
                Ok((stream, peer)) => {
                    if let Some(index) = stranger {
                        drop(self.pending.remove(index));
                    }
                    self.admit_one(stream, peer);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let doing = format!("accepting on {}", self.handle.address());
                    if let Some(EMFILE | ENFILE | ENOBUFS | ENOMEM) = error.raw_os_error() {
                        return Err(Error::socket(doing, error));
                    }
                    // The client is gone already: others may be waiting.
                    tracing::debug!(%error, "{doing}");
                }
            }
        }
        Ok(())
    }

    /// A client that has had the time to show the cookie and has not.
    fn silent_stranger(&self) -> Option<usize> {
        self.pending.iter().position(is_silent)
    }

    fn admit_one(&mut self, stream: std::net::TcpStream, peer: SocketAddr) {
        let channel = match Channel::accepted(stream, peer) {
            Ok(channel) => channel,
            Err(error) => {
                tracing::debug!(%error, "{peer} dropped");
                return;
            }
        };
        self.pending.push_back(Client::new(
            channel,
            self.cookie,
            self.options,
            &self.nic,
            &self.inner,
        ));
    }
}

/// Whether it has had the time to show the cookie and has not.
fn is_silent(client: &Client) -> bool {
    !client.is_known() && client.age() >= TIME_TO_GREET
}
