//! What each tier runs.

use std::io::{IsTerminal, stdout};
use std::process::Command;

use crate::cargo::cargo;
use crate::console::Console;
use crate::counts::Counts;
use crate::dist;
use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::{self, describe};
use crate::progress::note;
use crate::soft_roce::{self, Options};
use crate::stream::{self, End, Limits};

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

/// All tests and doctests of the workspace.
fn unit() -> Result<Outcome> {
    let mut test = cargo();
    test.args(["test", "--workspace", "--no-fail-fast"]);
    if stdout().is_terminal() {
        test.args(["--", "--color=always"]);
    }
    let mut counts = Counts::default();
    let mut on_line = |line: &str| add_to(&mut counts, line);
    let mut console = Console::of_job(stdout(), &mut on_line);
    let end = stream::run(&mut test, Limits::default(), &mut |piece| {
        console.feed(piece)
    })?;
    console.finish();
    drop(console);
    let End::Exited(status) = end else {
        fail!("`{}` did not end by itself", describe(&test));
    };
    Ok(of_tests(counts, status.success()))
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

fn add_to(counts: &mut Counts, line: &str) {
    if let Some(more) = Counts::from_line(line) {
        *counts += more;
    }
}
