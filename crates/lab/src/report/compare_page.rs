//! A comparison as an HTML page.

use std::fmt::Write as _;

use weirgate_verdict::report::html::{document, escape};

use super::compare::{Comparison, Gap, Row, cells_of};

impl Comparison {
    /// Returns the comparison as a page that needs no other file.
    #[must_use]
    pub fn html(&self) -> String {
        let [a, b] = [0, 1].map(|side| escape(&self.names[side]));
        let word = match (self.rows.len(), self.out().count()) {
            (0, _) => "none",
            (_, 0) => "held",
            _ => "broken",
        };
        let mut body = format!(
            "<h1>Two runs</h1><p><b>A</b> {a}<br><b>B</b> {b}</p><p><span class=\"word {word}\">{}</span></p>\
             <div class=\"wide\"><table><tr><th class=\"l\">approach<th class=\"l\">phase<th class=\"l\">class<th>served/s A<th>B\
             <th>B − A<th><th class=\"l\"><th>response time, ms A<th>B<th>B − A<th></tr>",
            escape(&self.result())
        );
        let mut last = None;
        for row in &self.rows {
            let part = Some((&row.approach, &row.phase));
            body += if part == last { "<tr>" } else { "<tr class=\"first\">" };
            last = part;
            body += &cells(row);
        }
        body +=
            "</table></div><p class=\"note\">Medians over the seeds of each run, and the least and the largest.</p>";
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

fn cells(row: &Row) -> String {
    let mut html: String =
        [&row.approach, &row.phase, &row.class].map(|name| format!("<td class=\"l\">{}", escape(name))).concat();
    html += &figures(&row.served, row.judged);
    let _ = write!(html, "<td class=\"l m\">{}", escape(&row.statistic));
    html += &row.response.as_ref().map_or("<td><td><td><td>".to_owned(), |gap| figures(gap, row.judged));
    html + "</tr>"
}

fn figures(gap: &Gap, judged: bool) -> String {
    let [a, b, percent, mark] = cells_of(gap, judged);
    let class = if judged && gap.out() { "n" } else { "m" };
    format!("<td>{a}<td>{b}<td class=\"{class}\">{percent}<td class=\"{class}\">{mark}")
}
