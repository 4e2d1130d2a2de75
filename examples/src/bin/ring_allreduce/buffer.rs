//! Page-aligned float32 memory that a network device reads and writes.
//!
//! No reference to the elements outlives a call here, because the device may write whatever part of the
//! memory has been handed to it. The ring algorithm keeps the parts apart.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

const PAGE: usize = 4096;

/// Bytes of an element.
pub(crate) const ELEMENT: usize = size_of::<f32>();

/// A number of elements.
pub(crate) struct Buffer {
    start: NonNull<f32>,
    len: usize,
}

impl Buffer {
    /// `len` zeros; at least one page.
    pub(crate) fn new(len: usize) -> Self {
        let layout = layout(len);
        // SAFETY: the layout has at least one page.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast()) else {
            handle_alloc_error(layout)
        };
        Self { start, len }
    }

    /// Address of element `index`, for the device.
    pub(crate) fn address(&self, index: usize) -> *mut f32 {
        assert!(index <= self.len);
        // SAFETY: inside the allocation, or one past its end.
        unsafe { self.start.as_ptr().add(index) }
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets the first `len` elements.
    pub(crate) fn fill(&self, len: usize, value: impl Fn(usize) -> f32) {
        assert!(len <= self.len);
        for index in 0..len {
            // SAFETY: `index < len`, aligned and alive. Nothing of the buffer is with the device: see
            // the module.
            unsafe { self.start.add(index).write(value(index)) };
        }
    }

    /// Copies the first `len` elements of `from`.
    pub(crate) fn copy(&self, from: &Self, len: usize) {
        assert!(len <= self.len && len <= from.len);
        // SAFETY: both have `len` elements, and two buffers do not overlap. Nothing of them is with
        // the device: see the module.
        unsafe { from.start.copy_to_nonoverlapping(self.start, len) };
    }

    /// Adds elements of `from`, beginning at `from_index`, to the elements `range`.
    pub(crate) fn add(&self, range: Range<usize>, from: &Self, from_index: usize) {
        assert!(range.end <= self.len && from_index + range.len() <= from.len);
        let (to, from) = (self.address(range.start), from.address(from_index));
        for offset in 0..range.len() {
            // SAFETY: both ranges were checked above. The device has handed this part of `from` back,
            // and has nothing of this part of `self`: see the module.
            unsafe {
                let to = to.add(offset);
                to.write(to.read() + from.add(offset).read());
            }
        }
    }

    /// How many of the first `len` elements are not as expected.
    pub(crate) fn count_wrong(&self, len: usize, expected: impl Fn(usize) -> f32) -> u64 {
        assert!(len <= self.len);
        let mut wrong = 0;
        for index in 0..len {
            // SAFETY: `index < len`, aligned and alive; nothing of the buffer is with the device.
            let value = unsafe { self.start.add(index).read() };
            wrong += u64::from(value != expected(index));
        }
        wrong
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout. Connections that use the memory keep the
        // buffer alive.
        unsafe { dealloc(self.start.as_ptr().cast(), layout(self.len)) };
    }
}

fn layout(len: usize) -> Layout {
    let bytes = (len * ELEMENT).next_multiple_of(PAGE).max(PAGE);
    match Layout::from_size_align(bytes, PAGE) {
        Ok(layout) => layout,
        Err(_) => panic!("{len} elements are more than a process can have"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_set_added_and_compared() {
        let (a, b) = (Buffer::new(1000), Buffer::new(10));
        assert_eq!(a.address(0) as usize % PAGE, 0);
        a.fill(1000, |index| index as f32);
        b.fill(10, |_| 0.5);
        a.add(5..10, &b, 2);
        assert_eq!(a.count_wrong(1000, |index| index as f32), 5);
        let half = |index| index as f32 + if (5..10).contains(&index) { 0.5 } else { 0.0 };
        assert_eq!(a.count_wrong(1000, half), 0);
        b.copy(&a, 10);
        assert_eq!(b.count_wrong(10, half), 0);
    }
}
