//! Moving bytes as an adapter does: into memory that a CPU may be watching.
//!
//! A transport polls the last word of a 64-byte line with an acquire load and then reads the rest
//! of the line. So words are stored whole and in ascending order, and the last store of each line
//! is a release.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A piece of the process's memory. Plain numbers: nothing is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) address: usize,
    pub(crate) length: usize,
}

/// Bytes whose writes become visible together on common machines.
pub(crate) const LINE: usize = 64;
const WORD: usize = size_of::<u64>();

/// Copies `length` bytes, from `offset` on, of what lies scattered over `from` to what lies
/// scattered over `to`.
///
/// # Safety
///
/// All spans are mapped, those of `from` readable and those of `to` writable. Other threads may
/// access the same memory, but do so atomically or do not mind tearing: this is what a program
/// accepts when it registers the memory.
pub(crate) unsafe fn scatter(from: &[Span], to: &[Span], offset: usize, length: usize) {
    let (mut from, mut to) = (Cursor::at(from, offset), Cursor::at(to, offset));
    let mut left = length;
    while left > 0 {
        let (Some(source), Some(destination)) = (from.rest(), to.rest()) else {
            // The lists were made for at least this many bytes.
            debug_assert!(false, "{left} bytes are missing");
            return;
        };
        let number = left.min(source.length).min(destination.length);
        // SAFETY: the caller guarantees the spans, of which these are parts.
        unsafe { place(source.address, destination.address, number) };
        from.skip(number);
        to.skip(number);
        left -= number;
    }
}

/// A place in a list of spans.
struct Cursor<'a> {
    spans: &'a [Span],
    within: usize,
}

impl<'a> Cursor<'a> {
    fn at(spans: &'a [Span], offset: usize) -> Self {
        let mut cursor = Self { spans, within: 0 };
        cursor.skip(offset);
        cursor
    }

    /// What is left of the present span, if it is not the end of the list.
    fn rest(&self) -> Option<Span> {
        self.spans.first().map(|span| Span {
            address: span.address + self.within,
            length: span.length - self.within,
        })
    }

    fn skip(&mut self, number: usize) {
        self.within += number;
        while let Some(first) = self.spans.first() {
            if self.within < first.length {
                break;
            }
            self.within -= first.length;
            self.spans = &self.spans[1..];
        }
    }
}

/// # Safety
///
/// As for [`scatter`]: `length` bytes at both addresses.
unsafe fn place(from: usize, to: usize, length: usize) {
    let head = to.wrapping_neg() % WORD;
    let head = head.min(length);
    let words = (length - head) / WORD;
    let tail = head + words * WORD;
    // SAFETY: these three parts are the whole range.
    unsafe {
        place_bytes(from, to, head);
        if (from + head).is_multiple_of(WORD) {
            place_words(to + head, words, |word| {
                load_word(from + head + word * WORD)
            });
        } else {
            place_words(to + head, words, |word| {
                load_bytes(from + head + word * WORD)
            });
        }
        place_bytes(from + tail, to + tail, length - tail);
    }
}

/// # Safety
///
/// `to` is aligned, and `number` words there are writable.
#[inline(always)]
unsafe fn place_words(to: usize, number: usize, load: impl Fn(usize) -> u64) {
    for (word, address, order) in stores(to, number) {
        // SAFETY: the caller guarantees an aligned, writable word.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }.store(load(word), order);
    }
}

/// In which order words are stored: by ascending address, the last of each line, and of all, as a
/// release. Which word, where, and how.
#[inline(always)]
fn stores(to: usize, number: usize) -> impl Iterator<Item = (usize, usize, Ordering)> {
    (0..number).map(move |word| {
        let address = to + word * WORD;
        let ends_line = address % LINE == LINE - WORD || word + 1 == number;
        let order = if ends_line {
            Ordering::Release
        } else {
            Ordering::Relaxed
        };
        (word, address, order)
    })
}

/// # Safety
///
/// `length` bytes are readable at `from` and writable at `to`.
unsafe fn place_bytes(from: usize, to: usize, length: usize) {
    for byte in 0..length {
        // SAFETY: the caller guarantees both bytes.
        unsafe {
            let value = load_byte(from + byte);
            AtomicU8::from_ptr((to + byte) as *mut u8).store(value, Ordering::Release);
        }
    }
}

/// # Safety
///
/// `address` is aligned, and a readable word.
#[inline(always)]
unsafe fn load_word(address: usize) -> u64 {
    // SAFETY: passed on to the caller. Nothing is stored through the pointer.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Relaxed)
}

/// A word that is not aligned, byte by byte, because an unaligned load cannot be atomic.
///
/// # Safety
///
/// `address` is that of eight readable bytes.
#[inline(always)]
unsafe fn load_bytes(address: usize) -> u64 {
    let mut bytes = [0; WORD];
    for (index, byte) in bytes.iter_mut().enumerate() {
        // SAFETY: passed on to the caller.
        *byte = unsafe { load_byte(address + index) };
    }
    u64::from_ne_bytes(bytes)
}

/// # Safety
///
/// `address` is that of a readable byte.
#[inline(always)]
unsafe fn load_byte(address: usize) -> u8 {
    // SAFETY: passed on to the caller. Nothing is stored through the pointer.
    unsafe { AtomicU8::from_ptr(address as *mut u8) }.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: &[u8], from: usize, length: usize) -> Span {
        assert!(from + length <= bytes.len());
        Span {
            address: bytes.as_ptr() as usize + from,
            length,
        }
    }

    /// Every combination of alignments and lengths around words and lines.
    #[test]
    fn any_alignment_and_length_arrives_whole() {
        let source: Vec<u8> = (0..400).map(|index| (index * 7 + 1) as u8).collect();
        for from in 0..9 {
            for to in [0, 1, 3, 7, 8, 56, 63, 64, 65] {
                for length in [0, 1, 7, 8, 9, 15, 16, 63, 64, 65, 130, 200] {
                    let target = vec![0xee; 400];
                    let (source_span, target_span) =
                        (span(&source, from, length), span(&target, to, length));
                    // SAFETY: both are inside vectors of this function, and `target` is read
                    // only afterwards.
                    unsafe { scatter(&[source_span], &[target_span], 0, length) };
                    let mut expected = vec![0xee; 400];
                    expected[to..to + length].copy_from_slice(&source[from..from + length]);
                    assert_eq!(target, expected, "{from} {to} {length}");
                }
            }
        }
    }

    #[test]
    fn the_last_word_of_a_line_is_stored_last_and_released() {
        for start in [0, 8, 40, 56] {
            let all: Vec<_> = stores(start, 20).collect();
            let addresses: Vec<_> = all.iter().map(|(_, address, _)| *address).collect();
            let ascending: Vec<_> = (0..20).map(|word| start + word * 8).collect();
            assert_eq!(addresses, ascending);
            for (word, address, order) in all {
                let is_last = address % 64 == 56 || word == 19;
                assert_eq!(order == Ordering::Release, is_last, "{address}");
            }
        }
    }

    #[test]
    fn pieces_meet_across_lists_of_different_shape() {
        let source: Vec<u8> = (0..100).collect();
        let target = vec![0_u8; 100];
        let from = [
            span(&source, 0, 30),
            span(&source, 30, 0),
            span(&source, 30, 70),
        ];
        let to = [span(&target, 50, 50), span(&target, 0, 50)];
        // SAFETY: as above.
        unsafe {
            scatter(&from, &to, 0, 40);
            scatter(&from, &to, 40, 60);
        }
        let expected: Vec<u8> = (50..100).chain(0..50).collect();
        assert_eq!(target, expected);
    }
}
