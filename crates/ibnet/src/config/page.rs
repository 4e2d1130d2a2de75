//! The page `docs/configuration.md`, which is also the documentation of [`Config`].
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::settings::{Config, FIELDS, VARIABLES};
use super::variable::{Reading, Variable};

/// The page `docs/configuration.md`, which is also the documentation of [`Config`].
fn page() -> String {
    let mut page = "\
# Settings

The settings of a transport, and the variables of the environment that set them.

The names that begin with `NCCL_` are those of NCCL's built-in transport and mean the same; the last column tells where \
something differs, or with `-` that NCCL has no such name. Those that begin with `IBNET_` are this transport's own: a \
value that means nothing is an error that names the variable, the value and what is allowed. Of NCCL's names, a value \
that NCCL lives with is a warning that says what is used instead: see the second table. An empty one counts as unset, \
with a warning. Names that begin with `IBNET_` or \
`NCCL_IB_` and are not in this table are told of in the log, with the setting that may have been meant.

What a program sets in the fields of `Config` is held to the same by `Transport::open`, whose errors name the field. \
Errors and log lines of the crate name fields, in backticks; the log of the plugin has the variables in their place.

| variable | default | allowed | meaning | field of `Config` | name in NCCL |
|---|---|---|---|---|---|
"
    .to_owned();
    for variable in VARIABLES.iter() {
        let in_nccl = match variable.differs {
            "" if variable.name.starts_with("IBNET_") => "-".to_owned(),
            "" => "the same".to_owned(),
            differs => format!("the same; {differs}"),
        };
        page.push_str(&format!(
            "| `{}` | {} | {} | {} | `{}` | {in_nccl} |\n",
            variable.name,
            default(variable),
            variable.allowed().trim_start_matches("a number from "),
            plain(meaning(variable)).replace('|', "\\|"),
            variable.field,
        ));
    }
    page.push_str(
        "\n## What NCCL takes, and what is done here\n\nWhat cannot be lived without is an error: the plugin does not \
         start, and its line says that this rank then uses another network than its peers, unless `NCCL_NET=IBNET` \
         forbids that.\n\n| variables | what NCCL takes | here |\n|---|---|---|\n",
    );
    for reading in [
        Reading::Number,
        Reading::Switch,
        Reading::Word,
        Reading::NumberOrList,
        Reading::Text,
    ] {
        let nccls = VARIABLES
            .iter()
            .filter(|variable| variable.name.starts_with("NCCL_"));
        let names: Vec<_> = nccls
            .filter(|variable| variable.reading() == reading)
            .map(|variable| format!("`{}`", variable.name))
            .collect();
        let (taken, here) = in_words(reading);
        page.push_str(&format!("| {} | {taken} | {here} |\n", names.join(", ")));
    }
    page.push_str(
        "\nThis page is made from `crates/ibnet/src/config/settings.rs`; a test keeps it up to date, and \
         writes it with `UPDATE_DOCS=1 cargo test -p ibnet --lib config`.\n",
    );
    page
}

/// What is used without the variable.
fn default(variable: &Variable<Config>) -> String {
    variable.show(&Config::default())
}

/// What it is for.
fn meaning(variable: &Variable<Config>) -> &'static str {
    let of_field = || FIELDS.iter().find(|(field, _)| *field == variable.field);
    match variable.meaning {
        "" => of_field().map_or("", |(_, docs)| docs.trim()),
        meaning => meaning,
    }
}

/// What NCCL takes, and what is done here, in Markdown.
fn in_words(reading: Reading) -> (&'static str, &'static str) {
    match reading {
        Reading::Number => (
            "a number as `strtoll` reads it with base 0: `0x1f` is hexadecimal, `017` octal, `7 s` is 7; what \
             begins with no number counts as unset; one outside the range loses its upper bits",
            "reads the same; a number outside the range counts as unset. All but a plain number is a warning",
        ),
        Reading::Switch => (
            "a number, read the same: 0 is no, any other yes",
            "the same; all but 0 and 1 is a warning",
        ),
        Reading::Word => (
            "one of a few words; any other counts as unset",
            "the same, with a warning",
        ),
        Reading::NumberOrList => (
            "a number, read the same",
            "as for the other numbers; and a list, of which a mistake is an error, because NCCL has no lists here",
        ),
        Reading::Text => (
            "a list, range or path; what it does not understand matches nothing, or everything",
            "a mistake is an error: with it, the wrong devices or addresses would be used",
        ),
    }
}

/// Markdown without the links of rustdoc: `` [`X`](path) `` is `` `X` ``.
fn plain(markdown: &str) -> String {
    let mut plain = String::new();
    let mut rest = markdown;
    while let Some(start) = rest.find("[`") {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        let Some(end) = rest.find("`]") else {
            break;
        };
        plain.push_str(&rest[1..=end]);
        rest = &rest[end + 2..];
        if let Some(target) = rest.strip_prefix('(')
            && let Some((_, after)) = target.split_once(')')
        {
            rest = after;
        }
    }
    plain.push_str(rest);
    plain
}

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page(),
        "docs/configuration.md is not what the settings are: run \
         `UPDATE_DOCS=1 cargo test -p ibnet --lib config`"
    );
}

#[test]
fn every_variable_is_told_of_once_and_whole() {
    for (index, variable) in VARIABLES.iter().enumerate() {
        let name = variable.name;
        assert!(
            name.starts_with("NCCL_") || name.starts_with("IBNET_"),
            "{name}"
        );
        let mut before = VARIABLES[..index].iter();
        assert!(before.all(|other| other.name != name), "{name}");
        for text in [&default(variable), &variable.allowed(), meaning(variable)] {
            assert!(!text.is_empty() && !text.contains('\n'), "{name}");
        }
        assert!(
            meaning(variable).ends_with('.'),
            "{name}: {}",
            meaning(variable)
        );
    }
}

#[test]
fn links_of_rustdoc_are_left_out() {
    assert_eq!(plain("see [`A`] and [`B`](crate::B)."), "see `A` and `B`.");
    assert_eq!(plain("an [index] `x` [`"), "an [index] `x` [`");
}
