//! What each member of a device has carried.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use ibnet::{Observer, Piece};

/// What went over one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) parts: u64,
    pub(crate) bytes: u64,
}

/// Counts the parts of messages by the device that carries them. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<Mutex<Vec<Carried>>>);

impl Counter {
    /// Of each device, as many as were heard of.
    pub(crate) fn by_device(&self) -> Vec<Carried> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Observer for Counter {
    fn started(&mut self, _: NonZeroUsize, piece: &Piece) -> Option<NonZeroUsize> {
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if devices.len() <= piece.device {
            devices.resize(piece.device + 1, Carried::default());
        }
        devices[piece.device].parts += 1;
        devices[piece.device].bytes += piece.length as u64;
        // Its end is nothing to count.
        None
    }

    fn finished(&mut self, _: NonZeroUsize) {}
}
