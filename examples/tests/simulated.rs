//! The example programs on simulated devices, as a user runs them.
#![allow(clippy::unwrap_used)]

use std::process::Command;

const RING: &str = env!("CARGO_BIN_EXE_ring_allreduce");
const PING_PONG: &str = env!("CARGO_BIN_EXE_ping_pong");
const DEVICES: &str = env!("CARGO_BIN_EXE_devices");

/// Runs a program where no real device can be found: what it printed, and whether it was content.
fn run(program: &str, line: &str) -> (String, bool) {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("NCCL_") || text.starts_with("IBNET_") {
            command.env_remove(name);
        }
    }
    let output = command
        .env("NCCL_IBVERBS_LIB", "/no/such/libibverbs.so")
        .args(line.split_whitespace())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (text, output.status.success())
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

#[test]
fn the_simulator_is_not_for_those_who_want_real_devices() {
    for (program, line) in [
        (RING, "--no-simulator"),
        (RING, "--devices mlx5_0"),
        (PING_PONG, "--no-simulator"),
        (PING_PONG, "--device mlx5_0"),
        (PING_PONG, "--listen"),
    ] {
        let (text, success) = run(program, line);
        assert!(!success, "{line}: {text}");
        assert!(
            text.contains("libibverbs is missing"),
            "{program} {line}: {text}"
        );
    }
}
