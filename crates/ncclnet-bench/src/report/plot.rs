//! Which plots a run has.

use std::collections::BTreeMap;

use super::svg::{Line, Plot};
use super::table::bytes;
use super::{Figure, Run};

/// The plots of a run: names of files without ending, and the pictures.
pub(crate) fn plots(run: &Run) -> Vec<(String, String)> {
    let mut groups: BTreeMap<String, Vec<&Figure>> = BTreeMap::new();
    for figure in &run.figures {
        if let Some(name) = file_name(figure) {
            groups.entry(name).or_default().push(figure);
        }
    }
    let draw = |(name, figures): (String, Vec<&Figure>)| Some((name, plot(run, &figures)?.draw()?));
    groups.into_iter().filter_map(draw).collect()
}

/// What a figure's places are along, if it belongs into a plot.
fn along(figure: &Figure) -> Option<&'static str> {
    match figure.test.as_str() {
        "latency" | "bandwidth" => Some("size"),
        "growth" | "connections" => Some("connections"),
        "registrations" => Some("live"),
        _ => None,
    }
}

/// Figures of one test and quantity, whose other conditions are the same, are one plot.
fn file_name(figure: &Figure) -> Option<String> {
    let along = along(figure)?;
    let mut words = vec![figure.test.clone(), figure.quantity.clone()];
    let others = figure.conditions.iter().filter(|(name, _)| *name != along);
    words.extend(others.map(|(name, value)| format!("{name} {value}")));
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = words.join(" ").chars().map(plain).collect();
    let parts: Vec<&str> = name.split('-').filter(|part| !part.is_empty()).collect();
    Some(parts.join("-"))
}

fn plot(run: &Run, figures: &[&Figure]) -> Option<Plot> {
    let first = figures.first()?;
    let along = along(first)?;
    let line = |label: &str| {
        let mut points: Vec<(f64, [f64; 3])> = figures
            .iter()
            .filter_map(|figure| {
                let place = *figure.conditions.get(along)?;
                let series = figure.values.get(label)?;
                Some((place as f64, [series.min, series.median, series.max]))
            })
            .collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        (!points.is_empty()).then(|| Line {
            name: label.to_owned(),
            points,
        })
    };
    let others = first.conditions.iter().filter(|(name, _)| *name != along);
    let others: String = others
        .map(|(name, value)| format!(", {name} {value}"))
        .collect();
    Some(Plot {
        title: format!("{}: {}{others}", first.test, first.quantity),
        horizontal: match along {
            "size" => "bytes of a message".to_owned(),
            "live" => "registrations that are live".to_owned(),
            other => format!("{other} that are open"),
        },
        vertical: first.unit.clone(),
        tick: if along == "size" {
            bytes
        } else {
            |place| place.to_string()
        },
        lines: run
            .networks
            .iter()
            .filter_map(|network| line(&network.label))
            .collect(),
    })
}
