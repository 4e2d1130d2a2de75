//! The folder of one run, below the cache: staged files, scripts, the machine's control file.
//!
//! Every run has its own, so that two at the same time do not disturb each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use crate::failure::Result;
use crate::paths;
use crate::progress::note;

const PREFIX: &str = "run-";

/// A folder that goes away with this value, unless it is to be kept.
pub(super) struct RunFolder {
    path: PathBuf,
    keep: bool,
}

impl RunFolder {
    /// Creates the folder, and removes those of runs that were killed.
    pub(super) fn create(keep: bool) -> Result<Self> {
        let parent = paths::soft_roce();
        paths::create_folder(&parent)?;
        for leftover in leftovers(&parent) {
            paths::remove_folder(&leftover)?;
        }
        let path = parent.join(format!("{PREFIX}{}", process::id()));
        paths::remove_folder(&path)?;
        paths::create_folder(&path)?;
        Ok(Self { path, keep })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if self.keep {
            let kept = self.path.with_file_name("kept");
            let moved =
                paths::remove_folder(&kept).is_ok() && fs::rename(&self.path, &kept).is_ok();
            let place = if moved { &kept } else { &self.path };
            note(&format!("the run's folder is kept: {}", place.display()));
        } else if let Err(failure) = paths::remove_folder(&self.path) {
            note(&failure.to_string());
        }
    }
}

/// Folders of runs whose process is gone.
fn leftovers(parent: &Path) -> Vec<PathBuf> {
    let is_leftover = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix(PREFIX)
            .and_then(|id| id.parse::<u32>().ok())
            .is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists())
    };
    paths::expand(&parent.join(format!("{PREFIX}*")))
        .into_iter()
        .filter(is_leftover)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_folders_of_dead_runs_are_leftovers() {
        let parent = std::env::temp_dir().join(format!("xtask-leftovers-{}", process::id()));
        // Process numbers end far below this one.
        for name in [
            "run-4294967295",
            &format!("run-{}", process::id()),
            "run-x",
            "kernel",
        ] {
            fs::create_dir_all(parent.join(name)).unwrap();
        }
        assert_eq!(leftovers(&parent), [parent.join("run-4294967295")]);
        fs::remove_dir_all(parent).unwrap();
    }
}
