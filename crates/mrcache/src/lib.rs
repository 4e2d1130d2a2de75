//! A reference-counted, page-granular cache of memory registrations.
//!
//! Registering memory with an RDMA device pins its pages and takes micro- to milliseconds, so the
//! same pages should not be registered twice. A [`Cache`] keeps one registration for each range of
//! whole pages and each *kind* of registration, and hands out [`Lease`]s. When the last lease of a
//! range is gone, the registration is dropped, which deregisters it.
//!
//! The cache knows neither verbs nor devices. What a registration is (`R`), and what besides the
//! pages tells two registrations apart (`K`: access flags, protection domain, kind of memory), is
//! the caller's:
//!
//! ```
//! use mrcache::Cache;
//!
//! struct Registration; // deregisters in its Drop
//! let cache: Cache<&'static str, Registration> = Cache::new();
//! let register = |_pages: mrcache::PageRange| Ok::<_, std::io::Error>(Registration);
//!
//! let first = cache.lease(0x1000, 100, "write", register)?;
//! let again = cache.lease(0x1080, 100, "write", register)?; // the same page: shared
//! assert!(mrcache::Lease::same_registration(&first, &again));
//! let other = cache.lease(0x1000, 100, "read", register)?; // another kind: not shared
//! assert_eq!(cache.statistics().live, 2);
//! # drop((first, again, other));
//! # assert_eq!(cache.statistics().live, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two ranges share a registration when they cover exactly the same pages. Registration and
//! deregistration run outside the cache's lock.
#![forbid(unsafe_code)]

mod cache;
mod lease;
mod pages;

pub use cache::{Cache, LeaseError, Statistics};
pub use lease::Lease;
pub use pages::{InvalidRange, PageRange};
