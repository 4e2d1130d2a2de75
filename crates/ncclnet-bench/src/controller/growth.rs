//! What connections cost to make, and what their number does to messages.

use super::Failure;
use super::contender::{Connecting, Contender};
use super::turns::{Quantity, Turn, Values, lower};
use crate::stats::median;

const TIME: Quantity = lower("time to connect", "ms");
const PROCESSOR: Quantity = lower("processor time of both ends to connect", "ms");
const MEMORY: Quantity = lower("memory of one end", "KiB");

/// Connections are made in so many parts, in turn.
pub(super) const PARTS: usize = 5;

/// Microseconds between two polls when processor time is measured: who polls all the time needs all
/// the time there is.
const PAUSE: u64 = 100;

/// Makes some connections in each turn.
pub(super) struct Making<'a> {
    pub(super) label: String,
    pub(super) contender: &'a mut Contender,
    /// How many in each turn; the last one makes what is left.
    pub(super) each: usize,
    /// How many there are to be.
    pub(super) target: usize,
}

impl Turn for Making<'_> {
    fn label(&self) -> &str {
        &self.label
    }

    fn measure(&mut self) -> Result<Values, Failure> {
        let left = self.target.saturating_sub(self.contender.connections);
        let count = self.each.min(left);
        if count == 0 {
            return Ok(Vec::new());
        }
        let before = self.contender.memory()?;
        // Half of them polled all the time, half of them now and then; a single one is both.
        let busy = self.contender.connect(count.div_ceil(2), 0)?;
        let paused = self.contender.connect(count / 2, PAUSE)?;
        let after = self.contender.memory()?;
        let quiet = if paused.processor.is_empty() {
            &busy
        } else {
            &paused
        };
        let mut values = vec![
            (TIME, median(&busy.seconds) * 1e3),
            (PROCESSOR, mean(quiet) * 1e3),
        ];
        if count >= ENOUGH_FOR_MEMORY {
            let ends = 2.0 * count as f64;
            let grown = after.saturating_sub(before) as f64;
            values.push((MEMORY, grown / ends / 1024.0));
        }
        Ok(values)
    }
}

/// Of fewer connections, what the allocator has left over says more than what they need.
const ENOUGH_FOR_MEMORY: usize = 8;

fn mean(connecting: &Connecting) -> f64 {
    let count = connecting.processor.len().max(1);
    connecting.processor.iter().sum::<f64>() / count as f64
}
