//! Figure of a learned page table: the learned cost of each route and resource over time, its standard
//! error, and the actual cost. There is a row of panels for each route and a column for each resource.
//! Every panel has its own axis from 0 on, so that an error is visible in proportion to its cost.

use std::fmt::Write as _;

use super::legend::{Legend, MARK, line};
use super::marks::Marks;
use super::plot::{Panel, axis_for, escape, figure_text, text};
use super::{BORDER, LEFT, STYLE, WHOLE, seconds};
use crate::judge::{BAND, LearnedCost, LearnedRoute, LearnedTable};
use crate::report::outline::Outline;

/// Height of a panel. A cost that triples is still a tall step.
const HEIGHT: f64 = 112.0;

/// Height above a row of panels, for the route's name and the panels' titles.
const ABOVE: f64 = 44.0;

/// Height below a row of panels, for the values of the time axis.
const BELOW: f64 = 26.0;

/// Width between two panels of a row, for the values of the right one's axis.
const BESIDE: f64 = 46.0;

/// Maximum number of routes that are drawn: as many as fit on two screens. All are in the table.
const MAX_DRAWN: usize = 8;

/// Maximum number of positions of a panel that show their values under the pointer.
const MAX_TOLD: f64 = 60.0;

/// Standard errors beyond this multiple of the largest cost are drawn at the border. Before anything is
/// learned they are several times the cost, and the important values would lie flat at the bottom.
const ROOM: f64 = 1.2;

/// Colours that no other figure has.
const OWN: &str = "\
.weir .truth{stroke:#1f2328;stroke-width:1.3;stroke-dasharray:6 4;stroke-linecap:butt}\
.weir path.corridor{fill:#57606a;fill-opacity:.13;stroke:none}.weir .route{font-weight:600;font-size:13px}\
.weir .now{fill:#656d76}.weir .wrong{fill:#b42318;font-weight:600}\
@media (prefers-color-scheme:dark){.weir .truth{stroke:#e6edf3}.weir path.corridor{fill:#9198a1;fill-opacity:.17}\
.weir .now{fill:#9198a1}.weir .wrong{fill:#ff8e85}}";

/// The figure of the busiest routes. Empty if none uses any resource.
pub fn learned(outline: &Outline, table: &LearnedTable, seed: u64) -> String {
    let drawn: Vec<&LearnedRoute> = table.routes.iter().take(MAX_DRAWN).collect();
    let resources: Vec<usize> = (0..3).filter(|resource| drawn.iter().any(|route| is_used(route, *resource))).collect();
    let length = outline.phases.last().map_or(0.0, |phase| phase.to_s);
    if resources.is_empty() || length <= 0.0 {
        return String::new();
    }
    // Here the starts of phases count like everything else.
    let plain = Outline { settle_s: 0.0, ..outline.clone() };
    let outline = &plain;
    let (entries, below) = legend(table.routes.len() - drawn.len());
    let columns = columns(resources.len());
    let marks: Vec<Marks<'_>> = columns.iter().map(|ends| Marks::new(outline, *ends, below, length)).collect();
    let top = marks.first().map_or(below, Marks::bottom);
    let row = ABOVE + HEIGHT + BELOW;
    let name = escape(&format!("{}: learned costs over time, seed {seed}", outline.name));
    let mut svg = format!(
        r#"<svg class="weir" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {:.0}" role="img" aria-label="{name}"><title>{name}</title><style>{STYLE}{OWN}</style>{entries}"#,
        WHOLE.width,
        top + row * drawn.len() as f64
    );
    for (number, route) in drawn.iter().enumerate() {
        let above = top + row * number as f64;
        text(&mut svg, "route", (LEFT, above + 18.0), &route.pattern);
        for ((resource, (left, right)), marks) in resources.iter().zip(&columns).zip(&marks) {
            let Some(cost) = route.resources.get(*resource) else { continue };
            let (top, max) = (above + ABOVE, axis_for(highest(cost) * 100.0));
            let panel = Panel::new(*left..*right, top..top + HEIGHT, length, max);
            marks.shades(&mut svg, &panel);
            panel.grid(&mut svg);
            if number == 0 {
                marks.names(&mut svg, &panel, panel.top);
            }
            borders(&mut svg, outline, &panel);
            draw(&mut svg, &panel, *resource, (route, cost));
            seconds(&mut svg, &panel);
            hits(&mut svg, &panel, route, cost);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn is_used(route: &LearnedRoute, resource: usize) -> bool {
    route.resources.get(resource).is_some_and(|cost| highest(cost) > 0.0)
}

/// The largest actual or learned cost.
fn highest(cost: &LearnedCost) -> f64 {
    let actual = cost.actual.iter().filter_map(|(_, cost)| *cost).map(|cost| cost * (1.0 + BAND));
    let believed = cost.cost.iter().copied().fold(0.0, f64::max);
    let with_error = cost.cost.iter().zip(&cost.error).map(|(cost, error)| cost + error.unwrap_or(0.0));
    let max = actual.fold(believed, f64::max);
    max.max(with_error.fold(0.0, f64::max).min(ROOM * max))
}

/// Left and right border of each column.
fn columns(count: usize) -> Vec<(f64, f64)> {
    let gaps = BESIDE * count.saturating_sub(1) as f64;
    let width = (WHOLE.width - BORDER - LEFT - gaps) / count as f64;
    (0..count).map(|column| LEFT + (width + BESIDE) * column as f64).map(|left| (left, left + width)).collect()
}

fn legend(more: usize) -> (String, f64) {
    let mut legend = Legend::new(WHOLE.width - BORDER);
    let area = |svg: &mut String, class: &str, (x, y): (f64, f64)| {
        let _ = write!(svg, r#"<path class="{class}" d="M{x:.1} {:.1}h{MARK}v10h-{MARK}z"/>"#, y - 5.0);
    };
    legend.entry("learned", |svg, at| line(svg, "served c0", at));
    legend.entry("its standard error", |svg, at| area(svg, "band c0", at));
    legend.entry("true mean", |svg, at| line(svg, "truth", at));
    legend.entry(&format!("± {:.0} % of it", BAND * 100.0), |svg, at| area(svg, "corridor", at));
    legend.entry("found", |svg, (x, y)| dot(svg, "c0", (x + MARK / 2.0, y)));
    if more > 0 {
        legend.entry(&format!("{more} further routes are in the table"), |_, _| ());
    }
    legend.end()
}

fn dot(svg: &mut String, class: &str, (x, y): (f64, f64)) {
    let _ = write!(svg, r#"<circle class="dot {class}" cx="{x:.1}" cy="{y:.1}" r="4"/>"#);
}

/// Draws the borders between phases.
fn borders(svg: &mut String, outline: &Outline, panel: &Panel) {
    for phase in outline.phases.iter().skip(1) {
        let x = panel.x(phase.from_s);
        let (top, bottom) = (panel.top, panel.bottom);
        let _ = write!(svg, r#"<line class="border" x1="{x:.1}" x2="{x:.1}" y1="{top:.1}" y2="{bottom:.1}"/>"#);
    }
}

fn draw(svg: &mut String, panel: &Panel, resource: usize, (route, cost): (&LearnedRoute, &LearnedCost)) {
    let colour = format!("c{resource}");
    title(svg, panel, cost);
    let percent = |share: f64| share * 100.0;
    let actual = cost.actual.iter().map(|(at, cost)| (*at, cost.map(percent)));
    let corridor = actual.clone().map(|(at, cost)| Some((at, cost? * (1.0 - BAND), cost? * (1.0 + BAND))));
    areas(svg, panel, "corridor", corridor);
    let samples = || route.at_s.iter().zip(&cost.cost).zip(&cost.error);
    let band = samples().map(|((at, cost), error)| {
        let error = (*error)?;
        Some((*at, percent((cost - error).max(0.0)), percent(cost + error)))
    });
    areas(svg, panel, &format!("band {colour}"), band);
    panel.line(svg, "truth", actual);
    let line = samples().map(|((at, cost), _)| (*at, Some(percent(*cost))));
    panel.line(svg, &format!("served {colour}"), line);
    for change in &cost.changes {
        let Some(after) = change.within_s else { continue };
        let found = change.at_s + after;
        let Some((_, believed)) = route.at_s.iter().zip(&cost.cost).find(|(at, _)| **at >= found) else { continue };
        let (x, y) = (panel.x(found), panel.y(percent(*believed)));
        dot(svg, &colour, (x, y));
        // Below the line, where a cost that has risen leaves room, and not beyond the figure.
        let (x, anchor) = if x + 40.0 > panel.right { (x - 7.0, "end") } else { (x + 7.0, "start") };
        let what = format!("{after:.0} s");
        for class in ["tick ground", "tick"] {
            let _ = write!(
                svg,
                r#"<text class="{class}" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{what}</text>"#,
                (y + 16.0).min(panel.bottom - 4.0)
            );
        }
    }
}

/// Draws the resource's name, and its final learned cost with the actual one.
fn title(svg: &mut String, panel: &Panel, cost: &LearnedCost) {
    let y = panel.top - 9.0;
    text(svg, "head", (panel.left, y), &format!("{}, %", cost.resource));
    let Some(end) = cost.phases.last() else { return };
    let Some(believed) = end.cost else { return };
    let mut told = figure(believed);
    if let Some(error) = end.error {
        let _ = write!(told, " ± {}", figure(error));
    }
    if let Some(actual) = end.actual {
        let _ = write!(told, " of {}", figure(actual));
    }
    let class = if end.found() == Some(false) { "tick wrong" } else { "tick now" };
    let _ = write!(
        svg,
        r#"<text class="{class}" x="{:.1}" y="{y:.1}" text-anchor="end">{}</text>"#,
        panel.right,
        escape(&told)
    );
}

/// A fraction in percent with the digits that are significant.
fn figure(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 { format!("{percent:.1}") } else { format!("{percent:.3}") }
}

/// Draws areas between two lines. `None` ends an area.
fn areas(svg: &mut String, panel: &Panel, class: &str, points: impl Iterator<Item = Option<(f64, f64, f64)>>) {
    let points: Vec<Option<(f64, f64, f64)>> = points.collect();
    for area in points.split(Option::is_none) {
        let place = |(at, figure): (f64, f64)| format!("{:.1} {:.1}", panel.x(at), panel.y(figure));
        let upper = area.iter().flatten().map(|(at, _, upper)| place((*at, *upper)));
        let lower = area.iter().flatten().rev().map(|(at, lower, _)| place((*at, *lower)));
        let outline: Vec<String> = upper.chain(lower).collect();
        if outline.len() > 2 {
            let _ = write!(svg, r#"<path class="{class}" d="M{}z"/>"#, outline.join("L"));
        }
    }
}

/// Draws strips over intervals of the panel that show the values in their middle.
fn hits(svg: &mut String, panel: &Panel, route: &LearnedRoute, cost: &LearnedCost) {
    let every = (route.at_s.len() as f64 / MAX_TOLD).ceil().max(1.0) as usize;
    let ends = route.at_s.chunks(every).zip(cost.cost.chunks(every).zip(cost.error.chunks(every)));
    for (times, (costs, errors)) in ends {
        let middle = times.len() / 2;
        let (from, at) = (times[0], times[middle]);
        let step = panel.length / route.at_s.len() as f64;
        let mut told = format!("{} s\n{}, {}: ", figure_text(at.round()), route.pattern, cost.resource);
        let _ = write!(told, "learned {}", figure(costs[middle]));
        if let Some(error) = errors[middle] {
            let _ = write!(told, " ± {}", figure(error));
        }
        told += " %";
        let (x, width) = (panel.x(from), panel.x(from + step * times.len() as f64) - panel.x(from));
        let (y, height) = (panel.top, panel.bottom - panel.top);
        let _ = write!(
            svg,
            r#"<rect class="hit" x="{x:.1}" y="{y:.1}" width="{width:.2}" height="{height:.1}"><title>{}</title></rect>"#,
            escape(&told)
        );
    }
}
