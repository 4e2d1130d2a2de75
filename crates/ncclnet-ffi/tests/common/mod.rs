//! Compiles the C programs of this crate with the system's C compiler, the one that Rust links with.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The shared library that belongs to the running test: cargo puts both into one folder.
pub(crate) fn plugin() -> PathBuf {
    let plugin = env::current_exe()
        .unwrap()
        .with_file_name("libncclnet_ffi.so");
    assert!(plugin.is_file(), "{} was not built", plugin.display());
    plugin
}

/// Compiles `sources` of `tests/c` as strict C11 into the program `name`.
pub(crate) fn compile(name: &str, sources: &[&str]) -> PathBuf {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // One folder per test program, because they may run at the same time.
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args([
            "-std=c11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-pthread",
        ])
        .arg("-I")
        .arg(crate_root.join("include"))
        .args(
            sources
                .iter()
                .map(|source| crate_root.join("tests/c").join(source)),
        )
        .arg("-o")
        .arg(&program)
        .arg("-ldl")
        .output()
        .expect("a C compiler is needed, as it is for linking Rust programs");
    assert!(output.status.success(), "{}", text(&output));
    program
}

/// The driver of `tests/c`, under a name of the caller's.
pub(crate) fn compile_driver(name: &str) -> PathBuf {
    compile(name, &["driver.c"])
}

/// Everything that a program wrote.
pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}
