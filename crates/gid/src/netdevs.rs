//! [`Netdevs`]: network interfaces in the order in which they are wanted.

use std::fmt;
use std::str::FromStr;

use ibnet_verbs::Netdev;

use crate::invalid::{InvalidRule, parts};

/// Names of network interfaces, the one wanted most first. Read from a list with commas, like
/// `eth2.100,bond0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Netdevs(Vec<String>);

impl Netdevs {
    /// The place of an interface in the list, from 0. None if it is not there.
    pub fn place(&self, netdev: Option<&Netdev>) -> Option<usize> {
        let name = netdev?.name.as_ref()?;
        self.0.iter().position(|wanted| wanted == name)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl FromStr for Netdevs {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let names: Vec<_> = parts(text).collect();
        let is_wrong = |name: &&&str| !Netdev::is_name(name);
        match names.iter().find(is_wrong) {
            None if !names.is_empty() => Ok(Self(names.into_iter().map(str::to_owned).collect())),
            wrong => Err(InvalidRule::new(
                wrong.unwrap_or(&""),
                "the name of a network interface, like eth2 or bond0.100",
            )),
        }
    }
}

impl fmt::Display for Netdevs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn places_are_in_the_order_of_the_list() {
        let netdevs: Netdevs = "eth2.100, bond0".parse().unwrap();
        let place = |name: &str| netdevs.place(Some(&Netdev::named(name)));
        assert_eq!(place("eth2.100"), Some(0));
        assert_eq!(place("bond0"), Some(1));
        assert_eq!(place("eth2"), None);
        assert_eq!(netdevs.place(Some(&Netdev::numbered(3))), None);
        assert_eq!(netdevs.place(None), None);
        assert_eq!(netdevs.to_string(), "eth2.100,bond0");
    }

    #[test]
    fn what_cannot_be_an_interface_is_named() {
        for (text, token) in [
            ("", ""),
            ("eth2,", ""),
            ("eth2,a/b", "a/b"),
            ("sixteen-letters!", "sixteen-letters!"),
            ("eth 2", "eth 2"),
        ] {
            assert_eq!(text.parse::<Netdevs>().unwrap_err().token, token);
        }
    }
}
