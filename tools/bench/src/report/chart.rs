//! Charts as inline SVG: lines over a queue depth, stacked areas.
//!
//! Everything with a colour has a class; the page's style sheet defines it, once for light and once
//! for dark. Numbers are written with one decimal, so equal results give equal pages.

use core::fmt::Write;

/// Width of the drawing, in units of the view box; it is scaled to its column.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 270.0;
/// Room around the plot for the axes and their titles.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;

/// Half the width of a line or area over a single value.
const ALONE: f64 = 90.0;

/// How values are mapped to an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// From zero up, evenly.
    Linear,
    /// Microseconds by powers of ten; values must be positive.
    Microseconds,
}

/// How the series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Separately.
    Lines,
    /// Stacked.
    Areas,
}

/// One drawing.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// Unique in the page.
    pub(super) id: String,
    /// A description for those who cannot see it.
    pub(super) title: String,
    /// Title of the vertical axis, with its unit.
    pub(super) y_title: String,
    pub(super) scale: Scale,
    pub(super) kind: Kind,
    /// The values of the horizontal axis, evenly spaced.
    pub(super) x: Vec<u32>,
    pub(super) series: Vec<Series>,
}

/// One line or area.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// Class that gives it its colour and dashes.
    pub(super) class: String,
    /// A value for each `x`, `None` where there is none.
    pub(super) values: Vec<Option<f64>>,
    /// Tooltips, one per value.
    pub(super) hints: Vec<String>,
}

/// The edges of the plot and the mapping of values into it.
struct Frame {
    places: usize,
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Chart {
    /// Draws it.
    pub(super) fn svg(&self) -> String {
        let stacked = self.stacked();
        let frame = Frame::around(self, &stacked);
        let mut svg = String::new();
        let id = &self.id;
        let _ = write!(
            svg,
            "<svg class=\"chart\" id=\"{id}\" viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" \
             aria-labelledby=\"{id}-title\"><title id=\"{id}-title\">{}</title>",
            escape(&self.title)
        );
        self.draw_axes(&frame, &mut svg);
        match self.kind {
            Kind::Lines => self.draw_lines(&frame, &mut svg),
            Kind::Areas => self.draw_areas(&frame, &stacked, &mut svg),
        }
        svg.push_str("</svg>");
        svg
    }

    /// For each series, the upper edge of its area: the sum of it and all previous ones.
    fn stacked(&self) -> Vec<Vec<f64>> {
        let mut edge = vec![0.0; self.x.len()];
        let add = |series: &Series| {
            for (sum, value) in edge.iter_mut().zip(&series.values) {
                *sum += value.unwrap_or(0.0);
            }
            edge.clone()
        };
        self.series.iter().map(add).collect()
    }

    fn draw_axes(&self, frame: &Frame, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        svg.push_str("<g class=\"axes\">");
        for tick in &frame.ticks {
            let y = frame.y(*tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT:.1}\" y1=\"{y:.1}\" \
                 x2=\"{right:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 7.0,
                y + 4.0,
                match self.scale {
                    Scale::Linear => number(*tick),
                    Scale::Microseconds => duration(*tick),
                }
            );
        }
        for (place, x) in self.x.iter().enumerate() {
            let at = frame.x(place);
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x}</text>",
                bottom + 17.0
            );
        }
        let (middle_x, middle_y) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        let _ = write!(
            svg,
            "<line class=\"base\" x1=\"{LEFT:.1}\" y1=\"{bottom:.1}\" x2=\"{right:.1}\" \
             y2=\"{bottom:.1}\"/>\
             <text class=\"axis\" x=\"{middle_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">\
             queue depth</text>\
             <text class=\"axis\" transform=\"translate(13 {middle_y:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text></g>",
            HEIGHT - 8.0,
            escape(&self.y_title)
        );
    }

    fn draw_lines(&self, frame: &Frame, svg: &mut String) {
        for series in &self.series {
            let _ = write!(svg, "<g class=\"series {}\">", series.class);
            let mut path = String::new();
            let mut pen_down = false;
            for (place, value) in series.values.iter().enumerate() {
                let Some(value) = value else {
                    pen_down = false;
                    continue;
                };
                for x in frame.corners(place) {
                    let command = if pen_down { 'L' } else { 'M' };
                    let _ = write!(path, "{command}{x:.1} {:.1}", frame.y(*value));
                    pen_down = true;
                }
            }
            let _ = write!(svg, "<path class=\"line\" d=\"{path}\"/>");
            for ((place, value), hint) in series.values.iter().enumerate().zip(&series.hints) {
                let Some(value) = value else { continue };
                let (x, y) = (frame.x(place), frame.y(*value));
                let _ = write!(
                    svg,
                    "<g class=\"point\">\
                     <circle class=\"hit\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"11\"/>\
                     <circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>\
                     <title>{}</title></g>",
                    escape(hint)
                );
            }
            svg.push_str("</g>");
        }
    }

    fn draw_areas(&self, frame: &Frame, stacked: &[Vec<f64>], svg: &mut String) {
        let floor = vec![0.0; self.x.len()];
        for (number, series) in self.series.iter().enumerate() {
            let upper = &stacked[number];
            let lower = if number == 0 { &floor } else { &stacked[number - 1] };
            let mut path = String::new();
            let corner = |(place, edge): (usize, &f64)| {
                frame.corners(place).into_iter().map(move |x| (x, *edge)).collect::<Vec<_>>()
            };
            let there = upper.iter().enumerate().flat_map(corner);
            let mut back: Vec<_> = lower.iter().enumerate().flat_map(corner).collect();
            back.reverse();
            for (step, (x, edge)) in there.chain(back).enumerate() {
                let command = if step == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{command}{x:.1} {:.1}", frame.y(edge));
            }
            let class = &series.class;
            let _ = write!(svg, "<path class=\"area {class}\" d=\"{path}Z\"/>");
        }
        self.draw_bands(frame, svg);
    }

    /// Invisible columns over the areas that carry the tooltips.
    fn draw_bands(&self, frame: &Frame, svg: &mut String) {
        let bottom = HEIGHT - BOTTOM;
        let width = (WIDTH - LEFT - RIGHT) / frame.places.max(1) as f64;
        for (place, x) in self.x.iter().enumerate() {
            let parts = self.series.iter().filter_map(|series| series.hints.get(place));
            let hint: Vec<&str> = parts.map(String::as_str).collect();
            let _ = write!(
                svg,
                "<rect class=\"band\" x=\"{:.1}\" y=\"{TOP:.1}\" width=\"{width:.1}\" \
                 height=\"{:.1}\"><title>queue depth {x}\n{}</title></rect>",
                frame.x(place) - width / 2.0,
                bottom - TOP,
                escape(&hint.join("\n"))
            );
        }
    }
}

impl Frame {
    fn around(chart: &Chart, stacked: &[Vec<f64>]) -> Self {
        let values: Vec<f64> = match chart.kind {
            Kind::Lines => chart.series.iter().flat_map(|s| &s.values).flatten().copied().collect(),
            Kind::Areas => stacked.last().cloned().unwrap_or_default(),
        };
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().filter(|v| *v > 0.0).fold(most.max(1.0), f64::min);
        let ticks = match chart.scale {
            Scale::Linear => linear_ticks(most),
            Scale::Microseconds => decades(least, most),
        };
        let low = ticks.first().copied().unwrap_or(0.0);
        let high = ticks.last().copied().unwrap_or(1.0);
        Self { places: chart.x.len(), scale: chart.scale, low, high, ticks }
    }

    fn x(&self, place: usize) -> f64 {
        let width = WIDTH - LEFT - RIGHT;
        // Half a step of air on both sides, so that the first and last dots stand clear.
        LEFT + width * (place as f64 + 0.5) / self.places.max(1) as f64
    }

    /// The corners of a line or an edge at one value: at its position, or, if it is the only one,
    /// on both sides of it, so that something is visible.
    fn corners(&self, place: usize) -> Vec<f64> {
        let x = self.x(place);
        if self.places > 1 { vec![x] } else { vec![x - ALONE, x + ALONE] }
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Microseconds => {
                (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        let height = HEIGHT - TOP - BOTTOM;
        TOP + height * (1.0 - share)
    }
}

/// Round values from 0 to at least `most`, four to seven of them.
fn linear_ticks(most: f64) -> Vec<f64> {
    let most = if most > 0.0 { most } else { 1.0 };
    let power = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fits = |step: &&f64| most / (*step * power) <= 6.0;
    let step = steps.iter().find(fits).unwrap_or(&10.0) * power;
    let count = (most / step - 1e-9).ceil() as u32;
    (0..=count.max(1)).map(|n| f64::from(n) * step).collect()
}

/// Values 1, 2 and 5 of each power of ten from below `least` to above `most`; over more than two
/// powers only the ones.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let first = least.log10().floor() as i32;
    let last = most.max(least).log10().ceil() as i32;
    let steps: &[f64] = if last - first > 2 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = (first..=last).flat_map(|power| steps.iter().map(move |s| s * 10_f64.powi(power)));
    let mut ticks: Vec<f64> = all.collect();
    // One tick below the values and one above are enough; two there must be.
    while ticks.len() > 2 && ticks[1] <= least {
        ticks.remove(0);
    }
    while ticks.len() > 2 && ticks[ticks.len() - 2] >= most {
        ticks.pop();
    }
    ticks
}

/// A number of microseconds with a suitable unit.
fn duration(microseconds: f64) -> String {
    match microseconds {
        us if us < 1.0 => format!("{} ns", number((us * 1e3).round())),
        us if us < 1e3 => format!("{} µs", number(us)),
        us if us < 1e6 => format!("{} ms", number(us / 1e3)),
        us => format!("{} s", number(us / 1e6)),
    }
}

/// A tick's label: short, no trailing zeros, thousands separated by a narrow space.
fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if value.abs() < 1.0 {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').into();
    }
    if value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Text escaped for XML.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // What XML cannot hold at all.
            c if c.is_control() && c != '\n' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests;
