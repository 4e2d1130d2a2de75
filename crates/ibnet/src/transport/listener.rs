//! Listening: lets clients in and drives the handshakes of all that are pending.

use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::connect::Conversation;
use crate::connect::acceptor::{self, Listening};
use crate::connect::control::{self, Channel};
use crate::connect::established::NewReceiver;
use crate::connect::options::ListenOptions;
use crate::connect::random;
use crate::connect::shared::Shared;
use crate::connect::waits::{Budget, Patience, Waits};
use crate::connection::raw;
use crate::device::nic::Nic;
use crate::error::Error;
use crate::events::Watch;
use crate::ops::RecvConnection;
use crate::wire::handle::Handle;

/// Clients that may be in the middle of a handshake. Beyond it, those that do not show the cookie
/// make room, and if there are none the others wait.
const MAX_PENDING: usize = 256;

/// Greetings are sent at once; this is many times the way round the world.
const TIME_TO_GREET: Duration = Duration::from_secs(1);

/// Waits for peers that want to send to one device. Can be used for any number of connections.
///
/// Strangers, wrong cookies and clients that stall cost it nothing but their own attempt.
pub struct Listener {
    pending: VecDeque<Client>,
    /// Of the socket, if the listener waits rather than polls.
    watch: Option<Watch>,
    waits: Waits,
    socket: Arc<TcpListener>,
    handle: Handle,
    /// While no peer has come.
    alone: Option<Patience>,
    has_accepted: bool,
    budget: Budget,
    listening: Arc<Listening>,
}

/// A client in the middle of its handshake.
struct Client {
    conversation: Conversation<NewReceiver>,
    address: SocketAddr,
    since: Instant,
    /// Whether it has shown the cookie. Until then it may be anybody.
    is_known: Arc<AtomicBool>,
}

impl Listener {
    pub(crate) fn new(
        shared: Arc<Shared>,
        nic: Arc<Nic>,
        options: ListenOptions,
    ) -> Result<Self, Error> {
        let config = &shared.config;
        let (chosen, others) = shared.handshake_interface.to_listen_on(config)?;
        let socket = control::listen(chosen.address, config.ports.as_ref())?;
        let address = socket
            .local_addr()
            .map_err(|error| Error::socket("asking for the listener's own address", error))?;
        tracing::debug!(
            "{} listens on {} {address}",
            nic.info().name,
            chosen.interface
        );
        let handle = Handle::new(address, random::bytes()?, others);
        Ok(Self {
            pending: VecDeque::new(),
            watch: None,
            waits: Waits::new(&shared),
            socket: Arc::new(socket),
            handle,
            alone: None,
            has_accepted: false,
            budget: Budget::default(),
            listening: Arc::new(Listening {
                cookie: *handle.cookie(),
                options,
                nic,
                shared,
            }),
        })
    }

    /// What a peer needs to connect.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Accepts a connection, and advances the handshakes of all clients meanwhile: see
    /// [`Accept`].
    pub fn accept(&mut self) -> Accept<'_> {
        Accept(self)
    }

    /// Advances all pending clients as far as possible. If there is no connection, the caller is woken when
    /// it is worth another look.
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Result<RecvConnection, Error>> {
        self.listening.shared.events.check_process()?;
        // All clients share it, so that a poll takes no longer for many of them.
        self.budget.refill();
        // Those that are here have their turn before others are let in for whom one of them may have to go.
        if let Some(outcome) = self.poll_clients(context) {
            return Poll::Ready(outcome);
        }
        if self.admit()?
            && let Some(outcome) = self.poll_clients(context)
        {
            return Poll::Ready(outcome);
        }
        let report = self.report()?;
        self.wait_for_clients(context, report)?;
        Poll::Pending
    }

    /// Has the caller woken when another client comes, or can be let in, and for a report.
    fn wait_for_clients(
        &mut self,
        context: &Context<'_>,
        report: Option<Instant>,
    ) -> Result<(), Error> {
        let mut until = report;
        if self.pending.len() < MAX_PENDING || self.silent_stranger().is_some() {
            self.waits
                .for_clients(context, &mut self.watch, &self.socket)?;
        } else {
            // There is no room: the next may be made by a stranger's silence.
            let strangers = self.pending.iter().filter(|client| !client.is_known());
            let silent = strangers.map(|client| client.since + TIME_TO_GREET);
            until = silent.chain(until).min();
        }
        match until {
            Some(until) => self.waits.at(context, until),
            None => Ok(()),
        }
    }

    /// Says now and then that no peer has come; gives when it will next.
    fn report(&mut self) -> Result<Option<Instant>, Error> {
        // Those that are known say what they wait for; and a listener that was good for a peer already may
        // wait for no other.
        if self.has_accepted || self.pending.iter().any(Client::is_known) {
            self.alone = None;
            return Ok(None);
        }
        let now = Instant::now();
        let (name, address) = (&self.listening.nic.info().name, self.handle.address());
        let alone = self.alone.get_or_insert_with(|| Patience::new(now, None));
        let report = alone.look(now, || {
            format!("{name} listens on {address}: no peer has connected")
        })?;
        Ok(Some(report))
    }

    /// Goes on with each conversation: the first that ends in a connection, or fails once its client is known.
    fn poll_clients(&mut self, context: &mut Context<'_>) -> Option<Result<RecvConnection, Error>> {
        for _ in 0..self.pending.len() {
            let mut client = self.pending.pop_front()?;
            match client.conversation.as_mut().poll(context) {
                Poll::Pending => self.pending.push_back(client),
                Poll::Ready(Err(error)) if !client.is_known() => {
                    tracing::debug!("{} dropped: {error}", client.address);
                }
                Poll::Ready(outcome) => {
                    let outcome = outcome
                        .and_then(raw::RecvConnection::new)
                        .map(RecvConnection::new);
                    self.has_accepted |= outcome.is_ok();
                    return Some(outcome);
                }
            }
        }
        None
    }

    /// Takes in everybody who has connected since the last call, as far as there is room: the
    /// others wait in the system's queue. Whether there was anybody.
    fn admit(&mut self) -> Result<bool, Error> {
        use nix::libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
        let mut has_admitted = false;
        for _ in 0..MAX_PENDING {
            let is_full = self.pending.len() >= MAX_PENDING;
            if is_full && self.silent_stranger().is_none() {
                break;
            }
            match self.socket.accept() {
                Ok((stream, peer)) => {
                    if is_full {
                        self.drop_a_silent_stranger();
                    }
                    has_admitted = true;
                    self.admit_one(stream, peer);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let doing = format!("accepting on {}", self.handle.address());
                    if let Some(EMFILE | ENFILE | ENOBUFS | ENOMEM) = error.raw_os_error() {
                        // Strangers make room, and what is under way goes on.
                        if self.drop_a_silent_stranger() {
                            continue;
                        }
                        if !self.pending.is_empty() {
                            tracing::debug!(%error, "{doing}");
                            break;
                        }
                        return Err(Error::socket(doing, error));
                    }
                    // The client is gone already: others may be waiting.
                    tracing::debug!(%error, "{doing}");
                }
            }
        }
        Ok(has_admitted)
    }

    /// Drops a client that has had the time to show the cookie and has not, if there is one.
    fn drop_a_silent_stranger(&mut self) -> bool {
        let stranger = self.silent_stranger();
        stranger.is_some_and(|index| self.pending.remove(index).is_some())
    }

    /// A client that has had the time to show the cookie and has not.
    fn silent_stranger(&self) -> Option<usize> {
        self.pending.iter().position(Client::is_silent)
    }

    fn admit_one(&mut self, stream: std::net::TcpStream, peer: SocketAddr) {
        let channel = match Channel::accepted(stream, peer) {
            Ok(channel) => channel,
            Err(error) => {
                tracing::debug!(%error, "{peer} dropped");
                return;
            }
        };
        let is_known = Arc::new(AtomicBool::new(false));
        let conversation = acceptor::accept(
            channel,
            Arc::clone(&self.listening),
            Arc::clone(&is_known),
            self.budget.clone(),
        );
        self.pending.push_back(Client {
            conversation: Box::pin(conversation),
            address: peer,
            since: Instant::now(),
            is_known,
        });
    }
}

impl Client {
    fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Whether it has had the time to show the cookie and has not.
    fn is_silent(&self) -> bool {
        !self.is_known() && self.since.elapsed() >= TIME_TO_GREET
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("handle", &self.handle)
            .field("clients", &self.pending.len())
            .finish_non_exhaustive()
    }
}

/// Accepting a connection: a future with the methods of [`Wait`](crate::Wait).
///
/// It fails for a peer that knew the cookie and then failed, or if there is no descriptor or memory for
/// another client; the listener remains usable. Strangers are dropped without an error. Dropped, it has
/// lost nothing: clients in the middle of their handshake go on with the next one.
#[must_use = "nothing happens until it is tried, waited for or awaited"]
#[derive(Debug)]
pub struct Accept<'a>(&'a mut Listener);

impl Future for Accept<'_> {
    type Output = Result<RecvConnection, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().0.poll_accept(context)
    }
}
