//! Lists of names as `NCCL_IB_HCA` and `NCCL_SOCKET_IFNAME` have them: `[^][=]name,name,…`.
#![forbid(unsafe_code)]

/// A list of the names of devices or interfaces, with the marks before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameList<'a> {
    /// `^`: the names are those to leave out.
    pub(crate) exclude: bool,
    /// `=`: a name is whole, not the beginning of one.
    pub(crate) exact: bool,
    pub(crate) names: Vec<&'a str>,
}

/// What was expected in place of a list, or a part of one, that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidList(pub String);

/// What no device and no interface has in its name: the marks of a list, and what other languages
/// put around and between the items of theirs.
const NOT_IN_NAMES: &[char] = &[
    '^', '=', ';', '"', '\'', '`', '[', ']', '(', ')', '{', '}', '<', '>', '*', '?', '!', '|', '&',
    '\\',
];

fn ends_name(c: char) -> bool {
    NOT_IN_NAMES.contains(&c) || c.is_whitespace() || c.is_control()
}

impl<'a> NameList<'a> {
    /// Reads a list. Blanks beside a comma and empty items do no harm.
    ///
    /// A mark inside the list is an error. Read as part of a name it would match nothing, and a
    /// device that was to be left out would silently be used.
    pub(crate) fn parse(text: &'a str) -> Result<Self, InvalidList> {
        let (exclude, rest) = strip(text.trim(), '^');
        let (exact, rest) = strip(rest, '=');
        let names = rest.split(',').map(str::trim);
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        if names.iter().any(|name| name.contains(ends_name)) {
            return Err(InvalidList(format!(
                "one list, with ^ (leave these out) and = (whole names) before all of it and only \
                 commas between the names: {}",
                right_form(text)
            )));
        }
        Ok(Self {
            exclude,
            exact,
            names,
        })
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
    use crate::{HcaFilter, InterfaceFilter};

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
            let of_devices = HcaFilter::parse(text).map_err(|invalid| invalid.0);
            let of_interfaces = InterfaceFilter::parse(text).map_err(|invalid| invalid.0);
            for said in [of_devices.err(), of_interfaces.err()] {
                let said = said.unwrap_or_default();
                assert!(said.ends_with(&format!(": {right}")), "{text}: {said}");
            }
        }
    }

    #[test]
    fn what_is_shown_as_the_right_form_is_one() {
        for right in [
            "^=a,b", "^a,b", "=a,b", "a,b", "mlx5_", " a , b ", "^", "=,", "",
        ] {
            assert!(HcaFilter::parse(right).is_ok(), "{right}");
            assert!(InterfaceFilter::parse(right).is_ok(), "{right}");
        }
        // Names of addresses on an interface that has several.
        assert!(InterfaceFilter::parse("eth0:1,br-0a1b,eth0.100").is_ok());
    }
}
