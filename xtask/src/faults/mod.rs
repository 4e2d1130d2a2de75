//! `cargo xtask faults`: puts the faults of `docs/pitfalls.md` back, one by one, and demands that
//! the tests which the page names for them turn red.
//!
//! A fault is a patch in `docs/pitfalls`. It is applied to a copy of the tree below the target
//! folder, so that the tree itself stays as it is.

mod copy;
mod patch;
mod verdict;

use std::collections::BTreeSet;

use crate::args::{Flag, Parsed};
use crate::failure::{Result, fail};
use crate::progress::{Step, note};
use crate::setup::{self, Group};

use copy::Copy;
use patch::{Patch, Test};
use verdict::Verdict;

/// Options of `faults`.
pub(crate) const FLAGS: &[Flag] = &[Flag {
    name: "--rows",
    value: Some("N,N,..."),
    help: "Only the faults of these rows of docs/pitfalls.md",
}];

/// Entry point of the subcommand: 0 if every test was green without and red with its fault.
pub(crate) fn command(parsed: &Parsed) -> Result<u8> {
    let patches = chosen(patch::all()?, parsed.value("--rows"))?;
    setup::ensure(&[Group::Build])?;
    let copy = Copy::new()?;
    let mut table = Vec::new();
    // A test that is red anyway shows nothing.
    let tests: BTreeSet<&Test> = patches.iter().flat_map(|patch| &patch.tests).collect();
    for test in tests {
        let verdict = step(&format!("without a fault: {test}"), || copy.run(test));
        if !matches!(verdict, Verdict::Green) {
            table.push(("-".to_owned(), test, verdict, false));
        }
    }
    for patch in &patches {
        let applied = copy.apply(patch);
        for test in &patch.tests {
            let verdict = match &applied {
                Ok(()) => step(&format!("{}: {test}", patch.name), || copy.run(test)),
                Err(failure) => Verdict::NotRun(failure.to_string()),
            };
            let is_good = matches!(verdict, Verdict::Red(_));
            table.push((patch.name.clone(), test, verdict, is_good));
        }
        copy.refresh()?;
    }
    println!();
    for (patch, test, verdict, is_good) in &table {
        let mark = if *is_good { "ok" } else { "WRONG" };
        println!("{mark:<6}{patch:<40} {}: {verdict}", test.name);
    }
    let wrong = table.iter().filter(|(.., is_good)| !is_good).count();
    println!("\n{} passed, {wrong} failed", table.len() - wrong);
    Ok(u8::from(wrong > 0))
}

fn step(what: &str, run: impl FnOnce() -> Result<Verdict>) -> Verdict {
    let step = Step::begin(what);
    let verdict = run().unwrap_or_else(|failure| Verdict::NotRun(failure.to_string()));
    if let Verdict::NotRun(why) = &verdict {
        note(why);
    }
    step.done(verdict.word());
    verdict
}

/// The patches of the rows in a list such as `31,62`; all without a list.
fn chosen(all: Vec<Patch>, rows: Option<&str>) -> Result<Vec<Patch>> {
    let Some(rows) = rows else {
        return Ok(all);
    };
    let mut chosen = Vec::new();
    for row in rows.split(',') {
        let mut found: Vec<Patch> = Vec::new();
        for patch in &all {
            if row.parse() == Ok(patch.row) {
                found.push(patch.clone());
            }
        }
        if found.is_empty() {
            fail!("`--rows {rows}`: there is no patch of row {row} in docs/pitfalls");
        }
        chosen.append(&mut found);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rows_choose_patches_and_unknown_ones_are_named() {
        let patch = |name: &str| Patch::parse(name, "red: cargo test -p a --lib b\n--- ").unwrap();
        let all = || {
            vec![
                patch("07-a.patch"),
                patch("07-b.patch"),
                patch("31-c.patch"),
            ]
        };
        assert_eq!(chosen(all(), None).unwrap().len(), 3);
        assert_eq!(chosen(all(), Some("7")).unwrap().len(), 2);
        assert_eq!(chosen(all(), Some("31,7")).unwrap()[0].name, "31-c");
        let failure = chosen(all(), Some("7,8")).unwrap_err().to_string();
        assert!(failure.contains("row 8"), "{failure}");
    }
}
