//! Listeners that accept by themselves.
//!
//! NCCL before 2.12 (API versions 2 to 4) calls `connect` and `accept` once and takes no "not yet" for an
//! answer, and it calls both in one thread, `connect` first, on every rank of a ring at the same time. So
//! neither may wait for the peer to call the other. Here that holds because such a listener accepts in a thread
//! of its own from the moment it is there: `connect` waits for the handshake with the *process* of the
//! peer, whatever that is doing, and `accept` takes a connection that stands already, or waits for one.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use ibnet::{Listener, RecvConnection};

use crate::fault::Fault;
use crate::handles::HandleError;

/// After a fault the thread pauses, because the next one may follow at once: there may be no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// What a listener that accepts by itself has accepted.
pub(crate) struct Accepted {
    shared: Arc<Shared>,
    thread: Thread,
    /// Which process has the thread.
    forks: u32,
}

/// What the thread and `accept` have in common.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    connections: VecDeque<RecvConnection>,
    /// The last fault, unless a connection came after it.
    fault: Option<Fault>,
    /// The listener was closed.
    is_over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accepted {
    /// Has `listener` accept from now on.
    pub(super) fn by_itself(listener: Listener) -> Result<Self, Fault> {
        let shared = Arc::<Shared>::default();
        let thread = thread::Builder::new()
            .name("ibnet-accept".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || serve(listener, &shared)
            })
            .map_err(|error| Fault::system(format!("no thread to accept connections: {error}")))?;
        Ok(Self {
            shared,
            thread: thread.thread().clone(),
            forks: ibnet_verbs::forks(),
        })
    }

    /// Waits for a connection, until the listener is closed.
    pub(crate) fn wait(&self) -> Result<RecvConnection, Fault> {
        if self.forks != ibnet_verbs::forks() {
            return Err(ibnet::Error::Forked.into());
        }
        let mut state = self.shared.state();
        loop {
            if state.is_over {
                return Err(HandleError::Stale.into());
            }
            if let Some(connection) = state.connections.pop_front() {
                return Ok(connection);
            }
            if let Some(fault) = state.fault.take() {
                return Err(fault);
            }
            state = self
                .shared
                .news
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the thread and the listener, and a call that waits.
    pub(super) fn end(&self) {
        // In a forked child there is no such thread, and the lock may have been held.
        if self.forks == ibnet_verbs::forks() {
            self.shared.state().is_over = true;
            self.shared.news.notify_all();
            self.thread.unpark();
        }
    }
}

/// The thread. The library cannot be unloaded (`build.rs`), so it does no harm that it is not joined.
fn serve(mut listener: Listener, shared: &Shared) {
    block_signals();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        let mut accept = pin!(listener.accept());
        let accepted = loop {
            if shared.state().is_over {
                return;
            }
            match accept.as_mut().poll(&mut context) {
                Poll::Ready(accepted) => break accepted,
                Poll::Pending => thread::park(),
            }
        };
        let is_fault = accepted.is_err();
        {
            let mut state = shared.state();
            match accepted {
                Ok(connection) => {
                    state.connections.push_back(connection);
                    state.fault = None;
                }
                Err(error) => state.fault = Some(error.into()),
            }
        }
        shared.news.notify_one();
        if is_fault {
            thread::park_timeout(PAUSE);
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
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
