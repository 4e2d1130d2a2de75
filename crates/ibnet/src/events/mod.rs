//! The events thread: one for a transport, whatever the number of devices and connections.
//!
//! It waits for asynchronous events of the devices and for anything to happen on the control
//! channels. It does as little as possible: events are acknowledged at once (a queue pair cannot
//! be destroyed before) and logged; whoever is concerned finds a bit set in its [`EventFlags`] at
//! the next call, which costs that call one relaxed load and no system call.
//!
//! A caller that waits rather than polls is woken by it: for all that, for completions, for sockets of a
//! handshake and at a time ([`Timer`]).
//!
//! All that it serves is in one table ([`Table`]); [`dispatch`](Shared::dispatch) is what it does.

mod async_events;
mod changes;
mod flags;
mod timers;
pub(crate) mod waiting;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use ibnet_verbs::{AsyncEvent, CompletionChannel, CompletionQueue, Context, CqId, EventType};
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
use timers::Timers;

/// Handle on the events thread. Dropping it ends and joins the thread.
pub(crate) struct EventThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The completion channel of each device that has one.
    channels: Mutex<Vec<(DeviceToken, CompletionChannel)>>,
}

struct Shared {
    epoll: Epoll,
    stop: EventFd,
    /// Which process has the thread.
    forks: u32,
    timers: Arc<Timers>,
    table: Mutex<Table>,
    /// Whether fatal events are told to the connections that they hit, or logged only.
    returns_events: bool,
}

/// What the thread serves.
struct Table {
    next_token: u64,
    /// What epoll reports, by the token that it reports.
    sources: HashMap<u64, Source>,
    /// The connections, by the token of their control channel.
    connections: HashMap<u64, Connection>,
    /// Which connection the completions of a queue are for, and the device of the queue.
    queues: HashMap<CqId, (DeviceToken, Arc<EventFlags>)>,
}

#[derive(Clone)]
enum Source {
    Device {
        context: Context,
        changes: Arc<Changes>,
    },
    /// The completion channel of a device.
    Completions {
        device: DeviceToken,
        channel: CompletionChannel,
    },
    /// A control channel, or a socket of a handshake: `bits` are raised when it is ready.
    Socket { flags: Arc<EventFlags>, bits: u32 },
}

struct Connection {
    flags: Arc<EventFlags>,
    exposed: Vec<Resources>,
    /// The fatal events that have hit it.
    fatal: Vec<Fatal>,
}

/// A watched socket, or a connection by its control channel; watching ends when this is dropped.
pub(crate) struct Watch {
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
const TIMER: u64 = 1;

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
        let timers = Arc::new(Timers::new().map_err(failed)?);
        epoll
            .add(&*timers, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))
            .map_err(failed)?;
        let shared = Arc::new(Shared {
            epoll,
            stop,
            forks: ibnet_verbs::forks(),
            timers,
            table: Mutex::new(Table {
                next_token: TIMER + 1,
                sources: HashMap::new(),
                connections: HashMap::new(),
                queues: HashMap::new(),
            }),
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
            channels: Mutex::default(),
        })
    }

    /// Takes charge of the events of `context`, which stays open as long as the thread runs. The
    /// token stands for this opened device, whatever becomes of the lists that it is in; `changes` are
    /// those of its ports.
    pub(crate) fn watch_device(
        &self,
        context: &Context,
        changes: &Arc<Changes>,
    ) -> Result<DeviceToken, Error> {
        let source = Source::Device {
            context: context.clone(),
            changes: Arc::clone(changes),
        };
        let doing = "watching the events of a device";
        let fd = context.async_fd();
        let token = self.shared.add(source, fd, EpollFlags::EPOLLIN, doing)?;
        Ok(DeviceToken(token))
    }

    /// A completion queue on `device`, whose context is `context`, that wakes the connection that is
    /// [watched](Self::watch_connection) with it.
    pub(crate) fn create_cq(
        &self,
        device: DeviceToken,
        context: &Context,
        depth: u32,
    ) -> Result<CompletionQueue, Error> {
        let channel = self.completion_channel(device, context)?;
        Ok(context.create_cq_with_channel(depth, &channel)?)
    }

    /// The completion channel of `device`: one, whatever the number of connections.
    fn completion_channel(
        &self,
        device: DeviceToken,
        context: &Context,
    ) -> Result<CompletionChannel, Error> {
        // The list only ever grows by whole entries.
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, channel)) = channels.iter().find(|(of, _)| *of == device) {
            return Ok(channel.clone());
        }
        let channel = context.create_channel()?;
        let source = Source::Completions {
            device,
            channel: channel.clone(),
        };
        let doing = "watching a completion channel";
        self.shared
            .add(source, &channel, EpollFlags::EPOLLIN, doing)?;
        channels.push((device, channel.clone()));
        Ok(channel)
    }

    /// Something that wakes `flags` at a time.
    pub(crate) fn timer(&self, flags: &Arc<EventFlags>) -> Timer {
        Timer::new(&self.shared.timers, flags)
    }

    /// Wakes `flags` when `socket` is ready, once; then until it is [armed](Watch::arm) again it is
    /// silent.
    pub(crate) fn watch_socket(
        &self,
        socket: Arc<dyn AsFd + Send + Sync>,
        flags: &Arc<EventFlags>,
        interest: Interest,
    ) -> Result<Watch, Error> {
        self.watch(socket, flags, 0, interest)
    }

    /// Watches the control channel `stream` of a connection, and the devices that it uses. Of its
    /// completion queues, those that were made by [`create_cq`](Self::create_cq) wake `flags`.
    pub(crate) fn watch_connection(
        &self,
        stream: &Arc<TcpStream>,
        flags: &Arc<EventFlags>,
        exposed: Vec<Resources>,
    ) -> Result<Watch, Error> {
        let stream = Arc::clone(stream);
        let watch = self.watch(stream, flags, CONTROL, Interest::Read)?;
        let mut table = self.shared.lock();
        for used in &exposed {
            for queue in &used.completion_queues {
                let user = (used.device, Arc::clone(flags));
                table.queues.insert(*queue, user);
            }
        }
        let connection = Connection {
            flags: Arc::clone(flags),
            exposed,
            fatal: Vec::new(),
        };
        table.connections.insert(watch.token, connection);
        drop(table);
        Ok(watch)
    }

    fn watch(
        &self,
        socket: Arc<dyn AsFd + Send + Sync>,
        flags: &Arc<EventFlags>,
        bits: u32,
        interest: Interest,
    ) -> Result<Watch, Error> {
        let source = Source::Socket {
            flags: Arc::clone(flags),
            bits,
        };
        let doing = "watching a socket";
        let token = self.shared.add(source, &socket, interest.flags(), doing)?;
        Ok(Watch {
            shared: Arc::clone(&self.shared),
            token,
            socket,
        })
    }

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
    /// Lets the next event through. If the socket is ready already, that is one.
    pub(crate) fn arm(&self, interest: Interest) -> Result<(), Error> {
        let mut event = EpollEvent::new(interest.flags(), self.token);
        self.shared
            .epoll
            .modify(&self.socket, &mut event)
            .map_err(|errno| Error::system("watching a socket", errno))
    }

    /// The fatal events that have hit the connection, each subject once.
    pub(crate) fn fatal(&self) -> Vec<Fatal> {
        let table = self.shared.lock();
        let connection = table.connections.get(&self.token);
        connection.map_or_else(Vec::new, |connection| connection.fatal.clone())
    }

    /// Changes what the connection uses, as when a path was rebuilt with another queue pair.
    pub(crate) fn expose(&self, now: Vec<Resources>) {
        if let Some(connection) = self.shared.lock().connections.get_mut(&self.token) {
            connection.exposed = now;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            return;
        }
        let _ = self.shared.epoll.delete(&self.socket);
        let mut table = self.shared.lock();
        table.sources.remove(&self.token);
        let Some(Connection { flags, exposed, .. }) = table.connections.remove(&self.token) else {
            return;
        };
        for queue in exposed.iter().flat_map(|used| &used.completion_queues) {
            // The queue may have been destroyed by now, and another one be in its place: that one stays.
            if let Entry::Occupied(entry) = table.queues.entry(*queue)
                && Arc::ptr_eq(&entry.get().1, &flags)
            {
                entry.remove();
            }
        }
    }
}

impl Interest {
    /// One event, then silence until the socket is armed again: the thread never reads from it.
    fn flags(self) -> EpollFlags {
        let flags = match self {
            Self::Read => EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP,
            Self::Write => EpollFlags::EPOLLOUT,
        };
        flags | EpollFlags::EPOLLONESHOT
    }
}

impl Shared {
    /// Whether this process is a forked child of the one that has the thread. What there is of it
    /// here is the parent's: the descriptors are the same, and locks may have been held.
    fn is_inherited(&self) -> bool {
        self.forks != ibnet_verbs::forks()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code under this lock leaves the table half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves `source`, of which `fd` tells. Gives its token.
    fn add(
        &self,
        source: Source,
        fd: impl AsFd,
        flags: EpollFlags,
        doing: &'static str,
    ) -> Result<u64, Error> {
        let mut table = self.lock();
        let token = table.next_token;
        table.next_token += 1;
        table.sources.insert(token, source);
        let added = self.epoll.add(fd, EpollEvent::new(flags, token));
        added.map_err(|errno| {
            table.sources.remove(&token);
            Error::system(doing, errno)
        })?;
        Ok(token)
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
                    TIMER => self.timers.ring(),
                    token => self.dispatch(token),
                }
            }
        }
    }

    fn dispatch(&self, token: u64) {
        // What follows happens outside the lock: a waker may end a connection.
        let source = self.lock().sources.get(&token).cloned();
        match source {
            Some(Source::Socket { flags, bits }) => flags.raise(bits),
            Some(Source::Completions { device, channel }) => {
                self.completion_events(device, &channel);
            }
            Some(Source::Device { context, changes }) => {
                self.device_events(DeviceToken(token), &context, &changes);
            }
            None => {}
        }
    }

    /// Wakes the connections whose completions have come.
    fn completion_events(&self, device: DeviceToken, channel: &CompletionChannel) {
        loop {
            match channel.next_event() {
                Ok(Some(event)) => {
                    let queue = event.cq_id();
                    // Acknowledged first: the woken task may destroy the queue, which waits for the
                    // acknowledgement.
                    drop(event);
                    let user = self.lock().queues.get(&queue).cloned();
                    if let Some((_, flags)) = user {
                        flags.wake();
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    // Nothing on this device wakes its connections any more, as when it was removed:
                    // that ends them.
                    tracing::warn!(%error, "no more completion events");
                    let _ = self.epoll.delete(channel);
                    let users: Vec<_> = self.lock().queues.values().cloned().collect();
                    for (_, flags) in users.iter().filter(|(of, _)| *of == device) {
                        flags.raise(FATAL);
                    }
                    return;
                }
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
        // Acknowledged first: the woken task may destroy the queue pair, which waits for the
        // acknowledgement.
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
        for connection in self.lock().connections.values_mut() {
            if connection.exposed.iter().any(&is_concerned) {
                let fatal = &mut connection.fatal;
                fatal.extend(hit.filter(|hit| !fatal.contains(hit)));
                concerned.push(Arc::clone(&connection.flags));
            }
        }
        concerned
    }
}

#[cfg(test)]
mod tests;
