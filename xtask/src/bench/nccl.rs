//! NCCL's library: a release from the Python index, without its code for GPUs.
//!
//! The library is NVIDIA's, and is fetched from where NVIDIA publishes it; nothing of it is kept but
//! below `target`. Its own transport is measured on host memory, so that a copy without the code for
//! GPUs does as well as the whole, and fits into the virtual machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Result, fail};
use crate::paths;
use crate::process::{command, run};
use crate::progress::{Step, note};

/// The package, and the release that the figures of `docs/performance.md` are about.
const PACKAGE: &str = "nvidia-nccl-cu12";
const RELEASE: &str = "2.32.3";

/// The library of the user's choice, or the fetched one. `None` if it cannot be had; the reason has
/// been printed. `program` is the one that makes the copy.
pub(super) fn library(given: Option<&Path>, program: &Path) -> Result<Option<PathBuf>> {
    let folder = super::folder().join("nccl");
    if let Some(given) = given {
        if !given.is_file() {
            fail!("there is no file {}", given.display());
        }
        let copy = folder.join("libnccl-given.so");
        paths::create_folder(&folder)?;
        shrink(program, given, &copy)?;
        return Ok(Some(copy));
    }
    let copy = folder.join(format!("libnccl-{RELEASE}.so"));
    if copy.is_file() {
        return Ok(Some(copy));
    }
    match fetch(&folder, program, &copy) {
        Ok(()) => Ok(Some(copy)),
        Err(failure) => {
            note(&format!("there will be no figures of NCCL: {failure}"));
            note("`--nccl FILE` takes a library that is there already");
            Ok(None)
        }
    }
}

fn fetch(folder: &Path, program: &Path, copy: &Path) -> Result<()> {
    let step = Step::begin(&format!("fetching {PACKAGE} {RELEASE} (350 MB, once)"));
    let scratch = folder.join("download");
    paths::remove_folder(&scratch)?;
    paths::create_folder(&scratch)?;
    let fetched = unpack(&scratch).and_then(|library| shrink(program, &library, copy));
    paths::remove_folder(&scratch)?;
    fetched?;
    step.done(&format!("kept what is needed: {}", copy.display()));
    Ok(())
}

/// Downloads and unpacks the package; the path of the library.
fn unpack(scratch: &Path) -> Result<PathBuf> {
    let mut pip = command("python3")?;
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps"]);
    pip.args(["--disable-pip-version-check", "--only-binary", ":all:"]);
    pip.arg("--dest").arg(scratch);
    run(pip.arg(format!("{PACKAGE}=={RELEASE}")))?;
    let wheels = paths::expand(&scratch.join("*.whl"));
    let [wheel] = wheels.as_slice() else {
        fail!("pip has brought {} packages, not one", wheels.len());
    };
    let unpacked = scratch.join("unpacked");
    let mut zip = command("python3")?;
    zip.args(["-m", "zipfile", "-e"]).arg(wheel);
    run(zip.arg(&unpacked))?;
    let libraries = paths::expand(&unpacked.join("nvidia/nccl/lib/libnccl.so.*"));
    match libraries.into_iter().next() {
        Some(library) => Ok(library),
        None => fail!("the package {PACKAGE} has no libnccl.so"),
    }
}

/// Makes the copy, under another name until it is whole.
fn shrink(program: &Path, library: &Path, copy: &Path) -> Result<()> {
    let part = copy.with_extension("part");
    let mut shrink = Command::new(program);
    run(shrink.arg("shrink").arg(library).arg(&part))?;
    if let Err(error) = fs::rename(&part, copy) {
        fail!("cannot make {}: {error}", copy.display());
    }
    Ok(())
}
