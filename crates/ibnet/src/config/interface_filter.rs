//! [`InterfaceFilter`]: which network interfaces may carry the handshake.
#![forbid(unsafe_code)]

use super::name_list::{InvalidList, NameList};

/// Which network interfaces to use, in NCCL's grammar for `NCCL_SOCKET_IFNAME`:
/// `[^][=]prefix,…`.
///
/// A name that is in the list comes before those that only begin like one. Without a list of what to
/// use, or of what not, interfaces that begin with `ib` come first, then those in the network of
/// [`Config::comm_id`](crate::Config::comm_id). In any case those without a carrier come last, and
/// before these virtual ones (bridges, tunnels, those of containers, `docker…`, `lo`, `virbr…`) and
/// link-local addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFilter {
    exclude: bool,
    exact: bool,
    names: Vec<String>,
}

/// An address family for the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl InterfaceFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// A mark inside the list.
    pub fn parse(text: &str) -> Result<Self, InvalidList> {
        let NameList {
            exclude,
            exact,
            names,
        } = NameList::parse(text)?;
        Ok(Self {
            exclude,
            exact,
            names: names.into_iter().map(str::to_owned).collect(),
        })
    }

    /// Whether it says anything.
    pub(crate) fn names_any(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether it says which interfaces to use, not only which not.
    pub(crate) fn asks_for_some(&self) -> bool {
        self.names_any() && !self.exclude
    }

    /// Whether it asks for this very name, not only for names that begin like it.
    pub(crate) fn asks_for(&self, interface: &str) -> bool {
        !self.exclude && self.names.iter().any(|name| name == interface)
    }

    pub(crate) fn admits(&self, interface: &str) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let listed = self.names.iter().any(|name| {
            if self.exact {
                interface == name
            } else {
                interface.starts_with(name.as_str())
            }
        });
        listed != self.exclude
    }
}
