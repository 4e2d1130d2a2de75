//! A cache of memory registrations, for any registrar.
//!
//! Registering memory with an RDMA device pins its pages and takes micro- to milliseconds, so that
//! the same pages should not be registered twice. A [`Cache`] finds the live registration that
//! covers a range, or has one made, and hands out [`Lease`]s. When the last lease of a registration is
//! gone, it is given back to the device.
//!
//! Any live registration that covers the wanted bytes with at least the wanted [`Access`] is a hit,
//! however ranges overlap and nest, in O(log n). Registrations of different [domains](DomainId), DMA-BUFs
//! or modes are never mixed up. Threads that want the same new range register it once. Several devices
//! are served [together or not at all](lease_all). How long a registration is found is the cache's
//! [`Policy`]: the cache does not notice by itself that memory is unmapped.
//!
//! It knows neither verbs nor devices: what a [`Registration`] is, and how one is made, is the
//! caller's. All may be called from any thread. There is one lock, which is not held while anything is
//! registered, deregistered or reported.
//!
//! ```
//! use ibnet_mrcache::{Access, Cache, DomainId, Lease, Policy, Registration, Request};
//!
//! struct Registered; // deregisters below
//! impl Registration for Registered {
//!     type Error = String;
//!     fn deregister(self) -> Result<(), String> {
//!         Ok(())
//!     }
//! }
//!
//! const LOCAL_WRITE: u32 = 1; // of enum ibv_access_flags
//! let (read, write) = (Access::default(), Access { rights: LOCAL_WRITE, modes: 0 });
//!
//! let cache = Cache::<Registered>::new(Policy::WhileLeased);
//! let domain = DomainId::allocate();
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
//! A longer example, with real memory, and figures are in `docs/mrcache.md`.
#![forbid(unsafe_code)]

mod cache;
mod entry;
mod key;
mod lease;
mod multi;
mod policy;
#[cfg(test)]
#[path = "../tests/common/random.rs"]
mod random;
mod range;
mod ranges;
mod registration;
mod request;
mod statistics;
mod sync;
mod tables;

pub use cache::Cache;
pub use key::{Access, DmaBuf, DomainId};
pub use lease::Lease;
pub use multi::{LeaseAllError, lease_all, release_all};
pub use policy::Policy;
pub use range::{AddressRange, InvalidRange, RangeProblem};
pub use registration::{LeaseError, Registration};
pub use request::{Request, Target};
pub use statistics::{Invalidated, Statistics};

/// The page's example is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/mrcache.md")]
struct Page;
