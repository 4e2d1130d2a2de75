//! The table, as nccl-tests print it, and the line of progress below it.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use ibnet_examples::{complain, say};

/// What all ranks together say about a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// Bytes of each rank's vector.
    pub(crate) size: usize,
    /// Time of a round in microseconds: that of the slowest rank.
    pub(crate) microseconds: f64,
    /// Wrong elements of all ranks, if they were checked.
    pub(crate) wrong: Option<u64>,
}

impl Row {
    /// Bytes of the vector per time, in GB/s (10^9).
    pub(crate) fn algorithm_bandwidth(&self) -> f64 {
        self.size as f64 / self.microseconds / 1000.0
    }

    /// What each link carried, in GB/s: every element is sent 2(n-1)/n times by every rank.
    pub(crate) fn bus_bandwidth(&self, ranks: usize) -> f64 {
        self.algorithm_bandwidth() * 2.0 * (ranks - 1) as f64 / ranks as f64
    }

    fn line(&self, ranks: usize) -> String {
        let wrong = self
            .wrong
            .map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
        format!(
            "{:>12} {:>13} {:>9} {:>7} {:>11.2} {:>9.4} {:>9.4} {:>8}",
            self.size,
            self.size / 4,
            "float",
            "sum",
            self.microseconds,
            self.algorithm_bandwidth(),
            self.bus_bandwidth(ranks),
            wrong
        )
    }
}

/// Prints the table to standard output as it grows, and progress to standard error.
pub(crate) struct Report {
    ranks: usize,
    is_terminal: bool,
    shown: Option<Instant>,
    bandwidths: Vec<f64>,
    /// None as long as nothing was checked.
    wrong: Option<u64>,
}

impl Report {
    pub(crate) fn begin(devices: &[String]) -> Self {
        for (rank, device) in devices.iter().enumerate() {
            say!("# rank {rank:>2}: {device}");
        }
        say!("#");
        say!(
            "#{:>11} {:>13} {:>9} {:>7} {:>11} {:>9} {:>9} {:>8}",
            "size",
            "count",
            "type",
            "redop",
            "time",
            "algbw",
            "busbw",
            "#wrong"
        );
        say!(
            "#{:>11} {:>13} {:>9} {:>7} {:>11} {:>9} {:>9} {:>8}",
            "(B)",
            "(elements)",
            "",
            "",
            "(us)",
            "(GB/s)",
            "(GB/s)",
            ""
        );
        Self {
            ranks: devices.len(),
            is_terminal: std::io::stderr().is_terminal(),
            shown: None,
            bandwidths: Vec::new(),
            wrong: None,
        }
    }

    /// `done` of `rounds` rounds of a size. Not every call shows something.
    pub(crate) fn progress(&mut self, size: usize, done: u32, rounds: u32) {
        let interval = Duration::from_secs(if self.is_terminal { 0 } else { 5 });
        let now = Instant::now();
        // Into a file or a pipe only what takes long, and from the first interval on.
        let since = *self.shown.get_or_insert(now);
        if !self.is_terminal && now - since < interval {
            return;
        }
        self.shown = Some(now);
        let text = format!("{size} bytes: round {done} of {rounds}");
        if self.is_terminal {
            show(&format!("\r{text}\x1b[K"));
        } else {
            complain!("{text}");
        }
    }

    pub(crate) fn row(&mut self, row: &Row) {
        self.clear_progress();
        say!("{}", row.line(self.ranks));
        self.bandwidths.push(row.bus_bandwidth(self.ranks));
        if let Some(wrong) = row.wrong {
            self.wrong = Some(self.wrong.unwrap_or(0) + wrong);
        }
        self.shown = None;
    }

    /// The last lines. How many elements were wrong is the result.
    pub(crate) fn end(self) -> u64 {
        let average = self.bandwidths.iter().sum::<f64>() / self.bandwidths.len().max(1) as f64;
        say!("#");
        match self.wrong {
            Some(wrong) => say!("# wrong elements: {wrong}"),
            None => say!("# the results were not checked"),
        }
        say!("# average bus bandwidth: {average:.4} GB/s");
        self.wrong.unwrap_or(0)
    }

    pub(crate) fn clear_progress(&self) {
        if self.is_terminal && self.shown.is_some() {
            show("\r\x1b[K");
        }
    }
}

/// Writes to the terminal, as it is. What cannot be shown is no reason to stop.
fn show(text: &str) {
    let mut terminal = std::io::stderr();
    let _ = terminal
        .write_all(text.as_bytes())
        .and_then(|()| terminal.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        let row = Row {
            size: 1_000_000,
            microseconds: 1000.0,
            wrong: Some(0),
        };
        assert!((row.algorithm_bandwidth() - 1.0).abs() < 1e-9);
        assert!((row.bus_bandwidth(2) - 1.0).abs() < 1e-9);
        assert!((row.bus_bandwidth(4) - 1.5).abs() < 1e-9);
    }

    #[test]
    fn a_line_has_all_columns() {
        let row = Row {
            size: 8,
            microseconds: 12.345,
            wrong: None,
        };
        let line = row.line(4);
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(columns[..5], ["8", "2", "float", "sum", "12.35"]);
        assert_eq!(columns[7], "N/A");
    }
}
