//! `docs/pitfalls.md` has every number, every test and file that it names exists, and every row has a
//! patch that puts its fault back, for `cargo xtask faults`.
#![allow(clippy::unwrap_used)]

mod page;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use page::{cells, quoted, root};

const COUNT: usize = 102;

/// A row of the table: number, fault, tests, construction.
struct Row {
    number: usize,
    tests: Vec<String>,
    construction: String,
}

fn rows(text: &str) -> Vec<Row> {
    text.lines()
        .filter_map(|line| {
            let [number, fault, tests, construction] = cells(line)?;
            let number = number.parse().ok()?;
            assert!(!fault.is_empty(), "{number} has no fault");
            Some(Row {
                number,
                tests: quoted(tests),
                construction: construction.to_owned(),
            })
        })
        .collect()
}

/// The names of all test functions below `folder`.
fn test_functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                test_functions(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(tests_in(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The functions that follow `#[test]`, with at most other attributes between.
fn tests_in(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("fn ") {
            if is_test {
                names.extend(rest.split('(').next().map(str::to_owned));
            }
            is_test = false;
        } else if !line.starts_with('#') && !line.starts_with("//") {
            is_test = false;
        }
    }
    names
}

#[test]
fn every_pitfall_is_listed_once_with_what_keeps_it_out() {
    let rows = rows(&page::read("pitfalls.md"));
    let numbers: Vec<usize> = rows.iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=COUNT).collect::<Vec<_>>());
    for row in &rows {
        let is_kept_out = !row.tests.is_empty() || !row.construction.is_empty();
        assert!(is_kept_out, "nothing is said about {}", row.number);
    }
}

#[test]
fn every_test_and_file_that_is_named_exists() {
    let root = root();
    let rows = rows(&page::read("pitfalls.md"));
    let mut known = BTreeSet::new();
    for folder in ["crates", "examples", "xtask"] {
        test_functions(&root.join(folder), &mut known);
    }
    known.extend(
        ibnet_scenarios::all()
            .iter()
            .map(|play| play.name.to_owned()),
    );
    for row in &rows {
        for test in &row.tests {
            assert!(
                known.contains(test),
                "{}: there is no test {test}",
                row.number
            );
        }
        for file in quoted(&row.construction) {
            let is_there = !file.ends_with(".rs") || root.join("crates").join(&file).is_file();
            assert!(is_there, "{}: there is no file {file}", row.number);
        }
    }
}

/// The patches that put the fault of row `number` back.
fn patches(number: usize) -> Vec<PathBuf> {
    let is_of_it = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let row = name.split('-').next().and_then(|row| row.parse().ok());
        row == Some(number) && name.ends_with(".patch")
    };
    let folder = fs::read_dir(root().join("docs/pitfalls")).unwrap();
    let mut patches: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    patches.retain(is_of_it);
    patches
}

/// The tests that must turn red with a patch: its lines `red: cargo test PACKAGE TARGET NAME`.
fn red(patch: &str) -> Vec<&str> {
    let lines = patch.lines().take_while(|line| !line.starts_with("--- "));
    lines
        .filter_map(|line| {
            line.strip_prefix("red: cargo test ")?
                .split(' ')
                .next_back()
        })
        .collect()
}

#[test]
fn every_fault_has_a_patch_or_no_room() {
    for row in rows(&page::read("pitfalls.md")) {
        let (number, patches) = (row.number, patches(row.number));
        let is_by_construction = row.construction.starts_with("by construction: ");
        assert_eq!(patches.is_empty(), is_by_construction, "row {number}");
        assert_eq!(row.tests.is_empty(), is_by_construction, "row {number}");
        for path in patches {
            let patch = fs::read_to_string(&path).unwrap();
            let red = red(&patch);
            assert!(!red.is_empty(), "{path:?} names no test");
            for test in red {
                let is_named = row.tests.iter().any(|named| named == test);
                assert!(is_named, "{path:?}: row {number} does not name {test}");
            }
        }
    }
}

#[test]
fn every_patch_applies() {
    // What does not is to be made anew: the fault is where the code now is.
    let mut broken = Vec::new();
    for path in (1..=COUNT).flat_map(patches) {
        let mut git = Command::new("git");
        git.current_dir(root())
            .args(["apply", "--check"])
            .arg(&path);
        let output = git.output().expect("git runs");
        if !output.status.success() {
            broken.push(String::from_utf8(output.stderr).unwrap());
        }
    }
    assert!(broken.is_empty(), "{}", broken.concat());
}

#[test]
fn what_is_missing_is_noticed() {
    let table = "| no. | fault | tests | construction |\n|---|---|---|---|\n\
                 | 7 | wrong | `one`, `two/three` | by `ibnet/src/x.rs` |\n";
    let [row] = &rows(table)[..] else {
        panic!("one row");
    };
    assert_eq!(
        (row.number, &row.tests[..]),
        (7, &["one".to_owned(), "two/three".to_owned()][..])
    );
    assert_eq!(quoted(&row.construction), ["ibnet/src/x.rs"]);
    let source =
        "#[test]\n#[ignore]\n// why\nfn one() {}\nfn two() {}\n#[test]\nlet x;\nfn three() {}";
    assert_eq!(tests_in(source), ["one"]);
    let patch = "why\n\nred: cargo test -p a --test b one\nred: cargo test -p a --lib two\n--- a/x\n\
                 red: cargo test -p a --lib three\n";
    assert_eq!(red(patch), ["one", "two"]);
}
