//! What each tier runs.

use std::process::Command;

use crate::cargo::cargo;
use crate::counts::Counts;
use crate::dist;
use crate::failure::{Context, Result};
use crate::paths;
use crate::process::{self, describe};
use crate::progress::note;
use crate::soft_roce::{self, Options};

use super::programs::{self, Run, add_to};
use super::summary::Outcome;

/// Runs a tier; an error means that it could not be run to its end.
type Tier = fn() -> Result<Outcome>;

/// The tiers that need nothing but a compiler, in order.
pub(super) const CHEAP: &[(&str, Tier)] = &[
    ("format", format),
    ("clippy", clippy),
    ("docs", docs),
    ("unit", unit),
    ("plugin", plugin),
    ("simulator", simulator),
];

fn format() -> Result<Outcome> {
    one_check(cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<Outcome> {
    one_check(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

fn docs() -> Result<Outcome> {
    one_check(
        cargo()
            .args(["doc", "--no-deps", "--workspace"])
            .env("RUSTDOCFLAGS", "-Dwarnings"),
    )
}

/// A tier that is one test: the command succeeds.
fn one_check(command: &mut Command) -> Result<Outcome> {
    let status = command
        .status()
        .context(|| format!("cannot run `{}`", describe(command)))?;
    if !status.success() {
        note(&format!("`{}` failed: {status}", describe(command)));
    }
    Ok(Outcome::Ran(Counts::one(status.success())))
}

/// All tests and doctests of the workspace, but for those of the tier `simulator`.
fn unit() -> Result<Outcome> {
    let (others, _) = programs::build()?;
    let mut run = Run::default();
    for program in &others {
        run.program(program)?;
    }
    run.command(cargo().args(["test", "--doc", "--workspace", "--no-fail-fast"]))?;
    Ok(of_tests(run.counts, run.success))
}

/// The tests that run on simulated devices.
fn simulator() -> Result<Outcome> {
    let (_, simulated) = programs::build()?;
    let mut run = Run::default();
    for program in &simulated {
        run.program(program)?;
    }
    Ok(of_tests(run.counts, run.success))
}

/// The library as it is given away, and the C side of its interface.
fn plugin() -> Result<Outcome> {
    let mut counts = dist::build_and_check()?;
    if let Some(passed) = c_layout()? {
        counts += Counts::one(passed);
    }
    Ok(Outcome::Ran(counts))
}

/// Compiles and runs the C program that checks the layouts in the header, if there is one.
fn c_layout() -> Result<Option<bool>> {
    let source = paths::plugin_crate("tests/c/layout.c");
    if !source.exists() {
        note(&format!(
            "no layouts are checked: {} is missing",
            source.display()
        ));
        return Ok(None);
    }
    let program = paths::target().join("layout-check");
    let mut compile = process::command("cc")?;
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]);
    compile
        .arg(paths::plugin_crate("include"))
        .arg(source)
        .arg("-o")
        .arg(&program);
    let result =
        process::run(&mut compile).and_then(|()| process::run(&mut Command::new(&program)));
    match &result {
        Ok(()) => note("the C header's layouts: ok"),
        Err(failure) => note(&format!("the C header's layouts: FAILED: {failure}")),
    }
    Ok(Some(result.is_ok()))
}

/// The scenarios on real RDMA verbs.
pub(super) fn soft_roce(options: &Options) -> Result<Outcome> {
    let mut counts = Counts::default();
    let status = soft_roce::run(options, &mut |line| add_to(&mut counts, line))?;
    Ok(of_tests(counts, status == 0))
}

fn of_tests(counts: Counts, success: bool) -> Outcome {
    if counts.total() == 0 {
        note("no line has told how many tests ran, as `3 passed, 0 failed` does");
    }
    Outcome::of_tests(counts, success)
}
