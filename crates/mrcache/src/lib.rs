//! A cache of memory registrations: right, fast, and for any registrar.
//!
//! Registering memory with an RDMA device pins its pages and takes micro- to milliseconds, so that
//! the same pages should not be registered twice. A [`Cache`] finds the live registration that
//! covers a range, or has one made, and hands out [`Lease`]s. When the last lease of a registration is
//! gone, it is given back to the device.
//!
//! **What it does.** Any live registration that covers the wanted bytes with at least the wanted
//! [`Access`] is a hit, however ranges overlap and nest; finding it costs O(log n) in every case.
//! Registrations of different [`Domain`]s, DMA-BUFs or modes are never mixed up. Threads that want
//! the same new range register it once. Registrations without leases can be kept in a bounded
//! pool ([`IdleLimits`]). Memory that goes is [invalidated](Cache::invalidate). Several devices are
//! served [together or not at all](lease_all).
//!
//! **What it does not.** It knows neither verbs nor devices: what a [`Registration`] is, and how one
//! is made, is the caller's. It does not notice by itself that memory is unmapped. It does not join
//! registrations: a range that no single one covers is registered anew.
//!
//! **Threads.** Everything may be called from any thread. There is one lock, which is not held while
//! anything is registered, deregistered or reported.
//!
//! **Cleaning up.** A registration owns what it needs, such as its protection domain. Deregistrations
//! that fail are returned by [`Lease::release`], counted and reported, and never found again.
//!
//! ```
//! use ibnet_mrcache::{Access, Cache, Domain, Lease, Registration, Request};
//!
//! struct Registered; // deregisters below
//! impl Registration for Registered {
//!     type Error = String;
//!     fn deregister(self) -> Result<(), String> {
//!         Ok(())
//!     }
//! }
//!
//! let cache = Cache::<Registered>::new();
//! let (domain, read, write) = (Domain::unique(), Access::new(0), Access::new(1));
//!
//! let whole = cache.lease(&Request::host(domain, write, 0x10000, 0x8000), |target| {
//!     // Here a program calls ibv_reg_mr(3) for target.start() and target.length().
//!     assert_eq!(target.length(), 0x8000);
//!     Ok(Registered)
//! })?;
//! let part = cache.lease(&Request::host(domain, read, 0x12345, 10), |_| unreachable!())?;
//! assert!(Lease::same_registration(&whole, &part));
//!
//! drop(whole);
//! assert_eq!(cache.statistics().live, 1);
//! part.release()?; // the last one: deregisters, and says if that failed
//! assert_eq!(cache.statistics().live, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A longer example, with real memory and threads, and the figures are in `docs/mrcache.md`.
#![forbid(unsafe_code)]

mod access;
mod cache;
mod entry;
mod index;
mod lease;
mod memory;
mod multi;
mod pages;
mod pending;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
mod ranges;
mod registration;
mod request;
mod shared;
mod state;
mod statistics;
mod sync;

pub use access::Access;
pub use cache::{Builder, Cache};
pub use lease::Lease;
pub use memory::{DmaBuf, Domain};
pub use multi::{LeaseAllError, lease_all, release_all};
pub use pages::{InvalidRange, PageRange};
pub use registration::{FailedDeregistration, LeaseError, Registration};
pub use request::{Request, Target};
pub use state::{IdleLimits, Invalidated};
pub use statistics::Statistics;

/// The page's example is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/mrcache.md")]
struct Page;
