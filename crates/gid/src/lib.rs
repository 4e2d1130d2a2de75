//! Which GID of a port to use, and why.
//!
//! A RoCE port has a table of GIDs: every address of its network interface appears, once for each
//! RoCE version. A queue pair must name one of them by index. The wrong one is the most common
//! reason why RDMA connections between healthy machines fail: a link-local or RoCE v1 entry cannot
//! be reached by the peer, and the index that works differs between hosts, containers and even
//! reboots. So the choice is made here, by the *kind* of entry and never by its position:
//!
//! 1. RoCE v2 over IPv4,
//! 2. RoCE v2 over IPv6 with a global or unique local address,
//! 3. RoCE v2 over IPv6 with a link-local address,
//! 4. RoCE v1 (and entries of unknown type) in the same order of addresses,
//!
//! and the lowest index among equals. On InfiniBand, entry 0 holds the port's own GID.
//!
//! ```
//! use gid::{Policy, select};
//! use verbs::{Gid, GidEntry, GidType, LinkLayer};
//!
//! let link_local = GidEntry {
//!     index: 0,
//!     gid: Gid("fe80::1".parse::<std::net::Ipv6Addr>()?.octets()),
//!     gid_type: GidType::RoceV2,
//!     netdev: None,
//! };
//! let ipv4 = GidEntry {
//!     index: 3,
//!     gid: Gid("::ffff:10.1.2.3".parse::<std::net::Ipv6Addr>()?.octets()),
//!     gid_type: GidType::RoceV2,
//!     netdev: None,
//! };
//! let selection = select(&[link_local, ipv4], LinkLayer::Ethernet, &Policy::default())?;
//! assert_eq!(selection.entry.index, 3);
//! println!("{selection}"); // one line for each entry, with the verdict on it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate is pure: it reads no table, no file and no environment. `verbs` reads the table,
//! `ibnet` decides when.
#![forbid(unsafe_code)]

mod class;
pub mod select;

pub use class::{AddressClass, classify};
pub use select::{NoGid, Policy, Selection, Verdict, VerdictKind, select};
