//! Legend of a figure: entries side by side, in as many rows as needed.

use std::fmt::Write as _;

use super::plot::text;
use super::{CHARACTER, LEFT, LINE};

/// Width of the mark in front of an entry's name.
pub(super) const MARK: f64 = 22.0;

/// Draws a line as the mark of an entry.
pub(super) fn line(svg: &mut String, class: &str, (x, y): (f64, f64)) {
    let _ = write!(svg, r#"<path class="{class}" d="M{x:.1} {y:.1}h{MARK}"/>"#);
}

/// A legend that is being written.
pub(super) struct Legend {
    svg: String,
    right: f64,
    x: f64,
    y: f64,
}

impl Legend {
    /// An empty legend with its right border at `right`.
    pub(super) fn new(right: f64) -> Legend {
        Legend { svg: String::new(), right, x: LEFT, y: LINE - 2.0 }
    }

    /// Adds an entry. `mark` draws the mark in front of its name from a position on, [`MARK`] wide.
    pub(super) fn entry(&mut self, name: &str, mark: impl FnOnce(&mut String, (f64, f64))) {
        let width = MARK + 28.0 + name.chars().count() as f64 * CHARACTER;
        if self.x > LEFT && self.x + width - MARK > self.right {
            (self.x, self.y) = (LEFT, self.y + LINE);
        }
        mark(&mut self.svg, (self.x, self.y - 4.0));
        text(&mut self.svg, "", (self.x + MARK + 5.0, self.y), name);
        self.x += width;
    }

    /// The legend, and the position of the line below it.
    pub(super) fn end(self) -> (String, f64) {
        (self.svg, self.y + LINE)
    }
}
