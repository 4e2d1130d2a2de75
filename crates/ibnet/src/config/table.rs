//! The table of variables: what is told of each, and the page of documentation made from it.

use super::{Config, FIELDS};

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
    pub(super) set: fn(&mut Config, &str) -> Result<(), String>,
    pub(super) show: fn(&Config) -> String,
}

impl Row {
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
something differs, or with `-` that NCCL has no such name. Those that begin with `IBNET_` are this transport's own. A value that means nothing is an error that \
names the variable, the value and what is allowed; an empty one counts as unset. Names that begin with `IBNET_` or \
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
        "\nThis page is made from `crates/ibnet/src/config.rs`; a test keeps it up to date, and \
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
