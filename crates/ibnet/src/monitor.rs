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
use verbs::Context;

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
}

enum Watched {
    Device {
        context: Context,
    },
    Connection {
        attention: Arc<Attention>,
        device: DeviceToken,
        queue_pairs: Vec<u32>,
    },
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
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, Error> {
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

    /// Takes charge of the events of `context`, which stays open as long as the monitor runs.
    pub(crate) fn watch_device(&self, context: &Context) -> Result<DeviceToken, Error> {
        let token = self.shared.new_token();
        self.shared.lock().insert(
            token,
            Watched::Device {
                context: context.clone(),
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

    /// Watches the control channel `stream` of a connection with `queue_pairs` on `device`.
    pub(crate) fn watch_connection(
        &self,
        stream: &Arc<TcpStream>,
        attention: &Arc<Attention>,
        device: DeviceToken,
        queue_pairs: Vec<u32>,
    ) -> Result<Watch, Error> {
        let token = self.shared.new_token();
        let watched = Watched::Connection {
            attention: Arc::clone(attention),
            device,
            queue_pairs,
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
        let context = match self.lock().get(&token) {
            Some(Watched::Connection { attention, .. }) => {
                attention.raise(CONTROL);
                return;
            }
            Some(Watched::Device { context }) => context.clone(),
            None => return,
        };
        // Outside the lock: acknowledging may wake a thread that destroys a queue pair.
        loop {
            match context.next_event() {
                Ok(Some(event)) => self.device_event(token, &context, event),
                Ok(None) => return,
                Err(error) => {
                    // A device that was removed reports this for ever.
                    tracing::warn!(%error, device = context.device_name(), "no more events");
                    let _ = self.epoll.delete(context.async_fd());
                    self.raise_fatal(token, None);
                    return;
                }
            }
        }
    }

    fn device_event(&self, token: u64, context: &Context, event: verbs::AsyncEvent) {
        let device = context.device_name();
        let (is_fatal, queue_pair) = (event.is_fatal(), event.qp_number());
        if is_fatal {
            tracing::warn!(device, %event, "fatal event");
        } else {
            tracing::info!(device, %event, "event");
        }
        // Acknowledged before anybody is told: who is told may destroy the queue pair, which waits
        // for the acknowledgement.
        drop(event);
        if is_fatal {
            self.raise_fatal(token, queue_pair);
        }
    }

    /// Tells the connections of a device, or of one queue pair of it.
    fn raise_fatal(&self, token: u64, queue_pair: Option<u32>) {
        for watched in self.lock().values() {
            if let Watched::Connection {
                attention,
                device,
                queue_pairs,
            } = watched
                && device.0 == token
                && queue_pair.is_none_or(|number| queue_pairs.contains(&number))
            {
                attention.raise(FATAL);
            }
        }
    }
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
        let monitor = Monitor::start().unwrap();
        let (ours, mut theirs) = pair();
        let attention = Arc::new(Attention::default());
        let watch = monitor
            .watch_connection(&ours, &attention, DeviceToken(99), vec![7])
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

    #[test]
    fn fatal_events_reach_whom_they_concern() {
        let monitor = Monitor::start().unwrap();
        let (ours, _theirs) = pair();
        let mine = Arc::new(Attention::default());
        let _watch = monitor
            .watch_connection(&ours, &mine, DeviceToken(5), vec![7])
            .unwrap();
        monitor.shared.raise_fatal(6, None);
        monitor.shared.raise_fatal(5, Some(8));
        assert_eq!(mine.bits(), 0);
        monitor.shared.raise_fatal(5, Some(7));
        assert_eq!(mine.bits(), FATAL);
        mine.clear(FATAL);
        monitor.shared.raise_fatal(5, None);
        assert_eq!(mine.bits(), FATAL);
    }

    #[test]
    fn the_thread_ends_with_the_monitor_and_watches_outlive_it() {
        let monitor = Monitor::start().unwrap();
        let (ours, _theirs) = pair();
        let attention = Arc::new(Attention::default());
        let watch = monitor
            .watch_connection(&ours, &attention, DeviceToken(1), Vec::new())
            .unwrap();
        drop(monitor); // joins
        assert_eq!(watch.shared.lock().len(), 1);
        drop(watch);
    }
}
