//! The figure of a run, in the form of the published ones: throughput per class over time above response time,
//! and below them the window and the queues. Phases and faults are shaded and named.
//!
//! Source of the form: Blanquer et al., *Quorum* (NSDI 2005), Figs. 9–11 and 13. Colours: Okabe and Ito's, which people
//! with any colour vision tell apart; lighter ones on a dark ground.

mod plot;

use std::fmt::Write as _;

use weirgate_config::{Experiment, Fault, FaultKind};

use super::series::{ClassSeries, Series};
use plot::{Panel, axis_for, round_step};
pub(crate) use plot::{escape, figure_text};

/// Size in pixels; it scales with the page.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 22.0;

/// Where the legend, the names of the phases and of the faults stand.
const LEGEND: f64 = 16.0;
const PHASES: f64 = 34.0;
const FAULT: f64 = 17.0;

/// Height of the panels, and what is between two: the title of the lower one.
const HEIGHTS: [f64; 4] = [190.0, 170.0, 84.0, 84.0];
const BETWEEN: f64 = 36.0;

/// As many classes as there are colours.
const MOST_CLASSES: usize = 7;

/// Response times beyond so many times the largest limit are drawn at the border: else everything within the limits
/// would lie flat at the bottom.
const CUT: f64 = 2.0;

/// A pixel per character and a bit: enough to know whether a name fits.
const CHARACTER: f64 = 6.4;

/// Colours and lines. No variables: not every program that draws SVG knows them.
const STYLE: &str = "\
.weir text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:#1f2328}\
.weir .head{font-weight:600}.weir .tick{fill:#656d76;font-size:11px}.weir .ground{fill:#fff;stroke:#fff;stroke-width:3px}.weir .phase{font-weight:600;text-anchor:middle}\
.weir .fault{fill:#b42318;font-size:11px}.weir .grid{stroke:#1f2328;stroke-opacity:.1}\
.weir .border{stroke:#1f2328;stroke-opacity:.35;stroke-dasharray:2 3}.weir .axis{stroke:#1f2328;stroke-opacity:.5}\
.weir .odd{fill:#57606a;fill-opacity:.07}.weir .settle{fill:#57606a;fill-opacity:.1}\
.weir .broken{fill:#d1242f;fill-opacity:.1}.weir .span{stroke:#d1242f;stroke-width:3}\
.weir path{fill:none;stroke-linejoin:round;stroke-linecap:round}\
.weir .served{stroke-width:2}.weir .offered{stroke-width:1.2;stroke-dasharray:5 4;stroke-opacity:.85}\
.weir .promised{stroke-width:1.1;stroke-dasharray:1 3.2}.weir .limit{stroke-width:1.1;stroke-dasharray:1 3.2}\
.weir .plain{stroke:#57606a;stroke-width:1.4}.weir .inside{stroke:#57606a;stroke-width:1;stroke-opacity:.6}\
.weir .hit{fill:#1f2328;fill-opacity:0}.weir .hit:hover{fill-opacity:.12}\
.weir .c0{stroke:#0072b2}.weir .c1{stroke:#d55e00}.weir .c2{stroke:#009e73}.weir .c3{stroke:#cc79a7}\
.weir .c4{stroke:#b58900}.weir .c5{stroke:#56b4e9}.weir .c6{stroke:#7a5195}\
@media (prefers-color-scheme:dark){.weir text{fill:#e6edf3}.weir .tick{fill:#9198a1}.weir .ground{fill:#0d1117;stroke:#0d1117}.weir .fault{fill:#ff8e85}\
.weir .grid,.weir .border,.weir .axis{stroke:#e6edf3}.weir .odd{fill:#9198a1;fill-opacity:.08}\
.weir .settle{fill:#9198a1;fill-opacity:.12}.weir .broken{fill:#ff6b61;fill-opacity:.14}.weir .span{stroke:#ff6b61}\
.weir .plain,.weir .inside{stroke:#b6bec8}.weir .hit{fill:#e6edf3}\
.weir .c0{stroke:#4aa8e0}.weir .c1{stroke:#f5894a}.weir .c2{stroke:#2cc295}.weir .c3{stroke:#e5a0c8}\
.weir .c4{stroke:#e3b341}.weir .c5{stroke:#8fd0f5}.weir .c6{stroke:#b794d6}}";

/// The figure of a run, with its colours in it: it can stand alone or in a page.
#[must_use]
pub fn figure(experiment: &Experiment, series: &Series) -> String {
    let classes: Vec<&ClassSeries> = series.classes.iter().take(MOST_CLASSES).collect();
    let faults: Vec<&Fault> = experiment.faults.iter().collect();
    let rows = lanes(&faults, series.length);
    let top = PHASES + 15.0 + FAULT * rows.iter().map(|row| row + 1).max().unwrap_or(0) as f64;
    let panels = panels(top, &classes, series);
    let bottom = panels[HEIGHTS.len() - 1].bottom;
    let height = bottom + 26.0;
    let name = escape(&format!("{} over time, seed {}", experiment.name, series.seed));
    let mut svg = format!(
        r#"<svg class="weir" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{name}"><style>{STYLE}</style>"#
    );
    legend(&mut svg, &classes, series);
    for panel in &panels {
        shades(&mut svg, experiment, panel, series.length);
        panel.grid(&mut svg);
    }
    names(&mut svg, experiment, &panels[0], bottom);
    for (fault, row) in faults.iter().zip(&rows) {
        fault_name(&mut svg, experiment, fault, (PHASES + 15.0 + FAULT * *row as f64, &panels[0]), series.length);
    }
    lines(&mut svg, &panels, &classes, series);
    seconds(&mut svg, &panels[HEIGHTS.len() - 1]);
    hits(&mut svg, (top, bottom), &panels[0], &classes, series);
    svg.push_str("</svg>\n");
    svg
}

fn panels(top: f64, classes: &[&ClassSeries], series: &Series) -> [Panel; 4] {
    let most = |figures: &mut dyn Iterator<Item = f64>| figures.fold(0.0, f64::max);
    let rates = |c: &&ClassSeries| {
        let guaranteed = c.guaranteed.iter().flatten();
        c.offered.iter().chain(&c.served).chain(guaranteed).copied().fold(0.0, f64::max)
    };
    let times = most(&mut classes.iter().flat_map(|c| c.response_ms.iter().flatten().copied()));
    let limits = most(&mut classes.iter().filter_map(|c| c.limit_ms));
    let state = series.window.iter().chain(&series.outstanding).map(|(_, n)| *n);
    let highest = [
        most(&mut classes.iter().map(rates)),
        if limits > 0.0 { times.clamp(limits, CUT * limits) } else { times },
        most(&mut state.into_iter()),
        most(&mut classes.iter().flat_map(|c| c.waiting.iter().map(|(_, n)| *n))),
    ];
    let mut at = top + 18.0;
    let mut index = 0;
    HEIGHTS.map(|height| {
        let panel = Panel {
            left: LEFT,
            right: RIGHT,
            top: at,
            bottom: at + height,
            length: series.length.max(f64::MIN_POSITIVE),
            highest: axis_for(highest[index]),
        };
        at += height + BETWEEN;
        index += 1;
        panel
    })
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), what: &str) {
    let _ = write!(svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escape(what));
}

fn legend(svg: &mut String, classes: &[&ClassSeries], series: &Series) {
    let mut x = LEFT;
    let mut entry = |svg: &mut String, class: &str, name: &str| {
        let _ = write!(svg, r#"<path class="{class}" d="M{x:.1} {:.1}h22"/>"#, LEGEND - 4.0);
        text(svg, "", (x + 27.0, LEGEND), name);
        x += 50.0 + name.chars().count() as f64 * CHARACTER;
    };
    for (index, class) in classes.iter().enumerate() {
        entry(svg, &format!("served c{index}"), &class.name);
    }
    for (class, name) in [("offered", "asked for"), ("served", "served"), ("promised", "guaranteed, limit")] {
        entry(svg, &format!("plain {class}"), name);
    }
    let more = series.classes.len() - classes.len();
    if more > 0 {
        entry(svg, "", &format!("{more} further classes are not drawn"));
    }
}

fn shades(svg: &mut String, experiment: &Experiment, panel: &Panel, length: f64) {
    for (index, phase) in experiment.phases.iter().enumerate() {
        let (from, to) = (experiment.phase_from(index).as_secs_f64(), phase.until.as_secs_f64());
        if index % 2 == 1 {
            panel.band(svg, "odd", from, to);
        }
        panel.band(
            svg,
            "settle",
            from,
            if phase.judged { (from + experiment.settle.as_secs_f64()).min(to) } else { to },
        );
    }
    for fault in &experiment.faults {
        if let Some(until) = lasts(fault, length) {
            panel.band(svg, "broken", fault.at.as_secs_f64(), until);
        }
    }
}

/// Until when a fault lasts, in seconds; `None` for what happens at one instant.
fn lasts(fault: &Fault, length: f64) -> Option<f64> {
    let until = fault.until.map_or(length, |until| until.as_secs_f64());
    (fault.kind != FaultKind::Reload && until > fault.at.as_secs_f64()).then_some(until)
}

/// Per fault a row in which its name does not meet another's.
fn lanes(faults: &[&Fault], length: f64) -> Vec<usize> {
    let mut ends: Vec<f64> = Vec::new();
    let per_pixel = length / (RIGHT - LEFT);
    let row = |fault: &&Fault| {
        let from = fault.at.as_secs_f64();
        // Names are at most so long, see `fault_name`.
        let to = lasts(fault, length).unwrap_or(from).max(from + 40.0 * CHARACTER * per_pixel);
        let row = ends.iter().position(|end| *end <= from).unwrap_or(ends.len());
        if row == ends.len() {
            ends.push(to);
        } else {
            ends[row] = to;
        }
        row
    };
    faults.iter().map(row).collect()
}

fn names(svg: &mut String, experiment: &Experiment, panel: &Panel, bottom: f64) {
    for (index, phase) in experiment.phases.iter().enumerate() {
        let from = panel.x(experiment.phase_from(index).as_secs_f64());
        let to = panel.x(phase.until.as_secs_f64());
        let room = ((to - from) / CHARACTER) as usize;
        let name = match phase.name.chars().count() {
            n if n <= room => phase.name.clone(),
            _ => phase.name.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
        };
        text(svg, "phase", (f64::midpoint(from, to), PHASES + 6.0), &name);
        if index > 0 {
            let top = PHASES - 6.0;
            let _ =
                write!(svg, r#"<line class="border" x1="{from:.1}" x2="{from:.1}" y1="{top:.1}" y2="{bottom:.1}"/>"#);
        }
    }
}

fn fault_name(svg: &mut String, experiment: &Experiment, fault: &Fault, (y, panel): (f64, &Panel), length: f64) {
    let from = panel.x(fault.at.as_secs_f64());
    let to = panel.x(lasts(fault, length).unwrap_or(fault.at.as_secs_f64())).max(from + 2.0);
    let _ =
        write!(svg, r#"<line class="span" x1="{from:.1}" x2="{to:.1}" y1="{:.1}" y2="{:.1}"/>"#, y + 14.0, y + 14.0);
    let name: String = fault_text(experiment, fault).chars().take(40).collect();
    // A name that would leave the figure ends at its border instead.
    let x = from.min(RIGHT - name.chars().count() as f64 * CHARACTER).max(LEFT);
    text(svg, "fault", (x, y + 10.0), &name);
}

/// A fault in words.
pub(crate) fn fault_text(experiment: &Experiment, fault: &Fault) -> String {
    let what = match fault.kind {
        FaultKind::Removed => "out".to_owned(),
        FaultKind::Crash => "crashed".to_owned(),
        FaultKind::Stall => "stalled".to_owned(),
        FaultKind::Slow(speed) => format!("at {} % of speed", figure_text(speed * 100.0)),
        FaultKind::FailFast(share) => format!("{} % fail at once", figure_text(share * 100.0)),
        FaultKind::LostReports => return "health reports lost".to_owned(),
        FaultKind::Reload => return "policy reloaded".to_owned(),
    };
    let name = |index: &usize| experiment.machines.get(*index).map_or("?", |machine| machine.name.as_str());
    let names: Vec<&str> = fault.machines.iter().map(name).collect();
    match names.len() {
        0..=3 => format!("{} {what}", names.join(", ")),
        n => format!("{n} machines {what}"),
    }
}

fn lines(svg: &mut String, panels: &[Panel; 4], classes: &[&ClassSeries], series: &Series) {
    let [rates, times, state, queues] = panels;
    let titles =
        ["Throughput, requests/s", "Response time, ms", "Window, and requests inside (thin)", "Waiting requests"];
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
        if let Some(limit) = class.limit_ms {
            let ends = [(0.0, Some(limit)), (series.length, Some(limit))];
            times.line(svg, &format!("limit c{index}"), ends.into_iter());
        }
        let response = class.response_ms.iter().enumerate().map(|(i, figure)| (middle(i), *figure));
        times.line(svg, &format!("served c{index}"), response);
        queues.line(svg, &format!("served c{index}"), class.waiting.iter().map(|(at, n)| (*at, Some(*n))));
    }
    limits(svg, times, classes);
    state.line(svg, "inside", series.outstanding.iter().map(|(at, n)| (*at, Some(*n))));
    state.line(svg, "plain", series.window.iter().map(|(at, n)| (*at, Some(*n))));
}

/// What each limit line is, all of one height in one text.
fn limits(svg: &mut String, panel: &Panel, classes: &[&ClassSeries]) {
    let mut named: Vec<(f64, String)> = Vec::new();
    for class in classes {
        let Some(limit) = class.limit_ms else { continue };
        let name = format!("{} {}", class.name, class.statistic);
        match named.iter_mut().find(|(at, _)| *at == limit) {
            Some((_, names)) => *names += &format!(", {name}"),
            None => named.push((limit, name)),
        }
    }
    for (limit, names) in named {
        let y = panel.y(limit) - 4.0;
        let what = escape(&format!("{names} ≤ {} ms", figure_text(limit)));
        let x = panel.right - 4.0;
        let _ = write!(svg, r#"<text class="tick ground" x="{x:.1}" y="{y:.1}" text-anchor="end">{what}</text>"#);
        let _ = write!(svg, r#"<text class="tick" x="{x:.1}" y="{y:.1}" text-anchor="end">{what}</text>"#);
    }
}

/// The axis of time.
fn seconds(svg: &mut String, panel: &Panel) {
    let (left, right, y) = (panel.left, panel.right, panel.bottom);
    let _ = write!(svg, r#"<line class="axis" x1="{left:.1}" x2="{right:.1}" y1="{y:.1}" y2="{y:.1}"/>"#);
    let step = match round_step(panel.length, 11.0) {
        // Minutes are rounder than fifties of seconds.
        step if (20.0..=50.0).contains(&step) => 30.0,
        step if step > 50.0 && step <= 100.0 => 60.0,
        step => step,
    };
    let mut at = 0.0;
    while at <= panel.length * 1.000_001 {
        let x = panel.x(at);
        let what = figure_text(at);
        let _ = write!(
            svg,
            r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{y:.1}" y2="{:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{what}{}</text>"#,
            y + 4.0,
            y + 17.0,
            if at == 0.0 { " s" } else { "" }
        );
        at += step;
    }
}

/// Over every point of time a strip that tells its figures when the pointer is on it.
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
        if let Some(inside) = at(&series.outstanding) {
            let _ = write!(told, "\ninside {inside}");
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
