//! The program with our plugin on the null device: data that is checked, and every kind of figure.
#![allow(clippy::unwrap_used)]

#[path = "../../nulldevice/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn plugin() -> PathBuf {
    let plugin = std::env::current_exe()
        .unwrap()
        .with_file_name("libncclnet_ffi.so");
    assert!(plugin.is_file(), "{} was not built", plugin.display());
    plugin
}

/// The program, on the null device and without the settings of the environment.
fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ncclnet-bench"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("NCCL_") || text.starts_with("IBNET_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command.env("NCCL_SOCKET_IFNAME", "lo");
    command
}

fn text(output: &Output) -> String {
    let (out, errors) = (&output.stdout, &output.stderr);
    format!(
        "{}\n{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(errors)
    )
}

#[test]
fn figures_of_every_kind() {
    let null = common::link("bench");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-results");
    let _ = std::fs::remove_dir_all(&out);
    // The same plugin twice: by its newest version, and by the oldest.
    let newest = format!("new={}", plugin().display());
    let oldest = format!("old={}:ncclNetPlugin_v6", plugin().display());
    let mut command = bench(&["--one-thread", "--rounds", "2", "--seconds", "0"]);
    command
        .args(["--net", &newest, "--net", &oldest, "--out"])
        .arg(&out);
    command.args(["--windows", "1,32", "--groups", "1,8", "--sizes", "8"]);
    command.args(["--connections", "1,20", "--registrations", "100"]);
    command.args(["--device", "null0,null1", "--title", "a test"]);
    let output = command.env("LD_LIBRARY_PATH", &null).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));

    let json = std::fs::read_to_string(out.join("results.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let run = &json["runs"][0];
    assert_eq!(
        (&json["format"], &run["title"]),
        (&1.into(), &"a test".into())
    );
    assert_eq!(run["notes"], Value::Array(Vec::new()), "{run:#}");
    let labels: Vec<&str> = run["networks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["new", "old"]);
    let figures = run["figures"].as_array().unwrap();
    let tests: BTreeSet<&str> = figures
        .iter()
        .map(|f| f["test"].as_str().unwrap())
        .collect();
    let expected = ["connections", "growth", "loop", "registrations"];
    assert_eq!(tests, BTreeSet::from(expected));
    for figure in figures {
        for label in labels
            .iter()
            .filter(|_| figure["quantity"] != "memory of one end")
        {
            let median = figure["values"][label]["median"].as_f64();
            assert!(median.is_some_and(|median| median > 0.0), "{figure:#}");
        }
    }
    let loops = figures.iter().filter(|figure| figure["test"] == "loop");
    let rounds = |figure: &Value| figure["values"]["old"]["rounds"].as_array().unwrap().len();
    let times = loops.filter(|figure| figure["unit"] == "ns").map(rounds);
    assert_eq!(times.collect::<Vec<_>>(), [2; 4]);
    assert!(
        text(&output).contains("| 8 B, 8 per receive, window 32"),
        "{}",
        text(&output)
    );
    let plot = std::fs::read_to_string(out.join("1-registrations-hit.svg")).unwrap();
    assert!(plot.starts_with("<svg") && plot.ends_with("</svg>\n"));

    // What was written can be shown again.
    let shown = bench(&["report"])
        .arg(out.join("results.json"))
        .output()
        .unwrap();
    assert!(shown.stdout == output.stdout, "{}", text(&shown));
}

#[test]
fn what_cannot_be_measured_is_said() {
    let null = common::link("bench-errors");
    let plugin = plugin();
    let run = |net: &str, arguments: &[&str]| {
        let mut command = bench(&["--one-thread", "--tests", "loop", "--rounds", "1"]);
        command
            .args(["--net", net])
            .args(arguments)
            .env("LD_LIBRARY_PATH", &null);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{net}: {}", text(&output));
        text(&output)
    };
    let net = format!("ours={}", plugin.display());
    for (net, arguments, expected) in [
        (net.as_str(), ["--device", "mlx5_0"], "no device mlx5_0"),
        (
            &format!("{net}:ncclNetPlugin_v99"),
            ["--windows", "1"],
            "v99",
        ),
        (
            "none=/nonexistent.so",
            ["--windows", "1"],
            "/nonexistent.so",
        ),
        ("libc=/proc/self/exe", ["--windows", "1"], "/proc/self/exe"),
    ] {
        let said = run(net, &arguments);
        assert!(said.contains(expected), "{net}: {said}");
    }
}

/// A process that does not outlive the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_listener_starts_workers_for_those_who_know_a_network() {
    let null = common::link("bench-listen");
    let net = format!("ours={}", plugin().display());
    let mut command = bench(&["--listen", "127.0.0.1:0", "--net", &net]);
    command.env("LD_LIBRARY_PATH", &null).stderr(Stdio::piped());
    let mut listener = Running(command.spawn().unwrap());
    let mut said = BufReader::new(listener.0.stderr.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    let address = first.split_whitespace().nth(2).unwrap().to_owned();

    // The answers to some lines; fewer if the other end hangs up.
    let talk = |lines: &[&str]| -> Vec<String> {
        let mut stream = TcpStream::connect(&address).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        let answer = |line: &&str| {
            writeln!(stream, "{line}").ok()?;
            answers.next()?.ok()
        };
        lines.iter().map_while(answer).collect()
    };
    let unknown = talk(&[r#"{"label":"theirs","paths":1}"#, r#""Describe""#]);
    assert_eq!(unknown.len(), 1);
    assert!(unknown[0].contains("no network theirs"), "{unknown:?}");
    assert!(talk(&["GET / HTTP/1.1"]).is_empty());
    let known = talk(&[
        r#"{"label":"ours","paths":1}"#,
        r#""Describe""#,
        r#"{"Send":{"size":1,"window":1,"group":9,"connections":1,"warm_up":0,"receives":1,"verify":false}}"#,
        r#"{"Connect":{"handle":"00","pause":0}}"#,
        r#""Close""#,
    ]);
    assert_eq!(
        (known.len(), known[0].as_str()),
        (5, r#""Done""#),
        "{known:?}"
    );
    assert!(
        known[1].contains("IBNET") && known[1].contains("null1"),
        "{known:?}"
    );
    assert!(
        known[2].contains("not possible") && known[3].contains("a handle"),
        "{known:?}"
    );
    assert_eq!(known[4], r#""Done""#);
}
