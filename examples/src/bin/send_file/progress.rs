//! A line for each tenth of the way.

use std::time::Instant;

use ibnet_examples::say;

pub(crate) struct Progress {
    doing: &'static str,
    total: u64,
    done: u64,
    tenths: u64,
    since: Instant,
}

impl Progress {
    /// `doing` is what begins now, of `total` bytes.
    pub(crate) fn new(doing: &'static str, total: u64) -> Self {
        Self {
            doing,
            total,
            done: 0,
            tenths: 0,
            since: Instant::now(),
        }
    }

    /// So many bytes more are done. Prints a line at each tenth.
    pub(crate) fn add(&mut self, bytes: u64) {
        if let Some(line) = self.line(bytes) {
            say!("{line}");
        }
    }

    fn line(&mut self, bytes: u64) -> Option<String> {
        self.done += bytes;
        let tenths = (u128::from(self.done) * 10)
            .checked_div(u128::from(self.total))
            .unwrap_or(10) as u64;
        if tenths <= self.tenths {
            return None;
        }
        self.tenths = tenths;
        let seconds = self.since.elapsed().as_secs_f64().max(1e-9);
        Some(format!(
            "{}: {:>3} %, {} of {} bytes, {:.1} MB/s",
            self.doing,
            tenths * 10,
            self.done,
            self.total,
            self.done as f64 / seconds / 1e6
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn there_is_one_line_for_each_tenth() {
        let mut progress = Progress::new("sent", 1000);
        let lines: Vec<_> = (0..1000).filter_map(|_| progress.line(1)).collect();
        assert_eq!(lines.len(), 10);
        assert!(lines[2].starts_with("sent:  30 %, 300 of 1000 bytes"));
        let mut progress = Progress::new("sent", 5);
        assert!(progress.line(5).unwrap().contains("100 %"));
        assert!(Progress::new("sent", 0).line(0).unwrap().contains("100 %"));
    }
}
