//! [`Pool`]: registrations that nobody has a lease on, kept in case they are wanted again.
//!
//! A list in the order of last use, in an array: adding, removing and finding the oldest are O(1).

use crate::entry::{Entry, NOT_IDLE};
use crate::registration::Registration;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// How many idle registrations are kept at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleLimits {
    /// Registrations. With 0 none is kept.
    pub entries: usize,
    /// Bytes of registered pages. A registration that alone exceeds them is not kept.
    pub bytes: usize,
}

pub(crate) struct Pool<R: Registration> {
    limits: IdleLimits,
    places: Vec<Place<R>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    length: usize,
    bytes: usize,
    /// The cache is gone: nothing is kept any more.
    pub(crate) is_closed: bool,
}

struct Place<R: Registration> {
    entry: Option<Arc<Entry<R>>>,
    older: u32,
    newer: u32,
}

impl<R: Registration> Pool<R> {
    pub(crate) fn new(limits: IdleLimits) -> Self {
        Self {
            limits,
            places: Vec::new(),
            free: Vec::new(),
            oldest: NOT_IDLE,
            newest: NOT_IDLE,
            length: 0,
            bytes: 0,
            is_closed: false,
        }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn exceeds_limits(&self) -> bool {
        self.length > self.limits.entries || self.bytes > self.limits.bytes
    }

    /// Adds an entry as the most recently used, unless it is in already.
    pub(crate) fn add(&mut self, entry: &Arc<Entry<R>>) {
        if entry.idle_place.load(Ordering::Relaxed) != NOT_IDLE {
            return;
        }
        let place = Place {
            entry: Some(Arc::clone(entry)),
            older: self.newest,
            newer: NOT_IDLE,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = place;
                number
            }
            None => {
                self.places.push(place);
                // As many entries would need terabytes.
                (self.places.len() - 1) as u32
            }
        };
        match self.places.get_mut(self.newest as usize) {
            Some(before) => before.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
        entry.idle_place.store(number, Ordering::Relaxed);
        self.length += 1;
        // Saturates if all of the address space is idle more than once.
        self.bytes = self.bytes.saturating_add(entry.pages.length());
    }

    /// Takes an entry out, if it is in. The caller drops it after unlocking.
    pub(crate) fn remove(&mut self, entry: &Entry<R>) -> Option<Arc<Entry<R>>> {
        let number = entry.idle_place.swap(NOT_IDLE, Ordering::Relaxed);
        let place = self.places.get_mut(number as usize)?;
        let (older, newer) = (place.older, place.newer);
        let taken = place.entry.take();
        match self.places.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.places.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
        self.free.push(number);
        self.length -= 1;
        self.bytes = self.bytes.saturating_sub(entry.pages.length());
        taken
    }

    /// The entry that was used longest ago.
    pub(crate) fn oldest(&self) -> Option<Arc<Entry<R>>> {
        self.places.get(self.oldest as usize)?.entry.clone()
    }

    /// Heap bytes of the pool itself.
    pub(crate) fn overhead(&self) -> usize {
        self.places.capacity() * size_of::<Place<R>>() + self.free.capacity() * size_of::<u32>()
    }
}
