//! Which devices and ports the user wants: `NCCL_IB_HCA`.
#![forbid(unsafe_code)]

use std::num::NonZeroU8;

/// A filter over device names and ports, in NCCL's grammar: `[^][=]name[:port],…`.
///
/// A name matches every device that begins with it, or with `=` only the device of that very name.
/// `^` turns the list into one of devices to leave out. An empty list is no filter, with `^` or
/// without.
///
/// ```
/// # use ibnet::HcaFilter;
/// let filter = HcaFilter::parse("mlx5_0:1,mlx5_2").unwrap();
/// assert!(filter.admits("mlx5_0", 1) && !filter.admits("mlx5_0", 2));
/// assert!(filter.admits("mlx5_21", 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HcaFilter {
    exclude: bool,
    exact: bool,
    items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    name: String,
    port: Option<NonZeroU8>,
}

/// What was expected in place of a token that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHca(pub String);

impl HcaFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// A token without a name, or with a port that is no port number.
    pub fn parse(text: &str) -> Result<Self, InvalidHca> {
        let (exclude, text) = strip(text.trim(), '^');
        let (exact, text) = strip(text, '=');
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|token| !token.is_empty())
            .map(Item::parse)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            exclude,
            exact,
            items,
        })
    }

    /// Whether port `port` of the device `name` is wanted.
    pub fn admits(&self, name: &str, port: u8) -> bool {
        // Pitfall 18: an empty list, also of exclusions, filters nothing.
        self.items.is_empty()
            || self
                .items
                .iter()
                .any(|item| item.matches(name, port, self.exact))
                != self.exclude
    }
}

impl Item {
    fn parse(token: &str) -> Result<Self, InvalidHca> {
        let (name, port) = match token.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (token, None),
        };
        if name.is_empty() {
            return Err(InvalidHca(format!("a device name in {token:?}")));
        }
        let port = match port {
            None | Some("") => None,
            Some(port) => Some(port.parse().map_err(|_| {
                InvalidHca(format!(
                    "a port number from 1 to 255 after the colon in {token:?}"
                ))
            })?),
        };
        Ok(Self {
            name: name.to_owned(),
            port,
        })
    }

    fn matches(&self, name: &str, port: u8, exact: bool) -> bool {
        let same_name = if exact {
            name == self.name
        } else {
            name.starts_with(&self.name)
        };
        same_name && self.port.is_none_or(|wanted| wanted.get() == port)
    }
}

fn strip(text: &str, sign: char) -> (bool, &str) {
    match text.strip_prefix(sign) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nccls_grammar() {
        for (filter, name, port, admitted) in [
            ("", "mlx5_0", 1, true),
            ("^", "mlx5_0", 1, true), // pitfall 18
            ("=", "mlx5_0", 1, true),
            ("^=", "mlx5_0", 1, true),
            (",,", "mlx5_0", 1, true),
            ("mlx5", "mlx5_3", 2, true),
            ("mlx5", "bnxt_re0", 1, false),
            ("mlx5_1", "mlx5_10", 1, true),
            ("=mlx5_1", "mlx5_10", 1, false),
            ("=mlx5_1", "mlx5_1", 1, true),
            ("^mlx5_1", "mlx5_10", 1, false),
            ("^=mlx5_1", "mlx5_10", 1, true),
            ("^=mlx5_1", "mlx5_1", 1, false),
            ("mlx5_0:2", "mlx5_0", 1, false),
            ("mlx5_0:2", "mlx5_0", 2, true),
            ("^mlx5_0:2", "mlx5_0", 1, true),
            ("^mlx5_0:2", "mlx5_0", 2, false),
            ("mlx5_0:,mlx4", "mlx4_0", 1, true),
            (" mlx5_0 , mlx5_1 ", "mlx5_1", 1, true),
        ] {
            let parsed = HcaFilter::parse(filter).unwrap();
            assert_eq!(
                parsed.admits(name, port),
                admitted,
                "{filter:?} on {name}:{port}"
            );
        }
    }

    #[test]
    fn bad_tokens_are_named() {
        for bad in ["mlx5_0:x", "mlx5_0:0", "mlx5_0:256", ":1", "mlx5_0:1:2:3"] {
            let InvalidHca(expected) = HcaFilter::parse(bad).unwrap_err();
            assert!(expected.contains(bad), "{expected}");
        }
    }
}
