//! [`Pending`]: a registration that a thread is making, and that others may wait for.

use crate::entry::Entry;
use crate::memory::Key;
use crate::pages::PageRange;
use crate::registration::Registration;
use crate::request::Wanted;
use crate::sync::{Arc, thread};

pub(crate) struct Pending<R: Registration> {
    pub(crate) number: u64,
    pub(crate) key: Key,
    pub(crate) pages: PageRange,
    owner: thread::ThreadId,
    /// How many threads wait.
    pub(crate) waiters: u32,
    /// How many of them want all of the pages.
    full_waiters: u32,
    /// The memory has been invalidated meanwhile: the waiting threads get it, and it is not found.
    pub(crate) is_invalidated: bool,
    /// Set at the end if others wait; the last of them takes it away.
    pub(crate) outcome: Option<Outcome<R>>,
}

/// How it ended: an entry that has counted the leases of the waiting threads already; or the registrar's
/// error; or none if the registrar panicked.
pub(crate) type Outcome<R> = Result<Arc<Entry<R>>, Option<Arc<<R as Registration>::Error>>>;

impl<R: Registration> Pending<R> {
    /// Begins in this thread.
    pub(crate) fn new(number: u64, key: Key, pages: PageRange) -> Self {
        Self {
            number,
            key,
            pages,
            owner: thread::current().id(),
            waiters: 0,
            full_waiters: 0,
            is_invalidated: false,
            outcome: None,
        }
    }

    /// Adds a thread that waits for it.
    pub(crate) fn add_waiter(&mut self, is_full: bool) {
        self.waiters += 1;
        self.full_waiters += u32::from(is_full);
    }

    /// What it becomes.
    pub(crate) fn entry(&self, registration: R) -> Entry<R> {
        let (leases, full) = (1 + self.waiters, 1 + self.full_waiters);
        Entry::new(registration, self.key, self.pages, leases, full)
    }

    pub(crate) fn is_of_this_thread(&self) -> bool {
        self.owner == thread::current().id()
    }

    /// Whether its registration will do for `wanted`.
    pub(crate) fn covers(&self, wanted: &Wanted) -> bool {
        !self.is_invalidated
            && self.outcome.is_none()
            && self.key.serves(&wanted.key)
            && self.pages.start() <= wanted.first
            && self.pages.last() >= wanted.last
    }
}
