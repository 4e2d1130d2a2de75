//! Compiles and runs the C programs of `ncclnet-ffi` with the system's C compiler, the one that Rust
//! links with. The tests of the plugin on the simulator use them, too.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of `include` and `tests`, as seen from the package of any plugin.
const PLUGIN_CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ncclnet-ffi");

/// The shared library that belongs to the running test: cargo puts both into one folder.
pub(crate) fn plugin() -> PathBuf {
    built("libncclnet_ffi.so")
}

/// A shared library of the running test's package.
pub(crate) fn built(file: &str) -> PathBuf {
    let plugin = env::current_exe().unwrap().with_file_name(file);
    assert!(plugin.is_file(), "{} was not built", plugin.display());
    plugin
}

/// Compiles `sources` of `tests/c` as strict C11 into the program `name`.
pub(crate) fn compile(name: &str, sources: &[&str]) -> PathBuf {
    compile_with(name, sources, &[])
}

/// The same with further options of the compiler.
pub(crate) fn compile_with(name: &str, sources: &[&str], options: &[&str]) -> PathBuf {
    let crate_root = Path::new(PLUGIN_CRATE);
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
        .args(options)
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

/// Runs the driver with one version of a plugin and without the settings of whoever runs the test:
/// what it wrote, as an error if it failed.
pub(crate) fn run_driver(
    driver: &Path,
    plugin: &Path,
    abi: u32,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<String, String> {
    run_driver_by(Command::new(driver), plugin, abi, arguments, variables)
}

/// The same by a command that runs the driver.
pub(crate) fn run_driver_by(
    mut command: Command,
    plugin: &Path,
    abi: u32,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<String, String> {
    command
        .arg(plugin)
        .args(["--abi", &abi.to_string()])
        .args(arguments);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("NCCL_") || text.starts_with("IBNET_") {
            command.env_remove(name);
        }
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = text(&output);
    if output.status.success() {
        Ok(text)
    } else {
        Err(text)
    }
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
