//! The patches that put a fault back, and the tests that must turn red.
//!
//! A file `NN-words.patch` is a unified diff for row NN of `docs/pitfalls.md`. Before the diff it says
//! in a sentence what is wrong with it applied, and then on a line for each test the command that runs
//! it: `red: cargo test -p ibnet-gid --test pitfalls NAME`.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use crate::failure::{Context, Result, fail};
use crate::paths;

/// A fault.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    /// The row that tells of it.
    pub(super) row: u32,
    /// The name of the file, without `.patch`.
    pub(super) name: String,
    /// What must turn red.
    pub(super) tests: Vec<Test>,
}

/// A test function, or a scenario.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    /// What `cargo test` is given so that it builds the one program with the test.
    pub(super) build: Vec<String>,
    /// The name, without its modules.
    pub(super) name: String,
}

impl fmt::Display for Test {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.build.join(" "), self.name)
    }
}

impl Patch {
    /// The file.
    pub(super) fn path(&self) -> PathBuf {
        folder().join(format!("{}.patch", self.name))
    }

    /// From the name of a file and its text.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self> {
        let name = file.strip_suffix(".patch");
        let parts = name.and_then(|name| Some((name, name.split_once('-')?.0.parse().ok()?)));
        let Some((name, row)) = parts else {
            fail!("{file}: a patch is called NN-words.patch after its row in docs/pitfalls.md");
        };
        let head = text.lines().take_while(|line| !line.starts_with("--- "));
        let mut tests = Vec::new();
        for line in head.filter_map(|line| line.strip_prefix("red: ")) {
            let words = line.strip_prefix("cargo test ").unwrap_or_default();
            let mut build: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            let Some(name) = build.pop().filter(|_| !build.is_empty()) else {
                fail!("{file}: `red: {line}` is no `cargo test -p PACKAGE --test TARGET NAME`");
            };
            tests.push(Test { build, name });
        }
        if tests.is_empty() {
            fail!("{file}: no line `red: cargo test ...` says which test must turn red");
        }
        Ok(Self {
            row,
            name: name.to_owned(),
            tests,
        })
    }
}

fn folder() -> PathBuf {
    paths::root().join("docs/pitfalls")
}

/// All patches, by row.
pub(super) fn all() -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    for path in paths::expand(&folder().join("*.patch")) {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path).context(|| format!("cannot read {file}"))?;
        patches.push(Patch::parse(&file, &text)?);
    }
    patches.sort_by_key(|patch| patch.row);
    Ok(patches)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_head_says_what_must_turn_red() {
        let text = "It is wrong.\n\nred: cargo test -p a --test b one\nred: cargo test -p c --lib two\n\
                    --- a/x\n+++ b/x\n@@ -1 +1 @@\n-red: 1\n+red: 2\n";
        let patch = Patch::parse("007-it-is-wrong.patch", text).unwrap();
        assert_eq!((patch.row, &*patch.name), (7, "007-it-is-wrong"));
        let tests: Vec<String> = patch.tests.iter().map(Test::to_string).collect();
        assert_eq!(tests, ["-p a --test b one", "-p c --lib two"]);
    }

    #[test]
    fn what_is_no_patch_of_a_fault_is_refused() {
        for (file, text) in [
            ("x-words.patch", "red: cargo test -p a --lib b\n"),
            ("7.patch", "red: cargo test -p a --lib b\n"),
            ("7-words.patch", "--- a/x\nred: cargo test -p a --lib b\n"),
            ("7-words.patch", "red: cargo test name\n"),
            ("7-words.patch", "red: make test\n"),
        ] {
            let failure = Patch::parse(file, text).unwrap_err().to_string();
            assert!(failure.starts_with(file), "{failure}");
        }
    }
}
