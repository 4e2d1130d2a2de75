//! `cargo xtask demo`: the example program `ring_allreduce`, a checked all-reduce of several
//! processes through the plugin, on Soft-RoCE or on devices that the user names.

use crate::args::{Flag, Parsed};
use crate::failure::{Result, fail};
use crate::process::shell_quote;
use crate::soft_roce::{self, Job, Options, Place};

/// Options of `demo` alone. What they default to is the example's own business.
pub(crate) const FLAGS: &[Flag] = &[
    Flag {
        name: "--ranks",
        value: Some("N"),
        help: "Number of processes",
    },
    Flag {
        name: "--size",
        value: Some("BYTES"),
        help: "Bytes to reduce",
    },
    Flag {
        name: "--iters",
        value: Some("N"),
        help: "Rounds of each size",
    },
    Flag {
        name: "--devices",
        value: Some("NAMES"),
        help: "Run on these devices of this host (comma-separated), as IBNET_TEST_DEVICES does",
    },
];

/// Entry point of the subcommand; its exit status is the example's.
pub(crate) fn command(parsed: &Parsed) -> Result<u8> {
    let given = parsed.value("--devices").map(str::to_owned);
    let has_devices = given.is_some();
    let devices = given.or_else(soft_roce::devices_from_environment);
    let mut options = Options::new(parsed, Job::Command(example(parsed)?), devices)?;
    let Some(filter) = hca_filter(&options.place, has_devices) else {
        fail!("`--devices` are of this host, so `--accel tcg` or `kvm` cannot go with it");
    };
    options.variables.push(("NCCL_IB_HCA".to_owned(), filter));
    soft_roce::run(&options, &mut |_| ())
}

/// NCCL's list of devices to use, where `=` has it take the names exactly; `None` if the user has
/// named devices that are not there in this place. Without such names, all processes share one
/// device that talks to itself, on which a ring of any length works.
fn hca_filter(place: &Place, has_devices: bool) -> Option<String> {
    match place {
        Place::Devices(devices) => Some(format!("={devices}")),
        _ if has_devices => None,
        Place::HostRxe | Place::Machine(_) => place
            .devices()
            .split(',')
            .next()
            .map(|first| format!("={first}")),
    }
}

/// The command line of the example.
fn example(parsed: &Parsed) -> Result<String> {
    let mut line = String::from("exec ring_allreduce --plugin \"$IBNET_TEST_PLUGIN\"");
    for name in ["--ranks", "--size", "--iters"] {
        if parsed.positive::<u64>(name)?.is_some()
            && let Some(value) = parsed.value(name)
        {
            line.push_str(&format!(" {name} {}", shell_quote(value)));
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::args::{Request, parse};

    fn parsed(line: &str) -> Parsed {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match parse("demo", &[FLAGS, soft_roce::MACHINE_FLAGS], &words).unwrap() {
            Request::Run(parsed) => parsed,
            Request::Help => panic!("help"),
        }
    }

    #[test]
    fn options_reach_the_example_if_they_are_given() {
        let line = example(&parsed("--size 4096 --ranks 8")).unwrap();
        assert_eq!(
            line,
            "exec ring_allreduce --plugin \"$IBNET_TEST_PLUGIN\" --ranks '8' --size '4096'"
        );
        assert!(!example(&parsed("")).unwrap().contains("--ranks"));
        assert!(example(&parsed("--ranks 0")).is_err());
    }

    #[test]
    fn the_devices_fit_the_place() {
        let filter = |line: &str, devices: Option<&str>, has_devices| {
            let job = Job::Command(String::new());
            let options = Options::new(&parsed(line), job, devices.map(str::to_owned)).unwrap();
            hca_filter(&options.place, has_devices)
        };
        let mlx = Some("mlx5_0,mlx5_1");
        assert_eq!(filter("", mlx, true).as_deref(), Some("=mlx5_0,mlx5_1"));
        assert_eq!(
            filter("--accel host", mlx, false).as_deref(),
            Some("=mlx5_0,mlx5_1")
        );
        assert_eq!(filter("", None, false).as_deref(), Some("=rxe0"));
        assert_eq!(
            filter("--accel host", None, false).as_deref(),
            Some("=ibnet_rxe0")
        );
        assert_eq!(filter("--accel tcg", mlx, false).as_deref(), Some("=rxe0"));
        assert_eq!(filter("--accel tcg", mlx, true), None);
    }
}
