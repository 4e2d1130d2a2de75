//! Lists of names as `NCCL_IB_HCA` and `NCCL_SOCKET_IFNAME` have them: `[^][=]name,name,…`.
#![forbid(unsafe_code)]

use thiserror::Error;

/// What was expected in place of a list, or a part of one, that means nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("expected {0}")]
pub struct InvalidList(pub String);

/// A list of the names of devices or interfaces; of each, what an item says beside its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameList<T> {
    /// `^`: the items are those to leave out.
    pub(super) exclude: bool,
    /// `=`: a name is whole, not the beginning of one.
    exact: bool,
    pub(super) items: Vec<(String, T)>,
}

/// An empty list.
impl<T> Default for NameList<T> {
    fn default() -> Self {
        Self {
            exclude: false,
            exact: false,
            items: Vec::new(),
        }
    }
}

/// What no device and no interface has in its name: the marks of a list, and what other languages
/// put around and between the items of theirs.
const NOT_IN_NAMES: &[char] = &[
    '^', '=', ';', '"', '\'', '`', '[', ']', '(', ')', '{', '}', '<', '>', '*', '?', '!', '|', '&',
    '\\',
];

fn ends_name(c: char) -> bool {
    NOT_IN_NAMES.contains(&c) || c.is_whitespace() || c.is_control()
}

impl<T> NameList<T> {
    /// Reads a list, each item by `item`, which is told whether the list is one to leave out. Blanks
    /// beside a comma and empty items do no harm.
    ///
    /// A mark inside the list is an error. Read as part of a name it would match nothing, and a
    /// device that was to be left out would silently be used.
    pub(super) fn parse(
        text: &str,
        item: impl Fn(&str, bool) -> Result<(String, T), InvalidList>,
    ) -> Result<Self, InvalidList> {
        let (exclude, rest) = strip(text.trim(), '^');
        let (exact, rest) = strip(rest, '=');
        let tokens = rest.split(',').map(str::trim);
        let tokens: Vec<_> = tokens.filter(|token| !token.is_empty()).collect();
        if tokens.iter().any(|token| token.contains(ends_name)) {
            return Err(InvalidList(format!(
                "one list, with ^ (leave these out) and = (whole names) before all of it and only \
                 commas between the names: {}",
                right_form(text)
            )));
        }
        let items = tokens.into_iter().map(|token| item(token, exclude));
        Ok(Self {
            exclude,
            exact,
            items: items.collect::<Result<_, _>>()?,
        })
    }

    /// The first item for `name` that `fits`.
    pub(super) fn find(&self, name: &str, fits: impl Fn(&T) -> bool) -> Option<&T> {
        let is_for_name = |listed: &str| match self.exact {
            true => name == listed,
            false => name.starts_with(listed),
        };
        let mut items = self.items.iter();
        items
            .find(|(listed, item)| is_for_name(listed) && fits(item))
            .map(|(_, item)| item)
    }

    /// Whether `name` is wanted, as far as the items that fit say. An empty list, also of exclusions,
    /// filters nothing.
    pub(super) fn admits(&self, name: &str, fits: impl Fn(&T) -> bool) -> bool {
        self.items.is_empty() || self.find(name, fits).is_some() != self.exclude
    }
}

/// What was probably meant by `text`: its marks before its names.
fn right_form(text: &str) -> String {
    let names = text.split(|c| c == ',' || ends_name(c));
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    let names = names.join(",");
    let first_name = text.find(|c| c != ',' && !ends_name(c));
    let (before, inside) = text.split_at(first_name.unwrap_or(text.len()));
    let exact = if text.contains('=') { "=" } else { "" };
    // "Not" is written so elsewhere.
    if before.contains(['^', '!']) {
        format!("^{exact}{names}")
    } else if inside.contains('^') {
        format!("{exact}{names} or ^{exact}{names}")
    } else {
        format!("{exact}{names}")
    }
}

fn strip(text: &str, mark: char) -> (bool, &str) {
    match text.strip_prefix(mark) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

#[cfg(test)]
mod tests {
    use crate::{HcaFilter, InterfaceFilter, InvalidList};

    /// For devices and interfaces alike.
    #[test]
    fn a_mark_inside_a_list_is_an_error_that_shows_the_right_form() {
        for (text, right) in [
            ("^=a,^=b", "^=a,b"),
            ("^a,^b", "^a,b"),
            ("^a;b", "^a,b"),
            ("a;b", "a,b"),
            ("=a,=b", "=a,b"),
            ("a,=b", "=a,b"),
            ("a,^b", "a,b or ^a,b"),
            ("=^a", "^=a"),
            ("^a b", "^a,b"),
            ("a\tb", "a,b"),
            ("^\"a\"", "^a"),
            ("\"^a,b\"", "^a,b"),
            ("'a','b'", "a,b"),
            ("[a,b]", "a,b"),
            ("^^a", "^a"),
            ("!a,b", "^a,b"),
            ("mlx5_*", "mlx5_"),
            ("\"", ""),
        ] {
            let of_devices = text.parse::<HcaFilter>().err();
            let of_interfaces = text.parse::<InterfaceFilter>().err();
            for said in [of_devices, of_interfaces] {
                let InvalidList(said) = said.expect(text);
                assert!(said.ends_with(&format!(": {right}")), "{text}: {said}");
            }
        }
    }

    #[test]
    fn what_is_shown_as_the_right_form_is_one() {
        for right in [
            "^=a,b", "^a,b", "=a,b", "a,b", "mlx5_", " a , b ", "^", "=,", "",
        ] {
            assert!(right.parse::<HcaFilter>().is_ok(), "{right}");
            assert!(right.parse::<InterfaceFilter>().is_ok(), "{right}");
        }
        // Names of addresses on an interface that has several.
        assert!("eth0:1,br-0a1b,eth0.100".parse::<InterfaceFilter>().is_ok());
    }
}
