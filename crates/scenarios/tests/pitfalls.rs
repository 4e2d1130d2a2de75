//! `docs/pitfalls.md` has every number, and every test and file that it names exists.
#![allow(clippy::unwrap_used)]

mod page;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

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
}
