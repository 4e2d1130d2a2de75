//! The programs of tests: which tier each belongs to, and running them.
//!
//! They are built as one, so that nothing is compiled twice, and run one by one rather than by cargo,
//! which cannot be told to run all integration tests but some.

use std::io::{IsTerminal, Write, stdout};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cargo::{self, TestProgram};
use crate::console::Console;
use crate::counts::Counts;
use crate::failure::{Result, fail};
use crate::paths;
use crate::process::describe;
use crate::progress::{Step, note};
use crate::stream::{self, End, Limits};

/// The tier `simulator`: folders of packages, and which of their integration tests (all if none is
/// named). Whatever is not in here belongs to the tier `unit`.
const SIMULATED: &[(&str, &[&str])] = &[
    ("crates/simverbs", &[]),
    ("crates/ncclnet-sim", &[]),
    ("crates/scenarios", &["simulator"]),
    ("crates/ibnet", &[]),
    ("examples", &[]),
];

/// None of these takes nearly so long, unless it hangs.
const LIMIT: Duration = Duration::from_secs(900);

/// Builds all tests: first those of the tier `unit`, then those of the tier `simulator`.
pub(super) fn build() -> Result<(Vec<TestProgram>, Vec<TestProgram>)> {
    divide(cargo::build_tests()?, SIMULATED)
}

/// Divides programs into those that are not in the list and those that are. An entry of the list
/// that is not there is an error, because its tests would be missed.
fn divide(
    all: Vec<TestProgram>,
    list: &[(&str, &[&str])],
) -> Result<(Vec<TestProgram>, Vec<TestProgram>)> {
    let is_of = |program: &TestProgram, folder: &str, target: &str| {
        program.is_integration
            && program.folder == paths::root().join(folder)
            && (target == program.target || target == "*")
    };
    let entries: Vec<(&str, &str)> = list
        .iter()
        .flat_map(|(folder, targets)| {
            let targets = if targets.is_empty() { &["*"] } else { *targets };
            targets.iter().map(|target| (*folder, *target))
        })
        .collect();
    for (folder, target) in &entries {
        if !all.iter().any(|program| is_of(program, folder, target)) {
            fail!("the tier `simulator` names the test {target} of {folder}, which is not there");
        }
    }
    Ok(all.into_iter().partition(|program| {
        !entries
            .iter()
            .any(|(folder, target)| is_of(program, folder, target))
    }))
}

/// Tests that were run, one program after the other.
pub(super) struct Run {
    /// What they counted.
    pub(super) counts: Counts,
    /// Whether all ended well.
    pub(super) success: bool,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            success: true,
        }
    }
}

impl Run {
    /// Runs a program of tests, in the folder that cargo would run it in.
    pub(super) fn program(&mut self, program: &TestProgram) -> Result<()> {
        let folder = program.folder.strip_prefix(paths::root());
        let folder = folder.unwrap_or(&program.folder).display();
        let step = Step::begin(&format!("tests: {} of {folder}", program.target));
        let mut command = Command::new(&program.path);
        command
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder)
            // Real devices have a tier of their own.
            .env_remove("IBNET_TEST_DEVICES")
            .env_remove("IBNET_TEST_PAIRS")
            .stdin(Stdio::null());
        if stdout().is_terminal() {
            command.arg("--color=always");
        }
        self.command(&mut command)?;
        step.done("ended");
        Ok(())
    }

    /// Runs a command, shows what it prints, and counts the tests that it tells of.
    pub(super) fn command(&mut self, command: &mut Command) -> Result<()> {
        self.watch(command, stdout())
    }

    fn watch(&mut self, command: &mut Command, output: impl Write) -> Result<()> {
        let mut on_line = |line: &str| add_to(&mut self.counts, line);
        let mut console = Console::of_job(output, &mut on_line);
        let limits = Limits {
            silence: None,
            total: Some(LIMIT),
        };
        let end = stream::run(command, limits, &mut |piece| console.feed(piece))?;
        console.finish();
        drop(console);
        match end {
            End::Exited(status) if status.success() => {}
            End::Exited(status) => {
                note(&format!("`{}` failed: {status}", describe(command)));
                self.success = false;
            }
            End::Silent(limit) | End::TooLong(limit) => {
                let seconds = limit.as_secs();
                note(&format!("`{}` hangs: {seconds} s", describe(command)));
                self.success = false;
            }
        }
        Ok(())
    }
}

/// Adds the tests that a line tells of.
pub(super) fn add_to(counts: &mut Counts, line: &str) {
    if let Some(more) = Counts::from_line(line) {
        *counts += more;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn program(folder: &str, target: &str, is_integration: bool) -> TestProgram {
        TestProgram {
            folder: paths::root().join(folder),
            target: target.to_owned(),
            is_integration,
            path: format!("/t/{folder}/{target}").into(),
        }
    }

    fn targets(programs: &[TestProgram]) -> Vec<&str> {
        programs
            .iter()
            .map(|program| program.target.as_str())
            .collect()
    }

    #[test]
    fn each_program_is_in_one_tier() {
        let all = vec![
            program("crates/sim", "sim", false),
            program("crates/sim", "one", true),
            program("crates/sim", "two", true),
            program("crates/both", "chosen", true),
            program("crates/both", "other", true),
            program("crates/third", "chosen", true),
        ];
        let list: &[(&str, &[&str])] = &[("crates/sim", &[]), ("crates/both", &["chosen"])];
        let (unit, simulated) = divide(all, list).unwrap();
        assert_eq!(targets(&unit), ["sim", "other", "chosen"]);
        assert_eq!(targets(&simulated), ["one", "two", "chosen"]);
        assert_eq!(unit[2].folder, paths::root().join("crates/third"));
    }

    #[test]
    fn a_test_that_is_gone_is_missed() {
        let all = || vec![program("crates/a", "one", true)];
        let failure = divide(all(), &[("crates/a", &["two"])]).unwrap_err();
        assert!(failure.to_string().contains("two of crates/a"), "{failure}");
        assert!(divide(all(), &[("crates/b", &[])]).is_err());
        let no_integration = vec![program("crates/a", "a", false)];
        assert!(divide(no_integration, &[("crates/a", &[])]).is_err());
    }

    #[test]
    fn tests_are_counted_and_failures_noticed() {
        let mut run = Run::default();
        let mut shown = Vec::new();
        let mut shell = |run: &mut Run, script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::null());
            run.watch(&mut command, &mut shown).unwrap();
        };
        shell(&mut run, "echo '3 passed, 0 failed'");
        shell(
            &mut run,
            "echo 'test result: ok. 4 passed; 0 failed; 0 ignored'",
        );
        assert!(run.success);
        shell(&mut run, "echo '1 passed, 2 failed'; exit 1");
        assert!(!run.success);
        let counts = Counts {
            passed: 8,
            failed: 2,
        };
        assert_eq!(run.counts, counts);
        assert!(shown.starts_with(b"3 passed, 0 failed\ntest result"));
    }
}
