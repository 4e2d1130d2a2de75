//! The C driver on simulated devices: everything that the driver does, both ends in one process.
#![allow(clippy::unwrap_used)]

#[path = "../../ncclnet-ffi/tests/common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Data between two threads that drive the plugin through this version of the interface, in every way
/// that the version and the devices have: the driver tries what they offer, and says what it was.
///
/// The rows for several devices and for flushing switch on with what the devices say of themselves.
fn moves_data(abi: u32) {
    let text = driver(abi, &["--threads"], &[]);
    assert!(text.contains("sim0") && text.contains("sim1"), "{text}");
    assert!(text.contains("all data was as sent"), "{text}");
    let groups = if abi >= 5 { "yes" } else { "no" };
    let row = format!("version {abi}: host memory yes, groups {groups}, several devices ");
    assert!(text.contains(&row), "{text}");
    // What happens on purpose (a wrong call for each request) is not shown.
    assert!(!text.contains("WARN"), "{text}");
}

macro_rules! data_through {
    ($($name:ident = $abi:literal),+ $(,)?) => {
        $(#[test]
        fn $name() {
            moves_data($abi);
        })+
    };
}

data_through!(
    data_through_version_2 = 2,
    data_through_version_3 = 3,
    data_through_version_4 = 4,
    data_through_version_5 = 5,
    data_through_version_6 = 6,
    data_through_version_7 = 7,
    data_through_version_8 = 8,
    data_through_version_9 = 9,
    data_through_version_10 = 10,
    data_through_version_11 = 11,
    data_through_version_12 = 12,
);

#[test]
fn data_over_infiniband() {
    let devices = [("NCCLNET_SIM_DEVICES", "sim0:infiniband,sim1:infiniband")];
    let text = driver(12, &["--threads", "--verbose"], &devices);
    assert!(text.contains("sim0:1: InfiniBand"), "{text}");
    assert!(text.contains("all data was as sent"), "{text}");
}

#[test]
fn no_line_of_the_log_is_missed() {
    for abi in [2, 12] {
        let text = driver(abi, &["--threads", "--null-logger", "--verbose"], &[]);
        assert!(!text.contains("NET/IBNET"), "{text}");
    }
}

/// Registering, listening, connecting and closing beside progress threads of the same communicators;
/// connections that share a context, and another context beside them.
#[test]
fn threads_do_what_nccl_lets_them() {
    for abi in 2..=12 {
        driver(abi, &["--contract"], &[]);
    }
}

/// Threads, files and memory.
#[test]
fn nothing_is_left_of_loading_and_unloading() {
    for abi in 2..=12 {
        let text = driver(abi, &["--reload", "100"], &[]);
        assert!(text.contains("nothing is left of 100 rounds"), "{text}");
    }
}

/// What was set is said under ENV, and what looks like a setting and is none.
#[test]
fn the_log_says_what_was_set() {
    const ENV_AND_NET: &str = "INFO 0x90";
    let variables = [("NCCL_IB_TIMEOUT", "14"), ("IBNET_TYPO", "1")];
    let text = driver(12, &["--reload", "1", "--verbose"], &variables);
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap();
    assert!(
        line("NCCL_IB_TIMEOUT=14 (default 20)").contains(ENV_AND_NET),
        "{text}"
    );
    assert!(
        line("no settings of this plugin: IBNET_TYPO").contains(ENV_AND_NET),
        "{text}"
    );
}

/// The setting wins over the communicator's wish, and the log does not hide it.
#[test]
fn the_log_says_whose_traffic_class_it_is() {
    let text = driver(12, &["--contract", "--verbose"], &[("NCCL_IB_TC", "96")]);
    let line = "traffic class 32 is asked for, and NCCL_IB_TC makes it 96";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("0x1234: traffic class 96"), "{text}");
}

#[test]
fn bad_handles_are_errors() {
    for abi in 2..=12 {
        driver(abi, &["--bad-handle"], &[]);
    }
}

#[test]
fn wrong_calls_are_errors() {
    for abi in 2..=12 {
        let text = driver(abi, &["--misuse", "--verbose"], &[]);
        assert!(text.contains("with devices: all are errors"), "{text}");
        // Not a wrong call: a receive with flags that are not known, and a line about it for developers.
        let said: Vec<_> = text
            .lines()
            .filter(|line| line.contains("flags 0x44 are not known"))
            .collect();
        assert!(
            matches!(said[..], [line] if line.contains("TRACE 0x10 ")),
            "{said:?}"
        );
    }
}

/// The settings of the real plugin hold here, too: they are read by the same code.
#[test]
fn a_failed_init_says_why() {
    let says = "no usable RDMA device";
    for abi in 2..=12 {
        let variables = [("NCCL_IB_HCA", "=no_such_device")];
        driver(abi, &["--expect-init-error", says], &variables);
    }
}

/// The driver with the compiler's address sanitizer, which sees what the plugin reads and writes through
/// functions of the C library, and what is lost of either side's memory.
static SANITIZED: LazyLock<PathBuf> = LazyLock::new(|| {
    common::compile_with("sanitized-driver", &["driver.c"], &["-fsanitize=address"])
});

/// Random calls, right and wrong. The driver's last line names the seed of a run that failed.
#[test]
fn random_sequences_of_calls_do_no_harm() {
    let plugin = common::built("libncclnet_sim.so");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for abi in [2, 5, 8, 10, 12] {
        let seed = (now.subsec_micros() + abi).to_string();
        let arguments = [
            "--dev",
            "sim0",
            "--peer-dev",
            "sim1",
            "--sequence",
            "1",
            "--seed",
            &seed,
        ];
        let result = common::run_driver(&SANITIZED, &plugin, abi, &arguments, &[]);
        assert!(
            result.is_ok(),
            "version {abi}, seed {seed}:\n{}",
            result.unwrap_err()
        );
    }
}

/// One version of each kind.
#[test]
fn the_address_sanitizer_finds_nothing() {
    let plugin = common::built("libncclnet_sim.so");
    let devices = ["--dev", "sim0", "--peer-dev", "sim1"];
    for (abi, mode) in [
        (2, &["--threads"][..]),
        (12, &["--threads"]),
        (2, &["--misuse"]),
        (12, &["--misuse"]),
        (4, &["--contract"]),
        (12, &["--contract"]),
        (12, &["--reload", "100"]),
    ] {
        let arguments = [&devices, mode].concat();
        let result = common::run_driver(&SANITIZED, &plugin, abi, &arguments, &[]);
        assert!(
            result.is_ok(),
            "version {abi}, {mode:?}:\n{}",
            result.unwrap_err()
        );
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
