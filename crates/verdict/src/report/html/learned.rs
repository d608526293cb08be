//! Learned page tables: charts and a table.

use std::fmt::Write as _;

use super::escape;
use crate::report::{Report, drawings, learned};

/// Everything about learned costs: a chart per group over time, and the costs at the end of each phase.
/// Empty if nothing was learned.
#[must_use]
pub fn learned(report: &Report<'_>) -> String {
    let rows = learned::rows(report);
    if rows.is_empty() {
        return String::new();
    }
    let band = learned::band();
    let mut html = format!(
        "<h2>{}</h2><p class=\"note\">What the page table took a request of each route to cost, in percent of what a node \
         has in a second, a sample a second. Dashed: the true mean of what requests were drawn to take, in a band of ± {band} \
         within which a cost counts as found. Around the line its standard error. The dot is when the cost was found for good \
         after it had changed. Above each panel how it stood in the end, of the truth. The pointer on a figure shows its numbers.</p>",
        drawings::LEARNED
    );
    for drawing in drawings::learned(report) {
        let _ = write!(html, "<figure><figcaption>{}</figcaption>{}</figure>", escape(&drawing.caption), drawing.svg);
    }
    html += &learned::table(report, &rows).html();
    html + "<p class=\"note\">At the end of each phase. Of several seeds the medians, and how far off the worst was. \
            Costs below 0.1 % may be off by as much as 0.1 % may. Within: in how many seconds after which change of the \
            truth the cost was found, to stay so until the next.</p>"
}
