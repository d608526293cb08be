//! Tables of a page. The classes are those of the page's style.

use super::{Cell, Column, Form, Part, Row, Style, Table, Tone};
use crate::report::svg::escape;

impl Table {
    /// The table as HTML, which scrolls sideways where it is too wide.
    pub fn html(&self) -> String {
        let is_used =
            |index: usize| self.rows(Form::Page).any(|row| row.cells.get(index).is_some_and(|cell| !cell.is_empty()));
        let columns: Vec<(usize, &Column)> =
            self.columns(Form::Page).filter(|(index, column)| !column.optional || is_used(*index)).collect();
        let rows: String = self.rows(Form::Page).map(|row| line(row, &columns)).collect();
        format!("<div class=\"wide\"><table>{}{rows}</table></div>", heads(&columns))
    }
}

/// The heads. Columns with a common head have theirs in a second row.
fn heads(columns: &[(usize, &Column)]) -> String {
    let two = columns.iter().any(|(_, column)| column.part.is_some());
    let [mut upper, mut lower] = ["<tr>".to_owned(), "<tr>".to_owned()];
    for (at, (_, column)) in columns.iter().enumerate() {
        let head = format!("{}>{}", class(column, None), escape(&column.head));
        match &column.part {
            None if two => upper += &format!("<th rowspan=\"2\"{head}"),
            None => upper += &format!("<th{head}"),
            Some(part) => {
                if let Part::First(name) = part {
                    let later = columns[at + 1..].iter().take_while(|(_, next)| matches!(next.part, Some(Part::Later)));
                    let all = later.count() + 1;
                    upper += &format!("<th colspan=\"{all}\" class=\"l part\">{}", escape(name));
                }
                lower += &format!("<th{head}");
            }
        }
    }
    if two { format!("{upper}</tr>{lower}</tr>") } else { upper + "</tr>" }
}

fn line(row: &Row, columns: &[(usize, &Column)]) -> String {
    let mut html = match (row.first, row.published) {
        (true, _) => "<tr class=\"first\">",
        (_, true) => "<tr class=\"paper\">",
        _ => "<tr>",
    }
    .to_owned();
    for (index, column) in columns {
        let cell = row.cells.get(*index).filter(|_| row.first || !column.once);
        let content = cell.map_or(String::new(), Cell::html);
        html += &format!("<td{}>{content}", class(column, cell.and_then(|cell| cell.tone)));
    }
    html + "</tr>"
}

/// Attribute with the classes of a cell. Empty if there are none.
fn class(column: &Column, tone: Option<Tone>) -> String {
    let tone = tone.map(|tone| match tone {
        Tone::Good => "y",
        Tone::Bad => "n",
        Tone::Faint => "m",
    });
    let left = column.left_on_page.then_some("l");
    let part = matches!(column.part, Some(Part::First(_))).then_some("part");
    let classes: Vec<&str> = left.into_iter().chain(part).chain(tone).collect();
    if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) }
}

impl Cell {
    /// Its content on a page.
    fn html(&self) -> String {
        let piece = |(style, text): &(Style, String)| {
            let text = escape(text);
            match style {
                Style::Plain => text,
                Style::Bold => format!("<b>{text}</b>"),
                Style::Faint => format!("<span class=\"m\">{text}</span>"),
                Style::Extremes => format!("<span class=\"spread\">{text}</span>"),
            }
        };
        self.pieces.iter().map(piece).collect::<Vec<String>>().join(" ")
    }
}
