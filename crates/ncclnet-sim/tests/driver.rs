//! The C driver on simulated devices: everything that the driver does, both ends in one process.
#![allow(clippy::unwrap_used)]

#[path = "../../ncclnet-ffi/tests/common/mod.rs"]
mod common;

mod machine;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

static DRIVER: LazyLock<PathBuf> = LazyLock::new(|| common::compile_driver("simulated-driver"));

/// What the simulated devices show of themselves in sysfs.
static SYSFS: LazyLock<PathBuf> = LazyLock::new(|| machine::sysfs("simulated-sysfs"));

const PAIR: [&str; 4] = ["--dev", "sim0", "--peer-dev", "sim1"];

/// Runs a driver on simulated devices that can reach GPU memory, and gives what it wrote.
fn run(
    driver: &Path,
    abi: u32,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<String, String> {
    let plugin = common::built("libncclnet_sim.so");
    let sysfs = [("NCCLNET_SIM_SYSFS", SYSFS.to_str().unwrap())];
    let variables = [&sysfs, variables].concat();
    common::run_driver(driver, &plugin, abi, arguments, &variables)
}

/// Runs the driver with one version of the interface. It must succeed.
fn succeed(abi: u32, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    run(&DRIVER, abi, arguments, variables)
        .unwrap_or_else(|text| panic!("version {abi}, {arguments:?}, {variables:?}:\n{text}"))
}

/// The same between the two devices that there are unless others are named.
fn driver(abi: u32, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    succeed(abi, &[&PAIR, arguments].concat(), variables)
}

/// Data between two threads that drive the plugin through this version of the interface, in every way
/// that the version has: the driver says what it was.
fn moves_data(abi: u32) {
    let text = driver(abi, &["--threads", "--dmabuf-files"], &[]);
    let yes = |since| if abi >= since { "yes" } else { "no" };
    let row = format!(
        "version {abi}: host memory yes, groups {}, several devices {}, flush yes, DMA-BUF {}\n",
        yes(5),
        yes(9),
        yes(6)
    );
    assert!(text.contains(&row), "{text}");
    assert!(text.contains("all data was as sent"), "{text}");
    // Older versions have no DMA-BUFs, and are not told of them.
    let memory = if abi >= 6 { 7 } else { 3 };
    for (number, address) in [(0, "0000:3b:00.0"), (1, "0000:3c:00.0")] {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("[{number}] sim{number} port 1 ")));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        let pci = format!("/devices/pci0000:00/{address} ptrSupport {memory} ");
        assert!(line.contains(&pci), "{line}");
    }
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
    let line = "[0] sim0:1/IB: LID 1, GID 0 fe80::";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("sim0:1: LID 1, GID 0: "), "{text}");
    assert!(text.contains("all data was as sent"), "{text}");
}

/// Data between a device made of several and another one: as many devices as versions 9 to 11 have room for,
/// and as many as version 12 has.
#[test]
fn data_between_virtual_devices() {
    for (abi, count) in [(9, 2), (10, 4), (12, 4), (12, 8)] {
        let end = |side: char| {
            let names: Vec<String> = (0..count).map(|index| format!("{side}{index}")).collect();
            names.join("+")
        };
        let devices = format!("{}+{}", end('a'), end('b')).replace('+', ",");
        let (one, other) = (end('a'), end('b'));
        let arguments = [
            "--dev",
            &one,
            "--peer-dev",
            &other,
            "--threads",
            "--verbose",
        ];
        let text = succeed(abi, &arguments, &[("NCCLNET_SIM_DEVICES", &devices)]);
        assert!(text.contains("several devices yes, flush yes"), "{text}");
        // In the log as devices are, and with its speed.
        let members: Vec<usize> = (0..count).collect();
        let speed = count * 100_000;
        let made = format!("{one} is made of {members:?}: {speed} Mb/s, relaxed ordering on, GPU");
        let line = text.lines().find(|line| line.contains(&made));
        assert!(
            line.is_some_and(|line| line.contains("INFO 0x11 ")),
            "{text}"
        );
    }
}

/// As NCCL's own transport has it: the rail that all agree on, and a bit for each plane, by the place of its
/// number among those in use, the undefined one included.
#[test]
fn rails_and_planes_of_virtual_devices() {
    for (hca, rail, plane) in [
        ("a0:1:3:7,a1:1:3:9,b", 3, 1 << 14 | 0b011),
        ("a0:1:3,a1:1:3,b", 3, 1 << 14 | 0b001),
        ("a0:1:3:7,a1:1:4:7,b0:1:5:8,b1", -1, 1 << 14 | 0b001),
        ("a0:1::7,a1:1:3,b0:1:5:8,b1", -1, 1 << 14 | 0b011),
        // The undefined plane of a1 comes first only where it is the first.
        ("a0,a1:1::200,b", -1, 1 << 14 | 0b011),
        ("a,b", -1, 1 << 14 | 0b001),
    ] {
        let variables = [("NCCLNET_SIM_DEVICES", "a0,a1,b0,b1"), ("NCCL_IB_HCA", hca)];
        let arguments = ["--dev", "a0+a1", "--peer-dev", "b0+b1", "--threads"];
        let text = succeed(12, &arguments, &variables);
        let line = format!("a0+a1 is made of 2: rail {rail} plane {plane}\n");
        assert!(text.contains(&line), "{hca}: {line}{text}");
        if hca.starts_with("a0:1:3:7,a1:1:3:9") {
            let line = format!("b0+b1 is made of 2: rail -1 plane {}\n", 1 << 14 | 0b100);
            assert!(text.contains(&line), "{hca}: {line}{text}");
        }
    }
}

/// The version's own limit is kept, whatever the transport could do.
#[test]
fn a_version_has_room_for_so_many_devices() {
    let names: Vec<String> = (0..9).map(|index| format!("a{index}")).collect();
    let devices = names.join(",");
    for (abi, most) in [(9, 4), (10, 4), (11, 4), (12, 8)] {
        let list = names[..=most].join("+");
        let arguments = ["--dev", &list, "--bad-handle", "--verbose"];
        let variables = [("NCCLNET_SIM_DEVICES", devices.as_str())];
        let text = run(&DRIVER, abi, &arguments, &variables).unwrap_err();
        let says = if most == 8 {
            "too many devices".to_owned()
        } else {
            format!("a virtual device of 5 devices; 1 to {most} are possible")
        };
        assert!(text.contains(&says), "version {abi}: {text}");
    }
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
    let variables = [
        ("NCCL_IB_TIMEOUT", "14"),
        ("NCCL_IB_TIMOUT", "14"),
        ("NCCL_IB_CUDA_SUPPORT", "1"),
        ("IBNET_TYPO", "1"),
    ];
    let text = driver(12, &["--reload", "1", "--verbose"], &variables);
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap();
    assert!(
        line("NCCL_IB_TIMEOUT=14 (default 20)").contains(ENV_AND_NET),
        "{text}"
    );
    let openings = text.matches("network plugin API version").count();
    for (says, level) in [
        ("IBNET_TYPO is no setting", "WARN"),
        (
            "NCCL_IB_TIMOUT is no setting; is NCCL_IB_TIMEOUT meant?",
            "WARN",
        ),
        ("NCCL_IB_CUDA_SUPPORT is no setting", ENV_AND_NET),
    ] {
        assert!(line(says).contains(level), "{text}");
        // Once for each time that the devices are opened.
        assert_eq!(text.matches(says).count(), openings, "{text}");
    }
}

/// The setting wins over the communicator's wish, and the log does not hide it.
#[test]
fn the_log_says_whose_traffic_class_it_is() {
    let text = driver(12, &["--contract", "--verbose"], &[("NCCL_IB_TC", "96")]);
    let line = "traffic class 32 is asked for, and NCCL_IB_TC makes it 96";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("0x1234: traffic class 96"), "{text}");
}

/// On InfiniBand the communicator's class is the service level, and one that is none is told of.
#[test]
fn the_log_says_which_service_level_a_traffic_class_becomes() {
    let devices = ("NCCLNET_SIM_DEVICES", "sim0:infiniband,sim1:infiniband");
    let text = driver(12, &["--contract", "--verbose"], &[devices]);
    let line = "traffic class 32 is asked for, which on InfiniBand is the service level: there are 0 to \
                15, and service level 0 is used";
    let line = text.lines().find(|told| told.contains(line));
    assert!(line.is_some_and(|line| line.contains("WARN")), "{text}");
    assert!(text.contains("service level 0, traffic class 32"), "{text}");
}

/// What the log says of the devices, where it is shown unless something else is asked for.
#[test]
fn the_log_says_what_devices_are_and_why_they_have_their_addresses() {
    let rails = [
        ("NCCL_IB_HCA", "sim0:1:3:1,sim1:1:4"),
        ("NCCL_SOCKET_IFNAME", "=lo"),
    ];
    let text = driver(12, &["--bad-handle", "--verbose"], &rails);
    for says in [
        "[0] sim0:1/RoCE: GID 3 10.0.0.1 RoCEv2, 100000 Mb/s, relaxed ordering on, GPU memory \
         through a peer-memory module or as DMA-BUF, rail 3, plane 1, handshake over lo 127.0.0.1; ",
        "[1] sim1:1/RoCE: GID 3 10.0.0.2 RoCEv2, 100000 Mb/s, relaxed ordering on, GPU memory \
         through a peer-memory module or as DMA-BUF, rail 4, handshake over lo 127.0.0.1; ",
        "sim0:1: GID 3: RoCEv2 10.0.0.1 on interface 1: chosen; not 0: RoCEv1 fe80::",
    ] {
        let line = text.lines().find(|line| line.contains(says));
        assert!(
            line.is_some_and(|line| line.contains("INFO 0x11 ")),
            "{says}: {text}"
        );
    }
    let text = driver(12, &["--threads"], &rails);
    assert!(text.contains("rail 3 plane 1\n"), "{text}");
    assert!(text.contains("rail 4 plane -1\n"), "{text}");
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
        // Before version 9 there are no flags.
        let said: Vec<_> = text
            .lines()
            .filter(|line| line.contains("flags 0x44 are not known"))
            .collect();
        if abi < 9 {
            assert_eq!(said, [""; 0]);
            continue;
        }
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

/// In the same line.
#[test]
fn a_failed_init_says_that_the_peers_will_have_another_network() {
    const SAYS: &str =
        "this rank will now use another network than its peers, unless NCCL_NET=IBNET";
    for (variable, value, says) in [
        ("NCCL_IB_HCA", "=no_such_device", "no usable RDMA device"),
        (
            "NCCL_IB_HCA",
            "^=a,^=b",
            "only commas between the names: ^=a,b",
        ),
        (
            "NCCL_SOCKET_IFNAME",
            "^a;b",
            "only commas between the names: ^a,b",
        ),
        (
            "NCCL_IB_ADDR_RANGE",
            "10.0.0.0/33",
            "NCCL_IB_ADDR_RANGE=10.0.0.0/33: expected",
        ),
        (
            "IBNET_MIN_PART",
            "1",
            "IBNET_MIN_PART=1: expected a number from 128",
        ),
    ] {
        let text = driver(
            12,
            &["--expect-init-error", SAYS, "--verbose"],
            &[(variable, value)],
        );
        let line = text.lines().find(|line| line.contains(SAYS)).unwrap();
        assert!(line.contains(says) && line.contains("WARN"), "{line}");
    }
    // Who switches it off wants another network.
    let text = driver(
        12,
        &[
            "--expect-init-error",
            "disabled by NCCL_IB_DISABLE",
            "--verbose",
        ],
        &[("NCCL_IB_DISABLE", "1")],
    );
    assert!(!text.contains(SAYS), "{text}");
}

/// A job that runs with NCCL's own transport runs with ours; and each value is named once whenever
/// the devices are opened.
#[test]
fn settings_that_nccl_lives_with_are_warnings() {
    let variables = [
        ("NCCL_IB_TIMEOUT", "200"),
        ("NCCL_IB_RETRY_CNT", "9"),
        ("NCCL_IB_SL", ""),
        ("NCCL_IB_TC", "0x6a"),
        ("NCCL_IB_FIFO_TC", "0152"),
        ("NCCL_IB_ADDR_FAMILY", "AF_INET6"),
        ("NCCL_IB_ROCE_VERSION_NUM", "1"),
        ("NCCL_IB_PKEY", "7"),
        ("NCCL_IB_PKEY_VALUE", "0xffff"),
    ];
    let text = driver(12, &["--threads", "--verbose"], &variables);
    assert!(text.contains("all data was as sent"), "{text}");
    let count = |says: &str| text.lines().filter(|line| line.contains(says)).count();
    let openings = count("network plugin API version");
    for (level, says) in [
        (
            "WARN",
            "NCCL_IB_TIMEOUT=200: 20 is used instead; expected a number from 0 to 31",
        ),
        (
            "WARN",
            "NCCL_IB_RETRY_CNT=9: 7 is used instead; expected a number from 0 to 7",
        ),
        (
            "WARN",
            "NCCL_IB_SL=: on InfiniBand the connection's traffic class if it is 0 to 15, else 0 is used instead; an empty value counts as unset",
        ),
        ("INFO", "NCCL_IB_TC=0x6a (default "),
        (
            "WARN",
            "NCCL_IB_FIFO_TC=0152: 106 is used instead; a leading 0 makes a number octal",
        ),
        (
            "INFO",
            "NCCL_IB_PKEY=7 is not used: NCCL_IB_PKEY_VALUE is set and wins",
        ),
    ] {
        let mut lines = text.lines().filter(|line| line.contains(says));
        assert!(lines.all(|line| line.contains(level)), "{says}");
        assert_eq!(count(says), openings, "{says}");
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
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for abi in [2, 5, 8, 10, 12] {
        let seed = (now.subsec_micros() + abi).to_string();
        let arguments = [&PAIR[..], &["--sequence", "1", "--seed", &seed]].concat();
        let result = run(&SANITIZED, abi, &arguments, &[]);
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
    for (abi, mode) in [
        (2, &["--threads"][..]),
        (12, &["--threads", "--dmabuf-files"]),
        (2, &["--misuse"]),
        (12, &["--misuse"]),
        (4, &["--contract"]),
        (12, &["--contract"]),
        (12, &["--reload", "100"]),
    ] {
        let result = run(&SANITIZED, abi, &[&PAIR, mode].concat(), &[]);
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
    let arguments = [&PAIR[..], &["--threads"]].concat();
    let text = run(&DRIVER, 12, &arguments, &devices).unwrap_err();
    assert!(text.contains("FAILED"), "{text}");
}
