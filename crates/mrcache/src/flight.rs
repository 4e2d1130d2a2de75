//! [`Flight`]: a registration in progress, and those who wait for it.

use crate::entry::Entry;
use crate::memory::Key;
use crate::pages::PageRange;
use crate::registration::Registration;
use crate::sync::atomic::{AtomicBool, AtomicU32};
use crate::sync::{Arc, Condvar, Mutex, lock, thread};

/// A registration in progress.
pub(crate) struct Flight<R: Registration> {
    pub(crate) key: Key,
    pub(crate) pages: PageRange,
    /// Who registers.
    owner: thread::ThreadId,
    /// How many wait. Rises under the lock of the table of flights, while the flight is in there.
    pub(crate) waiters: AtomicU32,
    /// How many of them answer for all of the pages, if that matters.
    pub(crate) vouchers: AtomicU32,
    /// Whether the memory was invalidated meanwhile, and the flight taken from the table. Written
    /// under the table's lock.
    pub(crate) doomed: AtomicBool,
    outcome: Mutex<Option<Outcome<R>>>,
    landed: Condvar,
}

/// How a flight ended.
pub(crate) enum Outcome<R: Registration> {
    /// Each waiter's lease is counted in the entry already.
    Landed(Arc<Entry<R>>),
    /// The registrar's error.
    Failed(R::Error),
    /// The registrar panicked.
    Abandoned,
}

impl<R: Registration> Clone for Outcome<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Landed(entry) => Self::Landed(Arc::clone(entry)),
            Self::Failed(error) => Self::Failed(error.clone()),
            Self::Abandoned => Self::Abandoned,
        }
    }
}

impl<R: Registration> Flight<R> {
    pub(crate) fn new(key: Key, pages: PageRange) -> Self {
        Self {
            key,
            pages,
            owner: thread::current().id(),
            waiters: AtomicU32::new(0),
            vouchers: AtomicU32::new(0),
            doomed: AtomicBool::new(false),
            outcome: Mutex::new(None),
            landed: Condvar::new(),
        }
    }

    pub(crate) fn is_of_this_thread(&self) -> bool {
        self.owner == thread::current().id()
    }

    /// Tells the waiters.
    pub(crate) fn land(&self, outcome: Outcome<R>) {
        *lock(&self.outcome) = Some(outcome);
        self.landed.notify_all();
    }

    pub(crate) fn wait(&self) -> Outcome<R> {
        let mut outcome = lock(&self.outcome);
        loop {
            match &*outcome {
                Some(outcome) => return outcome.clone(),
                None => {
                    outcome = self
                        .landed
                        .wait(outcome)
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            }
        }
    }
}
