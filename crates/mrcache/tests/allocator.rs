//! An allocator that tells the cache of every piece of memory that it frees, also of the cache's own.
#![allow(clippy::unwrap_used)]

#[path = "common/ledger.rs"]
mod ledger;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ibnet_mrcache::{Access, Cache, DomainId, Policy, Request};
use ledger::{Ledger, Token};

struct Telling;

static CACHE: OnceLock<Cache<Token>> = OnceLock::new();
static TOLD: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls are passed on to the system's allocator as they are.
unsafe impl GlobalAlloc for Telling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if let Some(cache) = CACHE.get() {
            TOLD.fetch_add(1, Ordering::Relaxed);
            let _ = cache.invalidate(memory as usize, layout.size());
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Telling = Telling;

#[test]
fn freed_memory_is_not_found_and_nothing_waits_for_itself() {
    let cache = Cache::<Token>::new(Policy::KeepIdle {
        registrations: 100,
        bytes: 1 << 30,
    });
    CACHE
        .set(cache.clone())
        .unwrap_or_else(|_| unreachable!("set once"));
    let (ledger, domain) = (Ledger::default(), DomainId::allocate());

    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..300_usize {
                    let buffer = vec![1_u8; 20_000 + 97 * round];
                    let (address, length) = (buffer.as_ptr() as usize, buffer.len());
                    let request = Request::host(
                        domain,
                        Access {
                            rights: 1,
                            modes: 0,
                        },
                        address,
                        length,
                    );
                    let lease = cache.lease(&request, |_| Ok(ledger.register())).unwrap();
                    assert!(lease.pages().contains(address, length));
                    drop(lease);
                    drop(buffer);
                }
            });
        }
    });
    let told = TOLD.load(Ordering::Relaxed);
    assert!(told >= 900, "the allocator told {told} times");

    // One by itself, so that nobody else frees or registers what lies beside it.
    let buffer = vec![1_u8; 1 << 20];
    let request = Request::host(
        domain,
        Access {
            rights: 1,
            modes: 0,
        },
        buffer.as_ptr() as usize,
        1 << 20,
    );
    drop(cache.lease(&request, |_| Ok(ledger.register())).unwrap());
    assert!(
        cache.find(&request).unwrap().is_some(),
        "it was kept as idle"
    );
    drop(buffer);
    assert!(
        cache.find(&request).unwrap().is_none(),
        "its memory is gone"
    );

    cache.flush().unwrap();
    assert!(ledger.live().is_empty());
}
