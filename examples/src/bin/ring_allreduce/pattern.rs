//! What the ranks sum: small whole numbers, so that every sum is exact in float32 in any order.

/// Numbers lie between minus and plus this.
const RANGE: usize = 8;

/// Element `index` of what rank `rank` contributes to round `round`.
pub(crate) fn input(rank: usize, round: usize, index: usize) -> f32 {
    let mixed = index
        .wrapping_mul(7)
        .wrapping_add(rank * 31)
        .wrapping_add(round * 13);
    // At most 16: exact.
    (mixed % (2 * RANGE + 1)) as f32 - RANGE as f32
}

/// Element `index` of the sum over `ranks` ranks.
pub(crate) fn sum(ranks: usize, round: usize, index: usize) -> f32 {
    (0..ranks).map(|rank| input(rank, round, index)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_every_direction_differ() {
        for index in 0..100 {
            assert_ne!(input(0, 0, index), input(0, 0, index + 1));
            assert_ne!(input(0, 0, index), input(1, 0, index));
            assert_ne!(input(0, 0, index), input(0, 1, index));
        }
    }

    #[test]
    fn sums_are_exact() {
        for index in 0..1000 {
            let exact: i64 = (0..64).map(|rank| input(rank, 3, index) as i64).sum();
            assert_eq!(sum(64, 3, index) as i64, exact);
        }
    }
}
