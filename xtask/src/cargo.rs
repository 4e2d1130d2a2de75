//! Calling cargo, and learning from it which files a build has made.
//!
//! Cargo tells in JSON, one line for each target. Only a few strings of it are looked at.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::describe;
use crate::progress::Step;

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// The folder of its package, in which it is to be run.
    pub(crate) folder: PathBuf,
    /// The name of the library, program or integration test that it tests or is.
    pub(crate) target: String,
    /// Whether it is an integration test, in `tests` of its package.
    pub(crate) is_integration: bool,
    /// The file.
    pub(crate) path: PathBuf,
}

/// Files that a build has made.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Artifacts {
    /// Programs.
    pub(crate) executables: Vec<PathBuf>,
    /// Shared libraries.
    pub(crate) libraries: Vec<PathBuf>,
    /// Static libraries for programs in C.
    pub(crate) archives: Vec<PathBuf>,
    /// Programs of tests.
    pub(crate) tests: Vec<TestProgram>,
}

/// Cargo in the workspace's root, with nothing on its standard input: the cargo that runs this
/// program, so that a toolchain chosen by the user stays chosen.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::root()).stdin(Stdio::null());
    command
}

/// Builds packages in release mode; what the compiler says goes to standard error.
pub(crate) fn build_release(packages: &[&str]) -> Result<Artifacts> {
    let step = Step::begin(&format!("building {} (release)", packages.join(", ")));
    let mut command = cargo();
    command.arg("build");
    command.arg("--release");
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    let artifacts = build(command)?;
    step.done("built");
    Ok(artifacts)
}

/// Builds one integration test of a package in release mode.
pub(crate) fn build_release_test(package: &str, test: &str) -> Result<PathBuf> {
    let step = Step::begin(&format!("building the test {test} of {package} (release)"));
    let mut command = cargo();
    command.args(["test", "--no-run", "--release"]);
    command.args(["--package", package, "--test", test]);
    let Some(program) = build(command)?.tests.into_iter().next() else {
        fail!("the build of {package} has made no test {test}");
    };
    step.done("built");
    Ok(program.path)
}

/// Builds all tests of the workspace but those in its documentation.
pub(crate) fn build_tests() -> Result<Vec<TestProgram>> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--workspace"]);
    Ok(build(command)?.tests)
}

/// Runs a build, shows what the compiler says, and collects what it has made.
fn build(mut command: Command) -> Result<Artifacts> {
    command.stderr(Stdio::inherit());
    build_silently(command)
}

/// Runs a build, and collects what it has made. What the compiler says is in the failure, if it fails.
pub(crate) fn build_silently(mut command: Command) -> Result<Artifacts> {
    command.arg("--message-format=json-render-diagnostics");
    let output = command
        .output()
        .context(|| format!("cannot run `{}`", describe(&command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        fail!("`{}` failed: {status}\n{errors}", describe(&command));
    }
    let mut artifacts = Artifacts::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        collect(line, &mut artifacts);
    }
    Ok(artifacts)
}

/// Adds the files that one line of cargo's JSON messages names. Rust libraries and the programs of
/// build scripts are left out.
fn collect(message: &str, artifacts: &mut Artifacts) {
    if !message.starts_with(r#"{"reason":"compiler-artifact""#) {
        return;
    }
    if let Some(path) = string_after(message, r#""executable":"#) {
        if is_of_tests(message) {
            artifacts.tests.extend(test_program(message, path.into()));
        } else if message.contains(r#""kind":["bin"]"#) {
            artifacts.executables.push(path.into());
        }
        return;
    }
    let Some((_, files)) = message.split_once(r#""filenames":["#) else {
        return;
    };
    if message.contains("\"cdylib\"") {
        let libraries = quoted_strings(files).filter(|path| path.ends_with(".so"));
        artifacts.libraries.extend(libraries.map(PathBuf::from));
    }
    if message.contains("\"staticlib\"") {
        let archives = quoted_strings(files).filter(|path| path.ends_with(".a"));
        artifacts.archives.extend(archives.map(PathBuf::from));
    }
}

/// Whether a message is about a program of tests: its target was compiled in the profile for tests.
fn is_of_tests(message: &str) -> bool {
    let profile = message.split_once(r#""profile":{"#);
    let profile = profile.and_then(|(_, rest)| rest.split_once('}'));
    profile.is_some_and(|(profile, _)| profile.contains(r#""test":true"#))
}

fn test_program(message: &str, path: PathBuf) -> Option<TestProgram> {
    let manifest = PathBuf::from(string_after(message, r#""manifest_path":"#)?);
    Some(TestProgram {
        folder: manifest.parent()?.to_path_buf(),
        // The first name in the message is that of the target.
        target: string_after(message, r#""name":"#)?,
        is_integration: message.contains(r#""kind":["test"]"#),
        path,
    })
}

/// The JSON string right after a key, or `None` where there is another kind of value.
fn string_after(message: &str, key: &str) -> Option<String> {
    let (_, rest) = message.split_once(key)?;
    if rest.starts_with('"') {
        quoted_strings(rest).next()
    } else {
        None
    }
}

/// The strings at the beginning of a JSON array's inside, up to its end.
fn quoted_strings(text: &str) -> impl Iterator<Item = String> {
    let mut characters = text.chars();
    std::iter::from_fn(move || {
        match characters.next()? {
            '"' => {}
            ',' if characters.next()? == '"' => {}
            _ => return None,
        }
        let mut string = String::new();
        loop {
            match characters.next()? {
                '"' => return Some(string),
                // Paths hold no control characters, so a backslash only guards a quote or another
                // backslash.
                '\\' => string.push(characters.next()?),
                character => string.push(character),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(lines: &[&str]) -> Artifacts {
        let mut artifacts = Artifacts::default();
        for line in lines {
            collect(line, &mut artifacts);
        }
        artifacts
    }

    #[test]
    fn programs_and_libraries_are_collected() {
        let artifacts = collected(&[
            r#"{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"a"},"filenames":["/t/a"],"executable":"/t/a","fresh":true}"#,
            r#"{"reason":"compiler-artifact","target":{"kind":["cdylib","rlib"]},"filenames":["/t/lib\"x\\.so","/t/libx.rlib"],"executable":null,"fresh":true}"#,
            r#"{"reason":"compiler-artifact","target":{"kind":["staticlib","rlib"]},"filenames":["/t/liby.a","/t/liby.rlib"],"executable":null,"fresh":true}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ]);
        assert_eq!(artifacts.executables, [PathBuf::from("/t/a")]);
        assert_eq!(artifacts.archives, [PathBuf::from("/t/liby.a")]);
        assert_eq!(artifacts.libraries, [PathBuf::from("/t/lib\"x\\.so")]);
        assert!(artifacts.tests.is_empty());
    }

    #[test]
    fn programs_of_tests_are_told_apart() {
        let artifacts = collected(&[
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/verbs/Cargo.toml","target":{"kind":["test"],"name":"device","test":true},"profile":{"opt_level":"0","test":true},"filenames":["/t/device-0123"],"executable":"/t/device-0123"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/w/xtask/Cargo.toml","target":{"kind":["bin"],"name":"xtask","test":true},"profile":{"opt_level":"0","test":true},"filenames":["/t/xtask-45"],"executable":"/t/xtask-45"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/w/xtask/Cargo.toml","target":{"kind":["bin"],"name":"xtask","test":true},"profile":{"opt_level":"0","test":false},"filenames":["/t/xtask"],"executable":"/t/xtask"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{"kind":["cdylib","rlib"],"name":"a","test":true},"profile":{"test":true},"filenames":["/t/a-6"],"executable":"/t/a-6"}"#,
        ]);
        let tests: Vec<_> = artifacts
            .tests
            .iter()
            .map(|test| {
                let folder = test.folder.to_string_lossy().into_owned();
                (folder, test.target.as_str(), test.is_integration)
            })
            .collect();
        assert_eq!(
            tests,
            [
                ("/w/crates/verbs".to_owned(), "device", true),
                ("/w/xtask".to_owned(), "xtask", false),
                ("/w/crates/a".to_owned(), "a", false),
            ]
        );
        assert_eq!(artifacts.tests[0].path, PathBuf::from("/t/device-0123"));
        assert_eq!(artifacts.executables, [PathBuf::from("/t/xtask")]);
        assert!(artifacts.libraries.is_empty());
    }

    #[test]
    fn rust_libraries_and_build_scripts_are_left_out() {
        let artifacts = collected(&[
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"]},"filenames":["/t/liby.rlib"],"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"kind":["custom-build"]},"filenames":["/t/build"],"executable":"/t/build"}"#,
            r#"{"reason":"compiler-artifact","target":{"kind":["proc-macro"]},"filenames":["/t/libz.so"],"executable":null}"#,
        ]);
        assert_eq!(artifacts, Artifacts::default());
    }
}
