//! Outcomes of the pages of each class, for the classes with traffic that consists of pages.

use super::{PhaseRuns, Report, Spread};
use crate::judge::PageCounts;

/// Heads of the cells of a row.
pub(super) const HEAD: [&str; 6] = ["pages/s", "complete/s", "rejected", "rejected, %", "failed", "left"];

/// A class under one discipline in one phase.
pub(super) struct Row<'a> {
    pub(super) class: &'a str,
    /// Discipline, or approach.
    pub(super) by: &'a str,
    /// Cells in the order of [`HEAD`]. Several seeds give the median, the smallest and the largest.
    pub(super) cells: [String; 6],
}

/// A row per class and group. Classes without pages have none.
pub(super) fn rows<'a>(report: &Report<'a>, phase: usize) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for class in 0..report.class_count(phase) {
        for group in report.groups {
            let runs = PhaseRuns::new(&group.verdicts, phase).class(class);
            let show = |figure: fn(&PageCounts) -> f64, digits| {
                let spread: Option<Spread> = runs.option(|class| class.part.pages.as_ref().map(figure));
                spread.map(|spread| spread.text(digits))
            };
            let cells = [
                show(|p| p.offered_per_s, 1),
                show(|p| p.complete_per_s, 1),
                show(|p| p.rejected as f64, 0),
                show(|p| p.rejected_share * 100.0, 1),
                show(|p| p.failed as f64, 0),
                show(|p| p.left as f64, 0),
            ];
            if runs.any() && cells[0].is_some() {
                let cells = cells.map(Option::unwrap_or_default);
                rows.push(Row { class: runs.name(), by: &group.discipline, cells });
            }
        }
    }
    rows
}
