//! Draws the study: for each figure, the change of goodput at half and at one and a half times its default,
//! and the additional misses. Dark means misses of guarantees that the defaults hold.

use std::fmt::Write as _;

use crate::report::Row;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 620.0;
const TOP: f64 = 74.0;
const LINE: f64 = 20.0;

/// Percent at the two ends of the axis. A value outside is drawn at the end with its number.
const ENDS: [f64; 2] = [-4.0, 2.0];

const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:#1f2328}\
.small{fill:#656d76;font-size:11px}.grid{stroke:#1f2328;stroke-opacity:.12}.zero{stroke:#1f2328;stroke-opacity:.6}\
.limit{stroke:#d1242f;stroke-opacity:.6;stroke-dasharray:4 3}.half{stroke:#0072b2;fill:#0072b2}.more{stroke:#d55e00;fill:#d55e00}\
.missed{fill:#d1242f;font-weight:600}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.grid,.zero{stroke:#e6edf3}.half{stroke:#4aa8e0;fill:#4aa8e0}\
.more{stroke:#f5894a;fill:#f5894a}.missed{fill:#ff8e85}.limit{stroke:#ff6b61}}";

/// Returns the picture.
pub fn svg(rows: &[Row]) -> String {
    let pairs: Vec<&[Row]> = rows.get(1..).unwrap_or_default().chunks_exact(2).collect();
    let bottom = TOP + LINE * pairs.len() as f64;
    let height = bottom + 26.0;
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Goodput and misses with every figure halved and half as large again"><style>{STYLE}</style>"#
    );
    text(&mut out, "", (LEFT, 18.0), "Change of goodput, the worst of three groups of experiments, %");
    mark(&mut out, "half", (LEFT + 6.0, 34.0), true);
    text(&mut out, "small", (LEFT + 18.0, 38.0), "× 0.5");
    mark(&mut out, "more", (LEFT + 76.0, 34.0), false);
    text(&mut out, "small", (LEFT + 88.0, 38.0), "× 1.5");
    text(&mut out, "small", (LEFT + 136.0, 38.0), "dashed: 2 % lost");
    text(&mut out, "", (RIGHT + 24.0, 18.0), "Further misses");
    text(&mut out, "small", (RIGHT + 24.0, 38.0), "guarantees");
    text(&mut out, "small", (RIGHT + 124.0, 38.0), "swarm, of 100");
    for percent in [-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0] {
        let class = match percent {
            -2.0 => "limit",
            0.0 => "zero",
            _ => "grid",
        };
        let x = at(percent);
        let _ = write!(
            out,
            r#"<line class="{class}" x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{bottom:.1}"/><text class="small" x="{x:.1}" y="{:.1}" text-anchor="middle">{percent:+}</text>"#,
            TOP - 14.0,
            TOP - 18.0
        );
    }
    for (index, pair) in pairs.iter().enumerate() {
        line(&mut out, TOP + LINE * index as f64, &pair[0], &pair[1]);
    }
    text(&mut out, "small", (LEFT, height - 8.0), "* set to the border of what the engine accepts");
    out.push_str("</svg>\n");
    out
}

fn line(out: &mut String, y: f64, half: &Row, more: &Row) {
    let star = if half.variant.exact && more.variant.exact { "" } else { " *" };
    let _ = write!(
        out,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}{star}</text><line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/>"#,
        LEFT - 10.0,
        y + 4.0,
        half.name()
    );
    for (row, class, hollow) in [(half, "half", true), (more, "more", false)] {
        let change = -row.loss();
        mark(out, class, (at(change), y), hollow);
        if change < ENDS[0] {
            text(out, "missed", (LEFT + 10.0 + if hollow { 0.0 } else { 46.0 }, y + 4.0), &format!("{change:.1}"));
        }
    }
    for (x, [a, b]) in [
        (RIGHT + 24.0, [half.more_misses(), more.more_misses()]),
        (RIGHT + 124.0, [half.more_swarm(), more.more_swarm()]),
    ] {
        let class = if a > 0 || b > 0 { "missed" } else { "small" };
        text(out, class, (x, y + 4.0), &format!("{a:+} / {b:+}").replace("+0", "0"));
    }
}

fn at(percent: f64) -> f64 {
    let part = (percent.clamp(ENDS[0], ENDS[1]) - ENDS[0]) / (ENDS[1] - ENDS[0]);
    LEFT + (RIGHT - LEFT) * part
}

fn mark(out: &mut String, class: &str, (x, y): (f64, f64), hollow: bool) {
    let fill = if hollow { r#" fill-opacity="0" stroke-width="1.8""# } else { "" };
    let _ = write!(out, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="4"{fill}/>"#);
}

fn text(out: &mut String, class: &str, (x, y): (f64, f64), what: &str) {
    let _ = write!(out, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{what}</text>"#);
}
