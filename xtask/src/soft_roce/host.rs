//! Running on this host itself: on devices that are there, or on RXE devices made for the run.

use std::env;
use std::fs;
use std::io::{Write, sink, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::console::Console;
use crate::failure::{Context, Result, fail};
use crate::process::{command, shell_quote};
use crate::progress::{Step, note};
use crate::setup;
use crate::stream::{self, End};

use super::job::{self, Environment};
use super::options::Options;
use super::programs::Programs;
use super::run_folder::RunFolder;

/// Whether RXE devices can be made.
pub(super) fn check_rxe() -> Result<()> {
    if !setup::is_root()? {
        fail!(
            "making RXE devices on this host needs root; leave out --accel host to use the \
             virtual machine"
        );
    }
    Ok(())
}

/// Whether the devices that are named exist.
pub(super) fn check_devices(options: &Options) -> Result<()> {
    check_names(Path::new("/sys/class/infiniband"), options.place.devices())
}

/// Runs the job on devices that exist.
pub(super) fn run_on_devices(
    options: &Options,
    programs: &Programs,
    folder: &RunFolder,
    on_line: &mut dyn FnMut(&str),
) -> Result<u8> {
    note(&format!(
        "running on this host's devices {}",
        options.place.devices()
    ));
    let script = prepare(options, programs, folder.path())?;
    let mut bash = command("bash")?;
    run(bash.arg(script), options, on_line)
}

/// Makes RXE devices on dummy links, runs the job on them, and takes them away.
pub(super) fn run_on_rxe(
    options: &Options,
    programs: &Programs,
    folder: &RunFolder,
    on_line: &mut dyn FnMut(&str),
) -> Result<u8> {
    note(&format!(
        "running on RXE devices of this host: {}",
        options.place.devices()
    ));
    let script = prepare(options, programs, folder.path())?;
    let mut bash = command("bash")?;
    for (name, text) in [
        ("host.sh", include_str!("../../guest/host.sh")),
        ("topology.sh", include_str!("../../guest/topology.sh")),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, text).context(|| format!("cannot write {}", file.display()))?;
        bash.arg(file);
    }
    run(bash.arg(script), options, on_line)
}

/// Installs the programs and writes the job's script.
fn prepare(options: &Options, programs: &Programs, folder: &Path) -> Result<PathBuf> {
    programs.install(folder)?;
    Programs::install_extra(&options.extra, folder)?;
    let mut environment = Environment::new(folder, programs.has_driver(), options.place.devices());
    if env::var_os("NCCL_SOCKET_IFNAME").is_none() {
        // All processes of a run are on this host.
        environment.set("NCCL_SOCKET_IFNAME", "lo");
    }
    for (name, value) in &options.variables {
        environment.set(name, value);
    }
    let bin = shell_quote(&folder.join("bin").to_string_lossy());
    let text = format!(
        "{}export PATH={bin}:\"$PATH\"\nulimit -l unlimited 2>/dev/null || true\n{}",
        environment.script(),
        job::command(&options.job)
    );
    let script = folder.join("job");
    fs::write(&script, text).context(|| format!("cannot write {}", script.display()))?;
    Ok(script)
}

fn check_names(sysfs: &Path, devices: &str) -> Result<()> {
    for device in devices.split(',') {
        // A name may carry a port (`mlx5_0:1`).
        let name = device.trim().split(':').next().unwrap_or_default();
        if name.is_empty() || !sysfs.join(name).exists() {
            fail!(
                "there is no RDMA device `{name}` on this host ({} lists them)",
                sysfs.display()
            );
        }
    }
    Ok(())
}

fn run(bash: &mut Command, options: &Options, on_line: &mut dyn FnMut(&str)) -> Result<u8> {
    let step = Step::begin("running the job");
    let output: Box<dyn Write> = if options.quiet {
        Box::new(sink())
    } else {
        Box::new(stdout())
    };
    let mut console = Console::of_job(output, on_line);
    let end = stream::run(bash, options.limits, &mut |piece| console.feed(piece))?;
    console.finish();
    match end {
        End::Exited(status) => {
            let Some(code) = status.code() else {
                fail!("the job ended by a signal: {status}");
            };
            step.done(&format!("the job has ended with status {code}"));
            Ok(u8::try_from(code).unwrap_or(u8::MAX))
        }
        End::Silent(limit) => fail!("the job printed nothing for {} s", limit.as_secs()),
        End::TooLong(limit) => fail!("the job was not done after {} s", limit.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn devices_must_exist() {
        let sysfs = env::temp_dir().join(format!("xtask-devices-{}", std::process::id()));
        fs::create_dir_all(sysfs.join("mlx5_0")).unwrap();
        assert!(check_names(&sysfs, "mlx5_0").is_ok());
        assert!(check_names(&sysfs, "mlx5_0:1, mlx5_0:2").is_ok());
        let failure = check_names(&sysfs, "mlx5_0,mlx5_9")
            .unwrap_err()
            .to_string();
        assert!(failure.contains("`mlx5_9`"), "{failure}");
        assert!(check_names(&sysfs, "mlx5_0,").is_err());
        fs::remove_dir_all(sysfs).unwrap();
    }
}
