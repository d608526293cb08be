//! Learned page tables: charts and a table.

use std::fmt::Write as _;

use super::escape;
use crate::report::learned::{self, Cell, Row};
use crate::report::{Report, drawings};

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
    html + &table(report, &rows)
}

fn table(report: &Report<'_>, rows: &[Row<'_>]) -> String {
    let several = report.groups.len() > 1;
    let phases = &report.outline.phases;
    let mut html = String::from(
        "<div class=\"wide\"><table><tr><th rowspan=\"2\" class=\"l\">route<th rowspan=\"2\" class=\"l\">resource",
    );
    html += &if several { format!("<th rowspan=\"2\" class=\"l\">{}", report.by) } else { String::new() };
    let _ = write!(html, "<th rowspan=\"2\" class=\"l\">within {}, s", learned::band());
    html.extend(phases.iter().map(|phase| format!("<th colspan=\"4\" class=\"l part\">{}", escape(&phase.name))));
    html += "</tr><tr>";
    html.extend(phases.iter().map(|_| "<th class=\"part\">learned, %<th>±<th>true<th>off"));
    html += "</tr>";
    let mut last = "";
    for row in rows {
        let first = row.route != last;
        last = row.route;
        let (line, name) = if first { ("<tr class=\"first\">", row.route) } else { ("<tr>", "") };
        let _ = write!(html, "{line}<td class=\"l\"><b>{}</b><td class=\"l\">{}", escape(name), escape(row.resource));
        html += &if several { format!("<td class=\"l\">{}", escape(row.by)) } else { String::new() };
        let _ = write!(html, "<td class=\"l\">{}", escape(&row.within));
        html.extend(row.phases.iter().map(cell));
        html += "</tr>";
    }
    html + "</table></div><p class=\"note\">At the end of each phase. Of several seeds the medians, and how far off the worst was. \
            Costs below 0.1 % may be off by as much as 0.1 % may. Within: in how many seconds after which change of the \
            truth the cost was found, to stay so until the next.</p>"
}

fn cell(cell: &Cell) -> String {
    let class = if cell.found == Some(false) { "n" } else { "m" };
    format!(
        "<td class=\"part\">{}<td class=\"m\">{}<td>{}<td class=\"{class}\">{}",
        cell.learned, cell.error, cell.truth, cell.off
    )
}
