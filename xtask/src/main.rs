//! `cargo xtask`: sets up a machine, builds the plugin, runs the tests, the demo and the benchmark.
//!
//! One file or folder per subcommand, and a few shared tools below them. The program depends on
//! none of the other crates and on nothing but the standard library, so that it builds on a bare
//! machine and can install what the others need. What the Soft-RoCE machine is and how it works is
//! told in `docs/soft-roce.md`.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod cargo;
mod console;
mod counts;
mod demo;
mod dist;
mod failure;
mod faults;
mod paths;
mod process;
mod progress;
mod setup;
mod soft_roce;
mod stream;
mod test;

use std::process::ExitCode;

use crate::args::{Flag, Parsed, Request};
use crate::failure::{Context, Result, fail};

/// One subcommand: its name, what `--help` says of it, its options, and its entry point, which
/// returns the exit status of the whole program.
struct Subcommand {
    name: &'static str,
    summary: &'static str,
    flags: &'static [&'static [Flag]],
    run: fn(&Parsed) -> Result<u8>,
}

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "setup",
        summary: "Install what building and testing need and this machine lacks",
        flags: &[],
        run: setup::command,
    },
    Subcommand {
        name: "test",
        summary: "Run every tier of tests, in order, and print a summary",
        flags: &[test::FLAGS, soft_roce::MACHINE_FLAGS],
        run: test::command,
    },
    Subcommand {
        name: "faults",
        summary: "Put the faults of docs/pitfalls.md back, and see the tests that it names turn red",
        flags: &[faults::FLAGS],
        run: faults::command,
    },
    Subcommand {
        name: "soft-roce-test",
        summary: "Run the scenarios on real RDMA verbs: Soft-RoCE in a virtual machine, or devices",
        flags: &[soft_roce::FLAGS, soft_roce::MACHINE_FLAGS],
        run: soft_roce::command,
    },
    Subcommand {
        name: "demo",
        summary: "Run a checked ring all-reduce of several ranks through the plugin",
        flags: &[demo::FLAGS, soft_roce::MACHINE_FLAGS],
        run: demo::command,
    },
    Subcommand {
        name: "bench",
        summary: "Measure the plugin beside NCCL's own transport and perftest, in turn",
        flags: &[bench::FLAGS, soft_roce::MACHINE_FLAGS],
        run: bench::command,
    },
    Subcommand {
        name: "dist",
        summary: "Build the plugin under every name that NCCL and RCCL look for, and check it",
        flags: &[],
        run: dist::command,
    },
];

/// Exit status of a wrong command line, as shells and most Unix tools have it.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let request = arguments().and_then(|arguments| interpret(&arguments));
    let (subcommand, parsed) = match request {
        Ok(Some(request)) => request,
        Ok(None) => return ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            return ExitCode::from(USAGE_ERROR);
        }
    };
    match (subcommand.run)(&parsed) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("xtask {}: {failure}", subcommand.name);
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<Vec<String>> {
    std::env::args_os()
        .skip(1)
        .map(|argument| {
            argument
                .into_string()
                .map_err(|argument| argument.to_string_lossy().into_owned())
                .context(|| "an argument is not valid UTF-8".to_owned())
        })
        .collect()
}

/// What to run, or `None` when help was asked for (and has been printed).
fn interpret(arguments: &[String]) -> Result<Option<(&'static Subcommand, Parsed)>> {
    let Some((name, rest)) = arguments.split_first() else {
        print!("{}", overview());
        return Ok(None);
    };
    if matches!(name.as_str(), "--help" | "-h" | "help") {
        print!("{}", overview());
        return Ok(None);
    }
    let Some(subcommand) = SUBCOMMANDS.iter().find(|known| known.name == name) else {
        fail!("there is no subcommand `{name}`; `cargo xtask` lists them");
    };
    match args::parse(subcommand.name, subcommand.flags, rest)? {
        Request::Run(parsed) => Ok(Some((subcommand, parsed))),
        Request::Help => {
            print!(
                "{}",
                args::help(subcommand.name, subcommand.summary, subcommand.flags)
            );
            Ok(None)
        }
    }
}

fn overview() -> String {
    let mut text = String::from("usage: cargo xtask SUBCOMMAND [OPTIONS]\n\nSubcommands:\n");
    for subcommand in SUBCOMMANDS {
        text.push_str(&format!(
            "  {:<16}{}\n",
            subcommand.name, subcommand.summary
        ));
    }
    text.push_str("\n`cargo xtask SUBCOMMAND --help` tells a subcommand's options.\n");
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_subcommand_is_found_with_its_options() {
        let (subcommand, parsed) = interpret(&words("demo --ranks 8")).unwrap().unwrap();
        assert_eq!(subcommand.name, "demo");
        assert_eq!(parsed.value("--ranks"), Some("8"));
    }

    #[test]
    fn an_unknown_subcommand_is_named() {
        let failure = interpret(&words("tset")).err().unwrap();
        assert!(failure.to_string().contains("`tset`"), "{failure}");
    }

    #[test]
    fn help_is_no_error_and_runs_nothing() {
        assert!(interpret(&[]).unwrap().is_none());
        assert!(interpret(&words("--help")).unwrap().is_none());
        assert!(interpret(&words("test --help")).unwrap().is_none());
    }

    #[test]
    fn no_subcommand_declares_an_option_twice() {
        for subcommand in SUBCOMMANDS {
            let mut names: Vec<_> = subcommand
                .flags
                .iter()
                .copied()
                .flatten()
                .map(|flag| flag.name)
                .collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{}", subcommand.name);
        }
    }
}
