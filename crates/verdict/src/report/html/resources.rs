//! Charts and tables of resource usage by class.

use std::fmt::Write as _;

use super::escape;
use crate::report::{Report, drawings, resources};

/// Everything about resources: charts per phase (or one chart over an axis), requests in flight over time,
/// and the values in tables. Empty if requests need only CPU time.
#[must_use]
pub fn resources(report: &Report<'_>) -> String {
    let head = resources::head(report);
    if head.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<h2>Resources</h2><p class=\"note\">Of all disciplines side by side, in the judged part of each phase; of several \
         seeds the medians. The parts of a class are what its served requests take, over what the machines have. \
         Waiting is the time at the gateway, processing that at the server.</p>",
    );
    html += &papers(report);
    let mut heading = None;
    for drawing in drawings::resources(report) {
        if heading.as_ref() != Some(&drawing.heading) {
            let _ = write!(html, "<h3>{}</h3>", escape(&drawing.heading));
            heading = Some(drawing.heading);
        }
        let caption = match drawing.caption.as_str() {
            "" => String::new(),
            caption => format!("<figcaption>{}</figcaption>", escape(caption)),
        };
        let _ = write!(html, "<figure>{caption}{}</figure>", drawing.svg);
    }
    html + &table(report, &head)
}

fn papers(report: &Report<'_>) -> String {
    let pairs = resources::pairs(report);
    if pairs.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<div class=\"wide\"><table><tr><th class=\"l\">of all classes together<th class=\"l\">paper<th class=\"l\">ours</tr>",
    );
    for pair in pairs {
        let cells = [pair.what, pair.paper, pair.ours].map(|cell| format!("<td class=\"l\">{}", escape(&cell)));
        let _ = write!(html, "<tr>{}</tr>", cells.concat());
    }
    html + "</table></div>"
}

fn table(report: &Report<'_>, head: &[String]) -> String {
    let several = report.groups.len() > 1;
    let mut rows = String::new();
    for (index, phase) in report.outline.phases.iter().enumerate() {
        for (number, row) in resources::rows(report, index).into_iter().enumerate() {
            rows += if number == 0 { "<tr class=\"first\">" } else { "<tr>" };
            let name = if number == 0 { escape(&phase.name) } else { String::new() };
            let _ = write!(rows, "<td class=\"l\"><b>{name}</b><td class=\"l\">{}", escape(row.class));
            if several {
                let _ = write!(rows, "<td class=\"l\">{}", escape(row.by));
            }
            row.cells.iter().for_each(|cell| rows += &format!("<td>{}", escape(cell)));
            rows += "</tr>";
        }
    }
    let by = if several { format!("<th class=\"l\">{}", report.by) } else { String::new() };
    let heads: String = head.iter().map(|head| format!("<th>{}", escape(head))).collect();
    format!(
        "<div class=\"wide\"><table><tr><th class=\"l\">phase<th class=\"l\">class{by}{heads}</tr>{rows}</table></div>\
         <p class=\"note\">Of it: the class's part of what all served requests took of the resource. The row of all classes \
         has what the machines did, work for requests that were not served included.</p>"
    )
}
