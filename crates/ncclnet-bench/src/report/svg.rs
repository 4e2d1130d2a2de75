//! A plot of lines over a logarithmic axis, as SVG.

use std::fmt::Write;

use super::table::significant;

/// A line of a plot.
pub(super) struct Line {
    /// For the legend.
    pub(super) name: String,
    /// Where on the horizontal axis, and the lowest, middle and highest value there.
    pub(super) points: Vec<(f64, [f64; 3])>,
}

/// A plot. Both axes are logarithmic.
pub(super) struct Plot {
    pub(super) title: String,
    /// What the horizontal axis has.
    pub(super) horizontal: String,
    /// What the vertical axis has.
    pub(super) vertical: String,
    /// How places of the horizontal axis are written.
    pub(super) tick: fn(u64) -> String,
    pub(super) lines: Vec<Line>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// From Okabe and Ito's colours, which most people can tell apart.
const COLOURS: &[&str] = &[
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

impl Plot {
    /// The picture. Nothing, if there is nothing to be shown.
    pub(super) fn draw(&self) -> Option<String> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = Axis::over(points().map(|(x, _)| *x), LEFT, WIDTH - RIGHT)?;
        let values = points().flat_map(|(_, values)| *values);
        let up = Axis::over(values, HEIGHT - BOTTOM, TOP)?.whole_decades();
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, WIDTH / 2.0, 20.0, "middle", &self.title);
        text(
            &mut svg,
            WIDTH / 2.0,
            HEIGHT - 10.0,
            "middle",
            &self.horizontal,
        );
        let _ = writeln!(
            svg,
            "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT / 2.0,
            escape(&self.vertical)
        );
        let mut places: Vec<f64> = points().map(|(x, _)| *x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        for place in places {
            let x = across.at(place);
            rule(&mut svg, [x, TOP, x, HEIGHT - BOTTOM]);
            text(
                &mut svg,
                x,
                HEIGHT - BOTTOM + 16.0,
                "middle",
                &(self.tick)(place as u64),
            );
        }
        for value in up.ticks() {
            let y = up.at(value);
            rule(&mut svg, [LEFT, y, WIDTH - RIGHT, y]);
            text(&mut svg, LEFT - 6.0, y + 4.0, "end", &significant(value));
        }
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            draw_line(&mut svg, line, colour, &across, &up);
            let y = TOP + 14.0 + 16.0 * number as f64;
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
                LEFT + 10.0,
                y - 6.0
            );
            text(&mut svg, LEFT + 30.0, y, "start", &line.name);
        }
        svg.push_str("</svg>\n");
        Some(svg)
    }
}

fn draw_line(svg: &mut String, line: &Line, colour: &str, across: &Axis, up: &Axis) {
    let mut path = String::new();
    for (place, [low, middle, high]) in &line.points {
        let (x, y) = (across.at(*place), up.at(*middle));
        let command = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{command}{x:.1} {y:.1} ");
        let (top, bottom) = (up.at(*high), up.at(*low));
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.4\" \
             stroke-width=\"3\"/>\n<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        path.trim_end()
    );
}

/// A logarithmic axis.
struct Axis {
    /// Logarithms to base 10.
    low: f64,
    high: f64,
    /// Where they are in the picture.
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis that has room for all values; `None` of no positive values.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let logarithms = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = logarithms
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        (low <= high).then(|| Self {
            low,
            // One place needs an extent, too.
            high: high.max(low + 1e-3),
            from,
            to,
        })
    }

    fn whole_decades(self) -> Self {
        Self {
            low: self.low.floor(),
            high: self.high.ceil(),
            ..self
        }
    }

    fn at(&self, value: f64) -> f64 {
        // Zero has no logarithm; it is drawn at the end.
        let logarithm = value.log10().clamp(self.low, self.high);
        self.from + (logarithm - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Powers of ten, with twos and fives between them if there are few.
    fn ticks(&self) -> Vec<f64> {
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        let steps: &[f64] = if self.high - self.low > 3.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let all =
            decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
        all.filter(|value| (self.low..=self.high).contains(&value.log10()))
            .collect()
    }
}

fn rule(svg: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(
        svg,
        "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>"
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(text)
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn plot(points: Vec<(f64, [f64; 3])>) -> Plot {
        Plot {
            title: "a < b & c".to_owned(),
            horizontal: "size".to_owned(),
            vertical: "µs".to_owned(),
            tick: |place| place.to_string(),
            lines: vec![Line {
                name: "one".to_owned(),
                points,
            }],
        }
    }

    #[test]
    fn points_are_where_they_belong() {
        let drawn = plot(vec![
            (1.0, [1.0; 3]),
            (10.0, [10.0; 3]),
            (100.0, [100.0; 3]),
        ])
        .draw();
        let drawn = drawn.unwrap();
        assert!(drawn.contains("a &lt; b &amp; c"));
        // The middle of both axes, because they are logarithmic.
        let (x, y) = ((LEFT + WIDTH - RIGHT) / 2.0, (TOP + HEIGHT - BOTTOM) / 2.0);
        assert!(
            drawn.contains(&format!("cx=\"{x:.1}\" cy=\"{y:.1}\"")),
            "{drawn}"
        );
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
    }

    #[test]
    fn little_is_drawn_and_nothing_is_not() {
        assert!(plot(Vec::new()).draw().is_none());
        assert!(plot(vec![(8.0, [0.0; 3])]).draw().is_none());
        let one = plot(vec![(8.0, [0.0, 2.0, 2.0])]).draw().unwrap();
        assert!(!one.contains("NaN") && !one.contains("inf"), "{one}");
    }
}
