//! How many tests ran: read from the closing lines of test programs.

use std::ops::AddAssign;

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
}

impl Counts {
    /// One test: passed or failed.
    pub(crate) fn one(passed: bool) -> Self {
        Self {
            passed: u64::from(passed),
            failed: u64::from(!passed),
        }
    }

    /// How many ran.
    pub(crate) fn total(self) -> u64 {
        self.passed + self.failed
    }

    /// What a line says, if it closes a test run: cargo's `test result: ok. 3 passed; 0 failed; ...`
    /// or the plain `3 passed, 0 failed`, with which the scenarios close.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let line = without_colours(line);
        let line = line.trim();
        let (numbers, separator) = match line.strip_prefix("test result: ") {
            Some(rest) => (rest.split_once(". ")?.1, ';'),
            None => (line, ','),
        };
        let mut parts = numbers.split(separator);
        let passed = number_before(parts.next()?, "passed")?;
        let failed = number_before(parts.next()?, "failed")?;
        Some(Self { passed, failed })
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

fn number_before(part: &str, word: &str) -> Option<u64> {
    part.trim().strip_suffix(word)?.trim().parse().ok()
}

/// The line without terminal colour sequences (`ESC [ ... m`).
fn without_colours(line: &str) -> String {
    let mut pieces = line.split("\x1b[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain.push_str(piece.split_once('m').map_or(piece, |(_, text)| text));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let both = |passed, failed| Some(Counts { passed, failed });
        for (line, expected) in [
            (
                "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
                both(12, 0),
            ),
            (
                "test result: \x1b[31mFAILED\x1b(B\x1b[m. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
                both(1, 2),
            ),
            ("7 passed, 1 failed", both(7, 1)),
            ("  7 passed, 1 failed, 3 skipped\r", both(7, 1)),
            ("7 passed", None),
            ("all 7 passed, 1 failed", None),
            ("test result: ok", None),
            ("test transfer ... ok", None),
            ("-1 passed, 0 failed", None),
        ] {
            assert_eq!(Counts::from_line(line), expected, "{line}");
        }
    }

    #[test]
    fn counts_add_up() {
        let mut sum = Counts::one(true);
        sum += Counts::one(false);
        sum += Counts {
            passed: 3,
            failed: 0,
        };
        assert_eq!(
            sum,
            Counts {
                passed: 4,
                failed: 1
            }
        );
        assert_eq!(sum.total(), 5);
    }
}
