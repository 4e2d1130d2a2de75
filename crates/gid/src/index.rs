//! [`IndexRules`]: a GID index for all ports, or for each its own.

use std::str::FromStr;

use crate::invalid::{InvalidRule, parts, plain_number};

/// Which GID index to use on which port.
///
/// Either one number for every port, or a list of rules `device[:port]=index`. Names are exact. A
/// rule with a port wins over one without, and a rule over the number for every port, which can
/// stand anywhere in the list. `-1` means that the entry is chosen by its kind.
///
/// One number for all is rarely right: the same entry has another index on another device, on
/// another host, and after addresses were added.
///
/// ```
/// let rules: ibnet_gid::IndexRules = "mlx5_0:1=3,mlx5_1=5".parse()?;
/// assert_eq!(rules.for_port("mlx5_0", 1), Some(3));
/// assert_eq!(rules.for_port("mlx5_0", 2), None);
/// assert_eq!(rules.for_port("mlx5_1", 2), Some(5));
/// # Ok::<(), ibnet_gid::InvalidRule>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IndexRules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rule {
    /// `None` for every device.
    device: Option<String>,
    /// `None` for every port.
    port: Option<u8>,
    /// `None` to choose by kind.
    index: Option<u8>,
}

impl IndexRules {
    /// The index for port `port` of the device `name`. None to choose by kind.
    pub fn for_port(&self, name: &str, port: u8) -> Option<u32> {
        let matching = self.0.iter().filter(|rule| {
            rule.device.as_deref().is_none_or(|device| device == name)
                && rule.port.is_none_or(|own| own == port)
        });
        // No two rules are for the same, so that one is the most particular.
        let rule = matching.max_by_key(|rule| (rule.device.is_some(), rule.port.is_some()))?;
        rule.index.map(u32::from)
    }
}

impl FromStr for IndexRules {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let mut rules: Vec<Rule> = Vec::new();
        for token in parts(text) {
            let rule = Rule::parse(token)?;
            let is_for_the_same =
                |other: &Rule| (&other.device, other.port) == (&rule.device, rule.port);
            if rules.iter().any(is_for_the_same) {
                return Err(InvalidRule::new(token, "one index only for each port"));
            }
            rules.push(rule);
        }
        Ok(Self(rules))
    }
}

impl Rule {
    fn parse(token: &str) -> Result<Self, InvalidRule> {
        let invalid = |expected: &str| InvalidRule::new(token, expected);
        let (place, index) = match token.split_once('=') {
            Some((place, index)) => (Some(place), index.trim()),
            None => (None, token),
        };
        let index = match index {
            "-1" => None,
            index => Some(plain_number(index).ok_or_else(|| {
                invalid("a GID index from 0 to 255, -1 for none, or device[:port]=index")
            })?),
        };
        let (device, port) = match place.map(|place| place.split_once(':').ok_or(place)) {
            None => (None, None),
            Some(Err(device)) => (Some(device.trim()), None),
            Some(Ok((device, port))) => {
                let port = plain_number(port.trim()).filter(|port| *port != 0);
                let port =
                    port.ok_or_else(|| invalid("a port number from 1 to 255 after the colon"))?;
                (Some(device.trim()), Some(port))
            }
        };
        if device == Some("") {
            return Err(invalid("a device name before the index"));
        }
        Ok(Self {
            device: device.map(str::to_owned),
            port,
            index,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_most_particular_rule_wins() {
        for (rules, name, port, index) in [
            ("", "mlx5_0", 1, None),
            (" ", "mlx5_0", 1, None),
            ("3", "mlx5_0", 1, Some(3)),
            (" 255 ", "bnxt_re0", 2, Some(255)),
            ("-1", "mlx5_0", 1, None),
            ("mlx5_0:1=3,mlx5_1=5", "mlx5_0", 1, Some(3)),
            ("mlx5_0:1=3,mlx5_1=5", "mlx5_0", 2, None),
            ("mlx5_0:1=3,mlx5_1=5", "mlx5_1", 7, Some(5)),
            ("mlx5_0:1=3,mlx5_1=5", "mlx5_2", 1, None),
            ("mlx5_0=1,mlx5_0:2=7", "mlx5_0", 2, Some(7)),
            ("mlx5_0:2=7,mlx5_0=1", "mlx5_0", 1, Some(1)),
            ("mlx5_0=4,3", "mlx5_0", 1, Some(4)),
            ("3,mlx5_0=4", "mlx5_1", 1, Some(3)),
            ("3,mlx5_0=-1", "mlx5_0", 1, None),
            ("mlx5_1=4", "mlx5_10", 1, None),
            (" mlx5_0 : 1 = 3 ", "mlx5_0", 1, Some(3)),
        ] {
            let parsed: IndexRules = rules.parse().unwrap();
            assert_eq!(
                parsed.for_port(name, port),
                index,
                "{rules:?} on {name}:{port}"
            );
        }
    }

    #[test]
    fn bad_rules_are_named() {
        // Nothing is truncated into the 8 bits of a queue pair's address.
        for (text, token) in [
            ("256", "256"),
            ("-2", "-2"),
            ("+3", "+3"),
            ("03", "03"),
            ("three", "three"),
            ("3,4", "4"),
            ("mlx5_0", "mlx5_0"),
            ("mlx5_0=", "mlx5_0="),
            ("mlx5_0=256", "mlx5_0=256"),
            ("mlx5_0:0=3", "mlx5_0:0=3"),
            ("mlx5_0:256=3", "mlx5_0:256=3"),
            ("mlx5_0:=3", "mlx5_0:=3"),
            ("=3", "=3"),
            (":1=3", ":1=3"),
            ("mlx5_0=3=4", "mlx5_0=3=4"),
            ("mlx5_0=3,,mlx5_1=4", ""),
            ("mlx5_0=3,mlx5_0=4", "mlx5_0=4"),
            ("mlx5_0:1=3,mlx5_0:1=3", "mlx5_0:1=3"),
        ] {
            let error = text.parse::<IndexRules>().unwrap_err();
            assert_eq!(error.token, token, "{text}");
        }
    }
}
