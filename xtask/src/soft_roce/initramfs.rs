//! The guest's files: what goes in, and packing it.

use std::env;
use std::path::{Path, PathBuf};

use crate::failure::{Result, fail};
use crate::paths;
use crate::process::{capture, command, find_program, run};
use crate::progress::Step;
use crate::setup::RXE_PROVIDERS;

use super::job::{self, Environment};
use super::kernel::Kernel;
use super::modules;
use super::options::Options;
use super::programs::Programs;
use super::root::Root;

/// Programs of the host that the guest gets as well, with their libraries. bash is the shell
/// everywhere, because busybox's prefers its own `ip` to iproute2's.
const TOOLS: &[&str] = &[
    "bash",
    "ip",
    "tc",
    "rdma",
    "ibv_devinfo",
    "ibv_devices",
    "ibv_rc_pingpong",
    "ib_write_lat",
    "ib_write_bw",
];

/// Where everything of this project lies in the guest; `guest/init.sh` knows it too.
const HOME: &str = "/opt/ibnet";

/// Builds the root in `folder/root`, packs it, and returns the packed file.
pub(super) fn build(
    options: &Options,
    kernel: &Kernel,
    programs: &Programs,
    folder: &Path,
) -> Result<PathBuf> {
    let step = Step::begin("packing the machine's files");
    let root_folder = folder.join("root");
    let mut root = Root::create(&root_folder)?;
    add_tools(&mut root)?;
    add_rxe_provider(&mut root)?;
    add_settings(&root)?;
    modules::install(kernel, &root.folder(&format!("{HOME}/modules"))?)?;
    add_programs(&mut root, programs)?;
    for file in Programs::install_extra(&options.extra, &root.folder(HOME)?)? {
        root.copy_libraries_of(&file)?;
    }
    add_scripts(&root, options, programs)?;
    let packed = folder.join("initramfs.cpio.gz");
    pack(&root_folder, &packed)?;
    let size = packed.metadata().map_or(0, |found| found.len());
    step.done(&format!(
        "packed {:.1} MiB",
        size as f64 / f64::from(1 << 20)
    ));
    Ok(packed)
}

fn add_tools(root: &mut Root) -> Result<()> {
    for name in TOOLS {
        let Some(program) = find_program(name) else {
            fail!("there is no program `{name}` on this host; `cargo xtask setup` installs it");
        };
        root.copy_binary(&program)?;
    }
    root.link("bash", "/usr/bin/sh")?;
    let Some(busybox) = find_program("busybox") else {
        fail!("there is no busybox on this host; `cargo xtask setup` installs it");
    };
    root.copy_binary(&busybox)?;
    for name in capture(command("busybox")?.arg("--list"))?.lines() {
        let taken = ["bin", "sbin"]
            .iter()
            .any(|folder| root.has(&format!("/usr/{folder}/{name}")));
        if !taken {
            root.link(&busybox.to_string_lossy(), &format!("/usr/bin/{name}"))?;
        }
    }
    Ok(())
}

/// libibverbs loads its drivers by itself: the one of RXE, and the file that announces it.
fn add_rxe_provider(root: &mut Root) -> Result<()> {
    let found = RXE_PROVIDERS
        .iter()
        .flat_map(|pattern| paths::expand(Path::new(pattern)));
    let Some(provider) = found.last() else {
        fail!("there is no RXE driver of libibverbs on this host (looked for {RXE_PROVIDERS:?})");
    };
    root.copy_binary(&provider)?;
    for file in paths::expand(Path::new("/etc/libibverbs.d/rxe.driver")) {
        root.copy(&file)?;
    }
    Ok(())
}

fn add_settings(root: &Root) -> Result<()> {
    for (path, text) in [
        ("/etc/hosts", "127.0.0.1 localhost ibnet-guest\n"),
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"),
        ("/etc/group", "root:x:0:\n"),
        ("/etc/nsswitch.conf", "hosts: files\n"),
    ] {
        root.write(path, text, 0o644)?;
    }
    Ok(())
}

/// The programs under test, without debug information: it would take longer to unpack than to run.
fn add_programs(root: &mut Root, programs: &Programs) -> Result<()> {
    let installed = programs.install(&root.folder(HOME)?)?;
    run(command("strip")?
        .arg("--strip-unneeded")
        .args(&installed.files))?;
    for file in &installed.files {
        root.copy_libraries_of(file)?;
    }
    Ok(())
}

fn add_scripts(root: &Root, options: &Options, programs: &Programs) -> Result<()> {
    let mut environment = Environment::new(
        Path::new(HOME),
        programs.has_driver(),
        options.place.devices(),
    );
    environment.set("IBNET_TEST_PAIRS", job::GUEST_PAIRS);
    environment.set("NCCL_SOCKET_IFNAME", "lo");
    // The links of this machine are nobody else's: tests may cut them.
    environment.set("IBNET_TEST_LINKS", "1");
    // Colours and line editing fit the terminal outside.
    environment.set(
        "TERM",
        &env::var("TERM").unwrap_or_else(|_| "dumb".to_owned()),
    );
    for (name, value) in &options.variables {
        environment.set(name, value);
    }
    environment.forward(job::own_variables());
    for (path, text, mode) in [
        ("/init", include_str!("../../guest/init.sh"), 0o755),
        (
            "/opt/ibnet/topology.sh",
            include_str!("../../guest/topology.sh"),
            0o644,
        ),
        ("/opt/ibnet/environment", &environment.script(), 0o644),
        ("/opt/ibnet/job", &job::command(&options.job), 0o644),
    ] {
        root.write(path, text, mode)?;
    }
    Ok(())
}

/// Packs as the kernel wants it; everything belongs to root, whoever packs.
fn pack(root: &Path, packed: &Path) -> Result<()> {
    let script = "set -euo pipefail; find . -print0 | LC_ALL=C sort -z \
        | cpio --null --create --format=newc --owner=0:0 --quiet | gzip -1 >\"$1\"";
    let mut bash = command("bash")?;
    bash.arg("-c").arg(script).arg("pack").arg(packed);
    run(bash.current_dir(root))
}
