//! [`InterfaceFilter`]: which network interfaces may carry the handshake.
#![forbid(unsafe_code)]

use std::str::FromStr;

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
pub struct InterfaceFilter(NameList<()>);

/// # Errors
/// A mark inside the list.
impl FromStr for InterfaceFilter {
    type Err = InvalidList;

    fn from_str(text: &str) -> Result<Self, InvalidList> {
        NameList::parse(text, |name, _| Ok((name.to_owned(), ()))).map(Self)
    }
}

impl InterfaceFilter {
    /// Whether it says anything.
    pub(crate) fn names_any(&self) -> bool {
        !self.0.items.is_empty()
    }

    /// Whether it says which interfaces to use, not only which not.
    pub(crate) fn asks_for_some(&self) -> bool {
        self.names_any() && !self.0.exclude
    }

    /// Whether it asks for this very name, not only for names that begin like it.
    pub(crate) fn asks_for(&self, interface: &str) -> bool {
        !self.0.exclude && self.0.items.iter().any(|(name, ())| name == interface)
    }

    pub(crate) fn admits(&self, interface: &str) -> bool {
        self.0.admits(interface, |()| true)
    }
}
