//! What the shared library exports, and what it needs when it is loaded.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;

/// The output of a program of binutils, which come with the C compiler.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(common::plugin())
        .output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{}", common::text(&output));
    common::text(&output)
}

#[test]
fn the_tables_are_the_only_exported_symbols() {
    let symbols = run("nm", &["--dynamic", "--defined-only"]);
    let mut names: Vec<&str> = symbols
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    names.sort_unstable();
    let mut tables: Vec<String> = (2..=12).map(|v| format!("ncclNetPlugin_v{v}")).collect();
    tables.sort_unstable();
    assert_eq!(names, tables);
}

#[test]
fn nothing_but_libc_is_needed_and_nothing_can_unload_it() {
    let dynamic = run("readelf", &["--dynamic", "--wide"]);
    let needed: Vec<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .map(|line| line.split(['[', ']']).nth(1).unwrap())
        .collect();
    for library in &needed {
        let allowed = [
            "libc.so.",
            "libgcc_s.so.",
            "ld-linux",
            "libm.so.",
            "libdl.so.",
            "libpthread",
        ];
        assert!(
            allowed.iter().any(|name| library.starts_with(name)),
            "{needed:?}"
        );
    }
    assert!(!needed.is_empty(), "libc at least");
    let flags = dynamic
        .lines()
        .find(|line| line.contains("(FLAGS_1)"))
        .unwrap();
    assert!(flags.contains("NODELETE"), "{flags}");
    let name = dynamic
        .lines()
        .find(|line| line.contains("(SONAME)"))
        .unwrap();
    assert!(name.contains("[libnccl-net-ibnet.so]"), "{name}");
}
