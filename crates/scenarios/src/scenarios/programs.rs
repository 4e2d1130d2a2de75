//! Programs that scenarios start.

use std::path::PathBuf;
use std::process::Command;

use crate::cast::{Cast, ensure};
use crate::play::Failure;

/// The path in an environment variable, without which the scenario cannot be played.
pub(super) fn required(cast: &mut Cast, variable: &str) -> Result<PathBuf, Failure> {
    match std::env::var_os(variable) {
        Some(path) => Ok(PathBuf::from(path)),
        None => Err(cast.skip(&format!("{variable} is not set"))),
    }
}

/// Runs a program to its end; what it printed is shown if it fails.
pub(super) fn run(command: &mut Command) -> Result<(), Failure> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    ensure(output.status.success(), || {
        format!(
            "{command:?} ended with {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}
