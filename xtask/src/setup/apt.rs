//! Debian's package tools: installing packages, and fetching them without installing.

use std::fs;
use std::io::stderr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::failure::Result;
use crate::process::{capture, command, run};
use crate::progress::note;

use super::is_root;

const LISTS: &str = "/var/lib/apt/lists";

/// Package lists older than this are renewed before they are used: mirrors drop old versions.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Installs packages, as root.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    refresh_if_stale();
    with_fresh_lists(|| {
        let mut install = apt_get()?;
        install
            .args(["install", "-y", "--no-install-recommends"])
            .args(packages);
        run(&mut install)
    })
}

/// Downloads packages as files into a folder, without installing anything.
pub(crate) fn download(packages: &[String], folder: &Path) -> Result<()> {
    with_fresh_lists(|| {
        let mut download = apt_get()?;
        // Root's downloads otherwise switch to a user who may not write into the folder.
        download
            .args(["-o", "APT::Sandbox::User=root", "download"])
            .args(packages);
        run(download.current_dir(folder))
    })
}

/// What a package depends on, by the package lists.
pub(crate) fn dependencies(package: &str) -> Result<Vec<String>> {
    refresh_if_stale();
    let text = capture(command("apt-cache")?.args(["depends", package]))?;
    Ok(parse_dependencies(&text))
}

fn parse_dependencies(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(|name| name.trim().to_owned()).collect()
}

fn apt_get() -> Result<Command> {
    let mut apt = command("apt-get")?;
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(stderr());
    // Another installation may be under way: wait for it rather than fail.
    apt.args([
        "-q",
        "-o",
        "Dpkg::Use-Pty=0",
        "-o",
        "DPkg::Lock::Timeout=300",
    ]);
    Ok(apt)
}

/// Runs an action; where it fails, renews the package lists (which root only may do) and tries once
/// more.
fn with_fresh_lists(action: impl Fn() -> Result<()>) -> Result<()> {
    let first = action();
    if first.is_ok() || !is_root()? {
        return first;
    }
    note("that failed; trying again with new package lists");
    update()?;
    action()
}

fn refresh_if_stale() {
    let renewed = lists_renewed();
    let stale = renewed.is_none_or(|renewed| renewed.elapsed().is_ok_and(|age| age > STALE));
    if stale
        && is_root().is_ok_and(|root| root)
        && let Err(failure) = update()
    {
        // Old lists may still do, and if not, the next step says so.
        note(&format!("going on with the old package lists: {failure}"));
    }
}

/// When the package lists were last renewed, or `None` where there are none.
fn lists_renewed() -> Option<SystemTime> {
    let entries: Vec<_> = fs::read_dir(LISTS).ok()?.flatten().collect();
    let has_lists = entries
        .iter()
        .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"));
    // The files carry the mirror's times; the folder's own time is that of the last renewal.
    if has_lists {
        fs::metadata(LISTS).ok()?.modified().ok()
    } else {
        None
    }
}

fn update() -> Result<()> {
    run(apt_get()?.arg("update"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n  Suggests: grub\n";
        assert_eq!(parse_dependencies(text), ["linux-image-6.1.0-57-amd64"]);
        assert!(parse_dependencies("").is_empty());
    }
}
