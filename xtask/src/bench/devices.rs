//! The part on RDMA devices: two processes, usually on Soft-RoCE in the virtual machine.

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::Parsed;
use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::{find_program, shell_quote};
use crate::soft_roce::{self, Job, Options, Place, devices_from_environment};

use super::null::networks;
use super::{Extent, Products, folder};

/// Tests that have a meaning there.
pub(super) const TESTS: &[&str] = &[
    "latency",
    "bandwidth",
    "rate",
    "groups",
    "registrations",
    "connections",
    "growth",
];

/// What the line with the results begins with, as `ncclnet-bench` prints it.
const MARK: &str = "ncclnet-bench-json: ";

/// The two ends in the machine: devices that are joined by a link that their packets really cross.
const MACHINE_DEVICES: &str = "a0,b0";

/// Where to run, from the command line; the job is not known yet.
pub(super) fn options(parsed: &Parsed) -> Result<Options> {
    Options::new(
        parsed,
        Job::Command(String::new()),
        devices_from_environment(),
    )
}

/// Measures, and returns the file with the results.
pub(super) fn measure(
    mut options: Options,
    products: &Products,
    extent: &Extent,
) -> Result<PathBuf> {
    options.extra = vec![products.program.clone()];
    options.extra.extend(products.nccl.clone());
    options.quiet = true;
    options.job = Job::Command(job(&options.place, products.nccl.as_deref(), extent));
    let mut json = None;
    let status = soft_roce::run(&options, &mut |line| match line.strip_prefix(MARK) {
        Some(text) => json = Some(text.to_owned()),
        None => eprintln!("{line}"),
    })?;
    let Some(json) = json.filter(|_| status == 0) else {
        fail!("ncclnet-bench has ended with status {status}, without results");
    };
    let results = folder().join("devices.json");
    paths::create_folder(&folder())?;
    fs::write(&results, json).context(|| format!("cannot write {}", results.display()))?;
    Ok(results)
}

/// The job as a line of bash. The tables are printed at the end, with those of the other part.
fn job(place: &Place, nccl: Option<&Path>, extent: &Extent) -> String {
    // Our plugin and the libraries beside it are where the job finds them, not where they were built.
    let plugin = Path::new("$IBNET_TEST_PLUGIN");
    let nccl = nccl.and_then(Path::file_name).map(|name| {
        let name = name.to_string_lossy();
        PathBuf::from(format!("${{IBNET_TEST_PLUGIN%/*}}/{name}"))
    });
    let mut words: Vec<String> = Vec::new();
    for argument in networks(plugin, nccl.as_deref()) {
        // The variables are for the shell.
        words.push(format!("\"{argument}\""));
    }
    let (devices, title) = match place {
        Place::Machine(_) => (MACHINE_DEVICES.to_owned(), "Soft-RoCE, two processes"),
        Place::HostRxe => (
            first_two(place.devices(), 1),
            "Soft-RoCE of the host, two processes",
        ),
        Place::Devices(_) => (
            first_two(place.devices(), 2),
            "devices of the host, two processes",
        ),
    };
    let mut add = |argument: &str| words.push(shell_quote(argument));
    for argument in ["--device", &devices, "--title", title] {
        add(argument);
    }
    for argument in ["--tests", &extent.tests_of(TESTS), "--json", "-"] {
        add(argument);
    }
    let (seconds, connections, registrations) = if extent.quick {
        ("0.1", "1,10,50", "1K")
    } else {
        ("0.2", "1,10,100", "1K,10K")
    };
    for argument in ["--seconds", seconds, "--connections", connections] {
        add(argument);
    }
    for argument in ["--registrations", registrations] {
        add(argument);
    }
    if extent.quick {
        for argument in ["--windows", "1,32", "--rounds", "5"] {
            add(argument);
        }
    }
    // The kernel does RXE's work on the processors that the programs poll on.
    if !matches!(place, Place::Devices(_)) {
        add("--yield");
    }
    // In the machine it is always there.
    if matches!(place, Place::Machine(_)) || find_program("ib_write_lat").is_some() {
        add("--perftest");
    }
    format!(
        "set -o pipefail; ncclnet-bench {} | grep '^{MARK}'",
        words.join(" ")
    )
}

/// The first one or two devices of a list.
fn first_two(devices: &str, most: usize) -> String {
    // A name may carry a port, which is no part of the network's name for it.
    let names = devices
        .split(',')
        .map(|name| name.split(':').next().unwrap_or(name).trim());
    names.take(most).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft_roce::Place;

    fn extent(quick: bool) -> Extent {
        Extent {
            quick,
            callgrind: false,
            tests: None,
        }
    }

    #[test]
    fn the_job_names_networks_where_they_are_installed() {
        let place = Place::Devices("mlx5_0:1, mlx5_1,mlx5_2".to_owned());
        let job = job(&place, Some(Path::new("/t/libnccl-2.so")), &extent(false));
        for part in [
            "--net\" \"ibnet=$IBNET_TEST_PLUGIN\"",
            "\"nccl=${IBNET_TEST_PLUGIN%/*}/libnccl-2.so\"",
            "'--device' 'mlx5_0,mlx5_1'",
        ] {
            assert!(job.contains(part), "{part} in {job}");
        }
    }

    #[test]
    fn the_host_s_own_rxe_talks_to_itself() {
        let job = job(&Place::HostRxe, None, &extent(true));
        assert!(job.contains("'--device' 'ibnet_rxe0'"), "{job}");
        assert!(!job.contains("nccl="), "{job}");
    }
}
