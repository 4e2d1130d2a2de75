//! `cargo xtask bench`: the plugin beside NCCL's own transport and perftest, measured in turn.
//!
//! Two parts: on this host, what the transports cost the processor on a device that costs nothing
//! itself; and between two processes on RDMA devices, usually Soft-RoCE in the virtual machine. What
//! measures is the program `ncclnet-bench`; here is only what it needs, and where its results go.
//! What the figures mean is told in `docs/performance.md`.

mod devices;
mod nccl;
mod null;

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::{Flag, Parsed};
use crate::cargo;
use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::run;
use crate::progress::note;
use crate::setup::{self, Group};

/// Options of `bench` alone.
pub(crate) const FLAGS: &[Flag] = &[
    Flag {
        name: "--null",
        value: None,
        help: "Only the part on the null device, on this host",
    },
    Flag {
        name: "--soft-roce",
        value: None,
        help: "Only the part on RDMA devices: Soft-RoCE, or those of IBNET_TEST_DEVICES",
    },
    Flag {
        name: "--quick",
        value: None,
        help: "Fewer and shorter measurements",
    },
    Flag {
        name: "--callgrind",
        value: None,
        help: "Count instructions on the null device, with valgrind",
    },
    Flag {
        name: "--tests",
        value: Some("LIST"),
        help: "Only these tests of ncclnet-bench (comma-separated)",
    },
    Flag {
        name: "--nccl",
        value: Some("FILE"),
        help: "NCCL's library; without this, a release is fetched from the Python index, once",
    },
    Flag {
        name: "--old",
        value: Some("FILE"),
        help: "Our plugin as another version has built it, to be measured beside this one",
    },
];

/// How much is measured.
#[derive(Clone, Debug, PartialEq)]
struct Extent {
    quick: bool,
    callgrind: bool,
    tests: Option<String>,
}

/// What was built or fetched.
struct Products {
    /// The program that measures.
    program: PathBuf,
    /// Our plugin.
    plugin: PathBuf,
    /// The null device, as a static library.
    null_device: PathBuf,
    /// Our plugin of another version, if one is given.
    old: Option<PathBuf>,
    /// NCCL's library, if it can be had.
    nccl: Option<PathBuf>,
}

/// Entry point of the subcommand.
pub(crate) fn command(parsed: &Parsed) -> Result<u8> {
    let (only_null, only_devices) = (parsed.has("--null"), parsed.has("--soft-roce"));
    if only_null && only_devices {
        fail!("only one of `--null` and `--soft-roce` can be given");
    }
    if only_devices && parsed.has("--callgrind") {
        fail!("`--callgrind` is about the null device, which `--soft-roce` leaves out");
    }
    let extent = Extent {
        quick: parsed.has("--quick"),
        callgrind: parsed.has("--callgrind"),
        tests: parsed.value("--tests").map(str::to_owned),
    };
    // A wrong option should not be found out after a part has been measured.
    if let Some(unknown) = extent.unknown() {
        let mut known = [null::TESTS, devices::TESTS].concat();
        known.sort_unstable();
        known.dedup();
        let known = known.join(", ");
        fail!("`--tests`: there is no test `{unknown}`; there are {known}");
    }
    let options = devices::options(parsed)?;
    setup::ensure(&[Group::Build])?;
    let products = Products::make(parsed)?;
    let mut results = Vec::new();
    if !only_devices && extent.has_any(null::TESTS) {
        results.push(null::measure(&products, &extent)?);
    }
    if !only_null && extent.has_any(devices::tests(&options.place)) {
        results.extend(devices::measure(options, &products, &extent)?);
    }
    if results.is_empty() {
        fail!("none of the tests of `--tests` is one of the parts that are to run");
    }
    report(&products.program, &results)?;
    Ok(0)
}

impl Extent {
    /// A test that is asked for and not known.
    fn unknown(&self) -> Option<&str> {
        let tests = self.tests.as_deref()?;
        let is_known = |test: &&str| null::TESTS.contains(test) || devices::TESTS.contains(test);
        tests.split(',').map(str::trim).find(|test| !is_known(test))
    }

    /// Whether a part that has these tests has anything to do.
    fn has_any(&self, known: &[&str]) -> bool {
        let wanted = self.tests.as_deref();
        wanted.is_none_or(|tests| tests.split(',').any(|test| known.contains(&test.trim())))
    }

    /// Those of a part's tests that are wanted, as an argument.
    fn tests_of(&self, known: &[&str]) -> String {
        let wanted = |test: &&&str| match &self.tests {
            Some(tests) => tests.split(',').any(|other| other.trim() == **test),
            None => true,
        };
        known
            .iter()
            .filter(wanted)
            .copied()
            .collect::<Vec<_>>()
            .join(",")
    }
}

impl Products {
    fn make(parsed: &Parsed) -> Result<Self> {
        let given = |name| parsed.value(name).map(Path::new);
        let old = given("--old").map(keep_old).transpose()?;
        let artifacts =
            cargo::build_release(&["ncclnet-bench", "ncclnet-ffi", "ibnet-nulldevice"])?;
        let find = |files: &[PathBuf], name: &str| {
            let found = files.iter().find(|file| file.ends_with(name)).cloned();
            match found {
                Some(file) => Ok(file),
                None => fail!("the build has made no {name}"),
            }
        };
        let program = find(&artifacts.executables, "ncclnet-bench")?;
        Ok(Self {
            nccl: nccl::library(given("--nccl"), &program)?,
            old,
            program,
            plugin: find(&artifacts.libraries, "libncclnet_ffi.so")?,
            null_device: find(&artifacts.archives, "libibnet_nulldevice.a")?,
        })
    }
}

/// Copies the plugin of another version: under a name of its own, which it may not have, it can lie
/// beside this one's.
fn keep_old(file: &Path) -> Result<PathBuf> {
    let copy = folder().join("libnccl-net-old.so");
    paths::create_folder(&folder())?;
    fs::copy(file, &copy)
        .context(|| format!("cannot copy {} to {}", file.display(), copy.display()))?;
    Ok(copy)
}

/// The arguments that name the networks that are compared, ours first.
fn networks(plugin: &Path, old: Option<&Path>, nccl: Option<&Path>) -> Vec<String> {
    let all = [("ibnet", Some(plugin)), ("old", old), ("nccl", nccl)];
    let there = all
        .into_iter()
        .filter_map(|(label, file)| Some((label, file?)));
    there
        .flat_map(|(label, file)| ["--net".to_owned(), format!("{label}={}", file.display())])
        .collect()
}

/// The folder of everything that this subcommand makes.
fn folder() -> PathBuf {
    paths::target().join("bench")
}

/// Shows the results of all parts, and writes them as one.
fn report(program: &Path, results: &[PathBuf]) -> Result<()> {
    let folder = folder().join("results");
    // Plots of an earlier run would be taken for this one's.
    paths::remove_folder(&folder)?;
    let mut command = std::process::Command::new(program);
    command
        .arg("report")
        .args(results)
        .arg("--out")
        .arg(&folder);
    run(&mut command)?;
    note(&format!(
        "results.md, results.json and plots are in {}",
        folder.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_go_to_the_parts_that_have_them() {
        let extent = |tests: Option<&str>| Extent {
            quick: false,
            callgrind: false,
            tests: tests.map(str::to_owned),
        };
        let all = extent(None);
        assert!(all.has_any(null::TESTS) && all.has_any(devices::TESTS));
        assert_eq!(all.tests_of(&["a", "b"]), "a,b");
        let some = extent(Some("latency, loop"));
        assert!(some.has_any(null::TESTS) && some.has_any(devices::TESTS));
        assert_eq!(some.tests_of(null::TESTS), "loop");
        assert_eq!(some.tests_of(devices::TESTS), "latency");
        assert!(!extent(Some("loop")).has_any(devices::TESTS));
        assert_eq!(some.unknown(), None);
        assert_eq!(extent(Some("loop,lop")).unknown(), Some("lop"));
        assert_eq!(all.unknown(), None);
    }
}
