//! `cargo xtask soft-roce-test`: the built programs on real RDMA verbs.
//!
//! Usually in a virtual machine whose kernel has the Soft-RoCE driver RXE, else on this host's own
//! devices. `test` and `demo` come through [`run`] as well. How the machine works is told in
//! `docs/soft-roce.md`; its own scripts are in `xtask/guest`.

mod accel;
mod host;
mod initramfs;
mod job;
mod kernel;
mod machine;
mod modules;
mod options;
mod programs;
mod qemu;
mod root;
mod run_folder;

pub(crate) use options::{FLAGS, Job, MACHINE_FLAGS, Options, Place, devices_from_environment};

use crate::args::Parsed;
use crate::failure::Result;
use crate::setup::{self, Group};
use programs::Programs;
use run_folder::RunFolder;

/// Entry point of the subcommand; its exit status is that of what was run.
pub(crate) fn command(parsed: &Parsed) -> Result<u8> {
    let mut options = Options::new(parsed, options::job(parsed)?, devices_from_environment())?;
    options.keep = parsed.has("--keep");
    run(&options, &mut |_| ())
}

/// Builds the programs, runs the job on RDMA devices, and returns its exit status. `on_line` gets
/// each line that the job prints; they are shown as well.
pub(crate) fn run(options: &Options, on_line: &mut dyn FnMut(&str)) -> Result<u8> {
    setup::ensure(match options.place {
        Place::Machine(_) => &[Group::Build, Group::Machine],
        Place::HostRxe => &[Group::Build, Group::HostRxe],
        Place::Devices(_) => &[Group::Build],
    })?;
    let folder = RunFolder::create(options.keep)?;
    let programs = Programs::build(folder.path())?;
    match &options.place {
        Place::Machine(accel) => machine::run(options, *accel, &programs, &folder, on_line),
        Place::HostRxe => host::run_on_rxe(options, &programs, &folder, on_line),
        Place::Devices(_) => host::run_on_devices(options, &programs, &folder, on_line),
    }
}
