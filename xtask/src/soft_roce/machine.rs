//! Running the job in the virtual machine: kernel, files, acceleration, boot.

use std::env::consts::ARCH;

use crate::failure::{Result, fail};
use crate::progress::note;

use super::accel;
use super::initramfs;
use super::kernel;
use super::options::{Accel, Job, Options};
use super::programs::Programs;
use super::qemu::{Engine, Guest};
use super::run_folder::RunFolder;

/// What can be known to fail before anything is built.
pub(super) fn check(options: &Options) -> Result<()> {
    if ARCH != "x86_64" {
        fail!(
            "the virtual machine is made for x86-64 hosts, and this is {ARCH}; \
               IBNET_TEST_DEVICES=... or `--accel host` runs on this host's own devices"
        );
    }
    match &options.kernel {
        Some(given) => kernel::from_folder(given).map(drop),
        None => Ok(()),
    }
}

/// Runs the job in a guest and returns its exit status.
pub(super) fn run(
    options: &Options,
    accel: Accel,
    programs: &Programs,
    folder: &RunFolder,
    on_line: &mut dyn FnMut(&str),
) -> Result<u8> {
    let kernel = match &options.kernel {
        Some(given) => kernel::from_folder(given)?,
        None => kernel::cached_or_fetched(folder.path())?,
    };
    let initramfs = initramfs::build(options, &kernel, programs, folder.path())?;
    let mut guest = Guest {
        image: &kernel.image,
        initramfs: &initramfs,
        engine: Engine::Kvm,
        memory: options.memory,
        folder: folder.path(),
        quiet: options.quiet,
    };
    guest.engine = accel::engine(accel, &kernel.version, &guest)?;
    note(&format!("kernel {} under {}", kernel.version, guest.engine));
    match options.job {
        Job::Shell => guest.run_shell(options.limits),
        Job::Scenarios { .. } | Job::Command(_) => guest.run_job(options.limits, on_line),
    }
}
