//! Events of an experiment marked in its figures: phases and faults.

use std::fmt::Write as _;

use super::CHARACTER;
use super::plot::{Panel, text};
use crate::report::outline::{Outline, OutlinedFault};

/// Maximum number of characters of a fault's name that are shown.
const MAX_SHOWN: usize = 40;

/// Height of the row of the phases' names, and of a row of faults.
const PHASES: f64 = 18.0;
const FAULT: f64 = 17.0;

/// Phases and faults, with the positions of their names above the panels.
pub(super) struct Marks<'a> {
    outline: &'a Outline,
    /// Row of each fault in which its name does not overlap another.
    rows: Vec<usize>,
    /// Position of the first row of names, and the borders of the panels.
    top: f64,
    left: f64,
    right: f64,
}

impl<'a> Marks<'a> {
    pub(super) fn new(outline: &'a Outline, (left, right): (f64, f64), top: f64, length: f64) -> Marks<'a> {
        let mut ends: Vec<f64> = Vec::new();
        let per_pixel = length / (right - left);
        let row = |fault: &OutlinedFault| {
            let name = fault.what.chars().count().min(MAX_SHOWN) as f64 * CHARACTER * per_pixel;
            // A name that would leave the figure is moved to the left.
            let from = fault.from_s.min(length - name);
            let to = fault.to_s.unwrap_or(fault.from_s).max(from + name);
            let row = ends.iter().position(|end| *end <= from).unwrap_or(ends.len());
            match ends.get_mut(row) {
                Some(end) => *end = to,
                None => ends.push(to),
            }
            row
        };
        let rows = outline.faults.iter().map(row).collect();
        Marks { outline, rows, top, left, right }
    }

    /// Bottom of the names, where the panels may start.
    pub(super) fn bottom(&self) -> f64 {
        self.top + PHASES - 3.0 + FAULT * self.rows.iter().map(|row| row + 1).max().unwrap_or(0) as f64
    }

    /// Draws the background of a panel.
    pub(super) fn shades(&self, svg: &mut String, panel: &Panel) {
        for (index, phase) in self.outline.phases.iter().enumerate() {
            if index % 2 == 1 {
                panel.band(svg, "odd", phase.from_s, phase.to_s);
            }
            let settled = (phase.from_s + self.outline.settle_s).min(phase.to_s);
            panel.band(svg, "settle", phase.from_s, if phase.judged { settled } else { phase.to_s });
        }
        for fault in &self.outline.faults {
            if let Some(until) = fault.to_s {
                panel.band(svg, "broken", fault.from_s, until);
            }
        }
    }

    /// Draws the names of phases and faults, and the borders of phases down to `bottom`.
    pub(super) fn names(&self, svg: &mut String, panel: &Panel, bottom: f64) {
        for (index, phase) in self.outline.phases.iter().enumerate() {
            let (from, to) = (panel.x(phase.from_s), panel.x(phase.to_s));
            let room = ((to - from) / CHARACTER) as usize;
            let name = match phase.name.chars().count() {
                n if n <= room => phase.name.clone(),
                _ => phase.name.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
            };
            text(svg, "phase", (f64::midpoint(from, to), self.top + 6.0), &name);
            if index > 0 {
                let top = self.top - 6.0;
                let _ = write!(
                    svg,
                    r#"<line class="border" x1="{from:.1}" x2="{from:.1}" y1="{top:.1}" y2="{bottom:.1}"/>"#
                );
            }
        }
        for (fault, row) in self.outline.faults.iter().zip(&self.rows) {
            self.fault(svg, panel, fault, self.top + PHASES - 3.0 + FAULT * *row as f64);
        }
    }

    fn fault(&self, svg: &mut String, panel: &Panel, fault: &OutlinedFault, y: f64) {
        let from = panel.x(fault.from_s);
        let to = panel.x(fault.to_s.unwrap_or(fault.from_s)).max(from + 2.0);
        let _ = write!(
            svg,
            r#"<line class="span" x1="{from:.1}" x2="{to:.1}" y1="{:.1}" y2="{:.1}"/>"#,
            y + 14.0,
            y + 14.0
        );
        let name: String = fault.what.chars().take(MAX_SHOWN).collect();
        // A name that would leave the figure ends at its border instead.
        let x = from.min(self.right - name.chars().count() as f64 * CHARACTER).max(self.left);
        text(svg, "fault", (x, y + 10.0), &name);
    }
}
