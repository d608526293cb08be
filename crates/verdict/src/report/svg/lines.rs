//! Figure of several quantities over time on one axis, for example the parts of a cluster used by its classes.

use std::fmt::Write as _;

use super::legend::{Legend, MARK};
use super::plot::{Panel, escape, text};
use super::{BORDER, LEFT, LINE, MAX_CLASSES, MULTIPLE, STYLE, seconds};

const HEIGHT: f64 = 190.0;

/// Height below the panel, for the values and the name of its axis.
const BELOW: f64 = 42.0;

/// One quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Name of the quantity.
    pub name: String,
    /// Seconds and value, in order of time.
    pub points: Vec<(f64, f64)>,
}

/// The figure of `lines` over `length` seconds. Lines beyond the number of colours are not drawn. `title`
/// names the quantity and its unit. The axis ends at `highest`.
pub fn over_time(title: &str, lines: &[Line], length: f64, highest: f64) -> String {
    let width = MULTIPLE.width;
    let mut legend = Legend::new(width - BORDER);
    for (index, line) in lines.iter().take(MAX_CLASSES).enumerate() {
        legend.entry(&line.name, |svg, (x, y)| {
            let _ = write!(svg, r#"<path class="served c{index}" d="M{x:.1} {y:.1}h{MARK}"/>"#);
        });
    }
    let (entries, below) = legend.end();
    let top = below + LINE;
    let panel = Panel::new(LEFT..width - BORDER, top..top + HEIGHT, length, highest);
    let name = escape(title);
    let mut svg = format!(
        r#"<svg class="weir" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {:.0}" role="img" aria-label="{name}"><title>{name}</title><style>{STYLE}</style>{entries}"#,
        panel.bottom + BELOW
    );
    panel.grid(&mut svg);
    text(&mut svg, "head", (panel.left, panel.top - 9.0), title);
    for (index, line) in lines.iter().take(MAX_CLASSES).enumerate() {
        panel.line(&mut svg, &format!("served c{index}"), line.points.iter().map(|(at, figure)| (*at, Some(*figure))));
    }
    seconds(&mut svg, &panel);
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_and_named() {
        let line = |name: &str, figure| Line { name: name.into(), points: vec![(0.0, figure), (10.0, figure)] };
        let svg = over_time("Use, %", &[line("class <1>", 20.0), line("class 2", 40.0)], 10.0, 50.0);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("class &lt;1&gt;") && svg.contains(r#"<path class="served c1" d="M62.0"#), "{svg}");
    }
}
