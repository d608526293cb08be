//! Figure of a run, in the form of the published ones: throughput per class over time above response time,
//! and below them the window and the queues. Phases and faults are shaded and named. `curve.rs` has the
//! figure of an experiment with phases that are points of a curve.
//!
//! Source of the form: Blanquer et al., *Quorum* (NSDI 2005), Figs. 9–11 and 13. The colours are Okabe and
//! Ito's, which people with any colour vision can tell apart, and lighter ones on a dark background.

mod bars;
mod curve;
mod grid;
mod learned;
mod legend;
mod lines;
mod marks;
mod plot;

use std::fmt::Write as _;

use weirgate_experiment::Experiment;

use super::outline::Outline;
use super::series::{ClassSeries, Series};
use super::{Curve, Played};
pub use bars::{Bar, BarGroup, Bars, bars};
pub use curve::curve;
pub use grid::grid_figure;
pub use learned::learned;
use legend::{Legend, line};
pub use lines::{Line, over_time};
use marks::Marks;
pub(super) use plot::axis_for;
use plot::{Panel, round_step, text};
pub use plot::{escape, figure_text};

/// Layout of a figure: its width, and the heights of its panels. It scales with the page, including its
/// letters, so that a figure for half a page is drawn smaller.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Width in pixels, including the border.
    width: f64,
    /// Heights of the panels for throughput, response time, window and queues, from the first on.
    heights: &'static [f64],
}

/// Layout of a figure of a page's width.
const WHOLE: Form = Form { width: 960.0, heights: &[190.0, 170.0, 84.0, 84.0] };

/// Layout of one of several figures in a row, as in the papers.
const MULTIPLE: Form = Form { width: 500.0, heights: &[160.0, 160.0] };

/// Width left of the panels, for the values of their axes.
const LEFT: f64 = 62.0;

/// Width right of the panels, for half a value of the time axis.
const BORDER: f64 = 22.0;

/// Height of a line of the legend, and of the names of the phases.
const LINE: f64 = 18.0;

/// Height between two panels, for the title of the lower one.
const BETWEEN: f64 = 36.0;

/// Maximum number of classes drawn, which is the number of colours.
const MAX_CLASSES: usize = 7;

/// Response times beyond this multiple of the largest limit are drawn at the border. Otherwise everything
/// within the limits would lie flat at the bottom.
const CUT: f64 = 2.0;

/// Approximate width of a character in pixels: enough to decide whether a name fits.
const CHARACTER: f64 = 6.4;

/// Colours and lines. No variables, because not every program that draws SVG supports them.
const STYLE: &str = include_str!("style.css");

/// Largest value of each panel. With the same values, figures of several runs can be compared by eye.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scale {
    highest: [f64; 4],
}

impl Scale {
    /// A scale on which all of these fit.
    pub fn of<'a>(all: impl Iterator<Item = &'a Series>) -> Scale {
        let max = |figures: &mut dyn Iterator<Item = f64>| figures.fold(0.0, f64::max);
        let mut highest = [0.0_f64; 4];
        let mut limits = 0.0_f64;
        for series in all {
            let classes = drawn(series);
            let rates = |c: &&ClassSeries| {
                let guaranteed = c.guaranteed.iter().flatten();
                c.offered.iter().chain(&c.served).chain(guaranteed).copied().fold(0.0, f64::max)
            };
            let cpu: Vec<f64> = classes.iter().flat_map(|c| c.cpu.iter().map(|(_, n)| *n)).collect();
            let state = series.window.iter().chain(&series.outstanding).map(|(_, n)| *n);
            let third = if cpu.is_empty() { max(&mut state.into_iter()) } else { max(&mut cpu.into_iter()) };
            let here = [
                max(&mut classes.iter().map(rates)),
                max(&mut classes.iter().flat_map(|c| c.response_ms.iter().flatten().copied())),
                third,
                max(&mut classes.iter().flat_map(|c| c.waiting.iter().map(|(_, n)| *n))),
            ];
            limits = limits.max(max(&mut classes.iter().flat_map(|c| c.limits_ms()).filter_map(|(_, limit)| limit)));
            highest = std::array::from_fn(|panel| highest[panel].max(here[panel]));
        }
        if limits > 0.0 {
            highest[1] = highest[1].clamp(limits, CUT * limits);
        }
        Scale { highest }
    }
}

/// The figure of an experiment under its first discipline: a curve of all seeds if the experiment has an
/// axis, otherwise the first run over time. `None` if nothing was kept to draw.
pub fn played(played: &Played) -> Option<String> {
    let (outline, group) = (Outline::new(&played.experiment), played.groups.first()?);
    match Curve::of(&played.report(&outline)) {
        Some(points) => Some(curve(&points, group)),
        None => group.series.as_ref().map(|series| whole(&outline, series)),
    }
}

/// The figure of a run, including its colours. It can be used alone or in a page.
pub fn figure(experiment: &Experiment, series: &Series) -> String {
    whole(&Outline::new(experiment), series)
}

/// The figure of a run from the experiment's outline.
pub fn whole(outline: &Outline, series: &Series) -> String {
    draw(outline, series, &Scale::of(std::iter::once(series)), WHOLE)
}

/// Throughput and response time only, for a row of figures of several runs on the same scale.
pub fn multiple(outline: &Outline, series: &Series, scale: &Scale) -> String {
    draw(outline, series, scale, MULTIPLE)
}

/// Figures of the same width below one another, each with a title.
pub fn stacked(figures: &[(String, String)]) -> String {
    let mut all = String::new();
    let mut top = 0.0;
    for (title, figure) in figures {
        // A figure begins with its own size: `viewBox="0 0 WIDTH HEIGHT"`.
        let size = figure.split_once(r#"viewBox="0 0 "#).and_then(|(_, rest)| rest.split_once('"'));
        let height = size.and_then(|(size, _)| size.split(' ').nth(1)?.parse::<f64>().ok()).unwrap_or(0.0);
        let _ = write!(all, r#"<text class="head" x="{LEFT}" y="{}">{}</text>"#, top + LINE, escape(title));
        top += BETWEEN;
        let (width, place) = (WHOLE.width, format!("<svg y=\"{top}\" "));
        all += &figure.replacen("<svg ", &format!("{place}width=\"{width}\" height=\"{height}\" "), 1);
        top += height;
    }
    let width = WHOLE.width;
    format!(
        "<svg class=\"weir\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {top}\" role=\"img\"><style>{STYLE}</style>{all}</svg>\n"
    )
}

fn drawn(series: &Series) -> Vec<&ClassSeries> {
    series.classes.iter().take(MAX_CLASSES).collect()
}

fn draw(outline: &Outline, series: &Series, scale: &Scale, form: Form) -> String {
    let classes = drawn(series);
    let right = form.width - BORDER;
    let (entries, phases_at) = legend(&classes, series, right);
    let marks = Marks::new(outline, (LEFT, right), phases_at, series.length);
    let top = marks.bottom();
    let panels = panels(top, form, scale, series.length);
    let bottom = panels.last().map_or(top, |panel| panel.bottom);
    let name = escape(&format!("{} over time, seed {}", outline.name, series.seed));
    let mut svg = format!(
        r#"<svg class="weir" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="{name}"><style>{STYLE}</style>{entries}"#,
        form.width,
        bottom + 26.0
    );
    for panel in &panels {
        marks.shades(&mut svg, panel);
        panel.grid(&mut svg);
    }
    marks.names(&mut svg, &panels[0], bottom);
    lines(&mut svg, &panels, &classes, series);
    seconds(&mut svg, &panels[panels.len() - 1]);
    hits(&mut svg, (top, bottom), &panels[0], &classes, series);
    svg.push_str("</svg>\n");
    svg
}

fn panels(top: f64, form: Form, scale: &Scale, length: f64) -> Vec<Panel> {
    let mut at = top + 18.0;
    let panel = |(height, highest): (&f64, f64)| {
        let (across, length) = (LEFT..form.width - BORDER, length.max(f64::MIN_POSITIVE));
        let panel = Panel::new(across, at..at + height, length, axis_for(highest));
        at += height + BETWEEN;
        panel
    };
    form.heights.iter().zip(scale.highest).map(panel).collect()
}

/// The legend, and the position of the phases' names.
fn legend(classes: &[&ClassSeries], series: &Series, right: f64) -> (String, f64) {
    let mut legend = Legend::new(right);
    for (index, class) in classes.iter().enumerate() {
        legend.entry(&class.name, |svg, at| line(svg, &format!("served c{index}"), at));
    }
    for (class, name) in [("offered", "asked for"), ("served", "served"), ("promised", "guaranteed, limit")] {
        legend.entry(name, |svg, at| line(svg, &format!("plain {class}"), at));
    }
    let more = series.classes.len() - classes.len();
    if more > 0 {
        legend.entry(&format!("{more} further classes are not drawn"), |_, _| ());
    }
    legend.end()
}

fn lines(svg: &mut String, panels: &[Panel], classes: &[&ClassSeries], series: &Series) {
    let [rates, times, rest @ ..] = panels else { return };
    // Where classes have shares of the CPUs, their use of them is more important than the window.
    let shared = classes.iter().any(|class| !class.cpu.is_empty());
    let third = if shared { "Use of all CPUs, %" } else { "Window, and requests in flight (thin)" };
    let titles = ["Throughput, requests/s", "Response time, ms", third, "Waiting requests"];
    for (panel, title) in panels.iter().zip(titles) {
        text(svg, "head", (panel.left, panel.top - 9.0), title);
    }
    let beyond = classes.iter().flat_map(|c| c.response_ms.iter().flatten().copied()).fold(0.0, f64::max);
    if beyond > times.highest {
        let what = format!("cut off: the largest is {}", figure_text(beyond.round()));
        let _ = write!(
            svg,
            r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{what}</text>"#,
            times.right,
            times.top - 9.0
        );
    }
    let middle = |i: usize| ((i as f64 + 0.5) * series.step).min(series.length);
    for (index, class) in classes.iter().enumerate() {
        let over = |figures: &[f64]| -> Vec<(f64, Option<f64>)> {
            figures.iter().enumerate().map(|(i, figure)| (middle(i), Some(*figure))).collect()
        };
        if let Some(guaranteed) = &class.guaranteed {
            rates.line(svg, &format!("promised c{index}"), over(guaranteed).into_iter());
        }
        rates.line(svg, &format!("offered c{index}"), over(&class.offered).into_iter());
        rates.line(svg, &format!("served c{index}"), over(&class.served).into_iter());
        let limits: Vec<(f64, Option<f64>)> = class.limits_ms().collect();
        for (number, (from, limit)) in limits.iter().enumerate().filter(|(_, (_, limit))| limit.is_some()) {
            let until = limits.get(number + 1).map_or(series.length, |(until, _)| *until);
            times.line(svg, &format!("limit c{index}"), [(*from, *limit), (until, *limit)].into_iter());
        }
        let response = class.response_ms.iter().enumerate().map(|(i, figure)| (middle(i), *figure));
        times.line(svg, &format!("served c{index}"), response);
        if let [cpu, _] = rest {
            cpu.line(svg, &format!("served c{index}"), class.cpu.iter().map(|(at, n)| (*at, Some(*n))));
        }
        if let [_, queues] = rest {
            queues.line(svg, &format!("served c{index}"), class.waiting.iter().map(|(at, n)| (*at, Some(*n))));
        }
    }
    let limited = classes
        .iter()
        .flat_map(|c| c.limits_ms().filter_map(|(_, limit)| Some((c.name.as_str(), c.statistic.as_str(), limit?))));
    limits(svg, times, (times.right - 4.0, "end"), limited);
    if let [state, _] = rest
        && !shared
    {
        state.line(svg, "inside", series.outstanding.iter().map(|(at, n)| (*at, Some(*n))));
        state.line(svg, "plain", series.window.iter().map(|(at, n)| (*at, Some(*n))));
    }
}

/// Writes the names of the limit lines. Limits of equal height share one text, which starts or ends at `x`:
/// `anchor` is the SVG attribute for it.
fn limits<'a>(
    svg: &mut String,
    panel: &Panel,
    (x, anchor): (f64, &str),
    classes: impl Iterator<Item = (&'a str, &'a str, f64)>,
) {
    let mut named: Vec<(f64, String)> = Vec::new();
    for (name, statistic, limit) in classes {
        let name = format!("{name} {statistic}");
        match named.iter_mut().find(|(at, _)| *at == limit) {
            Some((_, names)) => *names += &format!(", {name}"),
            None => named.push((limit, name)),
        }
    }
    for (limit, names) in named {
        let y = panel.y(limit) - 4.0;
        let what = escape(&format!("{names} ≤ {} ms", figure_text(limit)));
        for class in ["tick ground", "tick"] {
            let _ = write!(svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{what}</text>"#);
        }
    }
}

/// Draws the time axis.
fn seconds(svg: &mut String, panel: &Panel) {
    let (left, right, y) = (panel.left, panel.right, panel.bottom);
    let _ = write!(svg, r#"<line class="axis" x1="{left:.1}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}"/>"#);
    let step = match round_step(panel.length, (right - left) / 80.0) {
        // Minutes are rounder than multiples of 50 seconds.
        step if (20.0..=50.0).contains(&step) => 30.0,
        step if step > 50.0 && step <= 100.0 => 60.0,
        step => step,
    };
    for at in plot::ticks(panel.length, step) {
        let x = panel.x(at);
        let what = figure_text(at);
        let _ = write!(
            svg,
            r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{y:.1}" y2="{:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{what}{}</text>"#,
            y + 4.0,
            y + 17.0,
            if at == 0.0 { " s" } else { "" }
        );
    }
}

/// Draws a strip over every point of time that shows its values when the pointer is on it.
fn hits(svg: &mut String, (top, bottom): (f64, f64), panel: &Panel, classes: &[&ClassSeries], series: &Series) {
    let points = classes.iter().map(|c| c.offered.len()).max().unwrap_or(0);
    for i in 0..points {
        let (from, to) = (i as f64 * series.step, ((i + 1) as f64 * series.step).min(series.length));
        let mut told = format!("{}–{} s", figure_text(from), figure_text(to));
        for class in classes {
            let figure = |of: &[f64]| of.get(i).map_or_else(String::new, |f| format!("{f:.0}"));
            let _ =
                write!(told, "\n{}: {}/s served of {}/s", class.name, figure(&class.served), figure(&class.offered));
            if let Some(time) = class.response_ms.get(i).copied().flatten() {
                let _ = write!(told, ", {} {time:.1} ms", class.statistic);
            }
        }
        let at = |line: &[(f64, f64)]| line.iter().rev().find(|(at, _)| *at <= to).map(|(_, n)| *n);
        if let Some(window) = at(&series.window) {
            let _ = write!(told, "\nwindow {window}");
        }
        if let Some(in_flight) = at(&series.outstanding) {
            let _ = write!(told, "\nin flight {in_flight}");
        }
        let (x, width) = (panel.x(from), panel.x(to) - panel.x(from));
        let _ = write!(
            svg,
            r#"<rect class="hit" x="{x:.1}" y="{top:.1}" width="{width:.2}" height="{:.1}"><title>{}</title></rect>"#,
            bottom - top,
            escape(&told)
        );
    }
}
