//! Running other programs: found, run, captured, described.
//!
//! Programs whose output must be watched while they run are in [`crate::stream`].

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Context, Result, fail};

/// Folders that hold system programs and that an ordinary user's `PATH` leaves out on Debian.
const SYSTEM_FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The full path of a program, from `PATH` and the folders of system programs.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A command with the program's full path and nothing on its standard input.
pub(crate) fn command(name: &str) -> Result<Command> {
    let Some(program) = find_program(name) else {
        fail!(
            "there is no program `{name}` on this machine; `cargo xtask setup` installs what is needed"
        );
    };
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    Ok(command)
}

/// Runs the command with this program's output; anything but success is a failure that shows it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .context(|| format!("cannot run `{}`", describe(command)))?;
    if !status.success() {
        fail!("`{}` failed: {status}", describe(command));
    }
    Ok(())
}

/// Runs the command and returns its standard output, untranslated; its standard error is shown on
/// failure only.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .env("LC_ALL", "C")
        .output()
        .context(|| format!("cannot run `{}`", describe(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        fail!(
            "`{}` failed: {}: {}",
            describe(command),
            output.status,
            errors.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as a person would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The text as one word of a POSIX shell.
pub(crate) fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn programs_are_found_or_named() {
        assert!(find_program("sh").unwrap().is_absolute());
        let failure = command("no-such-program-here").err().unwrap();
        assert!(failure.to_string().contains("`no-such-program-here`"));
    }

    #[test]
    fn a_failing_command_is_shown_with_its_words() {
        let failure = run(command("sh").unwrap().args(["-c", "exit 3"]))
            .unwrap_err()
            .to_string();
        assert!(
            failure.contains("sh -c exit 3") && failure.contains('3'),
            "{failure}"
        );
        let failure = capture(command("sh").unwrap().args(["-c", "echo why >&2; exit 1"]));
        assert!(failure.unwrap_err().to_string().ends_with("why"));
    }

    #[test]
    fn a_quoted_word_survives_the_shell() {
        let text = "it's $HOME `x` \"y\" \\";
        let echoed = capture(
            command("sh")
                .unwrap()
                .arg("-c")
                .arg(format!("printf %s {}", shell_quote(text))),
        );
        assert_eq!(echoed.unwrap(), text);
    }
}
