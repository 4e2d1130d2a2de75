//! Measuring in turn: A B A B, one value of each in every round.

use std::collections::BTreeMap;

use super::Failure;
use crate::report::{Better, Figure};
use crate::stats::Series;

/// A quantity that a test measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantity {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) better: Better,
}

/// A quantity of which less is better.
pub(super) const fn lower(name: &'static str, unit: &'static str) -> Quantity {
    Quantity {
        name,
        unit,
        better: Better::Lower,
    }
}

/// A quantity of which more is better.
pub(super) const fn higher(name: &'static str, unit: &'static str) -> Quantity {
    Quantity {
        name,
        unit,
        better: Better::Higher,
    }
}

/// What one measurement gave.
pub(super) type Values = Vec<(Quantity, f64)>;

/// One that takes part in a test.
pub(super) trait Turn {
    /// What it is called.
    fn label(&self) -> &str;
    /// Measures once.
    fn measure(&mut self) -> Result<Values, Failure>;
}

/// Has everybody measure in turn. Who fails is left out from then on, and why is noted.
pub(super) fn take(
    test: &'static str,
    conditions: &[(&str, u64)],
    rounds: usize,
    mut all: Vec<Box<dyn Turn + '_>>,
    notes: &mut Vec<String>,
) -> Vec<Figure> {
    let labels: Vec<String> = all.iter().map(|one| one.label().to_owned()).collect();
    let mut values: Vec<(Quantity, BTreeMap<String, Vec<f64>>)> = Vec::new();
    for _ in 0..rounds {
        all.retain_mut(|one| match one.measure() {
            Ok(measured) => {
                for (quantity, value) in measured {
                    let place = values.iter().position(|(known, _)| *known == quantity);
                    let place = place.unwrap_or_else(|| {
                        values.push((quantity, BTreeMap::new()));
                        values.len() - 1
                    });
                    let series = values[place].1.entry(one.label().to_owned());
                    series.or_default().push(value);
                }
                true
            }
            Err(failure) => {
                // The failure names who it was.
                note(notes, format!("{test}: {failure}"));
                false
            }
        });
    }
    let conditions: BTreeMap<String, u64> = conditions
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect();
    let figures = values.into_iter().map(|(quantity, values)| {
        let series = values
            .into_iter()
            .map(|(label, values)| (label, Series::new(values)));
        let mut figure = Figure {
            test: test.to_owned(),
            conditions: conditions.clone(),
            quantity: quantity.name.to_owned(),
            unit: quantity.unit.to_owned(),
            better: quantity.better,
            values: series.collect(),
            ratios: Vec::new(),
        };
        figure.compare(&labels);
        figure
    });
    figures.collect()
}

/// Notes something once.
pub(super) fn note(notes: &mut Vec<String>, line: String) {
    eprintln!("    {line}");
    if !notes.contains(&line) {
        notes.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting<'a> {
        label: &'static str,
        fails_at: usize,
        log: &'a std::cell::RefCell<Vec<&'static str>>,
        count: usize,
    }

    impl Turn for Counting<'_> {
        fn label(&self) -> &str {
            self.label
        }

        fn measure(&mut self) -> Result<Values, Failure> {
            self.log.borrow_mut().push(self.label);
            self.count += 1;
            if self.count == self.fails_at {
                return Err(Failure(format!("{}: broken", self.label)));
            }
            Ok(vec![(lower("time", "s"), self.count as f64)])
        }
    }

    #[test]
    fn turns_alternate_and_failures_are_noted() {
        let log = std::cell::RefCell::default();
        let one = |label, fails_at| {
            let log = &log;
            Box::new(Counting {
                label,
                fails_at,
                log,
                count: 0,
            }) as Box<dyn Turn>
        };
        let mut notes = Vec::new();
        let all = vec![one("a", 0), one("b", 3), one("c", 1)];
        let figures = take("test", &[("size", 8)], 4, all, &mut notes);
        assert_eq!(log.into_inner(), ["a", "b", "c", "a", "b", "a", "b", "a"]);
        assert_eq!(notes, ["test: c: broken", "test: b: broken"]);
        let [figure] = figures.as_slice() else {
            panic!("{figures:?}");
        };
        assert_eq!(figure.values["a"].rounds, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(figure.values["b"].rounds, [1.0, 2.0]);
        assert!(!figure.values.contains_key("c"));
        assert_eq!(figure.ratios.len(), 1);
        assert_eq!(figure.conditions["size"], 8);
    }
}
