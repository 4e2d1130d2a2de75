//! What the person at the terminal sees of long steps: a line when one begins and how long it took.
//!
//! These lines go to standard error, so that standard output is the tested programs' own.

use std::time::Instant;

/// A step that is under way.
pub(crate) struct Step {
    began: Instant,
}

impl Step {
    /// Prints what is about to be done.
    pub(crate) fn begin(what: &str) -> Self {
        note(&format!("{what} ..."));
        Self {
            began: Instant::now(),
        }
    }

    /// Prints what has been reached, with the seconds since the beginning.
    pub(crate) fn done(&self, what: &str) {
        note(&format!("{what} ({:.1} s)", self.seconds()));
    }

    /// Seconds since the beginning.
    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

/// Prints one line of this program's own.
pub(crate) fn note(line: &str) {
    eprintln!("==> {line}");
}
