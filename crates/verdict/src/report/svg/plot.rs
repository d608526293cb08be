//! Axes and lines: a small writer of SVG.

use std::fmt::Write as _;
use std::ops::Range;

/// A panel of the figure: a rectangle in pixels with the ranges of its axes. Time runs to the right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Panel {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    /// Seconds (x for a curve) at the left border.
    pub(crate) start: f64,
    /// Seconds from the left border to the right one.
    pub(crate) length: f64,
    /// Value at the lower border of a logarithmic scale. `None` means that it is 0, on a linear scale.
    pub(crate) lowest: Option<f64>,
    /// Value at the upper border.
    pub(crate) highest: f64,
}

impl Panel {
    /// Makes a panel of this place, with an axis from 0 to `length` across and one from 0 to `highest`.
    pub(crate) fn new(across: Range<f64>, down: Range<f64>, length: f64, highest: f64) -> Panel {
        let (left, right, top, bottom) = (across.start, across.end, down.start, down.end);
        Panel { left, right, top, bottom, start: 0.0, length, lowest: None, highest }
    }

    pub(crate) fn x(&self, seconds: f64) -> f64 {
        self.left + (self.right - self.left) * ((seconds - self.start) / self.length).clamp(0.0, 1.0)
    }

    /// Vertical position of a value. Values above the panel are drawn at its upper border.
    pub(crate) fn y(&self, figure: f64) -> f64 {
        let part = match self.lowest {
            None => figure / self.highest,
            // 0 has no logarithm. It is drawn at the lower border.
            Some(lowest) => (figure.max(lowest) / lowest).ln() / (self.highest / lowest).ln(),
        };
        self.bottom - (self.bottom - self.top) * part.clamp(0.0, 1.0)
    }

    /// Draws horizontal lines at round values, each with its value.
    pub(crate) fn grid(&self, svg: &mut String) {
        let step = round_step(self.highest, ((self.bottom - self.top) / 34.0).max(2.0));
        let marks: Vec<f64> = match self.lowest {
            None => ticks(self.highest, step).collect(),
            Some(lowest) => decades(lowest, self.highest).collect(),
        };
        for figure in marks {
            let y = self.y(figure);
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{:.1}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                self.left,
                self.right,
                self.left - 8.0,
                y + 4.0,
                if figure > 0.0 && figure < 0.01 { figure.to_string() } else { figure_text(figure) }
            );
        }
    }

    /// Draws a line through points (seconds, value). Points without a value leave a gap.
    pub(crate) fn line(&self, svg: &mut String, class: &str, points: impl Iterator<Item = (f64, Option<f64>)>) {
        let mut path = String::new();
        let mut pen = 'M';
        for (at, figure) in points {
            let Some(figure) = figure else {
                pen = 'M';
                continue;
            };
            let _ = write!(path, "{pen}{:.1} {:.1}", self.x(at), self.y(figure));
            pen = 'L';
        }
        if !path.is_empty() {
            let _ = write!(svg, r#"<path class="{class}" d="{path}"/>"#);
        }
    }

    /// Draws a rectangle over the whole height.
    pub(crate) fn band(&self, svg: &mut String, class: &str, from: f64, to: f64) {
        let (x, width) = (self.x(from), self.x(to) - self.x(from));
        let (top, height) = (self.top, self.bottom - self.top);
        let _ =
            write!(svg, r#"<rect class="{class}" x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}"/>"#);
    }
}

/// Marks of an axis from 0 to `highest`. Their number is limited whatever the values.
pub(crate) fn ticks(highest: f64, step: f64) -> impl Iterator<Item = f64> {
    (0..100_u32).map(move |i| f64::from(i) * step).take_while(move |at| *at <= highest * 1.000_001)
}

/// Powers of ten from `lowest`, which is one, to `highest`.
fn decades(lowest: f64, highest: f64) -> impl Iterator<Item = f64> {
    let first = lowest.log10().round() as i32;
    (first..first.saturating_add(40)).map(|power| 10_f64.powi(power)).take_while(move |at| *at <= highest * 1.000_001)
}

/// Limits of a logarithmic axis for values from `min` to `max`, both above 0: from the power of ten
/// below the smallest to 1, 2 or 5 times one above the largest.
pub(crate) fn log_axis_for(min: f64, max: f64) -> (f64, f64) {
    (10_f64.powf(min.log10().floor()), round_step(max * 1.04, 1.0))
}

/// Writes text at a position.
pub(crate) fn text(svg: &mut String, class: &str, (x, y): (f64, f64), what: &str) {
    let _ = write!(svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, escape(what));
}

/// 1, 2 or 5 times a power of ten, so that `highest` is reached in about `count` steps.
pub(crate) fn round_step(highest: f64, count: f64) -> f64 {
    let rough = highest / count;
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= rough * 0.999).unwrap_or(10.0);
    times * power
}

/// Upper end of an axis for values up to `max`: a little above the largest, and never 0.
pub(crate) fn axis_for(max: f64) -> f64 {
    let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
    let step = round_step(max, 8.0);
    ((max * 1.04) / step).ceil() * step
}

/// Formats a value without trailing zeros.
pub fn figure_text(figure: f64) -> String {
    let text = format!("{figure:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Escapes text for use between tags and in attributes. Characters that XML does not allow become spaces.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_figures_above_the_largest() {
        assert_eq!(
            [0.0, 0.7, 93.0, 2400.0, f64::NAN].map(axis_for).map(figure_text),
            ["1.2", "0.8", "100", "2500", "1.2"]
        );
        assert_eq!((round_step(2500.0, 5.0), round_step(100.0, 6.0)), (500.0, 20.0));
        assert_eq!([0.0, 0.25, 500.0, 1e6].map(figure_text), ["0", "0.25", "500", "1000000"]);
    }

    #[test]
    fn a_logarithmic_scale_has_the_same_room_for_each_power_of_ten() {
        assert_eq!((log_axis_for(3.0, 700.0), log_axis_for(0.5, 97.0)), ((1.0, 1000.0), (0.1, 200.0)));
        let (start, length) = (100.0, 200.0);
        let panel =
            Panel { left: 0.0, right: 100.0, top: 0.0, bottom: 30.0, start, length, lowest: Some(1.0), highest: 1e3 };
        assert_eq!([0.0, 1.0, 10.0, 100.0, 1e3, 1e9].map(|ms| panel.y(ms).round()), [30.0, 30.0, 20.0, 10.0, 0.0, 0.0]);
        assert_eq!([0.0, 100.0, 200.0, 300.0].map(|x| panel.x(x)), [0.0, 0.0, 50.0, 100.0]);
        assert_eq!(decades(0.1, 200.0).map(figure_text).collect::<Vec<_>>(), ["0.1", "1", "10", "100"]);
    }

    #[test]
    fn names_cannot_leave_their_place() {
        assert_eq!(escape("<a href=\"x\">&'\u{0}"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39; ");
    }

    #[test]
    fn gaps_lift_the_pen_and_figures_stay_inside() {
        let panel = Panel::new(0.0..100.0, 0.0..10.0, 10.0, 5.0);
        let mut svg = String::new();
        panel.line(&mut svg, "c0", [(0.0, Some(0.0)), (1.0, Some(50.0)), (2.0, None), (3.0, Some(5.0))].into_iter());
        assert_eq!(svg, r#"<path class="c0" d="M0.0 10.0L10.0 0.0M30.0 0.0"/>"#);
    }
}
