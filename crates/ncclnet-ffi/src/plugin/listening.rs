//! Listeners that accept by themselves.
//!
//! NCCL before 2.12 (API versions 2 to 4) calls `connect` and `accept` once and takes no "not yet" for an
//! answer, and it calls both in one thread, `connect` first, on every rank of a ring at the same time. So
//! neither may wait for the peer to call the other. Here that holds because such a listener accepts in a thread
//! of its own from the moment it is there: `connect` waits for the handshake with the *process* of the
//! peer, whatever that is doing, and `accept` takes a connection that stands already, or waits for one.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use ibnet::{Listener, RecvConnection};

use crate::fault::Fault;

/// Connections, and faults, that may wait for `accept`.
const WAITING: usize = 16;

/// After a fault the thread pauses, because the next one may follow at once: there may be no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// What a listener that accepts by itself has accepted. Dropped, it ends the thread and the listener.
pub(crate) struct Accepted {
    connections: Mutex<Receiver<Result<RecvConnection, Fault>>>,
    thread: Thread,
    is_over: Arc<AtomicBool>,
}

impl Accepted {
    /// Has `listener` accept from now on.
    pub(super) fn by_itself(listener: Listener) -> Result<Self, Fault> {
        let (sender, connections) = mpsc::sync_channel(WAITING);
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new()
            .name("ibnet-accept".to_owned())
            .spawn({
                let is_over = Arc::clone(&is_over);
                move || serve(listener, &sender, &is_over)
            })
            .map_err(|error| Fault::system(format!("no thread to accept connections: {error}")))?;
        Ok(Self {
            connections: Mutex::new(connections),
            thread: thread.thread().clone(),
            is_over,
        })
    }

    /// Waits for a connection.
    pub(crate) fn wait(&self) -> Result<RecvConnection, Fault> {
        let connections = self.connections.lock();
        let connections = connections.unwrap_or_else(PoisonError::into_inner);
        connections
            .recv()
            .map_err(|_| Fault::internal("the listener has ended"))?
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The thread. The library cannot be unloaded (`build.rs`), so it does no harm that it is not joined.
fn serve(
    mut listener: Listener,
    sender: &SyncSender<Result<RecvConnection, Fault>>,
    is_over: &AtomicBool,
) {
    block_signals();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        let mut accept = pin!(listener.accept_async());
        let accepted = loop {
            if is_over.load(Ordering::Acquire) {
                return;
            }
            match accept.as_mut().poll(&mut context) {
                Poll::Ready(accepted) => break accepted,
                Poll::Pending => thread::park(),
            }
        };
        let is_fault = accepted.is_err();
        // Waits while there is no room; fails once nothing can take it any more.
        if sender.send(accepted.map_err(Fault::from)).is_err() {
            return;
        }
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
