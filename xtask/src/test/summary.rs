//! How the tiers went, as a table, and what follows for the exit status.

use crate::counts::Counts;

/// How a tier went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It ran; it has failed if one of its tests has.
    Ran(Counts),
    /// It was left out.
    NotRun,
}

impl Outcome {
    /// A tier that could not be run to its end.
    pub(super) fn failed() -> Self {
        Self::Ran(Counts::one(false))
    }

    /// From the tests that a tier has counted and whether the program that ran them was content. A
    /// discontented program without a failed test has failed in another way, which counts as one;
    /// so does a tier of tests without any test.
    pub(super) fn of_tests(mut counts: Counts, success: bool) -> Self {
        if counts.failed == 0 && (!success || counts.passed == 0) {
            counts += Counts::one(false);
        }
        Self::Ran(counts)
    }

    /// How the table calls it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ran(counts) if counts.failed > 0 => "FAILED",
            Self::Ran(_) => "passed",
            Self::NotRun => "NOT RUN",
        }
    }
}

/// All tiers so far.
#[derive(Default)]
pub(super) struct Summary {
    tiers: Vec<(&'static str, Outcome, f64)>,
}

impl Summary {
    /// Adds a tier and the seconds that it took.
    pub(super) fn add(&mut self, name: &'static str, outcome: Outcome, seconds: f64) {
        self.tiers.push((name, outcome, seconds));
    }

    /// Whether nothing has failed, and, unless tiers may be left out, nothing was left out.
    pub(super) fn is_success(&self, may_leave_out: bool) -> bool {
        self.tiers.iter().all(|(_, outcome, _)| match outcome {
            Outcome::Ran(counts) => counts.failed == 0,
            Outcome::NotRun => may_leave_out,
        })
    }

    /// The table, and the sum of all tests as the last line.
    pub(super) fn render(&self) -> String {
        let mut text = format!(
            "\n{:<12}{:<10}{:>9}{:>9}\n",
            "tier", "result", "seconds", "tests"
        );
        let mut sum = Counts::default();
        for (name, outcome, seconds) in &self.tiers {
            let tests = match outcome {
                Outcome::Ran(counts) => {
                    sum += *counts;
                    counts.total().to_string()
                }
                Outcome::NotRun => "-".to_owned(),
            };
            text.push_str(&format!(
                "{name:<12}{:<10}{seconds:>9.1}{tests:>9}\n",
                outcome.word()
            ));
        }
        text.push_str(&format!("\n{} passed, {} failed\n", sum.passed, sum.failed));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(passed: u64, failed: u64) -> Outcome {
        Outcome::Ran(Counts { passed, failed })
    }

    #[test]
    fn a_tier_fails_without_a_failed_test_too() {
        let counts = Counts {
            passed: 5,
            failed: 0,
        };
        assert_eq!(Outcome::of_tests(counts, true), ran(5, 0));
        assert_eq!(Outcome::of_tests(counts, false), ran(5, 1));
        assert_eq!(
            Outcome::of_tests(
                Counts {
                    passed: 5,
                    failed: 2
                },
                false
            ),
            ran(5, 2)
        );
        assert_eq!(Outcome::of_tests(Counts::default(), true), ran(0, 1));
    }

    #[test]
    fn the_sum_is_the_last_line() {
        let mut summary = Summary::default();
        summary.add("unit", ran(12, 1), 3.25);
        summary.add("soft-roce", Outcome::NotRun, 0.0);
        let text = summary.render();
        assert_eq!(text.lines().last(), Some("12 passed, 1 failed"));
        let row = |name| {
            text.lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default()
        };
        assert_eq!(
            row("unit").split_whitespace().collect::<Vec<_>>(),
            ["unit", "FAILED", "3.2", "13"]
        );
        assert!(row("soft-roce").contains("NOT RUN"));
    }

    #[test]
    fn success_needs_every_tier_unless_some_may_be_left_out() {
        let mut summary = Summary::default();
        summary.add("unit", ran(3, 0), 1.0);
        assert!(summary.is_success(false));
        summary.add("soft-roce", Outcome::NotRun, 0.0);
        assert!(summary.is_success(true));
        assert!(!summary.is_success(false));
        summary.add("plugin", ran(2, 1), 1.0);
        assert!(!summary.is_success(true));
    }
}
