//! The events thread: one for a transport, whatever the number of devices and connections.
//!
//! It waits for asynchronous events of the devices and for anything to happen on the control
//! channels. It does as little as possible: events are acknowledged at once (a queue pair cannot
//! be destroyed before) and logged; whoever is concerned finds a bit set in its [`EventFlags`] at
//! the next call, which costs that call one relaxed load and no system call.
//!
//! Who waits rather than polls is woken by it: for all that, for completions ([`bells`]), for
//! sockets of a handshake ([`SocketWatch`]) and at a time ([`Timer`]).

mod async_events;
mod changes;
mod flags;
mod notifications;
mod timers;
pub(crate) mod waiting;

use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use ibnet_verbs::{AsyncEvent, CompletionChannel, CompletionQueue, Context, EventType};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

pub(crate) use async_events::{DeviceToken, Fatal, Resources, Subject};
pub(crate) use flags::{CONTROL, ENDING, EventFlags, FATAL, PORT};
pub(crate) use timers::Timer;

use crate::error::Error;
use async_events::{Meaning, meaning};
pub(crate) use changes::Changes;
use notifications::CompletionChannels;
use timers::Timers;

/// Handle on the events thread. Dropping it ends and joins the thread.
pub(crate) struct EventThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    epoll: Epoll,
    stop: EventFd,
    /// Which process has the thread.
    forks: u32,
    next_token: AtomicU64,
    watched: Mutex<HashMap<u64, Watched>>,
    alarms: Arc<Timers>,
    bells: CompletionChannels,
    /// Whether fatal events are told to the connections that they hit, or logged only.
    returns_events: bool,
}

enum Watched {
    Device {
        context: Context,
        changes: Arc<Changes>,
    },
    Connection {
        flags: Arc<EventFlags>,
        exposed: Vec<Resources>,
        /// The fatal events that have hit it.
        fatal: Vec<Fatal>,
    },
    /// A socket of a handshake.
    Socket(Arc<EventFlags>),
    /// The completion channel of a device.
    Bell {
        device: DeviceToken,
        channel: CompletionChannel,
    },
}

/// A watched connection; watching ends when this is dropped.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    token: u64,
    stream: Arc<TcpStream>,
}

/// A socket that somebody waits for; watching ends when this is dropped.
pub(crate) struct SocketWatch {
    shared: Arc<Shared>,
    token: u64,
    socket: Arc<dyn AsFd + Send + Sync>,
}

/// What is waited for on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or a client to accept.
    Read,
    /// That it is connected, or takes more bytes.
    Write,
}

const STOP: u64 = 0;
const ALARM: u64 = 1;

impl EventThread {
    /// Starts the thread. `returns_events` says whether fatal events end the connections that they
    /// hit (`return_async_events`).
    pub(crate) fn start(returns_events: bool) -> Result<Self, Error> {
        let failed = |errno: Errno| Error::system("starting the events thread", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let stop =
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(failed)?;
        epoll
            .add(&stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))
            .map_err(failed)?;
        let alarms = Arc::new(Timers::new().map_err(failed)?);
        epoll
            .add(&*alarms, EpollEvent::new(EpollFlags::EPOLLIN, ALARM))
            .map_err(failed)?;
        let shared = Arc::new(Shared {
            epoll,
            stop,
            forks: ibnet_verbs::forks(),
            next_token: AtomicU64::new(ALARM + 1),
            watched: Mutex::new(HashMap::new()),
            alarms,
            bells: CompletionChannels::default(),
            returns_events,
        });
        let thread = thread::Builder::new()
            .name("ibnet-events".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run()
            })
            .map_err(|error| Error::system("starting the events thread", error))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Takes charge of the events of `context`, which stays open as long as the monitor runs. The
    /// token stands for this opened device, whatever becomes of the lists that it is in
    /// the changes are those of its `ports` ports.
    pub(crate) fn watch_device(
        &self,
        context: &Context,
        changes: &Arc<Changes>,
    ) -> Result<DeviceToken, Error> {
        let token = self.shared.new_token();
        self.shared.lock().insert(
            token,
            Watched::Device {
                context: context.clone(),
                changes: Arc::clone(changes),
            },
        );
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
        self.shared
            .epoll
            .add(context.async_fd(), event)
            .map_err(|errno| {
                self.shared.lock().remove(&token);
                Error::system("watching the events of a device", errno)
            })?;
        Ok(DeviceToken(token))
    }

    /// A completion queue on `device`, whose context is `context`, that can wake who waits for its
    /// completions: a connection that is watched with it.
    pub(crate) fn create_cq(
        &self,
        device: DeviceToken,
        context: &Context,
        depth: u32,
    ) -> Result<CompletionQueue, Error> {
        let watch = |channel: &CompletionChannel| {
            let token = self.shared.new_token();
            let watched = Watched::Bell {
                device,
                channel: channel.clone(),
            };
            self.shared.lock().insert(token, watched);
            let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
            self.shared.epoll.add(channel, event).map_err(|errno| {
                self.shared.lock().remove(&token);
                Error::system("watching a completion channel", errno)
            })
        };
        let channel = self.shared.bells.channel(device, context, watch)?;
        Ok(context.create_cq_with_channel(depth, &channel)?)
    }

    /// Something that wakes `flags` at a time.
    pub(crate) fn timer(&self, flags: &Arc<EventFlags>) -> Timer {
        Timer::new(&self.shared.alarms, flags)
    }

    /// Watches `socket`, once, for what it is to be ready for; then until it is
    /// [armed](SocketWatch::arm) again it is silent.
    pub(crate) fn watch_socket(
        &self,
        socket: Arc<dyn AsFd + Send + Sync>,
        flags: &Arc<EventFlags>,
        interest: Interest,
    ) -> Result<SocketWatch, Error> {
        let token = self.shared.new_token();
        let watched = Watched::Socket(Arc::clone(flags));
        self.shared.lock().insert(token, watched);
        let watch = SocketWatch {
            shared: Arc::clone(&self.shared),
            token,
            socket,
        };
        // On failure the drop of `watch` takes the entry out again.
        self.shared
            .epoll
            .add(&watch.socket, EpollEvent::new(interest.flags(), token))
            .map_err(|errno| Error::system("watching a socket", errno))?;
        Ok(watch)
    }

    /// Watches the control channel `stream` of a connection, and the devices that it uses. Of its
    /// completion queues, those that were made by [`create_cq`](Self::create_cq) wake `flags`.
    pub(crate) fn watch_connection(
        &self,
        stream: &Arc<TcpStream>,
        flags: &Arc<EventFlags>,
        exposed: Vec<Resources>,
    ) -> Result<Watch, Error> {
        let token = self.shared.new_token();
        for used in &exposed {
            for queue in &used.completion_queues {
                self.shared.bells.assign(*queue, used.device, flags);
            }
        }
        let watched = Watched::Connection {
            flags: Arc::clone(flags),
            exposed,
            fatal: Vec::new(),
        };
        self.shared.lock().insert(token, watched);
        let watch = Watch {
            shared: Arc::clone(&self.shared),
            token,
            stream: Arc::clone(stream),
        };
        // On failure the drop of `watch` takes the entry out again.
        self.shared
            .epoll
            .add(stream.as_fd(), EpollEvent::new(control_flags(), token))
            .map_err(|errno| Error::system("watching a control channel", errno))?;
        Ok(watch)
    }
}

impl EventThread {
    /// # Errors
    /// [`Error::Forked`] if this process is a forked child of the one that has the thread.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.shared.is_inherited() {
            return Err(Error::Forked);
        }
        Ok(())
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            // There is no such thread here.
            std::mem::forget(self.thread.take());
            return;
        }
        if let Err(errno) = self.shared.stop.write(1) {
            tracing::warn!(%errno, "cannot stop the events thread; it stays");
            return;
        }
        if let Some(thread) = self.thread.take()
            // A waker may drop the last user on the thread itself, which then ends by itself.
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::warn!("the events thread had panicked");
        }
    }
}

impl Watch {
    /// Lets the next event on the control channel through again.
    pub(crate) fn rearm(&self) -> Result<(), Error> {
        let mut event = EpollEvent::new(control_flags(), self.token);
        self.shared
            .epoll
            .modify(self.stream.as_fd(), &mut event)
            .map_err(|errno| Error::system("watching a control channel", errno))
    }
}

impl Watch {
    /// The fatal events that have hit the connection, each subject once.
    pub(crate) fn fatal(&self) -> Vec<Fatal> {
        match self.shared.lock().get(&self.token) {
            Some(Watched::Connection { fatal, .. }) => fatal.clone(),
            _ => Vec::new(),
        }
    }

    /// Changes what the connection uses, as when a path was rebuilt with another queue pair.
    pub(crate) fn expose(&self, now: Vec<Resources>) {
        if let Some(Watched::Connection { exposed, .. }) = self.shared.lock().get_mut(&self.token) {
            *exposed = now;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            return;
        }
        // The stream may never have been added; then there is nothing to remove.
        let _ = self.shared.epoll.delete(self.stream.as_fd());
        let watched = self.shared.lock().remove(&self.token);
        if let Some(Watched::Connection { flags, exposed, .. }) = watched {
            let queues = exposed.iter().flat_map(|used| &used.completion_queues);
            self.shared.bells.withdraw(queues.copied(), &flags);
        }
    }
}

impl SocketWatch {
    /// Lets the next event through. If the socket is ready already, that is one.
    pub(crate) fn arm(&self, interest: Interest) -> Result<(), Error> {
        let mut event = EpollEvent::new(interest.flags(), self.token);
        self.shared
            .epoll
            .modify(&self.socket, &mut event)
            .map_err(|errno| Error::system("watching a socket", errno))
    }
}

impl Drop for SocketWatch {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            return;
        }
        // The socket may never have been added; then there is nothing to remove.
        let _ = self.shared.epoll.delete(&self.socket);
        self.shared.lock().remove(&self.token);
    }
}

impl Interest {
    fn flags(self) -> EpollFlags {
        let flags = match self {
            Self::Read => EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP,
            Self::Write => EpollFlags::EPOLLOUT,
        };
        flags | EpollFlags::EPOLLONESHOT
    }
}

/// One event, then silence until the owner has looked: the thread never reads the channel itself.
fn control_flags() -> EpollFlags {
    EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLONESHOT
}

impl Shared {
    /// Whether this process is a forked child of the one that has the thread. What there is of it
    /// here is the parent's: the descriptors are the same, and locks may have been held.
    fn is_inherited(&self) -> bool {
        self.forks != ibnet_verbs::forks()
    }

    fn new_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Watched>> {
        // No code under this lock leaves the map half changed.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        // The application's signals are for its own threads.
        if let Err(errno) = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None) {
            tracing::debug!(%errno, "the events thread cannot block signals");
        }
        let mut events = [EpollEvent::empty(); 16];
        loop {
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(errno) => {
                    tracing::error!(%errno, "the events thread cannot wait and ends");
                    return;
                }
            };
            for event in &events[..count] {
                match event.data() {
                    STOP => return,
                    ALARM => self.alarms.ring(),
                    token => self.dispatch(token),
                }
            }
        }
    }

    fn dispatch(&self, token: u64) {
        // What follows happens outside the lock: who is woken may end a connection.
        let news = match self.lock().get(&token) {
            Some(Watched::Connection { flags, .. }) => News::Control(Arc::clone(flags)),
            Some(Watched::Socket(flags)) => News::Socket(Arc::clone(flags)),
            Some(Watched::Bell { device, channel }) => News::Bell(*device, channel.clone()),
            Some(Watched::Device { context, changes }) => {
                News::Device(context.clone(), Arc::clone(changes))
            }
            None => return,
        };
        match news {
            News::Control(flags) => flags.raise(CONTROL),
            News::Socket(flags) => flags.wake(),
            News::Bell(device, channel) => {
                if !self.bells.ring(device, &channel) {
                    let _ = self.epoll.delete(&channel);
                }
            }
            News::Device(context, changes) => {
                self.device_events(DeviceToken(token), &context, &changes);
            }
        }
    }

    fn device_events(&self, token: DeviceToken, context: &Context, changes: &Changes) {
        loop {
            match context.next_event() {
                Ok(Some(event)) => self.device_event(token, changes, event),
                Ok(None) => return,
                Err(error) => {
                    // A device that was removed reports this for ever.
                    tracing::warn!(%error, device = context.device_name(), "no more events");
                    let _ = self.epoll.delete(context.async_fd());
                    self.act(token, changes, Meaning::Fatal(Subject::Device));
                    return;
                }
            }
        }
    }

    fn device_event(&self, token: DeviceToken, changes: &Changes, event: AsyncEvent) {
        let meaning = meaning(&event);
        match meaning {
            Meaning::Fatal(_) => tracing::warn!("{event}"),
            _ if event.kind() == EventType::PORT_ERR => tracing::warn!("{event}"),
            Meaning::PortChanged(_) | Meaning::DeviceChanged => tracing::info!("{event}"),
            Meaning::Nothing => tracing::debug!("{event}"),
        }
        // Acknowledged before anybody is told: who is told may destroy the queue pair, which waits
        // for the acknowledgement.
        drop(event);
        self.act(token, changes, meaning);
    }

    fn act(&self, device: DeviceToken, changes: &Changes, meaning: Meaning) {
        match meaning {
            Meaning::Fatal(subject) => {
                if subject == Subject::Device {
                    changes.note_all();
                }
                if self.returns_events {
                    self.raise_fatal(Fatal { device, subject });
                }
            }
            Meaning::PortChanged(port) => {
                changes.note(port);
                self.raise_port(device, Some(port));
            }
            Meaning::DeviceChanged => {
                changes.note_all();
                self.raise_port(device, None);
            }
            Meaning::Nothing => {}
        }
    }

    /// Tells the connections that use what has failed. Only those that there are: a device that
    /// recovers serves later ones.
    fn raise_fatal(&self, hit: Fatal) {
        let is_hit = |exposed: &Resources| exposed.is_hit_by(hit);
        for flags in self.concerned(is_hit, Some(hit)) {
            flags.raise(FATAL);
        }
    }

    /// Tells the connections that use a port of the device, or any if none is named.
    fn raise_port(&self, device: DeviceToken, port: Option<u8>) {
        let is_on_it = |exposed: &Resources| {
            let is_port = |own: u8| port.is_none_or(|port| own == port);
            exposed.device == device && exposed.port.is_some_and(is_port)
        };
        for flags in self.concerned(is_on_it, None) {
            flags.raise(PORT);
        }
    }

    /// The connections that use what `is_concerned` is about. `hit` is noted for each.
    fn concerned(
        &self,
        is_concerned: impl Fn(&Resources) -> bool,
        hit: Option<Fatal>,
    ) -> Vec<Arc<EventFlags>> {
        let mut concerned = Vec::new();
        for watched in self.lock().values_mut() {
            if let Watched::Connection {
                flags,
                exposed,
                fatal,
            } = watched
                && exposed.iter().any(&is_concerned)
            {
                fatal.extend(hit.filter(|hit| !fatal.contains(hit)));
                concerned.push(Arc::clone(flags));
            }
        }
        concerned
    }
}

/// What has happened, and whom to tell.
enum News {
    Control(Arc<EventFlags>),
    Socket(Arc<EventFlags>),
    Bell(DeviceToken, CompletionChannel),
    Device(Context, Arc<Changes>),
}

#[cfg(test)]
mod tests;
