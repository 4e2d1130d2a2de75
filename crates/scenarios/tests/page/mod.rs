//! Reading the tables of a page of documentation, for the tests that compare it with the tree.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    // This package lies two folders below it.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap().to_owned()
}

/// The text of a page in `docs`.
pub(crate) fn read(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The cells of a table's line, if it has `N` of them.
pub(crate) fn cells<const N: usize>(line: &str) -> Option<[&str; N]> {
    let inside = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inside.split('|').map(str::trim).collect();
    cells.try_into().ok()
}

/// What stands between backticks.
pub(crate) fn quoted(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}
