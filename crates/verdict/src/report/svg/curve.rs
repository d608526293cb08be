//! Figure of an experiment with phases that are points of a curve: served requests, response time and
//! percentage shed, each over the quantity that the phases vary. A figure shows one group. Colours are
//! classes. All figures use the same axes, so that groups can be compared by eye.
//!
//! Source of the form: Le Baron and Elkan, *A New Architecture for Differentiated Quality of Services in
//! Web Applications*, Fig. 1, which has these three variables (Sec. 6). Published points are drawn in the
//! figure of their discipline.

use std::fmt::Write as _;

use super::legend::{Legend, MARK, line};
use super::plot::{Panel, axis_for, escape, figure_text, log_axis_for, round_step, text, ticks};
use super::{BORDER, CHARACTER, LEFT, LINE, MAX_CLASSES, MULTIPLE, STYLE, WHOLE, limits};
use crate::report::curve::{Curve, CurveClass, Point};
use crate::report::{Group, OutlinedFigure, Spread};

const HEIGHT: f64 = 190.0;

/// Height of the labels below a panel: the values and the name of its axis, and the title of a panel underneath.
const BELOW: f64 = 66.0;

/// Ratio of response times from which they are drawn on a logarithmic scale. On a linear scale the smaller
/// ones would all lie at the bottom. Two powers of ten.
const LOGARITHMIC_FROM: f64 = 100.0;

/// Empty fraction of an axis that starts at 0 beyond which the axis starts later.
const MAX_EMPTY: f64 = 0.5;

/// Half the size of the mark of a published point, and of one of ours.
const PAPER: f64 = 4.5;
const DOT: f64 = 2.4;

/// One class of a group: its points, in order of the positions, and the published ones.
struct Drawn<'a> {
    class: &'a CurveClass<'a>,
    points: Vec<(f64, Option<Point>)>,
    paper: Vec<(f64, &'a OutlinedFigure)>,
}

/// Values of a point and of a published point, by panel: served, response time, shed.
const FIGURES: [fn(&Point) -> Option<Spread>; 3] = [|p| Some(p.served), |p| p.response, |p| Some(p.shed)];
const PAPERS: [fn(&OutlinedFigure) -> Option<f64>; 3] =
    [|f| f.served_per_s, |f| f.response_time_ms, |f| f.shed.map(|share| share * 100.0)];

/// The figure of one group, which belongs to the curve's report. If it is the only group, its panels are in
/// a row. Otherwise they are stacked.
pub fn curve(curve: &Curve<'_>, group: &Group) -> String {
    let across = curve.report.groups.len() == 1;
    let width = if across { WHOLE.width } else { MULTIPLE.width };
    let all: Vec<Drawn<'_>> = curve.report.groups.iter().flat_map(|group| drawn(curve, group)).collect();
    let drawn = drawn(curve, group);
    let (entries, below) = legend(curve, &all, width - BORDER);
    let panels = panels(curve, &all, across, width, below + LINE);
    let bottom = panels[2].bottom;
    let who = escape(&group.discipline);
    let axis = escape(curve.axis);
    let name = escape(&format!(
        "{}, {}, {}: requests served per second, response time and percentage shed at {} points from {} to {} {}",
        curve.report.outline.name,
        group.discipline,
        group.seeds(),
        curve.places.len(),
        curve.places[0].0,
        curve.places[curve.places.len() - 1].0,
        curve.axis
    ));
    let mut svg = format!(
        r#"<svg class="weir" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {:.0}" role="img" aria-label="{name}"><title>{who} over {axis}</title><style>{STYLE}</style>{entries}"#,
        bottom + 42.0
    );
    for ((panel, title), which) in panels.iter().zip(titles(curve, panels[1].lowest.is_some())).zip(0..) {
        panel.grid(&mut svg);
        text(&mut svg, "head", (panel.left, panel.top - 9.0), &title);
        across_axis(&mut svg, panel, curve.axis);
        lines(&mut svg, panel, &drawn, which);
    }
    hits(&mut svg, curve, &panels, &drawn);
    svg.push_str("</svg>\n");
    svg
}

fn drawn<'a>(curve: &'a Curve<'a>, group: &Group) -> Vec<Drawn<'a>> {
    let class = |class: &'a CurveClass<'a>| Drawn {
        class,
        points: curve.places.iter().map(|place| (place.0, curve.point(group, class, *place))).collect(),
        paper: curve
            .places
            .iter()
            .filter_map(|place| Some((place.0, curve.published(group, class, *place)?)))
            .collect(),
    };
    curve.classes.iter().take(MAX_CLASSES).map(class).collect()
}

/// The panels, with the same axes for all groups.
fn panels(curve: &Curve<'_>, all: &[Drawn<'_>], across: bool, width: f64, top: f64) -> [Panel; 3] {
    let of = |which: usize| -> Vec<f64> {
        let ours =
            all.iter().flat_map(|one| one.points.iter().filter_map(|(_, point)| FIGURES[which](point.as_ref()?)));
        let paper = all.iter().flat_map(|one| one.paper.iter().filter_map(|(_, figure)| PAPERS[which](figure)));
        ours.flat_map(|spread| [spread.min, spread.max]).chain(paper).collect()
    };
    let max = |figures: Vec<f64>| figures.into_iter().fold(0.0, f64::max);
    let owed = all.iter().flat_map(|one| one.points.iter().filter_map(|(_, point)| point.as_ref()?.owed));
    let served = axis_for(max(of(0)).max(max(owed.collect())));
    let times: Vec<f64> = of(1).into_iter().filter(|time| *time > 0.0).collect();
    let limit = max(all.iter().filter_map(|one| one.class.limit_ms).collect());
    let (min, longest) = (times.iter().copied().fold(f64::INFINITY, f64::min), max(times).max(limit));
    let response = if longest / min > LOGARITHMIC_FROM {
        let (lowest, highest) = log_axis_for(min, longest);
        (Some(lowest), highest)
    } else {
        (None, axis_for(longest))
    };
    let (start, length) = extent(curve.places[0].0, curve.places[curve.places.len() - 1].0);
    let scales = [(None, served), response, (None, 100.0)];
    let columns = if across { 3.0 } else { 1.0 };
    let wide = (width - BORDER - LEFT * columns) / columns;
    std::array::from_fn(|index| {
        let (column, row) = if across { (index, 0) } else { (0, index) };
        let left = LEFT + (wide + LEFT) * column as f64;
        let top = top + (HEIGHT + BELOW) * row as f64;
        let (lowest, highest) = scales[index];
        Panel { left, right: left + wide, top, bottom: top + HEIGHT, start, length, lowest, highest }
    })
}

/// Start and length of an axis for positions from `min` to `max`.
fn extent(min: f64, max: f64) -> (f64, f64) {
    if min < max && min / max > MAX_EMPTY {
        let step = round_step(max - min, 5.0);
        let start = (min / step).floor() * step;
        (start, max - start)
    } else {
        (0.0, if max > 0.0 { max } else { 1.0 })
    }
}

/// The legend: classes, and the dotted line, the area and the hollow marks if any group has them. The
/// panels of all groups therefore start at the same height.
fn legend(curve: &Curve<'_>, all: &[Drawn<'_>], right: f64) -> (String, f64) {
    let mut legend = Legend::new(right);
    for (index, class) in curve.classes.iter().take(MAX_CLASSES).enumerate() {
        legend.entry(class.name, |svg, (x, y)| {
            line(svg, &format!("served c{index}"), (x, y));
            dot(svg, index, (x + MARK / 2.0, y));
        });
    }
    let points = || all.iter().flat_map(|one| &one.points).filter_map(|(_, point)| *point);
    let floors = points().any(|point| point.owed.is_some());
    let limits = all.iter().any(|one| one.class.limit_ms.is_some());
    match (floors, limits) {
        (true, true) => legend.entry("owed, limit", |svg, at| line(svg, "plain promised", at)),
        (true, false) => legend.entry("owed", |svg, at| line(svg, "plain promised", at)),
        (false, true) => legend.entry("limit", |svg, at| line(svg, "plain promised", at)),
        (false, false) => {}
    }
    if points().any(|point| point.served.runs > 1) {
        legend.entry("smallest to largest", |svg, (x, y)| {
            let _ = write!(svg, r#"<path class="plain band" d="M{x:.1} {:.1}h{MARK}v10h-{MARK}z"/>"#, y - 5.0);
        });
    }
    if all.iter().any(|one| !one.paper.is_empty()) {
        legend.entry("published", |svg, (x, y)| diamond(svg, "plain paper", (x + MARK / 2.0, y)));
    }
    let more = curve.classes.len().saturating_sub(MAX_CLASSES);
    if more > 0 {
        legend.entry(&format!("{more} further classes are not drawn"), |_, _| ());
    }
    legend.end()
}

fn titles(curve: &Curve<'_>, logarithmic: bool) -> [String; 3] {
    let mut statistics: Vec<&str> = curve.classes.iter().map(|class| class.statistic).collect();
    statistics.sort_unstable();
    statistics.dedup();
    let scale = if logarithmic { ", log" } else { "" };
    let statistics = statistics.join(", ");
    ["Served, requests/s".into(), format!("Response time ({statistics}), ms{scale}"), "Shed, %".into()]
}

fn across_axis(svg: &mut String, panel: &Panel, name: &str) {
    let (left, right, y) = (panel.left, panel.right, panel.bottom);
    let _ = write!(svg, r#"<line class="axis" x1="{left:.1}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}"/>"#);
    let step = round_step(panel.length, (right - left) / 55.0);
    // Enough digits to tell one mark from the next.
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
    for at in ticks(panel.length, step).map(|at| panel.start + at) {
        let x = panel.x(at);
        let _ = write!(
            svg,
            r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{y:.1}" y2="{:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{at:.digits$}</text>"#,
            y + 4.0,
            y + 17.0
        );
    }
    let room = ((right - left) / CHARACTER) as usize;
    let name: String = name.chars().take(room).collect();
    let middle = f64::midpoint(left, right);
    let _ = write!(
        svg,
        r#"<text class="tick" x="{middle:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
        y + 33.0,
        escape(&name)
    );
}

/// Draws all values of the classes in a panel. Measured values are on top of guaranteed ones.
fn lines(svg: &mut String, panel: &Panel, drawn: &[Drawn<'_>], which: usize) {
    let spread = |point: &Option<Point>| point.as_ref().and_then(FIGURES[which]);
    for (index, one) in drawn.iter().enumerate() {
        band(svg, panel, index, one.points.iter().map(|(x, point)| (*x, spread(point))));
        match (which, one.class.limit_ms) {
            (0, _) => {
                let owed = one.points.iter().map(|(x, point)| (*x, point.and_then(|point| point.owed)));
                panel.line(svg, &format!("promised c{index}"), owed);
            }
            (1, Some(limit)) => {
                let ends = [panel.start, panel.start + panel.length].map(|x| (x, Some(limit)));
                panel.line(svg, &format!("limit c{index}"), ends.into_iter());
            }
            _ => {}
        }
    }
    if which == 1 {
        // On the left, where there is little load and room below the limits, and under the lines.
        let limited = drawn.iter().filter_map(|o| Some((o.class.name, o.class.statistic, o.class.limit_ms?)));
        limits(svg, panel, (panel.left + 4.0, "start"), limited);
    }
    for (index, one) in drawn.iter().enumerate() {
        let medians = || one.points.iter().map(|(x, point)| (*x, spread(point).map(|spread| spread.median)));
        panel.line(svg, &format!("served c{index}"), medians());
        for (x, figure) in medians() {
            figure.into_iter().for_each(|figure| dot(svg, index, (panel.x(x), panel.y(figure))));
        }
    }
    for (index, one) in drawn.iter().enumerate() {
        for (x, figure) in one.paper.iter().filter_map(|(x, figure)| Some((*x, PAPERS[which](figure)?))) {
            diamond(svg, &format!("paper c{index}"), (panel.x(x), panel.y(figure)));
        }
    }
}

/// Draws the area between the smallest and the largest of several runs. Positions without a value leave a gap.
fn band(svg: &mut String, panel: &Panel, class: usize, points: impl Iterator<Item = (f64, Option<Spread>)>) {
    let points: Vec<(f64, Option<Spread>)> = points.collect();
    for part in points.split(|(_, spread)| spread.is_none_or(|spread| spread.runs < 2)) {
        let at = |(x, spread): &(f64, Option<Spread>), of: fn(Spread) -> f64| {
            spread.map_or_else(String::new, |spread| format!("{:.1} {:.1}", panel.x(*x), panel.y(of(spread))))
        };
        let upper = part.iter().map(|point| at(point, |spread| spread.max));
        let lower = part.iter().rev().map(|point| at(point, |spread| spread.min));
        let corners: Vec<String> = upper.chain(lower).collect();
        if part.len() > 1 {
            let _ = write!(svg, r#"<path class="band c{class}" d="M{}z"/>"#, corners.join("L"));
        }
    }
}

fn dot(svg: &mut String, class: usize, (x, y): (f64, f64)) {
    let _ = write!(svg, r#"<circle class="dot c{class}" cx="{x:.1}" cy="{y:.1}" r="{DOT}"/>"#);
}

/// Draws a hollow mark.
fn diamond(svg: &mut String, class: &str, (x, y): (f64, f64)) {
    let _ = write!(
        svg,
        r#"<path class="{class}" d="M{x:.1} {:.1}l{PAPER} {PAPER}l-{PAPER} {PAPER}l-{PAPER} -{PAPER}z"/>"#,
        y - PAPER
    );
}

/// Draws a strip over every position of every panel that shows its values when the pointer is on it.
fn hits(svg: &mut String, curve: &Curve<'_>, panels: &[Panel], drawn: &[Drawn<'_>]) {
    let places: Vec<f64> = curve.places.iter().map(|(x, _)| *x).collect();
    for (i, x) in places.iter().enumerate() {
        let mut told = format!("{x} {}", curve.axis);
        for one in drawn {
            let Some(point) = one.points.get(i).and_then(|(_, point)| *point) else { continue };
            let _ = write!(told, "\n{}: {}/s served", one.class.name, point.served.text(1));
            let _ = point.owed.map_or(Ok(()), |owed| write!(told, " of {owed:.1}/s owed"));
            if let Some(response) = point.response {
                let _ = write!(told, ", {} {} ms", one.class.statistic, response.text(1));
            }
            let _ = write!(told, ", {} % shed", point.shed.text(1));
            if let Some((_, paper)) = one.paper.iter().find(|(at, _)| at == x) {
                told += &published(paper);
            }
        }
        let told = escape(&told);
        for panel in panels {
            let from = i.checked_sub(1).map_or(panel.start, |before| f64::midpoint(places[before], *x));
            let to = places.get(i + 1).map_or(panel.start + panel.length, |after| f64::midpoint(*x, *after));
            let (left, width) = (panel.x(from), panel.x(to) - panel.x(from));
            let (top, height) = (panel.top, panel.bottom - panel.top);
            let _ = write!(
                svg,
                r#"<rect class="hit" x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}"><title>{told}</title></rect>"#
            );
        }
    }
}

fn published(figure: &OutlinedFigure) -> String {
    let units = ["/s", " ms", " % shed"];
    let told = PAPERS.iter().zip(units).filter_map(|(of, unit)| Some(format!("{}{unit}", figure_text(of(figure)?))));
    format!("\n  published: {}", told.collect::<Vec<String>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_begins_at_0_unless_half_of_it_would_be_empty() {
        let all = [(5.0, 800.0), (0.0, 0.0), (7.0, 7.0), (92.0, 100.0), (60.0, 100.0)];
        let extents = all.map(|(min, max)| extent(min, max));
        assert_eq!(extents, [(0.0, 800.0), (0.0, 1.0), (0.0, 7.0), (92.0, 8.0), (60.0, 40.0)]);
    }
}
