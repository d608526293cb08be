//! A comparison as an HTML page.

use std::fmt::Write as _;

use weirgate_verdict::report::html::{document, escape};

use super::compare::Comparison;

impl Comparison {
    /// Returns the comparison as a page that needs no other file.
    pub fn html(&self) -> String {
        let [a, b] = [0, 1].map(|side| escape(&self.names[side]));
        let word = match (self.rows.len(), self.out().count()) {
            (0, _) => "none",
            (_, 0) => "held",
            _ => "broken",
        };
        let mut body = format!(
            "<h1>Two runs</h1><p><b>A</b> {a}<br><b>B</b> {b}</p><p><span class=\"word {word}\">{}</span></p>{}<p \
             class=\"note\">Medians over the seeds of each run, with the smallest and the largest value.</p>",
            escape(&self.result()),
            self.table().html()
        );
        if !self.missing.is_empty() {
            body += "<h2>Only in one of the two</h2><ul>";
            for missing in &self.missing {
                let _ = write!(body, "<li>{}: {}</li>", ["A", "B"][missing.side], escape(&missing.what));
            }
            body += "</ul>";
        }
        document("Two runs", &body)
    }
}
