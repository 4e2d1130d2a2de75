//! The C driver on simulated devices: everything that the driver does, both ends in one process.
#![allow(clippy::unwrap_used)]

#[path = "../../ncclnet-ffi/tests/common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::sync::LazyLock;

static DRIVER: LazyLock<PathBuf> = LazyLock::new(|| common::compile_driver("simulated-driver"));

/// Runs the driver between the two devices, and gives what it wrote. It must succeed.
fn driver(abi: u32, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let plugin = common::built("libncclnet_sim.so");
    let devices = ["--dev", "sim0", "--peer-dev", "sim1"];
    let arguments = [&devices, arguments].concat();
    common::run_driver(&DRIVER, &plugin, abi, &arguments, variables).unwrap_or_else(|text| {
        panic!("version {abi}, {arguments:?}, {variables:?}:\n{text}");
    })
}

/// Data between two threads that drive the plugin through this version of the interface.
fn moves_data(abi: u32) {
    let text = driver(abi, &["--threads"], &[]);
    assert!(text.contains("sim0") && text.contains("sim1"), "{text}");
    assert!(text.contains("all data was as sent"), "{text}");
}

#[test]
fn data_through_version_8() {
    moves_data(8);
}

#[test]
fn data_through_version_9() {
    moves_data(9);
}

#[test]
fn data_through_version_10() {
    moves_data(10);
}

#[test]
fn data_through_version_11() {
    moves_data(11);
}

#[test]
fn data_through_version_12() {
    moves_data(12);
}

#[test]
fn data_over_infiniband() {
    let devices = [("NCCLNET_SIM_DEVICES", "sim0:infiniband,sim1:infiniband")];
    let text = driver(12, &["--threads"], &devices);
    assert!(text.contains("sim0:1: InfiniBand"), "{text}");
    assert!(text.contains("all data was as sent"), "{text}");
}

#[test]
fn no_line_of_the_log_is_missed() {
    for abi in 8..=12 {
        let text = driver(abi, &["--threads", "--null-logger"], &[]);
        assert!(!text.contains("NET/IBNET"), "{text}");
    }
}

#[test]
fn bad_handles_are_errors() {
    for abi in 8..=12 {
        driver(abi, &["--bad-handle"], &[]);
    }
}

#[test]
fn wrong_calls_are_errors() {
    for abi in 8..=12 {
        let text = driver(abi, &["--misuse"], &[]);
        assert!(text.contains("with devices: all are errors"), "{text}");
    }
}

/// The settings of the real plugin hold here, too: they are read by the same code.
#[test]
fn a_failed_init_says_why() {
    let says = "no usable RDMA device";
    for abi in 8..=12 {
        let variables = [("NCCL_IB_HCA", "=no_such_device")];
        driver(abi, &["--expect-init-error", says], &variables);
    }
}

#[test]
fn the_driver_notices_devices_that_cannot_reach_each_other() {
    let devices = [("NCCLNET_SIM_DEVICES", "sim0:infiniband,sim1:roce")];
    let plugin = common::built("libncclnet_sim.so");
    let arguments = ["--threads", "--dev", "sim0", "--peer-dev", "sim1"];
    let text = common::run_driver(&DRIVER, &plugin, 12, &arguments, &devices).unwrap_err();
    assert!(text.contains("FAILED"), "{text}");
}
