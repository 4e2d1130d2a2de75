//! What is made of repeated measurements.

use serde::{Deserialize, Serialize};

/// The value that a fraction of the sorted samples does not exceed; 0 of no samples.
pub(crate) fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (fraction * last as f64).ceil() as usize;
    sorted.get(place.min(last)).copied().unwrap_or_default()
}

/// The middle of some values; of an even number of them, the mean of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => (sorted[length / 2 - 1] + sorted[length / 2]) / 2.0,
    }
}

/// One figure, measured once in each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// In the order in which they were measured.
    pub(crate) rounds: Vec<f64>,
    /// The middle.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Series {
    /// Of at least one value.
    pub(crate) fn new(rounds: Vec<f64>) -> Self {
        Self {
            median: median(&rounds),
            min: rounds.iter().copied().fold(f64::INFINITY, f64::min),
            max: rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            rounds,
        }
    }

    /// The ratios of this to another series, round by round: what disturbed both of one round does
    /// not count.
    pub(crate) fn over(&self, other: &Self) -> Option<Self> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let ratios: Vec<f64> = pairs
            .filter(|(_, below)| **below != 0.0)
            .map(|(above, below)| above / below)
            .collect();
        (!ratios.is_empty()).then(|| Self::new(ratios))
    }

    /// How far apart the values are: (max - min) / median.
    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.max - self.min) / self.median
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn medians_and_quantiles() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        let hundred: Vec<f64> = (1..=101).map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.5), 51.0);
        assert_eq!(quantile(&hundred, 0.99), 100.0);
        assert_eq!(quantile(&hundred, 1.0), 101.0);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn ratios_are_taken_pair_by_pair() {
        // The second round was disturbed, for both alike.
        let ours = Series::new(vec![5.0, 50.0, 6.0]);
        let theirs = Series::new(vec![10.0, 100.0, 10.0]);
        let ratio = ours.over(&theirs).unwrap();
        assert_eq!(ratio.rounds, [0.5, 0.5, 0.6]);
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.5, 0.5, 0.6));
        assert_eq!(ours.spread(), 45.0 / 6.0);
        let none = Series::new(vec![0.0]);
        assert_eq!(ours.over(&none), None);
        assert_eq!(none.spread(), 0.0);
    }
}
