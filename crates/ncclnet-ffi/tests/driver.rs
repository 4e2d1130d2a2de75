//! The C driver against the shared library: what needs no device. Moving data needs one: that is done
//! with the same driver by the tests of `ncclnet-sim`, and on real devices by the Soft-RoCE tier.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;
use std::sync::LazyLock;

static DRIVER: LazyLock<PathBuf> = LazyLock::new(|| common::compile_driver("driver"));

/// Runs the driver with one version of the plugin.
fn driver(abi: u32, arguments: &[&str], variables: &[(&str, &str)]) -> Result<String, String> {
    common::run_driver(&DRIVER, &common::plugin(), abi, arguments, variables)
}

/// Reasons for which `init` fails on every machine: what sets it off, and what the one line of the
/// log must say.
fn failures() -> [(&'static str, &'static str, &'static str); 4] {
    // SAFETY: a C string; the library has no initialisers that matter to a test.
    let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
    let missing = "the library libibverbs is missing";
    let no_device = if library.is_null() {
        missing
    } else {
        "no usable RDMA device"
    };
    [
        ("NCCL_IBVERBS_LIB", "/no/such/libibverbs.so", missing),
        ("NCCL_IB_HCA", "=no_such_device", no_device),
        ("NCCL_IB_DISABLE", "1", "disabled by NCCL_IB_DISABLE"),
        ("IBNET_MIN_PART", "1", "IBNET_MIN_PART=1"),
    ]
}

#[test]
fn a_failed_init_says_why() {
    for abi in 2..=12 {
        for (variable, value, says) in failures() {
            let result = driver(abi, &["--expect-init-error", says], &[(variable, value)]);
            assert!(
                result.is_ok(),
                "version {abi}, {variable}={value}:\n{}",
                result.unwrap_err()
            );
        }
    }
}

#[test]
fn the_driver_notices_an_init_that_fails_for_another_reason() {
    let result = driver(
        12,
        &["--expect-init-error", "the moon"],
        &[("NCCL_IB_DISABLE", "1")],
    );
    assert!(result.is_err_and(|text| text.contains("no line of the log contains")));
}

#[test]
fn every_wrong_call_is_an_error() {
    for abi in 2..=12 {
        let result = driver(abi, &["--misuse"], &[("NCCL_IB_DISABLE", "1")]);
        assert!(
            result
                .as_ref()
                .is_ok_and(|text| text.contains("without devices: all are errors")),
            "version {abi}:\n{result:?}"
        );
    }
}

#[test]
fn a_null_logger_is_silence() {
    for abi in 2..=12 {
        let text = driver(abi, &["--null-logger"], &[("NCCL_IB_DISABLE", "1")]).unwrap_err();
        assert!(text.contains("init: result 5"), "{text}");
        assert!(!text.contains("NET/IBNET"), "{text}");
    }
}
