//! Listeners that accept by themselves.
//!
//! NCCL before 2.12 (API versions 2 to 4) calls `connect` and `accept` once and takes no "not yet" for an
//! answer, and it calls both in one thread, `connect` first, on every rank of a ring at the same time. So
//! neither may wait for the peer to call the other. Here that holds because such a listener accepts in a thread
//! of its own from the moment it is there: `connect` waits for the handshake with the *process* of the
//! peer, whatever that is doing, and `accept` takes a connection that stands already, or waits for one.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use ibnet::{Listener, RecvConnection, Wait};

use crate::fault::Fault;

/// How often the thread looks whether its listener is closed.
const LOOK: Duration = Duration::from_millis(50);

/// What a listener that accepts by itself has accepted.
pub(crate) struct Accepting {
    accepted: Mutex<Receiver<Result<RecvConnection, Fault>>>,
    /// Which process has the thread.
    forks: u32,
    /// The thread ends when this is gone. (The library cannot be unloaded, so it is not joined.)
    _open: Arc<()>,
}

impl Accepting {
    /// Has `listener` accept from now on.
    pub(crate) fn by_itself(mut listener: Listener) -> Result<Self, Fault> {
        let (sender, receiver) = mpsc::channel();
        let open = Arc::new(());
        let is_open = Arc::downgrade(&open);
        let serve = move || {
            block_signals();
            while Weak::strong_count(&is_open) > 0 {
                let accepted = listener.accept().wait_for(LOOK).map_err(Fault::from);
                let is_fault = accepted.is_err();
                if let Some(accepted) = accepted.transpose() {
                    // Without a receiver the listener is closed.
                    let _ = sender.send(accepted);
                }
                // It would follow again at once: there may be no descriptors left.
                if is_fault {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("ibnet-accept".to_owned())
            .spawn(serve)
            .map_err(|error| Fault::system(format!("no thread to accept connections: {error}")))?;
        Ok(Self {
            accepted: Mutex::new(receiver),
            forks: ibnet_verbs::forks(),
            _open: open,
        })
    }

    /// Waits for a connection.
    pub(crate) fn wait(&self) -> Result<RecvConnection, Fault> {
        // In a forked child there is no such thread, and the lock may have been held.
        if self.forks != ibnet_verbs::forks() {
            return Err(ibnet::Error::Forked.into());
        }
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted
            .recv()
            .unwrap_or_else(|_| Err(Fault::internal("the listener has failed before")))
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
