//! [`Changes`]: how the events thread tells that what is known of a port may be out of date.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the events of each port of an opened device. Whoever keeps a copy of a port's state
/// remembers the count from before it asked, and asks again when the count has moved.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Port n is at n - 1.
    ports: Vec<AtomicU64>,
}

impl Changes {
    pub(crate) fn new(ports: u8) -> Self {
        Self {
            ports: (0..ports).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The count of a port. Ports that do not exist never change.
    pub(crate) fn of(&self, port: u8) -> u64 {
        self.counter(port)
            .map_or(0, |count| count.load(Ordering::Acquire))
    }

    /// Something about the port has changed.
    pub(crate) fn note(&self, port: u8) {
        if let Some(count) = self.counter(port) {
            count.fetch_add(1, Ordering::Release);
        }
    }

    /// Something about the whole device has changed.
    pub(crate) fn note_all(&self) {
        for count in &self.ports {
            count.fetch_add(1, Ordering::Release);
        }
    }

    fn counter(&self, port: u8) -> Option<&AtomicU64> {
        self.ports.get(usize::from(port.checked_sub(1)?))
    }
}
