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

/// Measures, and returns the files with the results.
pub(super) fn measure(
    mut options: Options,
    products: &Products,
    extent: &Extent,
) -> Result<Vec<PathBuf>> {
    options.extra = vec![products.program.clone()];
    options.extra.extend(products.nccl.clone());
    options.quiet = true;
    options.job = Job::Command(job(&options.place, products.nccl.as_deref(), extent));
    let mut json = Vec::new();
    let status = soft_roce::run(&options, &mut |line| match line.strip_prefix(MARK) {
        Some(text) => json.push(text.to_owned()),
        None => eprintln!("{line}"),
    })?;
    if status != 0 || json.is_empty() {
        fail!("ncclnet-bench has ended with status {status}, without results of all runs");
    }
    paths::create_folder(&folder())?;
    let mut files = Vec::new();
    for (index, text) in json.iter().enumerate() {
        let file = folder().join(format!("devices-{}.json", index + 1));
        fs::write(&file, text).context(|| format!("cannot write {}", file.display()))?;
        files.push(file);
    }
    Ok(files)
}

/// The job as lines of bash: all that the tests say, and on Soft-RoCE some of it once more with
/// everything on one processor.
///
/// There, kernel and programs take turns, and what is measured is the work of all of them together.
/// That hardly depends on what else the host does, unlike times between two processors of a machine
/// that the host gives time to as it likes.
fn job(place: &Place, nccl: Option<&Path>, extent: &Extent) -> String {
    let mut lines = vec![
        "set -o pipefail".to_owned(),
        format!("{} || exit", run(place, nccl, extent, false)),
    ];
    if !matches!(place, Place::Devices(_)) && extent.has_any(ONE_PROCESSOR) {
        // The second one: the first has the timer and more of the kernel's own work.
        lines.push(format!("taskset 2 {}", run(place, nccl, extent, true)));
    }
    lines.join("\n")
}

/// Tests that are worth repeating on one processor.
const ONE_PROCESSOR: &[&str] = &["latency", "rate", "groups"];

/// One run of `ncclnet-bench`. The tables are printed at the end, with those of the other part.
fn run(place: &Place, nccl: Option<&Path>, extent: &Extent, on_one: bool) -> String {
    // Our plugin and the libraries beside it are where the job finds them, not where they were built.
    let plugin = Path::new("$IBNET_TEST_PLUGIN");
    let nccl = nccl.and_then(Path::file_name).map(|name| {
        let name = name.to_string_lossy();
        PathBuf::from(format!("${{IBNET_TEST_PLUGIN%/*}}/{name}"))
    });
    // The variables are for the shell.
    let networks = networks(plugin, nccl.as_deref());
    let mut words: Vec<String> = networks.iter().map(|word| format!("\"{word}\"")).collect();
    let (devices, title) = match place {
        Place::Machine(_) => (MACHINE_DEVICES.to_owned(), "Soft-RoCE, two processes"),
        Place::HostRxe => (
            first_devices(place.devices(), 1),
            "Soft-RoCE of the host, two processes",
        ),
        Place::Devices(_) => (
            first_devices(place.devices(), 2),
            "devices of the host, two processes",
        ),
    };
    let (tests, title) = if on_one {
        (ONE_PROCESSOR, format!("{title} on one processor"))
    } else {
        (TESTS, title.to_owned())
    };
    let (seconds, connections, registrations) = if extent.quick {
        ("0.1", "1,10,50", "1K")
    } else {
        ("0.2", "1,10,100,1000", "1K,10K")
    };
    let tests = extent.tests_of(tests);
    let mut arguments = vec!["--device", &devices, "--title", &title, "--tests", &tests];
    arguments.extend(["--seconds", seconds, "--connections", connections]);
    arguments.extend(["--registrations", registrations, "--json", "-"]);
    if extent.quick || on_one {
        arguments.extend(["--windows", "1,32"]);
    }
    // The kernel does RXE's work on the processors that the programs poll on.
    if !matches!(place, Place::Devices(_)) {
        arguments.push("--yield");
    }
    // In the machine it is always there. It never gives the processor away, which it must on one.
    let is_there = matches!(place, Place::Machine(_)) || find_program("ib_write_lat").is_some();
    if is_there && !on_one {
        arguments.push("--perftest");
    }
    words.extend(arguments.into_iter().map(shell_quote));
    format!("ncclnet-bench {} | grep '^{MARK}'", words.join(" "))
}

/// The first devices of a list.
fn first_devices(devices: &str, most: usize) -> String {
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
        assert!(!job.contains("taskset"), "{job}");
    }

    #[test]
    fn the_host_s_own_rxe_talks_to_itself() {
        let job = job(&Place::HostRxe, None, &extent(true));
        assert!(job.contains("'--device' 'ibnet_rxe0'"), "{job}");
        assert!(!job.contains("nccl="), "{job}");
        // Once more, on one processor and without the program that does not give it away.
        let last = job.lines().last().unwrap_or_default();
        assert!(last.starts_with("taskset 2 ncclnet-bench") && !last.contains("--perftest"));
        assert!(last.contains("'latency,rate,groups'"), "{last}");
    }
}
