//! The copy of the tree in which faults are put back, with a build folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cargo;
use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::{capture, command};
use crate::stream::{self, Limits};

use super::patch::{Patch, Test};
use super::verdict::Verdict;

/// A test that takes so long hangs, and is not red.
const LIMIT: Duration = Duration::from_secs(180);

/// The copy.
pub(super) struct Copy {
    tree: PathBuf,
    build: PathBuf,
}

impl Copy {
    /// Makes the copy, or brings the one of an earlier run up to date.
    pub(super) fn new() -> Result<Self> {
        let folder = paths::target().join("faults");
        let copy = Self {
            tree: folder.join("tree"),
            build: folder.join("build"),
        };
        paths::create_folder(&copy.tree)?;
        copy.refresh()?;
        Ok(copy)
    }

    /// Makes the copy equal to the tree as it lies on the disk. Files that are equal stay untouched,
    /// so that little is built anew.
    pub(super) fn refresh(&self) -> Result<()> {
        let root = paths::root();
        let list = capture(command("git")?.current_dir(&root).args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))?;
        let files: Vec<&str> = list.split_terminator('\0').collect();
        for file in &files {
            // A file that was removed is listed until that is committed.
            if root.join(file).is_file() {
                update(&root.join(file), &self.tree.join(file))?;
            }
        }
        self.remove_others(&self.tree, &files)
    }

    /// Removes what the tree does not have.
    fn remove_others(&self, folder: &Path, files: &[&str]) -> Result<()> {
        let read = || format!("cannot read {}", folder.display());
        for entry in fs::read_dir(folder).context(read)? {
            let path = entry.context(read)?.path();
            if path.is_dir() {
                self.remove_others(&path, files)?;
                continue;
            }
            let inside = path.strip_prefix(&self.tree).unwrap_or(&path);
            let is_known = files.iter().any(|file| Path::new(file) == inside);
            // Cargo writes the lock file, whether or not the repository has it.
            if !is_known && inside != Path::new("Cargo.lock") {
                fs::remove_file(&path).context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Puts a fault into the copy.
    pub(super) fn apply(&self, patch: &Patch) -> Result<()> {
        let mut git = command("git")?;
        git.current_dir(&self.tree).arg("apply").arg(patch.path());
        // The copy is no repository, and lies in one only by chance.
        git.env(
            "GIT_CEILING_DIRECTORIES",
            self.tree.parent().unwrap_or(&self.tree),
        );
        capture(&mut git).map(drop)
    }

    /// Builds and runs a test in the copy.
    pub(super) fn run(&self, test: &Test) -> Result<Verdict> {
        let mut build = cargo::cargo();
        build
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .env("CARGO_INCREMENTAL", "1")
            .args(["test", "--no-run", "--quiet"])
            .args(&test.build);
        let tests = cargo::build_silently(build)?.tests;
        let [program] = &tests[..] else {
            fail!(
                "`{test}` names {} programs of tests instead of one",
                tests.len()
            );
        };
        let mut run = Command::new(&program.path);
        run.arg(&test.name)
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder)
            .env_remove("IBNET_TEST_DEVICES")
            .env_remove("IBNET_TEST_PAIRS")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let limits = Limits {
            silence: None,
            total: Some(LIMIT),
        };
        let mut output = Vec::new();
        let end = stream::run(&mut run, limits, &mut |piece| {
            output.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Verdict::of(
            &test.name,
            &end,
            &String::from_utf8_lossy(&output),
        ))
    }
}

/// Makes a file of the copy equal to that of the tree.
fn update(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        paths::create_folder(folder)?;
    }
    fs::write(to, bytes).context(|| format!("cannot write {}", to.display()))
}
