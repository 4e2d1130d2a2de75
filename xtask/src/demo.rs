//! `cargo xtask demo`: the example program `ring_allreduce`, a checked all-reduce of several ranks
//! through the plugin.
//!
//! It runs on the RDMA devices of this host if there are any, which is for the example to find out, and
//! else on simulated ones; on Soft-RoCE in a virtual machine if that is asked for.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::args::{Flag, Parsed};
use crate::cargo;
use crate::failure::{Context, Result, fail};
use crate::process::{describe, shell_quote};
use crate::setup::{self, Group};
use crate::soft_roce::{self, Job, MACHINE_FLAGS, Options};

const EXAMPLE: &str = "ring_allreduce";

/// Options of `demo` alone. The defaults are the example's; a test compares.
pub(crate) const FLAGS: &[Flag] = &[
    Flag {
        name: "--ranks",
        value: Some("N"),
        help: "Number of ranks (default 4)",
    },
    Flag {
        name: "--size",
        value: Some("SIZES"),
        help: "Bytes to reduce: one size, FROM:TO (doubling) or a list with commas; K, M and G go \
               (default 8,1K,64K,1M,16M)",
    },
    Flag {
        name: "--iters",
        value: Some("N"),
        help: "Timed rounds of each size (default 10)",
    },
    Flag {
        name: "--devices",
        value: Some("NAMES"),
        help: "Run on these devices of this host (comma-separated), as IBNET_TEST_DEVICES does \
               (default all; simulated ones if there are none)",
    },
    Flag {
        name: "--simulator",
        value: None,
        help: "Run on simulated devices, even where there are real ones",
    },
    Flag {
        name: "--soft-roce",
        value: None,
        help: "Run on Soft-RoCE in a virtual machine; the options that follow are about it",
    },
];

/// Entry point of the subcommand; its exit status is the example's.
pub(crate) fn command(parsed: &Parsed) -> Result<u8> {
    if parsed.has("--soft-roce") {
        return soft_roce::run(&on_soft_roce(parsed)?, &mut |_| ());
    }
    let (arguments, devices) = on_this_host(parsed, soft_roce::devices_from_environment())?;
    setup::ensure(&[Group::Build])?;
    let artifacts = cargo::build_release(&["ncclnet-ffi", "ibnet-examples"])?;
    let Some(program) = artifacts
        .executables
        .into_iter()
        .find(|program| program.ends_with(EXAMPLE))
    else {
        fail!("the build of ibnet-examples has made no program {EXAMPLE}");
    };
    run(program, &arguments, devices.as_deref())
}

/// The example's arguments on this host, and the devices that are named, if any are.
fn on_this_host(
    parsed: &Parsed,
    from_environment: Option<String>,
) -> Result<(Vec<String>, Option<String>)> {
    for flag in MACHINE_FLAGS {
        if parsed.has(flag.name) {
            fail!("`{}` goes with `--soft-roce` only", flag.name);
        }
    }
    let mut arguments = numbers(parsed)?;
    let named = parsed.value("--devices").map(str::to_owned);
    if parsed.has("--simulator") {
        arguments.push("--simulator".to_owned());
        return Ok((arguments, named));
    }
    let devices = named.or(from_environment);
    if devices.is_some() {
        arguments.push("--no-simulator".to_owned());
    }
    Ok((arguments, devices))
}

fn run(program: PathBuf, arguments: &[String], devices: Option<&str>) -> Result<u8> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    if let Some(devices) = devices {
        command.env("NCCL_IB_HCA", exactly(devices));
    }
    if env::var_os("NCCL_SOCKET_IFNAME").is_none() {
        // All ranks are on this host.
        command.env("NCCL_SOCKET_IFNAME", "lo");
    }
    let status = command
        .status()
        .context(|| format!("cannot run `{}`", describe(&command)))?;
    match status.code() {
        Some(code) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
        None => fail!("`{}` ended by a signal: {status}", describe(&command)),
    }
}

/// NCCL's list of devices to use, where `=` has it take the names exactly.
fn exactly(devices: &str) -> String {
    format!("={devices}")
}

/// The example as a job for Soft-RoCE. All ranks share one device that talks to itself, on which a
/// ring of any length works.
fn on_soft_roce(parsed: &Parsed) -> Result<Options> {
    for flag in ["--devices", "--simulator"] {
        if parsed.has(flag) {
            fail!("`{flag}` cannot go with `--soft-roce`, which brings its own devices");
        }
    }
    let mut line = format!("exec {EXAMPLE} --plugin \"$IBNET_TEST_PLUGIN\"");
    for argument in numbers(parsed)? {
        line.push_str(&format!(" {}", shell_quote(&argument)));
    }
    let mut options = Options::new(parsed, Job::Command(line), None)?;
    if let Some(first) = options.place.devices().split(',').next().map(exactly) {
        options.variables.push(("NCCL_IB_HCA".to_owned(), first));
    }
    Ok(options)
}

/// The example's arguments that are numbers. They are checked here, too, because it may be long until
/// the example is built and a machine has booted.
fn numbers(parsed: &Parsed) -> Result<Vec<String>> {
    parsed.positive::<u64>("--ranks")?;
    parsed.positive::<u64>("--iters")?;
    if let Some(sizes) = parsed.value("--size") {
        check_sizes(sizes)?;
    }
    let mut arguments = Vec::new();
    for name in ["--ranks", "--size", "--iters"] {
        if let Some(value) = parsed.value(name) {
            arguments.extend([name.to_owned(), value.to_owned()]);
        }
    }
    Ok(arguments)
}

/// Whether this is one size, `FROM:TO`, or a list with commas.
fn check_sizes(text: &str) -> Result<()> {
    let sizes: Vec<&str> = match text.split_once(':') {
        Some((from, to)) => vec![from, to],
        None => text.split(',').collect(),
    };
    for size in sizes {
        let digits = size.trim().trim_end_matches(['K', 'k', 'M', 'm', 'G', 'g']);
        let has_one_unit = size.trim().len() - digits.len() <= 1;
        if !has_one_unit || !digits.parse::<u64>().is_ok_and(|number| number > 0) {
            fail!(
                "`--size {text}`: a size is a number of bytes, with K, M or G for powers of 1024; \
                 one size, FROM:TO or a list with commas"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::args::{Request, parse};
    use crate::soft_roce::Place;

    fn parsed(line: &str) -> Parsed {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match parse("demo", &[FLAGS, MACHINE_FLAGS], &words).unwrap() {
            Request::Run(parsed) => parsed,
            Request::Help => panic!("help"),
        }
    }

    fn host(line: &str, from_environment: Option<&str>) -> Result<(String, Option<String>)> {
        let (arguments, devices) =
            on_this_host(&parsed(line), from_environment.map(str::to_owned))?;
        Ok((arguments.join(" "), devices))
    }

    #[test]
    fn options_reach_the_example_if_they_are_given() {
        assert_eq!(host("", None).unwrap(), (String::new(), None));
        let (line, _) = host("--size 4096 --ranks 8", None).unwrap();
        assert_eq!(line, "--ranks 8 --size 4096");
        for size in ["64K", "1k,2M,4", "8:1G"] {
            let (line, _) = host(&format!("--size {size}"), None).unwrap();
            assert_eq!(line, format!("--size {size}"));
        }
        for size in ["K", "4KK", "1.5M", "8:16:32", "4,,8", "0", "-4"] {
            let failure = host(&format!("--size={size}"), None).unwrap_err();
            assert!(failure.to_string().contains("`--size "), "{size}");
        }
        assert!(host("--ranks 0", None).is_err());
        assert!(host("--iters many", None).is_err());
    }

    /// What the help of `flag` says behind "default".
    fn default_of<'a>(help: &'a str, flag: &str) -> &'a str {
        let about = help.split(&format!("{flag} ")).nth(1).unwrap();
        let default = about.split("(default ").nth(1).unwrap();
        default.split(')').next().unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_the_example() {
        let example = include_str!("../../examples/src/bin/ring_allreduce/options.rs");
        let own = crate::args::help("demo", "", &[FLAGS]);
        for flag in ["--ranks", "--size", "--iters"] {
            let help = own.split_once("Options:").unwrap().1;
            assert_eq!(default_of(help, flag), default_of(example, flag), "{flag}");
        }
    }

    #[test]
    fn devices_that_are_named_are_used() {
        let expect = |line, from_environment, arguments: &str, devices: Option<&str>| {
            let (found, named) = host(line, from_environment).unwrap();
            assert_eq!((found.as_str(), named.as_deref()), (arguments, devices));
        };
        let mlx = Some("mlx5_0,mlx5_1");
        expect("", mlx, "--no-simulator", mlx);
        expect("--devices a:1", mlx, "--no-simulator", Some("a:1"));
        expect("--simulator", mlx, "--simulator", None);
        expect(
            "--simulator --devices sim1",
            mlx,
            "--simulator",
            Some("sim1"),
        );
        assert_eq!(exactly("a,b"), "=a,b");
    }

    #[test]
    fn options_of_the_machine_need_soft_roce() {
        for line in ["--accel tcg", "--kernel /k", "--memory 2048", "--timeout 9"] {
            let failure = host(line, None).unwrap_err().to_string();
            assert!(failure.contains("`--soft-roce`"), "{failure}");
            assert!(on_soft_roce(&parsed(&format!("--soft-roce {line}"))).is_ok());
        }
    }

    #[test]
    fn soft_roce_has_one_device_for_all_ranks() {
        let options = |line: &str| on_soft_roce(&parsed(line));
        let plain = options("--soft-roce --ranks 8").unwrap();
        assert_eq!(
            plain.job,
            Job::Command(
                "exec ring_allreduce --plugin \"$IBNET_TEST_PLUGIN\" '--ranks' '8'".to_owned()
            )
        );
        assert!(matches!(plain.place, Place::Machine(_)));
        let filter = |value: &str| [("NCCL_IB_HCA".to_owned(), value.to_owned())];
        assert_eq!(plain.variables, filter("=rxe0"));
        let host = options("--soft-roce --accel host").unwrap();
        assert_eq!(host.variables, filter("=ibnet_rxe0"));
        assert!(options("--soft-roce --devices mlx5_0").is_err());
        assert!(options("--soft-roce --simulator").is_err());
    }
}
