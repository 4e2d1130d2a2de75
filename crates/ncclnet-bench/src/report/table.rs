//! Results as a table for people.

use std::fmt::Write;

use super::{Better, Figure, Run};
use crate::stats::Series;

/// The table of one run.
pub(crate) fn table(run: &Run) -> String {
    let mut text = format!("## {}\n\n{}\n\n", run.title, run.machine.line());
    for network in &run.networks {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- **{}**: {}", network.label, network.what);
    }
    let mut tests: Vec<&str> = Vec::new();
    for figure in &run.figures {
        if !tests.contains(&figure.test.as_str()) {
            tests.push(&figure.test);
        }
    }
    for test in tests {
        let figures: Vec<&Figure> = run.figures.iter().filter(|f| f.test == test).collect();
        let _ = write!(text, "\n### {test}\n\n{}", rows(run, &figures));
    }
    if !run.notes.is_empty() {
        text.push_str("\nNot measured:\n\n");
    }
    for note in &run.notes {
        let _ = writeln!(text, "- {note}");
    }
    text
}

fn rows(run: &Run, figures: &[&Figure]) -> String {
    let labels: Vec<&str> = run
        .networks
        .iter()
        .map(|network| network.label.as_str())
        .filter(|label| {
            figures
                .iter()
                .any(|figure| figure.values.contains_key(*label))
        })
        .collect();
    let mut header = vec!["conditions".to_owned(), "quantity".to_owned()];
    header.extend(labels.iter().map(|label| (*label).to_owned()));
    let others = labels.iter().skip(1);
    if let Some(first) = run.networks.first() {
        header.extend(
            others
                .clone()
                .map(|label| format!("{} / {label}", first.label)),
        );
    }
    let mut lines = vec![header];
    for figure in figures {
        let better = match figure.better {
            Better::Lower => "",
            Better::Higher => " ↑",
        };
        let mut line = vec![
            conditions(figure),
            match figure.unit.as_str() {
                "" => format!("{}{better}", figure.quantity),
                unit => format!("{}, {unit}{better}", figure.quantity),
            },
        ];
        line.extend(
            labels
                .iter()
                .map(|label| figure.values.get(*label).map_or_else(none, value)),
        );
        line.extend(others.clone().map(|label| {
            let ratio = figure.ratios.iter().find(|ratio| ratio.to == **label);
            ratio.map_or_else(none, |ratio| {
                let series = &ratio.series;
                format!("{:.2} ({:.2}–{:.2})", series.median, series.min, series.max)
            })
        }));
        lines.push(line);
    }
    aligned(&lines)
}

/// A cell without a value.
fn none() -> String {
    "-".to_owned()
}

/// The median, and how far the values are apart.
fn value(series: &Series) -> String {
    let spread = (series.rounds.len() > 1).then(|| format!(" ±{:.0}%", series.spread() * 50.0));
    format!(
        "{}{}",
        significant(series.median),
        spread.unwrap_or_default()
    )
}

/// Three significant digits or all of the whole number.
pub(super) fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn conditions(figure: &Figure) -> String {
    let order = [
        "size",
        "group",
        "window",
        "paths",
        "devices",
        "connections",
        "live",
    ];
    let known = order.iter().filter_map(|name| {
        let number = *figure.conditions.get(*name)?;
        Some(match *name {
            "size" => bytes(number),
            "group" => format!("{number} per receive"),
            "window" => format!("window {number}"),
            "live" => format!("{number} live"),
            // One is how it usually is.
            "paths" | "devices" if number == 1 => return None,
            name => format!("{number} {name}"),
        })
    });
    let text = known.collect::<Vec<_>>().join(", ");
    if text.is_empty() { none() } else { text }
}

/// A number of bytes as people write it.
pub(super) fn bytes(number: u64) -> String {
    match number {
        number if number >= 1 << 20 && number.is_multiple_of(1 << 20) => {
            format!("{} MiB", number >> 20)
        }
        number if number >= 1 << 10 && number.is_multiple_of(1 << 10) => {
            format!("{} KiB", number >> 10)
        }
        number => format!("{number} B"),
    }
}

/// A table in Markdown, with columns that are aligned for reading it as text.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.01234, "0.012"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (1234.5, "1234"),
        ] {
            assert_eq!(significant(value), text);
        }
        for (number, text) in [
            (8, "8 B"),
            (1024, "1 KiB"),
            (1500, "1500 B"),
            (3 << 20, "3 MiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn columns_are_aligned() {
        let lines = [
            vec!["a".to_owned(), "µs".to_owned()],
            vec!["long".to_owned(), "1".to_owned()],
        ];
        assert_eq!(
            aligned(&lines),
            "| a    | µs |\n|------|----|\n| long | 1  |\n"
        );
    }
}
