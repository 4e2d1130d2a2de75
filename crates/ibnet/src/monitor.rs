//! The events thread: one for a transport, whatever the number of devices and connections.
//!
//! It waits for asynchronous events of the devices and for anything to happen on the control
//! channels. It does as little as possible: events are acknowledged at once (a queue pair cannot
//! be destroyed before) and logged; whoever is concerned finds a bit set in its [`Attention`] at
//! the next call, which costs that call one relaxed load and no system call.

use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use verbs::{AsyncEvent, Context, CqId, EventType};

use crate::device::Changes;
use crate::error::Error;

/// Bits that tell the owner of a connection to look at something off the hot path.
#[derive(Debug, Default)]
pub(crate) struct Attention(AtomicU32);

/// Something happened on the control channel.
pub(crate) const CONTROL: u32 = 1;
/// The device or the queue pair is beyond repair.
pub(crate) const FATAL: u32 = 2;
/// Set by the owner itself: the connection is ending, keep looking.
pub(crate) const ENDING: u32 = 4;
/// A port of the connection has gained or lost its link, or its address.
pub(crate) const PORT: u32 = 8;

impl Attention {
    /// The bits that are set. The cheap check of the hot path.
    pub(crate) fn bits(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn raise(&self, bits: u32) {
        self.0.fetch_or(bits, Ordering::Release);
    }

    /// Clears `bits`, and sees everything that was done before they were raised.
    pub(crate) fn clear(&self, bits: u32) {
        self.0.fetch_and(!bits, Ordering::AcqRel);
    }
}

/// Handle on the events thread. Dropping it ends and joins the thread.
pub(crate) struct Monitor {
    shared: Arc<Shared>,
    /// The process that has the thread.
    process: u32,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    epoll: Epoll,
    stop: EventFd,
    next_token: AtomicU64,
    watched: Mutex<HashMap<u64, Watched>>,
    /// Whether fatal events are told to the connections that they hit, or logged only.
    returns_events: bool,
}

enum Watched {
    Device {
        context: Context,
        changes: Arc<Changes>,
    },
    Connection {
        attention: Arc<Attention>,
        exposed: Vec<Exposed>,
        /// The fatal events that have hit it.
        fatal: Vec<Fatal>,
    },
}

/// What a connection uses of one device, and by which events can hit it.
#[derive(Clone, Debug)]
pub(crate) struct Exposed {
    pub(crate) device: DeviceToken,
    /// The port, if the connection wants [`PORT`] to be raised.
    pub(crate) port: Option<u8>,
    pub(crate) queue_pairs: Vec<u32>,
    pub(crate) completion_queues: Vec<CqId>,
}

/// Something that can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fatal {
    pub(crate) device: DeviceToken,
    pub(crate) subject: Subject,
}

/// What of a device a fatal event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Device,
    QueuePair(u32),
    CompletionQueue(CqId),
}

/// What an event means to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Fatal(Subject),
    /// What is known of the port may be out of date.
    PortChanged(u8),
    /// What is known of every port may be out of date.
    DeviceChanged,
    Nothing,
}

/// Names a watched device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceToken(u64);

/// A watched connection; watching ends when this is dropped.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    token: u64,
    stream: Arc<TcpStream>,
}

const STOP: u64 = 0;

impl Monitor {
    /// Starts the thread. `returns_events` says whether fatal events end the connections that they
    /// hit (`NCCL_IB_RETURN_ASYNC_EVENTS`).
    pub(crate) fn start(returns_events: bool) -> Result<Self, Error> {
        let failed = |errno: Errno| Error::system("starting the events thread", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let stop =
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(failed)?;
        epoll
            .add(&stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP))
            .map_err(failed)?;
        let shared = Arc::new(Shared {
            epoll,
            stop,
            next_token: AtomicU64::new(STOP + 1),
            watched: Mutex::new(HashMap::new()),
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
            process: std::process::id(),
            thread: Some(thread),
        })
    }

    /// Takes charge of the events of `context`, which stays open as long as the monitor runs. The
    /// token stands for this opened device, whatever becomes of the lists that it is in
    /// (pitfall 102); the changes are those of its `ports` ports.
    pub(crate) fn watch_device(
        &self,
        context: &Context,
        ports: u8,
    ) -> Result<(DeviceToken, Arc<Changes>), Error> {
        let token = self.shared.new_token();
        let changes = Arc::new(Changes::new(ports));
        self.shared.lock().insert(
            token,
            Watched::Device {
                context: context.clone(),
                changes: Arc::clone(&changes),
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
        Ok((DeviceToken(token), changes))
    }

    /// Watches the control channel `stream` of a connection, and the devices that it uses.
    pub(crate) fn watch_connection(
        &self,
        stream: &Arc<TcpStream>,
        attention: &Arc<Attention>,
        exposed: Vec<Exposed>,
    ) -> Result<Watch, Error> {
        let token = self.shared.new_token();
        let watched = Watched::Connection {
            attention: Arc::clone(attention),
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

impl Drop for Monitor {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A forked child: it has no such thread, and its parent's is none of its business.
            std::mem::forget(self.thread.take());
            return;
        }
        if let Err(errno) = self.shared.stop.write(1) {
            tracing::warn!(%errno, "cannot stop the events thread; it stays");
            return;
        }
        if let Some(thread) = self.thread.take()
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
    #[cfg_attr(not(test), expect(dead_code, reason = "connections have one path"))]
    pub(crate) fn fatal(&self) -> Vec<Fatal> {
        match self.shared.lock().get(&self.token) {
            Some(Watched::Connection { fatal, .. }) => fatal.clone(),
            _ => Vec::new(),
        }
    }

    /// Changes what the connection uses, as when a path was rebuilt with another queue pair.
    #[cfg_attr(not(test), expect(dead_code, reason = "paths are not rebuilt"))]
    pub(crate) fn expose(&self, now: Vec<Exposed>) {
        if let Some(Watched::Connection { exposed, .. }) = self.shared.lock().get_mut(&self.token) {
            *exposed = now;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The stream may never have been added; then there is nothing to remove.
        let _ = self.shared.epoll.delete(self.stream.as_fd());
        self.shared.lock().remove(&self.token);
    }
}

/// One event, then silence until the owner has looked: the thread never reads the channel itself.
fn control_flags() -> EpollFlags {
    EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLONESHOT
}

impl Shared {
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
                if event.data() == STOP {
                    return;
                }
                self.dispatch(event.data());
            }
        }
    }

    fn dispatch(&self, token: u64) {
        let (context, changes) = match self.lock().get(&token) {
            Some(Watched::Connection { attention, .. }) => {
                attention.raise(CONTROL);
                return;
            }
            Some(Watched::Device { context, changes }) => (context.clone(), Arc::clone(changes)),
            None => return,
        };
        let token = DeviceToken(token);
        // Outside the lock: acknowledging may wake a thread that destroys a queue pair.
        loop {
            match context.next_event() {
                Ok(Some(event)) => self.device_event(token, &changes, event),
                Ok(None) => return,
                Err(error) => {
                    // A device that was removed reports this for ever.
                    tracing::warn!(%error, device = context.device_name(), "no more events");
                    let _ = self.epoll.delete(context.async_fd());
                    self.act(token, &changes, Meaning::Fatal(Subject::Device));
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
    /// recovers serves later ones (pitfall 8).
    fn raise_fatal(&self, hit: Fatal) {
        for watched in self.lock().values_mut() {
            if let Watched::Connection {
                attention,
                exposed,
                fatal,
            } = watched
                && exposed.iter().any(|exposed| exposed.is_hit_by(hit))
            {
                if !fatal.contains(&hit) {
                    fatal.push(hit);
                }
                attention.raise(FATAL);
            }
        }
    }

    /// Tells the connections that use a port of the device, or any if none is named.
    fn raise_port(&self, device: DeviceToken, port: Option<u8>) {
        for watched in self.lock().values() {
            if let Watched::Connection {
                attention, exposed, ..
            } = watched
                && exposed.iter().any(|exposed| {
                    exposed.device == device
                        && exposed
                            .port
                            .is_some_and(|own| port.is_none_or(|port| own == port))
                })
            {
                attention.raise(PORT);
            }
        }
    }
}

impl Exposed {
    fn is_hit_by(&self, fatal: Fatal) -> bool {
        self.device == fatal.device
            && match fatal.subject {
                Subject::Device => true,
                Subject::QueuePair(number) => self.queue_pairs.contains(&number),
                Subject::CompletionQueue(id) => self.completion_queues.contains(&id),
            }
    }
}

/// What an event means, by its kind and what it names. Its port is the event's own, never that of
/// whoever happens to look (pitfall 5).
fn meaning(event: &AsyncEvent) -> Meaning {
    let kind = event.kind();
    if kind == EventType::DEVICE_FATAL {
        return Meaning::Fatal(Subject::Device);
    }
    if kind == EventType::DEVICE_SPEED_CHANGE {
        return Meaning::DeviceChanged;
    }
    if kind.is_fatal() {
        // Shared receive queues and work queues are not used here.
        let queue_pair = event.qp_number().map(Subject::QueuePair);
        let subject = queue_pair.or_else(|| event.cq_id().map(Subject::CompletionQueue));
        return subject.map_or(Meaning::Nothing, Meaning::Fatal);
    }
    event.port().map_or(Meaning::Nothing, Meaning::PortChanged)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(one), listener.accept().unwrap().0)
    }

    fn wait_for(attention: &Attention, bits: u32) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while attention.bits() & bits == 0 {
            if Instant::now() > deadline {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    #[test]
    fn data_raises_attention_once_until_rearmed() {
        let monitor = Monitor::start(true).unwrap();
        let (ours, mut theirs) = pair();
        let attention = Arc::new(Attention::default());
        let watch = monitor
            .watch_connection(&ours, &attention, Vec::new())
            .unwrap();
        theirs.write_all(b"x").unwrap();
        assert!(wait_for(&attention, CONTROL));
        attention.clear(CONTROL);
        let mut byte = [0];
        (&*ours).read_exact(&mut byte).unwrap();
        watch.rearm().unwrap();
        drop(theirs); // end of stream
        assert!(wait_for(&attention, CONTROL));
    }

    fn exposed(device: u64, port: Option<u8>, queue_pairs: &[u32]) -> Exposed {
        Exposed {
            device: DeviceToken(device),
            port,
            queue_pairs: queue_pairs.to_vec(),
            completion_queues: Vec::new(),
        }
    }

    fn fatal(device: u64, subject: Subject) -> Fatal {
        let device = DeviceToken(device);
        Fatal { device, subject }
    }

    #[test]
    fn fatal_events_latch_on_whom_they_name() {
        let monitor = Monitor::start(true).unwrap();
        let (ours, _theirs) = pair();
        let mine = Arc::new(Attention::default());
        let uses = vec![exposed(5, None, &[7]), exposed(9, None, &[8])];
        let watch = monitor.watch_connection(&ours, &mine, uses).unwrap();
        for other in [
            fatal(6, Subject::Device),
            fatal(5, Subject::QueuePair(8)),
            fatal(9, Subject::QueuePair(7)),
        ] {
            monitor.shared.raise_fatal(other);
        }
        assert_eq!(mine.bits(), 0);
        assert_eq!(watch.fatal(), []);
        let hits = [fatal(5, Subject::QueuePair(7)), fatal(9, Subject::Device)];
        for hit in [hits[0], hits[0], hits[1]] {
            monitor.shared.raise_fatal(hit);
            assert_eq!(mine.bits(), FATAL);
            mine.clear(FATAL);
        }
        assert_eq!(watch.fatal(), hits);
        // A rebuilt path has another queue pair.
        watch.expose(vec![exposed(5, None, &[17])]);
        monitor.shared.raise_fatal(hits[0]);
        assert_eq!(mine.bits(), 0);
        monitor.shared.raise_fatal(fatal(5, Subject::QueuePair(17)));
        assert_eq!(mine.bits(), FATAL);
    }

    #[test]
    fn who_does_not_want_events_is_not_hit() {
        let monitor = Monitor::start(false).unwrap();
        let (ours, _theirs) = pair();
        let mine = Arc::new(Attention::default());
        let uses = vec![exposed(5, None, &[7])];
        let _watch = monitor.watch_connection(&ours, &mine, uses).unwrap();
        let changes = Changes::new(1);
        let meaning = Meaning::Fatal(Subject::Device);
        monitor.shared.act(DeviceToken(5), &changes, meaning);
        assert_eq!(mine.bits(), 0);
        // What is known of it is out of date all the same.
        assert_eq!(changes.of(1), 1);
    }

    #[test]
    fn port_events_are_for_their_port() {
        // Pitfall 5: not for whichever port's thread happens to read them.
        let monitor = Monitor::start(true).unwrap();
        let (ours, _theirs) = pair();
        let mine = Arc::new(Attention::default());
        let uses = vec![exposed(5, Some(2), &[7])];
        let _watch = monitor.watch_connection(&ours, &mine, uses).unwrap();
        let changes = Changes::new(2);
        let act = |meaning| monitor.shared.act(DeviceToken(5), &changes, meaning);
        act(Meaning::PortChanged(1));
        assert_eq!((mine.bits(), changes.of(1), changes.of(2)), (0, 1, 0));
        act(Meaning::PortChanged(2));
        assert_eq!((mine.bits(), changes.of(1), changes.of(2)), (PORT, 1, 1));
        mine.clear(PORT);
        act(Meaning::DeviceChanged);
        assert_eq!((mine.bits(), changes.of(1), changes.of(2)), (PORT, 2, 2));
        // Numbers that no port has are harmless.
        act(Meaning::PortChanged(0));
        act(Meaning::PortChanged(255));
        assert_eq!((changes.of(0), changes.of(255)), (0, 0));
    }

    #[test]
    fn the_thread_ends_with_the_monitor_and_watches_outlive_it() {
        let monitor = Monitor::start(true).unwrap();
        let (ours, _theirs) = pair();
        let attention = Arc::new(Attention::default());
        let watch = monitor
            .watch_connection(&ours, &attention, Vec::new())
            .unwrap();
        drop(monitor); // joins
        assert_eq!(watch.shared.lock().len(), 1);
        drop(watch);
    }
}
