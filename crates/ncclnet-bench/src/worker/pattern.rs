//! What verified messages hold: bytes that tell message and place.

/// The byte at a place of a message.
fn byte(message: u64, place: usize) -> u8 {
    // The upper bits, because the lower ones of such a product repeat soon.
    let mixed = (message ^ ((place as u64) << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// Fills a message.
pub(super) fn fill(bytes: &mut [u8], message: u64) {
    for (place, to) in bytes.iter_mut().enumerate() {
        *to = byte(message, place);
    }
}

/// The first place that differs from what was sent.
pub(super) fn difference(bytes: &[u8], message: u64) -> Option<usize> {
    let mut places = bytes.iter().enumerate();
    places.position(|(place, &found)| found != byte(message, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_noticed() {
        let mut bytes = [0; 300];
        fill(&mut bytes, 7);
        assert_eq!(difference(&bytes, 7), None);
        assert!(difference(&bytes, 8).is_some());
        assert!(difference(&bytes[1..], 7).is_some());
        bytes[299] ^= 1;
        assert_eq!(difference(&bytes, 7), Some(299));
    }
}
