//! The example programs on simulated devices, as a user runs them.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const RING: &str = env!("CARGO_BIN_EXE_ring_allreduce");
const PING_PONG: &str = env!("CARGO_BIN_EXE_ping_pong");
const DEVICES: &str = env!("CARGO_BIN_EXE_devices");
const SEND_FILE: &str = env!("CARGO_BIN_EXE_send_file");
const MANY_TO_ONE: &str = env!("CARGO_BIN_EXE_many_to_one");
const VIRTUAL_DEVICE: &str = env!("CARGO_BIN_EXE_virtual_device");
const IDLE_RECEIVERS: &str = env!("CARGO_BIN_EXE_idle_receivers");

/// Every program, with a command line that both ends on the simulator understand.
const ALL: [(&str, &str); 7] = [
    (RING, "--ranks 2 --size 8 --iters 1"),
    (PING_PONG, "--iters 2 --max-size 64"),
    (DEVICES, ""),
    (SEND_FILE, "/proc/self/cmdline --output /dev/null/none"),
    (MANY_TO_ONE, "--senders 2 --messages 2"),
    (VIRTUAL_DEVICE, "--messages 2 --size 4096"),
    (IDLE_RECEIVERS, "--connections 2 --messages 2 --idle 10"),
];

/// Runs a program where no real device can be found: what it printed, and whether it was content.
fn run(program: &str, line: &str) -> (String, bool) {
    run_with(program, line, &[])
}

/// As [`run`], with these variables.
fn run_with(program: &str, line: &str, variables: &[(&str, &str)]) -> (String, bool) {
    let output = command(program, line, variables).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (text, output.status.success())
}

fn command(program: &str, line: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("NCCL_") || text.starts_with("IBNET_") {
            command.env_remove(name);
        }
    }
    command
        .env("NCCL_IBVERBS_LIB", "/no/such/libibverbs.so")
        .envs(variables.iter().copied())
        .args(line.split_whitespace());
    command
}

#[test]
fn filters_for_the_devices_of_the_host_do_not_count_for_simulated_ones() {
    for (program, line) in ALL {
        let (text, success) = run_with(program, line, &[("NCCL_IB_HCA", "mlx5_0:1")]);
        // Of the file, only the way to its copy is wrong.
        assert_eq!(success, program != SEND_FILE, "{text}");
        assert!(text.contains("on simulated devices"), "{text}");
        let ignored = "# ignored, because it is for the devices of this host: NCCL_IB_HCA\n";
        assert_eq!(text.matches(ignored).count(), 1, "{text}");
    }
    let rule = ("NCCL_IB_GID_INDEX", "77");
    let (text, success) = run_with(RING, "--size 8 --iters 1", &[rule]);
    assert!(
        success && text.contains("of this host: NCCL_IB_GID_INDEX"),
        "{text}"
    );
    // One that admits a simulated device does count.
    let (text, success) = run_with(DEVICES, "", &[("NCCL_IB_HCA", "sim1")]);
    assert!(success && text.contains("[0] sim1:1"), "{text}");
    assert!(text.contains("sim0: not asked for"), "{text}");
    let (text, success) = run_with(RING, "--size 8 --iters 1", &[("NCCL_IB_HCA", "sim1")]);
    assert!(success && text.contains("# rank  3: [0] sim1"), "{text}");
}

#[test]
fn the_real_error_is_told() {
    for (program, line) in ALL {
        if program == DEVICES || program == SEND_FILE {
            continue;
        }
        let (text, success) = run_with(program, line, &[("NCCL_SOCKET_IFNAME", "eth99")]);
        // The plugin speaks of variables.
        let name = match program {
            RING => "NCCL_SOCKET_IFNAME",
            _ => "`interfaces`",
        };
        assert!(!success && text.contains(name), "{text}");
    }
}

#[test]
fn a_misspelt_setting_is_warned_of_once() {
    let misspelt = [("NCCL_IB_TIMOUT", "14"), ("IBNET_CONECT_TIMEOUT", "9")];
    for (program, line) in ALL {
        let (text, _) = run_with(program, line, &misspelt);
        for says in [
            "WARN: NCCL_IB_TIMOUT is no setting; is NCCL_IB_TIMEOUT meant?",
            "WARN: IBNET_CONECT_TIMEOUT is no setting; is IBNET_CONNECT_TIMEOUT meant?",
        ] {
            assert_eq!(text.matches(says).count(), 1, "{program}: {text}");
        }
    }
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    for (program, line) in ALL {
        for line in [line, "--help"] {
            // Closed before the program begins, or a short text would fit in while it is open.
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut child = command(program, line, &[])
                .stdout(writer)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut errors = String::new();
            let mut pipe = child.stderr.take().unwrap();
            pipe.read_to_string(&mut errors).unwrap();
            let status = child.wait().unwrap();
            assert_eq!(errors, "", "{program} {line}");
            assert_eq!(status.code(), Some(128 + libc::SIGPIPE), "{program} {line}");
        }
    }
}

#[test]
fn the_help_says_first_what_the_program_does() {
    for (program, _) in ALL {
        let (text, success) = run(program, "--help");
        let (sentence, rest) = text.split_once("\n\n").unwrap();
        assert!(success && sentence.ends_with('.'), "{text}");
        assert!(rest.starts_with("usage: "), "{text}");
    }
}

#[test]
fn a_ring_of_threads_has_the_right_sum() {
    for ranks in [2, 3, 16] {
        let line = format!("--ranks {ranks} --size 4,1000,300K --iters 3 --check");
        let (text, success) = run(RING, &line);
        assert!(success, "{text}");
        assert!(
            text.starts_with("# ring all-reduce on simulated devices"),
            "{text}"
        );
        assert!(text.contains("/no/such/libibverbs.so"), "{text}");
        assert!(text.contains("# wrong elements: 0"), "{text}");
        let last = format!("# rank {:>2}: [{}]", ranks - 1, (ranks - 1) % 2);
        assert!(text.contains(&last), "{text}");
    }
}

#[test]
fn one_rank_that_fails_ends_the_ring_and_says_why() {
    let (text, success) = run(RING, "--simulator --devices sim0,sim7 --size 8");
    assert!(!success, "{text}");
    let why = "failed: there is no device sim7; there are sim0, sim1";
    assert!(text.contains(why), "{text}");
}

#[test]
fn devices_are_shown_with_the_verdict_on_every_gid() {
    let (text, success) = run(DEVICES, "");
    assert!(success, "{text}");
    for part in [
        "# devices on simulated devices",
        "/no/such/libibverbs.so",
        "[0] sim0:1: 100 Gb/s",
        "[1] sim1:1: 100 Gb/s",
        "no PCI device",
        "GPU memory: DMA-BUF",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let chosen = text.lines().filter(|line| line.trim().starts_with('*'));
    assert_eq!(chosen.clone().count(), 2, "{text}");
    for line in chosen {
        assert!(line.contains("RoCEv2") && line.contains("chosen"), "{line}");
    }
    assert_eq!(text.matches("older version").count(), 4, "{text}");
    let (text, success) = run(DEVICES, "--no-simulator");
    assert!(
        !success && text.contains("/no/such/libibverbs.so"),
        "{text}"
    );
    assert!(!run(DEVICES, "--what").1);
}

#[test]
fn two_threads_play_ping_pong() {
    let (text, success) = run(PING_PONG, "--iters 20 --max-size 4096");
    assert!(success, "{text}");
    assert!(
        text.starts_with("# ping-pong on simulated devices"),
        "{text}"
    );
    assert!(text.contains("/no/such/libibverbs.so"), "{text}");
    // Half a round trip and a rate for each of the four sizes.
    let rows = text.lines().filter(|line| line.starts_with("  "));
    assert_eq!(rows.count(), 2 * (1 + 4), "{text}");
    let (text, success) = run(
        PING_PONG,
        "--simulator --device sim0 --peer-device sim1 --iters 5 --max-size 64",
    );
    assert!(success && text.contains("to sim1:1"), "{text}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    for line in ["--device nope", "--device sim0 --peer-device nope"] {
        let (text, success) = run(PING_PONG, &format!("--simulator {line}"));
        assert!(!success, "{text}");
        let why = "ping_pong: there is no RDMA device nope; there are sim0, sim1";
        assert!(text.contains(why), "{text}");
    }
}

/// A folder of this process, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ibnet-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_arrives_whole() {
    let folder = Folder::new("send-file");
    let (file, copy) = (folder.path("file"), folder.path("copy"));
    for (size, chunk) in [(0, 1024), (1, 64), (640_000, 4096), (1_000_001, 65_536)] {
        let bytes: Vec<u8> = (0..size).map(|at: u32| (at * 7 % 251) as u8).collect();
        fs::write(&file, &bytes).unwrap();
        let line = format!("{file} --output {copy} --chunk {chunk}");
        let (text, success) = run(SEND_FILE, &line);
        assert!(success, "{text}");
        assert!(
            text.starts_with("# sending a file on simulated devices"),
            "{text}"
        );
        assert!(text.contains("/no/such/libibverbs.so"), "{text}");
        assert!(text.contains(", right"), "{text}");
        assert_eq!(text.contains("received: 100 %"), size > 0, "{text}");
        assert!(fs::read(&copy).unwrap() == bytes, "{size} bytes in {chunk}");
        fs::remove_file(&copy).unwrap();
    }
    let (text, success) = run(SEND_FILE, &format!("{file}-none --output {copy}"));
    assert!(!success && text.contains("No such file"), "{text}");
    let (text, success) = run(SEND_FILE, &format!("{file} --output {copy}/none/copy"));
    assert!(!success && text.contains("copy.part: "), "{text}");
    // Nothing half done is left.
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn many_senders_are_served_by_one_receiver() {
    for (senders, messages) in [(1, 1), (5, 40), (40, 5)] {
        let line = format!("--senders {senders} --messages {messages} --size 1000");
        let (text, success) = run(MANY_TO_ONE, &line);
        assert!(success, "{text}");
        assert!(
            text.starts_with("# many to one on simulated devices"),
            "{text}"
        );
        let served = format!(": {messages} messages, in order");
        assert_eq!(text.matches(&served).count(), senders, "{text}");
        let all = format!("{} messages of 1000 bytes", senders * messages);
        assert!(text.contains(&all), "{text}");
    }
}

#[test]
fn a_virtual_device_uses_both_of_its_ports() {
    let (text, success) = run(VIRTUAL_DEVICE, "--size 400000 --messages 10");
    assert!(success, "{text}");
    assert!(
        text.starts_with("# a virtual device on simulated devices"),
        "{text}"
    );
    assert!(
        text.contains("sim0+sim1 is one device of 200000 Mb/s"),
        "{text}"
    );
    let carried = |name: &str| -> Vec<u64> {
        let of_device = text
            .lines()
            .filter(|line| line.trim_start().starts_with(&format!("{name}: ")));
        let bytes = of_device.filter_map(|line| line.split_whitespace().nth(3));
        bytes.map(|bytes| bytes.parse().unwrap()).collect()
    };
    // Alone it has all, together half.
    let (first, second) = (carried("sim0"), carried("sim1"));
    assert_eq!(
        (first[0], first.len(), second.len()),
        (4_000_000, 2, 1),
        "{text}"
    );
    assert_eq!(first[1] + second[0], 4_000_000, "{text}");
    assert!(first[1].abs_diff(second[0]) < 10_000, "{text}");

    let line = "--simulator --devices sim0,sim1 --peer-devices sim2,sim9";
    let (text, success) = run(VIRTUAL_DEVICE, line);
    let why = "there is no RDMA device sim9; there are sim0, sim1, sim2, sim3";
    assert!(!success && text.contains(why), "{text}");

    let one = "--simulator --devices sim3,sim3";
    let (text, success) = run(VIRTUAL_DEVICE, one);
    assert!(!success && text.contains("only sim3"), "{text}");
}

#[test]
fn waiting_costs_no_processor_time() {
    let (text, success) = run(IDLE_RECEIVERS, "--connections 100 --messages 20 --idle 500");
    assert!(success, "{text}");
    assert!(
        text.starts_with("# idle receivers on simulated devices"),
        "{text}"
    );
    assert!(text.contains("then 2000 messages"), "{text}");
    let after = text.split("500 ms of waiting: ").nth(1).unwrap();
    let used: f64 = after.split_whitespace().next().unwrap().parse().unwrap();
    // Whoever polls needs 500 ms; a timer for each connection would be seen, too.
    assert!(used < 25.0, "{text}");
}

#[test]
fn the_simulator_is_not_for_those_who_want_real_devices() {
    for (program, line) in [
        (RING, "--no-simulator"),
        (RING, "--devices mlx5_0"),
        (PING_PONG, "--no-simulator"),
        (PING_PONG, "--device mlx5_0"),
        (PING_PONG, "--listen"),
        (SEND_FILE, "--no-simulator file --output copy"),
        (SEND_FILE, "--listen --output copy"),
        (MANY_TO_ONE, "--device mlx5_0"),
        (VIRTUAL_DEVICE, "--devices mlx5_0,mlx5_1"),
        (IDLE_RECEIVERS, "--no-simulator"),
    ] {
        let (text, success) = run(program, line);
        assert!(!success, "{line}: {text}");
        assert!(
            text.contains("libibverbs is missing"),
            "{program} {line}: {text}"
        );
    }
}
