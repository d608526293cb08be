//! Grouped bars, each a stack of parts, to compare several disciplines under the same traffic.
//!
//! Source of the form: Feng and Lin's mQoS (2005), Figs. 9, 10 and 12–14, which have a chart for each
//! scheduler. Here all share one axis, so that heights can be compared.

use std::fmt::Write as _;

use super::legend::{Legend, MARK};
use super::plot::{Panel, axis_for, escape, figure_text, text};
use super::{BORDER, CHARACTER, LEFT, LINE, MAX_CLASSES, STYLE, WHOLE};

const HEIGHT: f64 = 210.0;

/// Height of the labels below the panel: the names of the bars, and those of their groups.
const BELOW: f64 = 46.0;

/// Free fraction of a bar's room.
const GAP: f64 = 0.22;

/// Width of the widest bar. It makes a chart of few bars look like one of many.
const WIDEST: f64 = 46.0;

/// A bar chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Title of the chart, with the unit.
    pub title: String,
    /// Names of the parts, one per colour. Parts beyond the number of colours are not drawn.
    pub parts: Vec<String>,
    /// Groups from left to right.
    pub groups: Vec<BarGroup>,
}

/// Bars that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarGroup {
    /// Name of the group.
    pub name: String,
    /// Bars from left to right.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// Name of the bar.
    pub name: String,
    /// Heights from the bottom, one for each of [`Bars::parts`]. 0 is not drawn.
    pub parts: Vec<f64>,
    /// Published figure for its whole height.
    pub paper: Option<f64>,
}

impl Bar {
    fn height(&self) -> f64 {
        self.parts.iter().take(MAX_CLASSES).sum()
    }
}

/// The chart. Empty without bars.
pub fn bars(chart: &Bars) -> String {
    let count: usize = chart.groups.iter().map(|group| group.bars.len()).sum();
    if count == 0 {
        return String::new();
    }
    let width = WHOLE.width;
    let right = width - BORDER;
    let (entries, below) = legend(chart, right);
    let top = below + LINE;
    let all = || chart.groups.iter().flat_map(|group| &group.bars);
    let max = all().map(|bar| bar.height().max(bar.paper.unwrap_or(0.0))).fold(0.0, f64::max);
    // Half a bar of room between two groups.
    let places = count as f64 + 0.5 * chart.groups.len() as f64;
    let panel = Panel::new(LEFT..right, top..top + HEIGHT, places, axis_for(max));
    let name = escape(&chart.title);
    let mut svg = format!(
        r#"<svg class="weir" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {:.0}" role="img" aria-label="{name}"><title>{name}</title><style>{STYLE}</style>{entries}"#,
        panel.bottom + BELOW
    );
    panel.grid(&mut svg);
    text(&mut svg, "head", (panel.left, panel.top - 9.0), &chart.title);
    let mut place = 0.25;
    for group in &chart.groups {
        let from = place;
        for bar in &group.bars {
            draw(&mut svg, chart, &panel, place, (&group.name, bar));
            place += 1.0;
        }
        let room = panel.x(place) - panel.x(from);
        let middle = f64::midpoint(panel.x(from), panel.x(place));
        centred(&mut svg, "phase", (middle, panel.bottom + 36.0), &group.name, room);
        place += 0.5;
    }
    let (left, y) = (panel.left, panel.bottom);
    let _ = write!(svg, r#"<line class="axis" x1="{left:.1}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}"/></svg>"#);
    svg.push('\n');
    svg
}

fn legend(chart: &Bars, right: f64) -> (String, f64) {
    let mut legend = Legend::new(right);
    for (index, part) in chart.parts.iter().take(MAX_CLASSES).enumerate() {
        legend.entry(part, |svg, (x, y)| {
            let _ =
                write!(svg, r#"<rect class="bar c{index}" x="{x:.1}" y="{:.1}" width="{MARK}" height="10"/>"#, y - 5.0);
        });
    }
    if chart.groups.iter().flat_map(|group| &group.bars).any(|bar| bar.paper.is_some()) {
        legend.entry("published", |svg, (x, y)| {
            let _ = write!(svg, r#"<path class="plain paper" d="M{x:.1} {y:.1}h{MARK}"/>"#);
        });
    }
    legend.end()
}

/// Draws a bar with its value above it and its name below.
fn draw(svg: &mut String, chart: &Bars, panel: &Panel, place: f64, (group, bar): (&str, &Bar)) {
    let (from, to) = (panel.x(place), panel.x(place + 1.0));
    let (room, middle) = (to - from, f64::midpoint(from, to));
    let width = (room * (1.0 - GAP)).min(WIDEST);
    let left = middle - width / 2.0;
    let mut told = format!("{group}, {}: {}", bar.name, figure_text(bar.height()));
    let mut height = 0.0;
    for (index, part) in bar.parts.iter().take(MAX_CLASSES).enumerate().filter(|(_, part)| **part > 0.0) {
        let (low, high) = (panel.y(height), panel.y(height + part));
        height += part;
        let _ = write!(
            svg,
            r#"<rect class="bar c{index}" x="{left:.1}" y="{high:.1}" width="{width:.1}" height="{:.1}"/>"#,
            low - high
        );
        if let Some(name) = chart.parts.get(index) {
            let _ = write!(told, "\n{name}: {}", figure_text(*part));
        }
    }
    if let Some(paper) = bar.paper {
        let y = panel.y(paper);
        let _ = write!(svg, r#"<path class="plain paper" d="M{:.1} {y:.1}h{:.1}"/>"#, left - 3.0, width + 6.0);
        let _ = write!(told, "\npublished: {}", figure_text(paper));
    }
    let digits = if height < 10.0 { 2 } else { usize::from(height < 100.0) };
    let what = format!("{height:.digits$}");
    centred(svg, "tick", (middle, panel.y(height) - 4.0), &what, room);
    centred(svg, "tick", (middle, panel.bottom + 16.0), &bar.name, room);
    let _ = write!(
        svg,
        r#"<rect class="hit" x="{from:.1}" y="{:.1}" width="{room:.1}" height="{:.1}"><title>{}</title></rect>"#,
        panel.top,
        panel.bottom - panel.top,
        escape(&told)
    );
}

/// Writes text centred at a position, as much of it as there is room for.
fn centred(svg: &mut String, class: &str, (x, y): (f64, f64), what: &str, room: f64) {
    let max = (room / CHARACTER).max(1.0) as usize;
    let shown: String = match what.chars().count() {
        n if n <= max => what.to_owned(),
        _ => what.chars().take(max.saturating_sub(1).max(1)).chain(['…']).collect(),
    };
    let _ =
        write!(svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="middle">{}</text>"#, escape(&shown));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_every_bar_is_drawn_and_told() {
        let bar = |name: &str, parts: [f64; 2], paper| Bar { name: name.into(), parts: parts.to_vec(), paper };
        let group = |name: &str, bars| BarGroup { name: name.into(), bars };
        let chart = Bars {
            title: "Used, %".into(),
            parts: vec!["gold".into(), "<iron>".into()],
            groups: vec![
                group("none", vec![bar("cpu", [60.0, 30.0], None), bar("disk", [0.0, 45.0], None)]),
                group("mqos", vec![bar("cpu", [50.0, 50.0], Some(90.0))]),
            ],
        };
        let svg = bars(&chart);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
        // Two in the legend, and five parts. A part of height 0 is not drawn.
        assert_eq!(svg.matches("<rect class=\"bar").count(), 2 + 5);
        for told in ["&lt;iron&gt;", "none, disk: 45\n&lt;iron&gt;: 45", "published: 90", ">100<", ">45.0<"] {
            assert!(svg.contains(told), "{told}: {svg}");
        }
        assert_eq!(bars(&Bars::default()), "");
    }
}
