//! The programs under test: built here, and laid out where the job expects them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::{capture, command, run};
use crate::progress::{Step, note};

/// A package and its program.
const SCENARIOS: &str = "ibnet-scenarios";

const PACKAGES: &[&str] = &[SCENARIOS, "ncclnet-ffi", "ibnet-examples"];

/// The name under which the plugin is loaded.
const PLUGIN: &str = "libnccl-net-ibnet.so";

/// The C program that knows the plugin by its C interface only.
const DRIVER: &str = "driver";

/// The comparison of real devices with simulated ones.
const CONFORMANCE: &str = "verbs-conformance";

/// What has been built.
pub(super) struct Programs {
    executables: Vec<PathBuf>,
    conformance: PathBuf,
    plugin: PathBuf,
}

/// Where [`Programs::install`] has put things.
pub(super) struct Installed {
    /// Every file that was installed, to look for the libraries that it needs.
    pub(super) files: Vec<PathBuf>,
}

impl Programs {
    /// Builds the packages, and the C driver into `folder`.
    pub(super) fn build(folder: &Path) -> Result<Self> {
        let artifacts = cargo::build_release(PACKAGES)?;
        let mut executables = artifacts.executables;
        executables.extend(build_driver(folder)?);
        let Some(plugin) = artifacts.libraries.into_iter().next() else {
            fail!("the build of ncclnet-ffi has made no shared library");
        };
        Ok(Self {
            executables,
            conformance: cargo::build_release_test("ibnet-simverbs", "conformance")?,
            plugin,
        })
    }

    /// Copies everything below a folder: programs into `bin`, the plugin into `lib`.
    pub(super) fn install(&self, folder: &Path) -> Result<Installed> {
        let (bin, lib) = (folder.join("bin"), folder.join("lib"));
        paths::create_folder(&bin)?;
        paths::create_folder(&lib)?;
        let mut files = vec![
            copy(&self.plugin, &lib.join(PLUGIN))?,
            copy(&self.conformance, &bin.join(CONFORMANCE))?,
        ];
        for program in &self.executables {
            files.push(copy(
                program,
                &bin.join(program.file_name().unwrap_or_default()),
            )?);
        }
        Ok(Installed { files })
    }

    /// Copies further files below the same folder, shared libraries into `lib` and all else into
    /// `bin`; returns the copies.
    pub(super) fn install_extra(extra: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
        let place = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default();
            let is_library = name.to_string_lossy().contains(".so");
            let inside = if is_library { "lib" } else { "bin" };
            copy(file, &folder.join(inside).join(name))
        };
        extra.iter().map(place).collect()
    }

    /// Whether the C driver is among the programs.
    pub(super) fn has_driver(&self) -> bool {
        self.executables
            .iter()
            .any(|program| program.ends_with(DRIVER))
    }
}

/// The names of the scenarios, or of those whose name contains `filter`, of which there must be some.
pub(super) fn scenarios_matching(filter: Option<&str>) -> Result<Vec<String>> {
    // All of them, as a run does, so that nothing is built twice.
    let artifacts = cargo::build_release(PACKAGES)?;
    let mut programs = artifacts.executables.iter();
    let Some(program) = programs.find(|program| program.ends_with(SCENARIOS)) else {
        fail!("the build of {SCENARIOS} has made no program of that name");
    };
    matching(&capture(Command::new(program).arg("--list"))?, filter)
}

fn matching(names: &str, filter: Option<&str>) -> Result<Vec<String>> {
    let wanted = filter.unwrap_or_default();
    let names: Vec<_> = names
        .lines()
        .filter(|name| name.contains(wanted))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        fail!(
            "no scenario's name contains `{wanted}`; `cargo xtask soft-roce-test --list` prints them"
        );
    }
    Ok(names)
}

/// The path of the plugin below the folder that [`Programs::install`] was given.
pub(super) fn plugin_in(folder: &Path) -> PathBuf {
    folder.join("lib").join(PLUGIN)
}

/// The path of the conformance test below that folder.
pub(super) fn conformance_in(folder: &Path) -> PathBuf {
    folder.join("bin").join(CONFORMANCE)
}

/// The path of the C driver below that folder.
pub(super) fn driver_in(folder: &Path) -> PathBuf {
    folder.join("bin").join(DRIVER)
}

fn copy(from: &Path, to: &Path) -> Result<PathBuf> {
    fs::copy(from, to).context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(to.to_path_buf())
}

fn build_driver(folder: &Path) -> Result<Option<PathBuf>> {
    let source = paths::plugin_crate("tests/c/driver.c");
    if !source.exists() {
        note(&format!(
            "there is no C driver: {} is missing",
            source.display()
        ));
        return Ok(None);
    }
    let step = Step::begin("compiling the C driver");
    let driver = folder.join(DRIVER);
    let mut compile = command("cc")?;
    compile.args([
        "-std=gnu11",
        "-O2",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        "-I",
    ]);
    compile.arg(paths::plugin_crate("include")).arg(source);
    run(compile.arg("-o").arg(&driver).arg("-ldl"))?;
    step.done("compiled");
    Ok(Some(driver))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_filter_must_match_a_scenario() {
        let names = "close/early\nclose/late\nsend/large\n";
        assert_eq!(matching(names, None).unwrap().len(), 3);
        let found = matching(names, Some("late")).unwrap();
        assert_eq!(found, ["close/late"]);
        let failure = matching(names, Some("nope")).unwrap_err().to_string();
        assert!(failure.contains("`nope`"), "{failure}");
    }
}
