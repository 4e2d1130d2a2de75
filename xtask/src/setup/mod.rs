//! `cargo xtask setup`, and the same for the other subcommands: what is needed is looked for, and
//! what is missing gets installed.
//!
//! The table of needs is in [`needs`], the Debian side in [`apt`].

pub(crate) mod apt;
mod needs;
mod plan;

pub(crate) use needs::{Group, RXE_PROVIDERS};

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::args::Parsed;
use crate::failure::{Context, Result, fail};
use crate::progress::note;
use plan::{Plan, Platform};

/// Entry point of the subcommand: every group.
pub(crate) fn command(_: &Parsed) -> Result<u8> {
    ensure(&[Group::Build, Group::Machine, Group::HostRxe])?;
    note("everything that building, testing and the demo need is installed");
    Ok(0)
}

/// Makes sure that all of these groups are installed. Takes no time where they are.
pub(crate) fn ensure(groups: &[Group]) -> Result<()> {
    let missing = needs::missing(groups);
    match plan::make(&this_platform()?, &missing) {
        Plan::Nothing => return Ok(()),
        Plan::Install(packages) => {
            note(&format!("installing {}", packages.join(" ")));
            apt::install(&packages)?;
        }
        Plan::Ask(text) => fail!("{text}"),
    }
    let left = needs::missing(groups);
    if !left.is_empty() {
        fail!(
            "still missing after the installation:\n{}",
            needs::describe(&left)
        );
    }
    Ok(())
}

/// Whether this process may install packages.
pub(crate) fn is_root() -> Result<bool> {
    let own = fs::metadata("/proc/self").context(|| "cannot look at /proc/self".to_owned())?;
    Ok(own.uid() == 0)
}

fn this_platform() -> Result<Platform> {
    // A system without the file is of an unknown kind, which is one of the cases.
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    Ok(Platform {
        has_apt: plan::is_debian_like(&release),
        is_root: is_root()?,
    })
}
