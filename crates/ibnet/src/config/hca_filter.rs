//! [`HcaFilter`]: which devices and ports the user wants.
#![forbid(unsafe_code)]

use std::num::NonZeroU8;
use std::str::FromStr;

use super::name_list::{InvalidList, NameList};

/// A filter over device names and ports, in NCCL's grammar:
/// `[^][=]name[:port[:rail[:plane]]],…`.
///
/// A name matches every device that begins with it, or with `=` only the device of that very name.
/// A port that is left out (`name`, `name:` or `name::rail`) means every port. `^` turns the list
/// into one of devices to leave out. An empty list is no filter, with `^` or without.
///
/// Rail and plane, numbers from 0 to 255, say where a port is plugged in: ports of the same rail
/// are paired with each other, and NCCL is told of both. They come from the first item that
/// matches.
///
/// ```
/// # use ibnet::HcaFilter;
/// let filter: HcaFilter = "mlx5_0:1,mlx5_2".parse().unwrap();
/// assert!(filter.admits("mlx5_0", 1) && !filter.admits("mlx5_0", 2));
/// assert!(filter.admits("mlx5_21", 1));
/// let filter: HcaFilter = "mlx5_0:1:7".parse().unwrap();
/// assert_eq!(filter.placement("mlx5_0", 1).rail, Some(7));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HcaFilter(NameList<Ports>);

/// Where the user says that a port is plugged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The rail: ports of the same one reach each other best.
    pub rail: Option<u8>,
    /// The plane of a network that has several.
    pub plane: Option<u8>,
}

/// What an item says beside the name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ports {
    /// None for every port.
    port: Option<NonZeroU8>,
    placement: Placement,
}

/// # Errors
/// A mark inside the list; or a token without a name, with a port, rail or plane that is no such
/// number, with more parts than there are, or with a rail or plane in a list of devices to leave
/// out.
impl FromStr for HcaFilter {
    type Err = InvalidList;

    fn from_str(text: &str) -> Result<Self, InvalidList> {
        NameList::parse(text, item).map(Self)
    }
}

impl HcaFilter {
    /// Whether port `port` of the device `name` is wanted.
    pub fn admits(&self, name: &str, port: u8) -> bool {
        self.0.admits(name, |ports| ports.include(port))
    }

    /// Whether any port of the device `name` can be wanted.
    pub(crate) fn admits_device(&self, name: &str) -> bool {
        (1..=u8::MAX).any(|port| self.admits(name, port))
    }

    /// Rail and plane of port `port` of the device `name`.
    pub fn placement(&self, name: &str, port: u8) -> Placement {
        self.0
            .find(name, |ports| ports.include(port))
            .map_or_else(Placement::default, |ports| ports.placement)
    }
}

impl Ports {
    fn include(&self, port: u8) -> bool {
        self.port.is_none_or(|wanted| wanted.get() == port)
    }
}

/// One item: `name[:port[:rail[:plane]]]`.
fn item(token: &str, exclude: bool) -> Result<(String, Ports), InvalidList> {
    let mut parts = token.split(':').map(str::trim);
    let name = parts.next().unwrap_or_default();
    if name.is_empty() {
        return Err(InvalidList(format!("a device name in {token:?}")));
    }
    let port = number(parts.next(), token, "a port number from 1 to 255")?;
    let placement = Placement {
        rail: number(parts.next(), token, "a rail from 0 to 255")?,
        plane: number(parts.next(), token, "a plane from 0 to 255")?,
    };
    if parts.next().is_some() {
        return Err(InvalidList(format!(
            "device:port:rail:plane at most, not {token:?}"
        )));
    }
    if exclude && placement != Placement::default() {
        return Err(InvalidList(format!(
            "no rail or plane for a device to leave out, not {token:?}"
        )));
    }
    Ok((name.to_owned(), Ports { port, placement }))
}

/// A part of a token: none if it is missing or empty.
fn number<T: FromStr>(
    part: Option<&str>,
    token: &str,
    expected: &str,
) -> Result<Option<T>, InvalidList> {
    let Some(part) = part.filter(|part| !part.is_empty()) else {
        return Ok(None);
    };
    // The parser of the standard library alone would take a plus sign.
    let digits = part.bytes().all(|c| c.is_ascii_digit());
    digits
        .then(|| part.parse().ok())
        .flatten()
        .map(Some)
        .ok_or_else(|| InvalidList(format!("{expected} in {token:?}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nccls_grammar() {
        for (filter, name, port, admitted) in [
            ("", "mlx5_0", 1, true),
            ("^", "mlx5_0", 1, true),
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
            let parsed = filter.parse::<HcaFilter>().unwrap();
            assert_eq!(
                parsed.admits(name, port),
                admitted,
                "{filter:?} on {name}:{port}"
            );
        }
    }

    #[test]
    fn rails_and_planes() {
        for (filter, name, port, rail, plane) in [
            ("mlx5_0:1:2:3", "mlx5_0", 1, Some(2), Some(3)),
            ("mlx5_0:1:2", "mlx5_0", 1, Some(2), None),
            ("mlx5_0:1::3", "mlx5_0", 1, None, Some(3)),
            ("mlx5_0::2:3", "mlx5_0", 2, Some(2), Some(3)),
            ("mlx5_0:1:0:0", "mlx5_0", 1, Some(0), Some(0)),
            ("mlx5_0:1", "mlx5_0", 1, None, None),
            ("mlx5_0:1:", "mlx5_0", 1, None, None),
            ("mlx5_0:::", "mlx5_0", 1, None, None),
            ("mlx5:1:9,mlx5_0:1:2", "mlx5_0", 1, Some(9), None),
            ("=mlx5:1:9,mlx5_0:1:2", "mlx5_0", 1, Some(2), None),
            ("mlx5_0:1:255:255", "mlx5_0", 1, Some(255), Some(255)),
            ("mlx5_1:1:4", "mlx5_0", 1, None, None),
            ("", "mlx5_0", 1, None, None),
        ] {
            let placement = filter.parse::<HcaFilter>().unwrap().placement(name, port);
            assert_eq!(placement, Placement { rail, plane }, "{filter:?}");
        }
    }

    #[test]
    fn bad_tokens_are_named() {
        for (filter, bad, says) in [
            ("mlx5_0:x", "mlx5_0:x", "port"),
            ("mlx5_0:0", "mlx5_0:0", "port"),
            ("mlx5_0:256", "mlx5_0:256", "port"),
            ("mlx5_0:+1", "mlx5_0:+1", "port"),
            ("mlx5_1,:1", ":1", "name"),
            ("mlx5_0:1:x", "mlx5_0:1:x", "rail"),
            ("mlx5_0:1:-1", "mlx5_0:1:-1", "rail"),
            ("mlx5_0:1:2:256", "mlx5_0:1:2:256", "plane"),
            ("mlx5_0:1:2:3:4", "mlx5_0:1:2:3:4", "at most"),
            ("^mlx5_1,mlx5_0:1:2", "mlx5_0:1:2", "leave out"),
            ("^=mlx5_0:::3", "mlx5_0:::3", "leave out"),
        ] {
            let InvalidList(expected) = filter.parse::<HcaFilter>().unwrap_err();
            assert!(
                expected.contains(&format!("{bad:?}")) && expected.contains(says),
                "{expected}"
            );
        }
    }
}
