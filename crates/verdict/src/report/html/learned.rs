//! Learned page tables: charts and a table.

use std::fmt::Write as _;

use super::escape;
use crate::report::{Report, drawings, learned};

/// Everything about learned costs: a chart per group over time, and the costs at the end of each phase.
/// Empty if nothing was learned.
pub fn learned(report: &Report<'_>) -> String {
    let rows = learned::rows(report);
    if rows.is_empty() {
        return String::new();
    }
    let band = learned::band();
    let mut html = format!(
        "<h2>{}</h2><p class=\"note\">The learned cost of a request of each route, in percent of a node's second, \
         sampled once a second. The area around the line is its standard error. Dashed: the true mean cost, in a band \
         of ± {band} within which a learned cost counts as found. The dot marks the time at which the cost was found \
         for good after a change. Above each panel: the learned cost at the end, and the true one. Point at a figure \
         to see its numbers.</p>",
        drawings::LEARNED
    );
    for drawing in drawings::learned(report) {
        let _ = write!(html, "<figure><figcaption>{}</figcaption>{}</figure>", escape(&drawing.caption), drawing.svg);
    }
    html += &learned::table(report, &rows).html();
    html + "<p class=\"note\">At the end of each phase. With several seeds: the medians, and the error of the worst. \
            A cost below 0.1 % may have the absolute error that 0.1 % may have. Within: seconds from each change of \
            the true cost until the learned cost was found and stayed so until the next change.</p>"
}
