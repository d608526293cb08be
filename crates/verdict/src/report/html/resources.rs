//! Charts and tables of resource usage by class.

use std::fmt::Write as _;

use super::escape;
use crate::report::{Form, Report, drawings, resources};

/// Everything about resources: charts per phase (or one chart over an axis), requests in flight over time,
/// and the values in tables. Empty if requests need only CPU time.
pub fn resources(report: &Report<'_>) -> String {
    if !resources::any(report) {
        return String::new();
    }
    let mut html = String::from(
        "<h2>Resources</h2><p class=\"note\">All disciplines side by side, in the judged part of each phase. With \
         several seeds, figures are medians. The part of a class is the work of its served requests over the capacity \
         of the machines. Waiting is the time at the gateway, and processing the time at the server.</p>",
    );
    let pairs = resources::pairs(report);
    html += &if pairs.is_empty(Form::Page) { String::new() } else { pairs.html() };
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
    html += &resources::table(report, 0..report.outline.phases.len()).html();
    html + "<p class=\"note\">Of it: the class's part of the work of all served requests on the resource. The row of \
            all classes has all work of the machines, also for requests that were not served.</p>"
}
