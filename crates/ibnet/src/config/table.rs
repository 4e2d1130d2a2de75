//! The table of variables: what is told of each, and the page of documentation made from it.

use super::reading::Reading;
use super::{Config, Effect, FIELDS};

/// A variable of the environment that is a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The field of [`Config`] that it sets.
    pub field: &'static str,
    /// What is used without it.
    pub default: String,
    /// What is allowed.
    pub range: String,
    /// What it is for, in Markdown.
    pub meaning: String,
    /// How it relates to NCCL's built-in transport, which gave it its name unless that begins with
    /// `IBNET_`.
    pub in_nccl: &'static str,
}

/// A line of the table, as the one list of settings makes it.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) field: &'static str,
    pub(super) in_nccl: &'static str,
    /// What it is for; nothing where the documentation of the field says it.
    pub(super) meaning: &'static [&'static str],
    pub(super) range: fn() -> String,
    pub(super) reading: fn() -> Reading,
    pub(super) set: fn(&mut Config, &str) -> Result<(), String>,
    pub(super) show: fn(&Config) -> String,
}

impl Row {
    /// How the variable is read: as NCCL does, unless it is this transport's own.
    pub(super) fn reading(&self) -> Reading {
        match self.name.starts_with("NCCL_") {
            true => (self.reading)(),
            false => Reading::Text,
        }
    }

    /// Sets what `value` means; or tells what was expected, if it means nothing and NCCL would not
    /// go on without it. Nothing is changed then.
    pub(super) fn apply(&self, config: &mut Config, value: &str) -> Result<Effect, String> {
        let instead = |config: &Config, why: String| {
            Ok(Effect::Instead {
                used: (self.show)(config),
                why,
            })
        };
        if value.is_empty() {
            return instead(config, "an empty value counts as unset".to_owned());
        }
        let reading = self.reading();
        let expected = match reading.read(value) {
            None => (self.range)(),
            Some((text, why)) => match ((self.set)(config, &text), why) {
                (Ok(()), None) => return Ok(Effect::AsSet),
                (Ok(()), Some(why)) => return instead(config, why.to_owned()),
                (Err(expected), _) => expected,
            },
        };
        match reading.is_lenient(value) {
            true => instead(config, format!("expected {expected}")),
            false => Err(expected),
        }
    }

    pub(super) fn variable(&self) -> Variable {
        let meaning = match self.meaning {
            [] => self.field_docs(),
            own => own.concat(),
        };
        Variable {
            name: self.name,
            field: self.field,
            default: (self.show)(&Config::default()),
            range: (self.range)(),
            meaning: plain(&meaning),
            in_nccl: self.in_nccl,
        }
    }

    fn field_docs(&self) -> String {
        let of_field = FIELDS.iter().find(|(field, _)| *field == self.field);
        let lines = of_field.map_or(&[][..], |(_, lines)| lines);
        let lines: Vec<_> = lines.iter().map(|line| line.trim()).collect();
        lines.join(" ")
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

/// The page `docs/configuration.md`, which is also the documentation of [`Config`].
#[cfg(test)]
pub(super) fn page() -> String {
    let mut page = "\
# Settings

The settings of a transport, and the variables of the environment that set them.

The names that begin with `NCCL_` are those of NCCL's built-in transport and mean the same; the last column tells where \
something differs, or with `-` that NCCL has no such name. Those that begin with `IBNET_` are this transport's own: a \
value that means nothing is an error that names the variable, the value and what is allowed. Of NCCL's names, a value \
that NCCL lives with is a warning that says what is used instead: see the second table. An empty one counts as unset, \
with a warning. Names that begin with `IBNET_` or \
`NCCL_IB_` and are not in this table are told of in the log, with the setting that may have been meant.

| variable | default | allowed | meaning | field of `Config` | name in NCCL |
|---|---|---|---|---|---|
"
    .to_owned();
    for variable in Config::variables() {
        page.push_str(&format!(
            "| `{}` | {} | {} | {} | `{}` | {} |\n",
            variable.name,
            variable.default,
            variable.range.trim_start_matches("a number from "),
            variable.meaning.replace('|', "\\|"),
            variable.field,
            match variable.in_nccl {
                "the same" | "-" => variable.in_nccl.to_owned(),
                remark => format!("the same; {remark}"),
            }
        ));
    }
    page.push_str(
        "\n## What NCCL takes, and what is done here\n\nWhat cannot be lived without is an error: the plugin does not \
         start, and its line says that this rank then uses another network than its peers, unless `NCCL_NET=IBNET` \
         forbids that.\n\n| variables | what NCCL takes | here |\n|---|---|---|\n",
    );
    for reading in Reading::ALL {
        let nccls = super::VARIABLES
            .iter()
            .filter(|row| row.name.starts_with("NCCL_"));
        let names: Vec<_> = nccls
            .filter(|row| row.reading() == reading)
            .map(|row| format!("`{}`", row.name))
            .collect();
        let (taken, here) = reading.in_words();
        page.push_str(&format!("| {} | {taken} | {here} |\n", names.join(", ")));
    }
    page.push_str(
        "\nThis page is made from `crates/ibnet/src/config/mod.rs`; a test keeps it up to date, and \
         writes it with `UPDATE_DOCS=1 cargo test -p ibnet --lib config`.\n",
    );
    page
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

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
        let variables = Config::variables();
        for (index, variable) in variables.iter().enumerate() {
            let name = variable.name;
            assert!(
                name.starts_with("NCCL_") || name.starts_with("IBNET_"),
                "{name}"
            );
            assert!(
                variables[..index].iter().all(|other| other.name != name),
                "{name}"
            );
            for text in [&variable.default, &variable.range, &variable.meaning] {
                assert!(!text.is_empty() && !text.contains('\n'), "{name}");
            }
            assert!(
                variable.meaning.ends_with('.'),
                "{name}: {}",
                variable.meaning
            );
        }
    }

    #[test]
    fn links_of_rustdoc_are_left_out() {
        assert_eq!(plain("see [`A`] and [`B`](crate::B)."), "see `A` and `B`.");
        assert_eq!(plain("an [index] `x` [`"), "an [index] `x` [`");
    }
}
