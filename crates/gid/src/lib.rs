//! Which GID of a port to use, and why.
//!
//! A RoCE port has a table of GIDs: every address of its network interface appears, once for each
//! RoCE version, and so do the addresses of VLANs, bonds and tunnels on top of it. A queue pair must
//! name one of them by index. The wrong one is the most common reason why RDMA connections between
//! healthy machines fail: a link-local or RoCE v1 entry cannot be reached by the peer, and the index
//! that works differs between hosts, containers and even reboots. So the choice is made here, by the
//! *kind* of entry and never by its position, and it explains itself:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = ibnet_verbs::Library::load()?.devices()?.remove(0);
//! let context = device.open()?;
//! let entries = context.gid_table(1, &ibnet_verbs::Sysfs::default())?;
//! let link_layer = context.port(1)?.link_layer;
//! match ibnet_gid::select(&entries, link_layer, &ibnet_gid::Policy::default()) {
//!     Ok(selection) => println!("{selection}"),
//!     Err(error) => println!("{error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! 0: RoCEv1 fe80::e42:a1ff:fe12:3456 on eth2: older version
//! 1: RoCEv2 fe80::e42:a1ff:fe12:3456 on eth2: link-local
//! 2: RoCEv1 10.1.2.3 on eth2: older version
//! 3: RoCEv2 10.1.2.3 on eth2: chosen
//! ```
//!
//! `cargo run -p ibnet-gid --example verdicts -- FILE` prints the verdicts on a table that someone
//! sent, in the form above or in that of `show_gids`.
//!
//! # The order with RoCE
//!
//! An entry is skipped if it is unreadable or in another network namespace, if its address is
//! empty, multicast, unspecified or otherwise none of a host, or if its network interface is down.
//! Each is skipped alone and changes nothing for the others. Of the rest, these come first, and
//! what is higher in the list weighs more:
//!
//! 1. an interface that the policy prefers;
//! 2. an interface that is no tunnel (VXLAN and the like), because RoCE is not wrapped by them;
//! 3. version 2, then version 1, then a type that is not known;
//! 4. an IPv4 address, then a global or unique local IPv6 address (if IPv6 is preferred, the other
//!    way round), then a link-local IPv4 one (`169.254.0.0/16`), then a link-local IPv6 one; whether
//!    an IPv4 address is private does not matter;
//! 5. the port's own interface or a bond, then a VLAN, then a member of a bond;
//! 6. the lowest index.
//!
//! So where the same address, or the same kind of address, is on several interfaces, it is the
//! interface that decides and not the order in which addresses came up, which differs between hosts.
//! [`Policy::netdevs`] chooses another one, such as a VLAN.
//!
//! How much a wish of the policy weighs against this order, [`Wish`] says. If no entry meets the
//! demands, the error [`NoGid`] names the demand and lists the candidates.
//!
//! # InfiniBand
//!
//! The entry that [`Policy::flid_index`] names, if its GID can be routed between subnets (its FLID
//! is not zero), else the first that can be read, which is the port's own. Everything else in the
//! policy is for RoCE only.
//!
//! # What this crate does not do
//!
//! It reads no table, no file and no environment, and it keeps nothing: `ibnet_verbs` reads the table,
//! and the caller decides when. Entries can be compared, to see whether a table changed.
#![forbid(unsafe_code)]

mod class;
mod index;
mod invalid;
mod netdevs;
mod policy;
mod range;
mod refusal;
mod select;
mod verdict;

/// An entry of a port's GID table: what is chosen from.
pub use ibnet_verbs::GidTableEntry as Entry;

pub use class::{AddressClass, classify, flid};
pub use index::IndexRules;
pub use invalid::InvalidRule;
pub use netdevs::Netdevs;
pub use policy::{Family, Policy, RoceVersion, Wish};
pub use range::{AddressRange, AddressRanges};
pub use refusal::{Cause, NoGid};
pub use select::{Selection, select};
pub use verdict::{Because, Rule, Verdict, VerdictKind};
