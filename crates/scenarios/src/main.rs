//! Plays the scenarios on real RDMA devices, each role in a process of its own.
//!
//! The devices come from the environment, so that the same program runs in the Soft-RoCE machine
//! and on a host with adapters:
//!
//! | variable | what |
//! |---|---|
//! | `IBNET_TEST_DEVICES` | devices that can talk to themselves, for instance `mlx5_0,mlx5_1` |
//! | `IBNET_TEST_PAIRS` | pairs of devices that reach each other, for instance `a0:b0,a1:b1` |
//! | `IBNET_TEST_LINKS` | set if links may be cut: the machine is ours alone |
//! | `IBNET_TEST_CONFORMANCE` | the built conformance test of `simverbs`; needs a pair, too |
//! | `IBNET_TEST_PLUGIN` | the built plugin, for the scenarios of the plugin |
//! | `IBNET_TEST_DRIVER` | the C program that drives it |
//!
//! What a variable that is not set would be needed for is reported as not run, and with `CI` set
//! that is a failure.

use std::process::ExitCode;

use ibnet_scenarios::play::{self, Outcome, Place};
use ibnet_scenarios::{all, cast, runner};

const HELP: &str = "\
usage: ibnet-scenarios [--list] [--filter TEXT]

  --list         prints the names of the scenarios and does not run them
  --filter TEXT  runs the scenarios whose name contains TEXT

The devices come from IBNET_TEST_DEVICES and IBNET_TEST_PAIRS.";

enum Command {
    List,
    Run {
        filter: String,
    },
    Role {
        scenario: String,
        number: usize,
        devices: String,
    },
    Help,
}

fn main() -> ExitCode {
    let command = match parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(problem) => {
            eprintln!("{problem}\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match command {
        Command::Help => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Command::List => {
            for scenario in all() {
                println!("{}", scenario.name);
            }
            ExitCode::SUCCESS
        }
        Command::Run { filter } => run(&filter),
        Command::Role {
            scenario,
            number,
            devices,
        } => cast::perform(&scenario, number, &devices),
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut filter = String::new();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--list" => return Ok(Command::List),
            "--filter" => filter = value()?,
            // How the runner starts the processes of the roles.
            "--role" => {
                let (scenario, number, devices) = (value()?, value()?, value()?);
                let number = number.parse().map_err(|_| format!("{number} is no role"))?;
                return Ok(Command::Role {
                    scenario,
                    number,
                    devices,
                });
            }
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(Command::Run { filter })
}

fn run(filter: &str) -> ExitCode {
    let stage = play::Stage::from_env();
    let (mut passed, mut failed, mut not_run) = (0, 0, 0);
    for scenario in all() {
        if !scenario.name.contains(filter) {
            continue;
        }
        for place in stage.places(scenario.scene) {
            let name = match &place {
                Place::Devices { title, .. } => format!("{} on {title}", scenario.name),
                Place::Nowhere(_) => scenario.name.to_owned(),
            };
            print!("test {name} ... ");
            flush();
            match runner::run(&scenario, &place) {
                Outcome::Passed(seconds) => {
                    passed += 1;
                    println!("ok ({seconds:.1} s)");
                }
                Outcome::Failed(why) => {
                    failed += 1;
                    println!("FAILED: {why}");
                }
                Outcome::NotRun(why) => {
                    not_run += 1;
                    println!("NOT RUN: {why}");
                }
            }
        }
    }
    if passed + failed + not_run == 0 {
        eprintln!("no scenario's name contains {filter:?}");
        return ExitCode::from(2);
    }
    let must_run = std::env::var_os("CI").is_some() && filter.is_empty();
    println!("{passed} passed, {failed} failed, {not_run} not run");
    if failed > 0 || (must_run && not_run > 0) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Progress is visible although the line is not finished.
fn flush() {
    use std::io::Write;
    let _ = std::io::stdout().flush();
}
