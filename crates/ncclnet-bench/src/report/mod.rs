//! Results: their shape, and how they are shown.

mod machine;
mod plot;
mod svg;
mod table;

pub(crate) use machine::{Machine, today};
pub(crate) use plot::plots;
pub(crate) use table::table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::Series;

/// The version of the shape below.
pub(crate) const FORMAT: u32 = 1;

/// Everything that was measured at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// Day, in UTC: 2026-01-31.
    pub(crate) date: String,
    /// Version of this program.
    pub(crate) version: String,
    /// Runs, each with networks that were measured in turn.
    pub(crate) runs: Vec<Run>,
}

/// Networks measured in turn, in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// What was measured, in a few words.
    pub(crate) title: String,
    /// Where.
    pub(crate) machine: Machine,
    /// The command line.
    pub(crate) command: Vec<String>,
    /// What was measured, in the order of taking turns.
    pub(crate) networks: Vec<NetworkOf>,
    /// The figures.
    pub(crate) figures: Vec<Figure>,
    /// What could not be measured, and why.
    pub(crate) notes: Vec<String>,
}

/// A network, or another program, that took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NetworkOf {
    /// What it is called in the figures.
    pub(crate) label: String,
    /// What it is.
    pub(crate) what: String,
}

/// One quantity under the same conditions for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The test that gave it.
    pub(crate) test: String,
    /// The conditions: `size`, `window`, `group`, `paths`, `devices`, `connections`, `live`.
    pub(crate) conditions: BTreeMap<String, u64>,
    /// What it is a quantity of.
    pub(crate) quantity: String,
    /// Its unit.
    pub(crate) unit: String,
    /// Which is better.
    pub(crate) better: Better,
    /// By label: one value for each round.
    pub(crate) values: BTreeMap<String, Series>,
    /// Ratios to other labels, pair by pair.
    pub(crate) ratios: Vec<Ratio>,
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
}

/// The first network's values divided by another's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// Above the line.
    pub(crate) of: String,
    /// Below the line.
    pub(crate) to: String,
    /// Round by round.
    pub(crate) series: Series,
}

impl Figure {
    /// Leaves a network out, and its ratios.
    pub(crate) fn forget(&mut self, label: &str) {
        self.values.remove(label);
        self.ratios
            .retain(|ratio| ratio.of != label && ratio.to != label);
    }

    /// Adds the ratios of the first label to the others, as far as both have values.
    pub(crate) fn compare(&mut self, labels: &[String]) {
        let Some((first, others)) = labels.split_first() else {
            return;
        };
        for other in others {
            if let (Some(of), Some(to)) = (self.values.get(first), self.values.get(other))
                && let Some(series) = of.over(to)
            {
                self.ratios.push(Ratio {
                    of: first.clone(),
                    to: other.clone(),
                    series,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_shape_in_json() {
        let series = |rounds: [f64; 2]| Series::new(rounds.to_vec());
        let mut figure = Figure {
            test: "latency".to_owned(),
            conditions: BTreeMap::from([("size".to_owned(), 8)]),
            quantity: "half round trip, median".to_owned(),
            unit: "us".to_owned(),
            better: Better::Lower,
            values: BTreeMap::from([
                ("ibnet".to_owned(), series([1.0, 3.0])),
                ("nccl".to_owned(), series([2.0, 4.0])),
            ]),
            ratios: Vec::new(),
        };
        figure.compare(&["ibnet".to_owned(), "nccl".to_owned(), "absent".to_owned()]);
        let json = serde_json::to_value(&figure).unwrap();
        let expected = serde_json::json!({
            "test": "latency",
            "conditions": {"size": 8},
            "quantity": "half round trip, median",
            "unit": "us",
            "better": "lower",
            "values": {
                "ibnet": {"rounds": [1.0, 3.0], "median": 2.0, "min": 1.0, "max": 3.0},
                "nccl": {"rounds": [2.0, 4.0], "median": 3.0, "min": 2.0, "max": 4.0},
            },
            "ratios": [{
                "of": "ibnet",
                "to": "nccl",
                "series": {"rounds": [0.5, 0.75], "median": 0.625, "min": 0.5, "max": 0.75},
            }],
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<Figure>(json).unwrap(), figure);
        figure.forget("nccl");
        assert!(figure.ratios.is_empty());
        assert!(figure.values.keys().eq(["ibnet"]));
    }
}
