//! Data that can be made and checked fast, and that shows where it went wrong.

/// Fills `bytes` with the pattern of `seed`.
pub(crate) fn fill(bytes: &mut [u8], seed: u64) {
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for (index, word) in words.iter_mut().enumerate() {
        *word = value(seed, index as u64).to_le_bytes();
    }
    let tail = value(seed, words.len() as u64).to_le_bytes();
    rest.copy_from_slice(&tail[..rest.len()]);
}

/// The offset of the first byte that is not of the pattern of `seed`.
pub(crate) fn mismatch(bytes: &[u8], seed: u64) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        if *word != value(seed, index as u64).to_le_bytes() {
            return Some(index * 8);
        }
    }
    let tail = value(seed, words.len() as u64).to_le_bytes();
    (rest != &tail[..rest.len()]).then_some(words.len() * 8)
}

/// A multiplicative hash: neighbouring words and neighbouring seeds look nothing alike.
fn value(seed: u64, index: u64) -> u64 {
    let mixed = (index ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        for length in [0, 1, 7, 8, 9, 64, 100] {
            let mut bytes = vec![0; length];
            fill(&mut bytes, 5);
            assert_eq!(mismatch(&bytes, 5), None);
            for position in 0..length {
                bytes[position] ^= 1;
                assert_eq!(mismatch(&bytes, 5), Some(position / 8 * 8));
                bytes[position] ^= 1;
            }
            if length > 0 {
                assert!(mismatch(&bytes, 6).is_some());
            }
        }
    }
}
