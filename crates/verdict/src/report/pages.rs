//! Table of the outcomes of the pages of each class, for the classes with traffic that consists of pages.

use super::{Cell, Column, PhaseRuns, Report, Table};
use crate::judge::PageCounts;

/// The table of these phases, with a row per class and group. Classes without pages have none. A terminal
/// has a table per phase.
pub(super) fn table(report: &Report<'_>, phases: impl IntoIterator<Item = usize>) -> Table {
    let heads = ["pages/s", "complete/s", "rejected", "rejected, %", "failed", "left"];
    let mut table = Table::new(report.columns_of_phases("pages of").chain(heads.map(Column::numbers)));
    for index in phases {
        table.start_group();
        for class in 0..report.class_count(index) {
            for group in report.groups {
                let runs = PhaseRuns::new(&group.verdicts, index).class(class);
                let show = |figure: fn(&PageCounts) -> f64, digits| {
                    Cell::spread(runs.option(|class| class.part.pages.as_ref().map(figure)), digits)
                };
                let cells = [
                    show(|p| p.offered_per_s, 1),
                    show(|p| p.complete_per_s, 1),
                    show(|p| p.rejected as f64, 0),
                    show(|p| p.rejected_share * 100.0, 1),
                    show(|p| p.failed as f64, 0),
                    show(|p| p.left as f64, 0),
                ];
                if runs.any() && !cells[0].is_empty() {
                    table.row(report.names(index, runs.name(), group).into_iter().chain(cells));
                }
            }
        }
    }
    table
}
