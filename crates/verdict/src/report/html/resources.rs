//! Charts and tables of resource usage by class.

use std::fmt::Write as _;

use super::escape;
use crate::report::{Form, Report, drawings, resources};

/// Everything about resources: charts per phase (or one chart over an axis), requests in flight over time,
/// and the values in tables. Empty if requests need only CPU time.
#[must_use]
pub fn resources(report: &Report<'_>) -> String {
    if !resources::any(report) {
        return String::new();
    }
    let mut html = String::from(
        "<h2>Resources</h2><p class=\"note\">Of all disciplines side by side, in the judged part of each phase; of several \
         seeds the medians. The parts of a class are what its served requests take, over what the machines have. \
         Waiting is the time at the gateway, processing that at the server.</p>",
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
    html + "<p class=\"note\">Of it: the class's part of what all served requests took of the resource. The row of all classes \
            has what the machines did, work for requests that were not served included.</p>"
}
