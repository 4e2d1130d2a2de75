//! The plugin, driven by programs that know nothing but NCCL's C interface.

use std::process::Command;
use std::time::Duration;

use super::programs::{required, run};
use crate::cast::Cast;
use crate::play::{Failure, Scenario, Scene};

pub(super) fn scenarios() -> Vec<Scenario> {
    let play = |name, scene, role| Scenario {
        name,
        scene,
        roles: role,
        limit: Duration::from_secs(180),
        needs_processes: Some("it starts the programs of the plugin"),
    };
    vec![
        play("plugin/version-2", Scene::OneDeviceAndPair, &[version_2]),
        play("plugin/version-6", Scene::OneDeviceAndPair, &[version_6]),
        play("plugin/version-8", Scene::OneDeviceAndPair, &[version_8]),
        play("plugin/version-9", Scene::OneDeviceAndPair, &[version_9]),
        // Also between virtual devices, which these versions have.
        play("plugin/version-10", Scene::Everywhere, &[version_10]),
        play("plugin/version-11", Scene::OneDeviceAndPair, &[version_11]),
        play("plugin/version-12", Scene::Everywhere, &[version_12]),
        play("plugin/threads", Scene::OneDeviceAndPair, &[threads]),
        play("plugin/without-a-logger", Scene::OneDevice, &[null_logger]),
        play("plugin/bad-handle", Scene::OneDevice, &[bad_handle]),
        play("plugin/misuse", Scene::OneDevice, &[misuse]),
        play("plugin/no-library", Scene::NoDevice, &[no_library]),
        play("plugin/no-device", Scene::OneDevice, &[no_device]),
        play("plugin/wrong-setting", Scene::NoDevice, &[wrong_setting]),
        play(
            "plugin/all-reduce-of-four",
            Scene::OneDeviceAndPair,
            &[all_reduce],
        ),
    ]
}

fn version_2(cast: &mut Cast) -> Result<(), Failure> {
    version(cast, "2")
}

fn version_6(cast: &mut Cast) -> Result<(), Failure> {
    version(cast, "6")
}

fn version_8(cast: &mut Cast) -> Result<(), Failure> {
    version(cast, "8")
}

fn version_9(cast: &mut Cast) -> Result<(), Failure> {
    version(cast, "9")
}

fn version_10(cast: &mut Cast) -> Result<(), Failure> {
    version(cast, "10")
}

fn version_11(cast: &mut Cast) -> Result<(), Failure> {
    version(cast, "11")
}

fn version_12(cast: &mut Cast) -> Result<(), Failure> {
    version(cast, "12")
}

/// Data between two processes that drive the plugin through this version of the interface. Host memory
/// plays a GPU's, which shows the flushes: software devices do not offer GPU memory.
fn version(cast: &mut Cast, abi: &str) -> Result<(), Failure> {
    let mut driver = driver_between_devices(cast)?;
    run(driver.args(["--abi", abi, "--gpu-memory"]))
}

/// What NCCL's threads do at the same time, in one process.
fn threads(cast: &mut Cast) -> Result<(), Failure> {
    run(driver_between_devices(cast)?.arg("--contract"))
}

fn null_logger(cast: &mut Cast) -> Result<(), Failure> {
    run(driver_between_devices(cast)?.arg("--null-logger"))
}

fn bad_handle(cast: &mut Cast) -> Result<(), Failure> {
    run(driver_between_devices(cast)?.arg("--bad-handle"))
}

fn misuse(cast: &mut Cast) -> Result<(), Failure> {
    run(driver_between_devices(cast)?.arg("--misuse"))
}

/// Where libibverbs is missing the plugin loads all the same, and init says so.
fn no_library(cast: &mut Cast) -> Result<(), Failure> {
    let mut driver = driver(cast)?;
    driver.env("NCCL_IBVERBS_LIB", "/nonexistent/libibverbs.so.1");
    run(driver.args(["--expect-init-error", "libibverbs is missing"]))
}

/// Where there is no device the plugin loads all the same, and init says so.
fn no_device(cast: &mut Cast) -> Result<(), Failure> {
    let mut driver = driver(cast)?;
    driver.env("NCCL_IB_HCA", "=nonexistent");
    run(driver.args(["--expect-init-error", "no usable RDMA device"]))
}

fn wrong_setting(cast: &mut Cast) -> Result<(), Failure> {
    let mut driver = driver(cast)?;
    driver.env("IBNET_CONNECT_TIMEOUT", "soon");
    run(driver.args(["--expect-init-error", "IBNET_CONNECT_TIMEOUT=soon"]))
}

/// The main job: a ring all-reduce of four processes, checked against the exact sum.
fn all_reduce(cast: &mut Cast) -> Result<(), Failure> {
    let plugin = required(cast, "IBNET_TEST_PLUGIN")?;
    let program = std::env::current_exe()?.with_file_name("ring_allreduce");
    if !program.exists() {
        return Err(cast.skip("ring_allreduce is not beside this program"));
    }
    let devices = cast.devices().join(",");
    let mut command = Command::new(program);
    command.args([
        "--ranks",
        "4",
        "--size",
        "8:1M",
        "--iters",
        "3",
        "--devices",
        &devices,
    ]);
    run(command.arg("--plugin").arg(plugin))
}

fn driver_between_devices(cast: &mut Cast) -> Result<Command, Failure> {
    let mut command = driver(cast)?;
    if let (Some(device), Some(peer)) = (cast.devices().first(), cast.devices().last()) {
        command.args(["--dev", device, "--peer-dev", peer]);
    }
    Ok(command)
}

fn driver(cast: &mut Cast) -> Result<Command, Failure> {
    let plugin = required(cast, "IBNET_TEST_PLUGIN")?;
    let mut command = Command::new(required(cast, "IBNET_TEST_DRIVER")?);
    command.arg(plugin);
    Ok(command)
}
