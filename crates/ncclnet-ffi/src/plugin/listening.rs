//! Listening communicators: those that accept when they are asked to, and those that accept by
//! themselves.
//!
//! NCCL before 2.12 (API versions 2 to 4) calls `connect` and `accept` once and takes no "not yet" for an
//! answer, and it calls both in one thread, `connect` first, on every rank of a ring at the same time. So
//! neither may wait for the peer to call the other. Here that holds because such a listener accepts in the
//! background from the moment it is there: `connect` waits for the handshake with the *process* of the
//! peer, whatever that is doing, and `accept` takes a connection that stands already, or waits for one.
//!
//! One thread serves all of these listeners of the process. It is there while they are: for the moments
//! in which connections are made, as NCCL closes a listener after it has accepted. The library cannot be
//! unloaded (`build.rs`), so it does no harm that nobody joins it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ibnet::{Listener, RecvConnection};

use crate::fault::Fault;

/// How long the thread sleeps between two looks at its listeners, and how long those sleep that wait for
/// a connection: short beside the milliseconds that making one takes.
pub(super) const PAUSE: Duration = Duration::from_micros(200);

/// What `listen` gives.
pub(super) enum Listening {
    /// Accepts when it is asked to.
    WhenAsked(Box<Listener>),
    /// Accepts by itself.
    ByItself(Served),
}

impl Listening {
    /// A listener that accepts when it is asked to.
    pub(super) fn when_asked(listener: Listener) -> Self {
        Self::WhenAsked(Box::new(listener))
    }

    /// A listener that accepts by itself from now on.
    pub(super) fn by_itself(listener: Listener) -> Result<Self, Fault> {
        Ok(Self::ByItself(Served::begin(listener)?))
    }

    /// A connection that stands, if there is one.
    pub(super) fn poll_accept(&mut self) -> Result<Option<RecvConnection>, Fault> {
        match self {
            Self::WhenAsked(listener) => Ok(listener.poll_accept()?),
            Self::ByItself(served) => served.take(),
        }
    }
}

/// A listener that the thread serves for as long as this exists.
pub(super) struct Served(Arc<Mutex<Queue<Listener, RecvConnection>>>);

/// A listener, and what it has accepted and nobody has asked for.
struct Queue<L, C> {
    listener: L,
    accepted: VecDeque<Result<C, Fault>>,
}

impl<L, C> Queue<L, C> {
    /// Accepts what can be accepted now.
    fn serve(&mut self, poll_accept: impl Fn(&mut L) -> Result<Option<C>, Fault>) {
        loop {
            match poll_accept(&mut self.listener) {
                Ok(Some(connection)) => self.accepted.push_back(Ok(connection)),
                Ok(None) => return,
                Err(fault) => {
                    // One is enough to be told: a lasting fault would fill the memory.
                    if !matches!(self.accepted.back(), Some(Err(_))) {
                        self.accepted.push_back(Err(fault));
                    }
                    return;
                }
            }
        }
    }
}

impl Served {
    fn begin(listener: Listener) -> Result<Self, Fault> {
        let queue = Arc::new(Mutex::new(Queue {
            listener,
            accepted: VecDeque::new(),
        }));
        serve(Arc::downgrade(&queue))?;
        Ok(Self(queue))
    }

    fn take(&self) -> Result<Option<RecvConnection>, Fault> {
        lock(&self.0).accepted.pop_front().transpose()
    }
}

type Queues = Vec<Weak<Mutex<Queue<Listener, RecvConnection>>>>;

/// The listeners that the thread serves; none if there is no thread.
static SERVED: Mutex<Option<Queues>> = Mutex::new(None);

/// Has the thread serve another listener, and starts it if it is not there.
fn serve(queue: Weak<Mutex<Queue<Listener, RecvConnection>>>) -> Result<(), Fault> {
    let mut served = lock(&SERVED);
    if let Some(queues) = served.as_mut() {
        queues.push(queue);
        return Ok(());
    }
    thread::Builder::new()
        .name("ibnet-accept".to_owned())
        .spawn(serve_all)
        .map_err(|error| Fault::system(format!("no thread to accept connections: {error}")))?;
    *served = Some(vec![queue]);
    Ok(())
}

/// The thread.
fn serve_all() {
    block_signals();
    // However it ends: the next listener gets a new thread, which serves those that are left, too.
    let _gone = Gone;
    loop {
        let queues: Vec<_> = {
            let mut served = lock(&SERVED);
            let Some(all) = served.as_mut() else { return };
            all.retain(|queue| queue.strong_count() > 0);
            if all.is_empty() {
                *served = None;
                return;
            }
            all.iter().filter_map(Weak::upgrade).collect()
        };
        for queue in queues {
            lock(&queue).serve(|listener| Ok(listener.poll_accept()?));
        }
        thread::sleep(PAUSE);
    }
}

/// Notes that the thread has ended by a panic.
struct Gone;

impl Drop for Gone {
    fn drop(&mut self) {
        if thread::panicking() {
            *lock(&SERVED) = None;
        }
    }
}

/// Signals are for the threads of the program, whose handlers may expect to run on one of them.
fn block_signals() {
    // SAFETY: a set that is filled before it is used, in variables of this function.
    unsafe {
        let mut all = std::mem::MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener whose clients are prepared.
    type Prepared = VecDeque<Result<u32, Fault>>;

    fn serve(clients: impl IntoIterator<Item = Result<u32, Fault>>) -> Queue<Prepared, u32> {
        let mut queue = Queue {
            listener: clients.into_iter().collect(),
            accepted: VecDeque::new(),
        };
        // An error ends one look at the listener.
        for _ in 0..10 {
            queue.serve(|listener: &mut Prepared| listener.pop_front().transpose());
        }
        queue
    }

    #[test]
    fn connections_are_kept_in_their_order() {
        let queue = serve([Ok(1), Ok(2), Ok(3)]);
        assert_eq!(queue.accepted, [Ok(1), Ok(2), Ok(3)]);
    }

    #[test]
    fn a_fault_is_told_once_and_disturbs_no_connection() {
        let fault = || Err(Fault::usage("no"));
        let queue = serve([Ok(1), fault(), fault(), Ok(2), fault()]);
        assert_eq!(queue.accepted, [Ok(1), fault(), Ok(2), fault()]);
    }
}
