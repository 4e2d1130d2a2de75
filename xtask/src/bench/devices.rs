//! The part on RDMA devices: two processes, usually on Soft-RoCE in the virtual machine.

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::Parsed;
use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::{find_program, shell_quote};
use crate::soft_roce::{self, Accel, Job, Options, Place, devices_from_environment};

use super::{Extent, Products, folder, networks};

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
    options.extra.extend(products.old.clone());
    options.extra.extend(products.nccl.clone());
    options.quiet = true;
    let (old, nccl) = (products.old.as_deref(), products.nccl.as_deref());
    options.job = Job::Command(job(&options.place, old, nccl, extent));
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

/// How the two processes run.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// As the system likes.
    Free,
    /// Everything on one processor. There, kernel and programs take turns, and what is measured is the
    /// work of all of them together. That hardly depends on what else the host does, unlike times
    /// between two processors of a machine that the host gives time to as it likes.
    OneProcessor,
    /// The same in a machine whose clock counts instructions: that does not depend on the host at all.
    Counted,
}

impl Way {
    /// Tests that are worth the time.
    fn tests(self) -> &'static [&'static str] {
        match self {
            Self::Free => TESTS,
            Self::OneProcessor => &["latency", "rate", "groups"],
            Self::Counted => &["latency", "rate", "groups", "registrations", "connections"],
        }
    }
}

/// Tests that have a meaning where the job is to run.
pub(super) fn tests(place: &Place) -> &'static [&'static str] {
    match place {
        Place::Machine(Accel::Icount) => Way::Counted.tests(),
        _ => TESTS,
    }
}

/// The job as lines of bash: all that the tests say, and on Soft-RoCE some of it once more on one
/// processor.
fn job(place: &Place, old: Option<&Path>, nccl: Option<&Path>, extent: &Extent) -> String {
    let ways: &[Way] = match place {
        Place::Devices(_) => &[Way::Free],
        Place::Machine(Accel::Icount) => &[Way::Counted],
        Place::HostRxe | Place::Machine(_) => &[Way::Free, Way::OneProcessor],
    };
    let ways = ways.iter().filter(|way| extent.has_any(way.tests()));
    let runs = ways.map(|way| format!("{} || exit", run(place, old, nccl, extent, *way)));
    let lines: Vec<String> = std::iter::once("set -o pipefail".to_owned())
        .chain(runs)
        .collect();
    lines.join("\n")
}

/// One run of `ncclnet-bench`. The tables are printed at the end, with those of the other part.
fn run(
    place: &Place,
    old: Option<&Path>,
    nccl: Option<&Path>,
    extent: &Extent,
    way: Way,
) -> String {
    // Our plugin and the libraries beside it are where the job finds them, not where they were built.
    let plugin = Path::new("$IBNET_TEST_PLUGIN");
    let beside = |file: &Path| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        PathBuf::from(format!("${{IBNET_TEST_PLUGIN%/*}}/{name}"))
    };
    let (old, nccl) = (old.map(beside), nccl.map(beside));
    // The variables are for the shell.
    let networks = networks(plugin, old.as_deref(), nccl.as_deref());
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
    let title = match way {
        Way::Free => title.to_owned(),
        Way::OneProcessor => format!("{title} on one processor"),
        Way::Counted => format!("{title} on one processor, 1 ns for each instruction"),
    };
    let tests = extent.tests_of(way.tests());
    let mut arguments = vec!["--device", &devices, "--title", &title, "--tests", &tests];
    let (seconds, connections, registrations) = match (way, extent.quick) {
        (Way::Counted, false) => ("0.1", "1,10,100", "1K,10K"),
        (_, true) => ("0.1", "1,10,50", "1K"),
        (_, false) => ("0.2", "1,10,100,1000", "1K,10K"),
    };
    arguments.extend(["--seconds", seconds, "--connections", connections]);
    arguments.extend(["--registrations", registrations, "--json", "-"]);
    if extent.quick || way != Way::Free {
        arguments.extend(["--windows", "1,32"]);
    }
    if way == Way::Counted {
        arguments.extend(["--sizes", "8,4K,64K", "--rounds", "3"]);
    }
    // The kernel does RXE's work on the processors that the programs poll on.
    if !matches!(place, Place::Devices(_)) {
        arguments.push("--yield");
    }
    // In the machine it is always there. It never gives the processor away, which it must on one.
    let is_there = matches!(place, Place::Machine(_)) || find_program("ib_write_lat").is_some();
    if is_there && way == Way::Free {
        arguments.push("--perftest");
    }
    words.extend(arguments.into_iter().map(shell_quote));
    // The second processor: the first has the timer and more of the kernel's own work.
    let on = if way == Way::OneProcessor {
        "taskset 2 "
    } else {
        ""
    };
    format!("{on}ncclnet-bench {} | grep '^{MARK}'", words.join(" "))
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
        let (old, nccl) = (Path::new("/t/libold.so"), Path::new("/t/libnccl-2.so"));
        let job = job(&place, Some(old), Some(nccl), &extent(false));
        for part in [
            "--net\" \"ibnet=$IBNET_TEST_PLUGIN\"",
            "\"old=${IBNET_TEST_PLUGIN%/*}/libold.so\"",
            "\"nccl=${IBNET_TEST_PLUGIN%/*}/libnccl-2.so\"",
            "'--device' 'mlx5_0,mlx5_1'",
        ] {
            assert!(job.contains(part), "{part} in {job}");
        }
        assert!(!job.contains("taskset"), "{job}");
    }

    #[test]
    fn the_host_s_own_rxe_talks_to_itself() {
        let job = job(&Place::HostRxe, None, None, &extent(true));
        assert!(job.contains("'--device' 'ibnet_rxe0'"), "{job}");
        assert!(!job.contains("nccl="), "{job}");
        // Once more, on one processor and without the program that does not give it away.
        let last = job.lines().last().unwrap_or_default();
        assert!(last.starts_with("taskset 2 ncclnet-bench") && !last.contains("--perftest"));
        assert!(last.contains("'latency,rate,groups'"), "{last}");
    }

    #[test]
    fn counting_instructions_has_one_run_on_its_one_processor() {
        let job = job(&Place::Machine(Accel::Icount), None, None, &extent(false));
        assert_eq!(job.matches("ncclnet-bench ").count(), 1, "{job}");
        assert!(
            !job.contains("taskset") && !job.contains("--perftest"),
            "{job}"
        );
        // Programs that poll without giving the processor away would starve each other.
        assert!(job.contains("'--yield'"), "{job}");
        assert!(!tests(&Place::Machine(Accel::Icount)).contains(&"bandwidth"));
    }
}
