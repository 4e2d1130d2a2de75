//! `docs/seeds.md` has every function of the seeds once, the parameters are those of `Config`, and
//! every file and item that it names exists.
#![allow(clippy::unwrap_used)]

mod page;

use std::collections::BTreeSet;
use std::fs;

use ibnet::Config;
use page::{cells, quoted, root};

/// The tables of functions, and how many each has: the seeds are no part of the repository.
const FUNCTIONS: [(&str, usize); 2] = [("Seed 000", 30), ("Seed 001", 69)];

/// What stands in place of a field for a parameter that has none.
const NOT_SUPPORTED: &str = "not supported";

/// The lines below a heading of the second level.
fn section<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let is_heading = |line: &&str| line.strip_prefix("## ") == Some(heading);
    let lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !is_heading(line))
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .collect();
    assert!(!lines.is_empty(), "no section {heading}");
    lines
}

/// A function of a seed: its name, and where its work is done or why it is not needed.
fn functions<'a>(text: &'a str, heading: &str) -> Vec<(String, &'a str)> {
    section(text, heading)
        .into_iter()
        .filter_map(|line| {
            let [name, what, ours] = cells(line)?;
            let [name] = quoted(name).try_into().ok()?;
            assert!(!what.is_empty(), "{name}: nothing is said of it");
            Some((name, ours))
        })
        .collect()
}

/// A row of the table of parameters: one of them, or several that have the same to be said of.
struct Parameters<'a> {
    names: Vec<String>,
    /// None if they are not supported.
    field: Option<String>,
    ours: &'a str,
}

fn parameters(text: &str) -> Vec<Parameters<'_>> {
    section(text, "Parameters")
        .into_iter()
        .filter_map(|line| {
            let [names, _, _, field, ours] = cells(line)?;
            let names = quoted(names);
            if names.is_empty() {
                return None;
            }
            let stated = quoted(field).into_iter().next();
            let is_said = stated.is_some() || field == NOT_SUPPORTED;
            assert!(is_said, "{names:?}: {field}");
            Some(Parameters {
                names,
                field: stated,
                ours,
            })
        })
        .collect()
}

/// The files of a cell, each with the items that follow it.
fn places(cell: &str) -> Vec<(String, Vec<String>)> {
    let mut places: Vec<(String, Vec<String>)> = Vec::new();
    for name in quoted(cell) {
        if name.contains('/') {
            places.push((name, Vec::new()));
        } else if let Some((_, items)) = places.last_mut() {
            items.push(name);
        }
    }
    places
}

/// The items of a source as rustfmt lays it out: those that are not in anything, and the functions
/// of types and traits as `Type::function`.
fn items(source: &str) -> BTreeSet<String> {
    let mut items = BTreeSet::new();
    let mut owner = None;
    for line in source.lines() {
        if !line.starts_with(' ') && !line.is_empty() {
            owner = owner_of(line);
            items.extend(item_of(line));
        } else if let (Some(owner), Some(inside)) = (&owner, line.strip_prefix("    "))
            && !inside.starts_with(' ')
        {
            items.extend(item_of(inside).map(|item| format!("{owner}::{item}")));
        }
    }
    items
}

/// The name of what a line declares, if it declares something.
fn item_of(line: &str) -> Option<String> {
    const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "static", "type"];
    const BEFORE: [&str; 5] = ["pub", "unsafe", "async", "extern", "\"C\""];
    let mut words = line.split_whitespace().peekable();
    while let Some(word) = words.next() {
        // `const fn` is a function.
        if KINDS.contains(&word) && words.peek() != Some(&"fn") {
            return words.next().map(identifier);
        }
        if !KINDS.contains(&word) && !BEFORE.contains(&word) && !word.starts_with("pub(") {
            return None;
        }
    }
    None
}

/// The type or trait whose functions follow the line.
fn owner_of(line: &str) -> Option<String> {
    let Some(mut rest) = line.strip_prefix("impl") else {
        let is_trait = line.split_whitespace().any(|word| word == "trait");
        return is_trait.then(|| item_of(line)).flatten();
    };
    // The generics of the block, which may be nested.
    let mut depth = 0;
    let end = rest.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0
    });
    rest = rest[end? + usize::from(rest.starts_with('<'))..].trim_start();
    let owner = rest.split_once(" for ").map_or(rest, |(_, owner)| owner);
    Some(identifier(owner))
}

fn identifier(text: &str) -> String {
    let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
    text.chars().take_while(is_part).collect()
}

#[test]
fn every_function_is_there_once_with_its_place_or_the_reason() {
    let text = page::read("seeds.md");
    for (heading, count) in FUNCTIONS {
        let functions = functions(&text, heading);
        let names: BTreeSet<&String> = functions.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names.len(),
            functions.len(),
            "{heading}: one is there twice"
        );
        assert_eq!(functions.len(), count, "{heading}");
        for (name, ours) in &functions {
            assert!(!ours.is_empty(), "{heading}: nothing is said about {name}");
        }
    }
}

#[test]
fn every_file_and_item_that_is_named_exists() {
    let text = page::read("seeds.md");
    let mut named = Vec::new();
    for (heading, _) in FUNCTIONS {
        named.extend(functions(&text, heading));
    }
    for row in parameters(&text) {
        named.push((row.names.join(", "), row.ours));
    }
    let mut found = 0;
    let mut missing = Vec::new();
    for (name, ours) in named {
        for (file, wanted) in places(ours) {
            let Ok(source) = fs::read_to_string(root().join("crates").join(&file)) else {
                missing.push(format!("{name}: there is no file {file}"));
                continue;
            };
            let items = items(&source);
            for item in wanted {
                found += 1;
                if !items.contains(&item) {
                    missing.push(format!("{name}: no {item} in {file}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(found > 200, "only {found} items are named");
}

#[test]
fn the_parameters_are_those_of_the_configuration() {
    let text = page::read("seeds.md");
    let variables: Vec<_> = Config::variables().collect();
    let mut listed = BTreeSet::new();
    for Parameters { names, field, ours } in parameters(&text) {
        assert!(!ours.is_empty(), "{names:?}: nothing is said about them");
        for name in names {
            let fields: Vec<&str> = variables
                .iter()
                .filter(|(variable, _)| match name.strip_suffix('*') {
                    Some(beginning) => variable.starts_with(beginning),
                    None => *variable == name,
                })
                .map(|(_, field)| *field)
                .collect();
            let stated: Vec<&str> = field.iter().map(String::as_str).collect();
            assert_eq!(stated, fields, "the field of {name}");
            assert!(listed.insert(name.clone()), "{name} is there twice");
        }
    }
    for (variable, _) in variables.iter().filter(|it| it.0.starts_with("NCCL_")) {
        assert!(listed.contains(*variable), "no {variable}");
    }
}

#[test]
fn what_is_missing_is_noticed() {
    let text = "## Seed 000\n| function | what it does | ours |\n|---|---|---|\n\
                | `one` | a thing | `a/b.rs`: `x`, `T::y`; gone: `c.d/e.rs` |\n\
                | `two` | another | not needed |\n## Parameters\n\
                | `A`, `B_*` | 0 | – | not supported | why |\n| `C` | – | 1 | `c` | `a/b.rs` |\n";
    let functions = functions(text, "Seed 000");
    assert_eq!(functions[1], ("two".to_owned(), "not needed"));
    let [(file, items), (other, none)] = &places(functions[0].1)[..] else {
        panic!("two files");
    };
    assert_eq!((file.as_str(), other.as_str()), ("a/b.rs", "c.d/e.rs"));
    assert_eq!(items, &["x", "T::y"]);
    assert!(none.is_empty());
    let parameters = parameters(text);
    assert_eq!(parameters[0].names, ["A", "B_*"]);
    assert_eq!(parameters[0].field, None);
    assert_eq!(parameters[1].field.as_deref(), Some("c"));
}

#[test]
fn the_items_of_a_source_are_found() {
    let source = "pub(crate) const fn one() {\n    fn inner() {}\n}\n#[doc = \"fn no\"]\nstruct Two<T>;\n\
                  impl<T: Into<Vec<u8>>> Two<T> {\n    const THREE: u8 = 3;\n    pub unsafe fn four(&self) {\n        \
                  fn five() {}\n    }\n}\nimpl From<u8> for Six {\n    fn from(_: u8) -> Self {}\n}\n\
                  pub(crate) trait Seven: Sized {\n    fn eight(&self);\n}\n// fn nine\nmod tests {\n    \
                  fn ten() {}\n}\npub static ELEVEN: u8 = 0;\nunsafe extern \"C\" fn twelve() {}\n";
    let found = items(source);
    let expected = [
        "ELEVEN",
        "Seven",
        "Seven::eight",
        "Six::from",
        "Two",
        "Two::THREE",
        "Two::four",
        "one",
        "twelve",
    ];
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
}
