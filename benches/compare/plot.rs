//! Plots as SVG: bars, and lines with logarithmic axes.

use crate::stats::{number, Rounds};
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const INK: &str = "#24292f";
const FAINT: &str = "#d0d7de";

/// The first is this module's.
const COLOURS: [&str; 8] =
    ["#0969da", "#cf222e", "#fa4549", "#bf8700", "#d4a72c", "#6e7781", "#1a7f37", "#8250df"];

pub struct Bar {
    name: String,
    value: f64,
    range: (f64, f64),
}

impl Bar {
    pub fn new(name: String, rounds: &Rounds) -> Self {
        Self { name, value: rounds.median(), range: rounds.range() }
    }
}

/// Points of one thing.
pub struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), points: Vec::new() }
    }

    pub fn add(&mut self, x: f64, y: f64) {
        self.points.push((x, y));
    }
}

pub struct Plot {
    title: String,
    /// Of the bars.
    log: bool,
    body: Body,
}

enum Body {
    Bars { unit: String, bars: Vec<Bar> },
    Lines { x: String, y: String, lines: Vec<Line> },
}

pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> Plot {
    let bars = bars
        .iter()
        .map(|bar| Bar { name: bar.name.clone(), value: bar.value, range: bar.range })
        .collect();
    Plot { title: title.into(), log: false, body: Body::Bars { unit: unit.into(), bars } }
}

pub fn lines(title: &str, x: &str, y: &str, lines: &[Line]) -> Plot {
    let lines = lines
        .iter()
        .map(|line| Line { name: line.name.clone(), points: line.points.clone() })
        .collect();
    Plot { title: title.into(), log: true, body: Body::Lines { x: x.into(), y: y.into(), lines } }
}

impl Plot {
    /// With a logarithmic axis.
    pub fn log(self) -> Self {
        Self { log: true, ..self }
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    pub fn svg(&self) -> String {
        let (height, body) = match &self.body {
            Body::Bars { unit, bars } => draw_bars(unit, bars, self.log),
            Body::Lines { x, y, lines } => draw_lines(x, y, lines),
        };
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"13\" fill=\"{INK}\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        out += &label(WIDTH / 2.0, 24.0, "middle", &self.title);
        out + &body + "</svg>\n"
    }
}

/// Where a value stands on an axis, from 0 to 1.
struct Axis {
    from: f64,
    to: f64,
    log: bool,
}

impl Axis {
    /// One that has whole decades, and all of these.
    fn decades(values: impl Iterator<Item = f64> + Clone) -> Self {
        let good = values.filter(|value| value.is_finite() && *value > 0.0);
        let least = good.clone().fold(f64::INFINITY, f64::min);
        let most = good.fold(0.0, f64::max);
        if least > most {
            return Self { from: 1.0, to: 10.0, log: true };
        }
        let from = 10_f64.powf(least.log10().floor());
        let to = 10_f64.powf(most.log10().ceil()).max(from * 10.0);
        Self { from, to, log: true }
    }

    /// One from 0 that goes up in round steps.
    fn steps(most: f64) -> Self {
        let axis = Self { from: 0.0, to: most.max(1e-9), log: false };
        let step = axis.step();
        Self { to: (axis.to / step).ceil() * step, ..axis }
    }

    /// 1, 2 or 5, and zeros: four to ten of them.
    fn step(&self) -> f64 {
        let least = (self.to - self.from) / 8.0;
        let decade = 10_f64.powf(least.log10().floor());
        [1.0, 2.0, 5.0]
            .map(|step| step * decade)
            .into_iter()
            .find(|step| *step >= least)
            .unwrap_or(10.0 * decade)
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value / self.from).log10() / (self.to / self.from).log10(),
            false => (value - self.from) / (self.to - self.from),
        };
        if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.to / self.from).log10().round() as i32;
            return (0..=decades).map(|decade| self.from * 10_f64.powi(decade)).collect();
        }
        let step = self.step();
        let count = ((self.to - self.from) / step).round() as u32;
        (0..=count).map(|number| self.from + step * f64::from(number)).collect()
    }
}

fn draw_bars(unit: &str, bars: &[Bar], log: bool) -> (f64, String) {
    const LEFT: f64 = 215.0;
    const ROW: f64 = 26.0;
    const TOP: f64 = 40.0;
    let width = WIDTH - LEFT - 95.0;
    let bottom = TOP + ROW * bars.len() as f64;
    let values = bars.iter().flat_map(|bar| [bar.value, bar.range.1]);
    let axis = match log {
        true => Axis::decades(values),
        false => Axis::steps(values.fold(0.0, f64::max)),
    };
    let x = |value: f64| LEFT + width * axis.place(value);
    let mut out = String::new();
    for tick in axis.ticks() {
        let at = x(tick);
        out += &stroke(at, TOP, at, bottom, FAINT, 1.0);
        out += &label(at, bottom + 18.0, "middle", &tick_text(tick, unit));
    }
    for (row, bar) in bars.iter().enumerate() {
        let top = TOP + ROW * row as f64;
        let middle = top + ROW / 2.0;
        let colour = if bar.name.starts_with("rwlock") { COLOURS[0] } else { "#8c959f" };
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\"/>",
            top + 4.0,
            x(bar.value) - LEFT,
            ROW - 8.0
        );
        let (least, most) = (x(bar.range.0), x(bar.range.1));
        out += &stroke(least, middle, most, middle, INK, 1.5);
        out += &label(LEFT - 8.0, middle + 4.0, "end", &bar.name);
        out += &label(most.max(x(bar.value)) + 8.0, middle + 4.0, "start", &number(bar.value));
    }
    (bottom + 30.0, out)
}

fn draw_lines(x_name: &str, y_name: &str, lines: &[Line]) -> (f64, String) {
    const LEFT: f64 = 80.0;
    const TOP: f64 = 40.0;
    const BOTTOM: f64 = 360.0;
    let width = WIDTH - LEFT - 230.0;
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let across = Axis::decades(points().map(|point| point.0));
    let up = Axis::decades(points().map(|point| point.1));
    let x = |value: f64| LEFT + width * across.place(value);
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * up.place(value);
    let mut out = String::new();
    for tick in across.ticks() {
        out += &stroke(x(tick), TOP, x(tick), BOTTOM, FAINT, 1.0);
        out += &label(x(tick), BOTTOM + 18.0, "middle", &tick_text(tick, ""));
    }
    for tick in up.ticks() {
        out += &stroke(LEFT, y(tick), LEFT + width, y(tick), FAINT, 1.0);
        out += &label(LEFT - 8.0, y(tick) + 4.0, "end", &tick_text(tick, ""));
    }
    out += &label(LEFT + width / 2.0, BOTTOM + 38.0, "middle", x_name);
    out += &label(LEFT - 8.0, TOP - 14.0, "end", y_name);
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let good: Vec<(f64, f64)> = line
            .points
            .iter()
            .filter(|(_, value)| value.is_finite() && *value > 0.0)
            .map(|(across, up)| (x(*across), y(*up)))
            .collect();
        let path: Vec<String> = good.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in good {
            let _ =
                writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (left, top) = (LEFT + width + 20.0, TOP + 12.0 + 22.0 * index as f64);
        out += &stroke(left, top, left + 18.0, top, colour, 3.0);
        out += &label(left + 26.0, top + 4.0, "start", &line.name);
    }
    (BOTTOM + 52.0, out)
}

/// A round number needs no zeros behind the point.
fn tick_text(tick: f64, unit: &str) -> String {
    let text = number(tick);
    let short = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{short} {unit}")
}

fn stroke(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str, width: f64) -> String {
    format!(
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" \
         stroke-width=\"{width}\"/>\n"
    )
}

fn label(x: f64, y: f64, anchor: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", text.trim_end())
}
