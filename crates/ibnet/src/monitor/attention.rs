//! [`Attention`]: how a connection is told, at the cost of one relaxed load for each of its calls.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bits that tell the owner of a connection to look at something off the hot path.
#[derive(Debug, Default)]
pub(crate) struct Attention(AtomicU32);

/// Something happened on the control channel.
pub(crate) const CONTROL: u32 = 1;
/// The device or the queue pair is beyond repair.
pub(crate) const FATAL: u32 = 2;
/// Set by the owner itself: the connection is ending, keep looking.
pub(crate) const ENDING: u32 = 4;
/// A port of the connection has gained or lost its link, or its address.
pub(crate) const PORT: u32 = 8;

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
