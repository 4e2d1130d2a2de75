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

pub(crate) use options::{
    Accel, FLAGS, Job, MACHINE_FLAGS, Options, Place, devices_from_environment,
};

use crate::args::Parsed;
use crate::failure::{Result, fail};
use crate::setup::{self, Group};
use programs::Programs;
use run_folder::RunFolder;

/// Entry point of the subcommand; its exit status is that of what was run.
pub(crate) fn command(parsed: &Parsed) -> Result<u8> {
    let job = options::job(parsed)?;
    if parsed.has("--list") {
        return list(parsed, &job);
    }
    let mut options = Options::new(parsed, job, devices_from_environment())?;
    options.keep = parsed.has("--keep");
    run(&options, &mut |_| ())
}

/// Prints the names of the scenarios that would run.
fn list(parsed: &Parsed, job: &Job) -> Result<u8> {
    let about_a_run = MACHINE_FLAGS.iter().map(|flag| flag.name).chain(["--keep"]);
    let is_about_a_run = about_a_run.into_iter().any(|flag| parsed.has(flag));
    let filter = match job {
        Job::Scenarios { filter } if !is_about_a_run => filter,
        _ => fail!("`--list` goes with `--filter` only"),
    };
    setup::ensure(&[Group::Build])?;
    for name in programs::scenarios_matching(filter.as_deref())? {
        println!("{name}");
    }
    Ok(0)
}

/// What can be known to fail before anything is installed or built.
fn check(options: &Options) -> Result<()> {
    match options.place {
        Place::Machine(_) => machine::check(options),
        Place::HostRxe => host::check_rxe(),
        Place::Devices(_) => host::check_devices(options),
    }
}

/// Builds the programs, runs the job on RDMA devices, and returns its exit status. `on_line` gets
/// each line that the job prints; they are shown as well.
pub(crate) fn run(options: &Options, on_line: &mut dyn FnMut(&str)) -> Result<u8> {
    check(options)?;
    setup::ensure(match options.place {
        Place::Machine(_) => &[Group::Build, Group::Machine],
        Place::HostRxe => &[Group::Build, Group::HostRxe],
        Place::Devices(_) => &[Group::Build],
    })?;
    if let Job::Scenarios { filter: Some(name) } = &options.job {
        // Fails if there is none, which else would show only in the machine.
        programs::scenarios_matching(Some(name))?;
    }
    let folder = RunFolder::create(options.keep)?;
    let programs = Programs::build(folder.path())?;
    match &options.place {
        Place::Machine(accel) => machine::run(options, *accel, &programs, &folder, on_line),
        Place::HostRxe => host::run_on_rxe(options, &programs, &folder, on_line),
        Place::Devices(_) => host::run_on_devices(options, &programs, &folder, on_line),
    }
}
