//! Draws the cost of a coordinator against the size of its site, on logarithmic axes.

use std::fmt::Write as _;

use crate::cost::Cost;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 560.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 300.0;

/// Ends of the axes, as powers of ten: shares of the site, and each quantity.
const ACROSS: [f64; 2] = [1.0, 6.5];
const UP: [f64; 2] = [-2.0, 6.0];

const STYLE: &str = "\
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:#1f2328}\
.small{fill:#656d76;font-size:11px}.grid{stroke:#1f2328;stroke-opacity:.12}\
.c0{stroke:#0072b2;fill:#0072b2}.c1{stroke:#d55e00;fill:#d55e00}.c2{stroke:#009e73;fill:#009e73}\
polyline{fill:none!important;stroke-width:2}text.c0,text.c1,text.c2{stroke:none}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.grid{stroke:#e6edf3}\
.c0{stroke:#4aa8e0;fill:#4aa8e0}.c1{stroke:#f5894a;fill:#f5894a}.c2{stroke:#3ecf9f;fill:#3ecf9f}}";

/// A name, and the figure of a site.
type Quantity = (&'static str, fn(&Cost) -> f64);

/// Returns the picture.
pub fn svg(costs: &[Cost]) -> String {
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Messages, lines and CPU time of a coordinator against members times classes"><style>{STYLE}</style>"#
    );
    text(&mut out, "", (LEFT, 18.0), "Cost of the coordinator against the size of its site");
    text(&mut out, "small", (LEFT, BOTTOM + 36.0), "members × classes");
    for power in (UP[0] as i32..=UP[1] as i32).step_by(2) {
        let y = up(f64::from(power));
        let _ = write!(out, r#"<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1}" y2="{y:.1}"/>"#);
        let _ = write!(
            out,
            r#"<text class="small" x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 8.0,
            y + 4.0,
            figure(power)
        );
    }
    for power in 1..=6 {
        let x = across(f64::from(power));
        let _ = write!(out, r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{BOTTOM}"/>"#);
        let _ = write!(
            out,
            r#"<text class="small" x="{x:.1}" y="{}" text-anchor="middle">{}</text>"#,
            BOTTOM + 18.0,
            figure(power)
        );
    }
    let quantities: [Quantity; 3] = [
        ("messages/s", |cost| cost.messages_per_s),
        ("lines/s", |cost| cost.lines_per_s),
        ("% of a core", |cost| cost.cpu_percent),
    ];
    for (index, (name, of)) in quantities.into_iter().enumerate() {
        let points: Vec<(f64, f64)> = costs.iter().map(|cost| at(cost, of)).collect();
        let list: String = points.iter().map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
        let _ = write!(out, r#"<polyline class="c{index}" points="{list}"/>"#);
        for (x, y) in &points {
            let _ = write!(out, r#"<circle class="c{index}" cx="{x:.1}" cy="{y:.1}" r="3"/>"#);
        }
        if let Some((x, y)) = points.last() {
            text(&mut out, &format!("c{index}"), (x + 10.0, y + 4.0), name);
        }
    }
    out.push_str("</svg>\n");
    out
}

fn at(cost: &Cost, of: fn(&Cost) -> f64) -> (f64, f64) {
    let size = (cost.members * cost.classes) as f64;
    (across(size.log10()), up(of(cost).max(1e-2).log10()))
}

fn across(power: f64) -> f64 {
    LEFT + (RIGHT - LEFT) * (power - ACROSS[0]) / (ACROSS[1] - ACROSS[0])
}

fn up(power: f64) -> f64 {
    BOTTOM - (BOTTOM - TOP) * (power - UP[0]) / (UP[1] - UP[0])
}

fn figure(power: i32) -> String {
    match power {
        ..0 => format!("{:.2}", 10_f64.powi(power)),
        _ => 10_u64.pow(power as u32).to_string(),
    }
}

fn text(out: &mut String, class: &str, (x, y): (f64, f64), text: &str) {
    let _ = write!(out, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#);
}
