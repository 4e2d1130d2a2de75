//! Counts the bytes that the program has allocated, as glibc's allocator rounds them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are allocated now.
pub(crate) fn allocated() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// A chunk has a word in front, is a multiple of 16 bytes long and at least 32.
fn rounded(layout: Layout) -> usize {
    (layout.size() + size_of::<usize>())
        .next_multiple_of(16)
        .max(32)
}

// SAFETY: all calls are passed on to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(rounded(layout), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(rounded(layout), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
