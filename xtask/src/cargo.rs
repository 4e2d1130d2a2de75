//! Calling cargo, and learning from it which files a build has made.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::{Context, Result, fail};
use crate::paths;
use crate::process::describe;
use crate::progress::Step;

/// Files that a build has made.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Artifacts {
    /// Programs.
    pub(crate) executables: Vec<PathBuf>,
    /// Shared libraries.
    pub(crate) libraries: Vec<PathBuf>,
    /// Programs of integration tests.
    pub(crate) tests: Vec<PathBuf>,
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
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    let artifacts = build(command)?;
    step.done("built");
    Ok(artifacts)
}

/// Builds one integration test of a package in release mode.
pub(crate) fn build_release_test(package: &str, test: &str) -> Result<PathBuf> {
    let step = Step::begin(&format!("building the test {test} of {package} (release)"));
    let mut command = cargo();
    command.args(["test", "--no-run", "--package", package, "--test", test]);
    let Some(program) = build(command)?.tests.into_iter().next() else {
        fail!("the build of {package} has made no test {test}");
    };
    step.done("built");
    Ok(program)
}

/// Runs a build, and collects what it has made.
fn build(mut command: Command) -> Result<Artifacts> {
    command.args(["--release", "--message-format=json-render-diagnostics"]);
    command.stderr(Stdio::inherit());
    let output = command
        .output()
        .context(|| format!("cannot run `{}`", describe(&command)))?;
    if !output.status.success() {
        fail!("`{}` failed: {}", describe(&command), output.status);
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
    if let Some(path) = string_after(message, r#""executable":"#)
        && message.contains(r#""kind":["bin"]"#)
    {
        artifacts.executables.push(path.into());
    }
    if let Some(path) = string_after(message, r#""executable":"#)
        && message.contains(r#""kind":["test"]"#)
    {
        artifacts.tests.push(path.into());
    }
    if message.contains("\"cdylib\"")
        && let Some((_, files)) = message.split_once(r#""filenames":["#)
    {
        let libraries = quoted_strings(files).filter(|path| path.ends_with(".so"));
        artifacts.libraries.extend(libraries.map(PathBuf::from));
    }
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
            r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"device"},"filenames":["/t/device-0123"],"executable":"/t/device-0123"}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ]);
        assert_eq!(artifacts.executables, [PathBuf::from("/t/a")]);
        assert_eq!(artifacts.tests, [PathBuf::from("/t/device-0123")]);
        assert_eq!(artifacts.libraries, [PathBuf::from("/t/lib\"x\\.so")]);
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
