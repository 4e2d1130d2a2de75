//! The part on the null device: both ends of each connection in one thread of this host.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Context, Result};
use crate::paths;
use crate::process::{command, find_program, run};
use crate::progress::{Step, note};

use super::{Extent, Products, folder, networks};

/// Tests that have a meaning there.
pub(super) const TESTS: &[&str] = &["loop", "registrations", "connections", "growth"];

/// What else the static library needs, as rustc tells of every one.
const LIBRARIES: &[&str] = &["-lgcc_s", "-lpthread", "-ldl", "-lm"];

/// Measures, and returns the file with the results.
pub(super) fn measure(products: &Products, extent: &Extent) -> Result<PathBuf> {
    let library_path = link(&products.null_device)?;
    let results = folder().join("null.json");
    let step = Step::begin("measuring on the null device");
    let mut bench = Command::new(&products.program);
    bench.args(arguments(products, extent));
    bench.arg("--json").arg(&results);
    bench.env("LD_LIBRARY_PATH", library_path);
    // There may be no other interface that both transports would take.
    bench.env("NCCL_SOCKET_IFNAME", "lo");
    // The tables are printed at the end, with those of the other part.
    run(bench.stdin(Stdio::null()).stdout(Stdio::null()))?;
    step.done("measured");
    Ok(results)
}

fn arguments(products: &Products, extent: &Extent) -> Vec<String> {
    let (old, nccl) = (products.old.as_deref(), products.nccl.as_deref());
    let mut arguments = networks(&products.plugin, old, nccl);
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["--one-thread", "--title", "null device, one thread"]);
    add(&["--paths", "1,4", "--merged", "null0+null1"]);
    add(&["--tests", &extent.tests_of(TESTS)]);
    if extent.quick {
        add(&["--seconds", "0.02", "--connections", "1,10,100"]);
        add(&["--registrations", "1K,10K"]);
    }
    if extent.callgrind {
        if find_program("valgrind").is_some() {
            add(&["--callgrind"]);
        } else {
            note("no instructions are counted: there is no program `valgrind` on this machine");
        }
    }
    arguments
}

/// Makes the shared library of the null device, under the names that are looked for; the folder.
fn link(archive: &Path) -> Result<PathBuf> {
    let folder = folder().join("null");
    paths::remove_folder(&folder)?;
    paths::create_folder(&folder)?;
    let library = folder.join("libibverbs.so.1");
    let versions = paths::root().join("crates/nulldevice/libibverbs.map");
    let mut link = command("cc")?;
    link.arg("-shared").arg("-o").arg(&library);
    link.arg("-Wl,-soname,libibverbs.so.1");
    link.arg(format!("-Wl,--version-script={}", versions.display()));
    link.arg("-Wl,--gc-sections,--whole-archive").arg(archive);
    run(link.arg("-Wl,--no-whole-archive").args(LIBRARIES))?;
    let name = folder.join("libibverbs.so");
    symlink("libibverbs.so.1", &name)
        .context(|| format!("cannot make the link {}", name.display()))?;
    fs::canonicalize(&folder).context(|| format!("cannot find {}", folder.display()))
}
