//! Columns of text.

use super::{Cell, Column, Form, Row, Table};

impl Table {
    /// The lines, each after `indent`. The first one is the head. A column that is empty below its head is
    /// left out.
    pub fn text(&self, indent: &str) -> String {
        let columns: Vec<(usize, &Column)> = self.columns(Form::Text).collect();
        let heads = columns.iter().map(|(_, column)| column.text_head.as_ref().unwrap_or(&column.head).clone());
        let mut lines: Vec<Vec<String>> = vec![heads.collect()];
        lines.extend(self.rows(Form::Text).map(|row| columns.iter().map(|column| content(row, *column)).collect()));
        let widest = |lines: &[Vec<String>], at: usize| lines.iter().map(|line| line[at].chars().count()).max();
        let used = (0..columns.len()).filter(|at| widest(&lines[1..], *at).unwrap_or(0) > 0);
        let used: Vec<(usize, usize)> = used.map(|at| (at, widest(&lines, at).unwrap_or(0))).collect();
        let mut text = String::new();
        for line in &lines {
            let mut padded = String::new();
            for &(at, width) in &used {
                let content = &line[at];
                padded += &match columns[at].1.left_in_text {
                    true => format!("{content:<width$}  "),
                    false => format!("{content:>width$}  "),
                };
            }
            text += &format!("{indent}{}\n", padded.trim_end());
        }
        text
    }
}

/// Text of a row in a column.
fn content(row: &Row, (index, column): (usize, &Column)) -> String {
    let text = row.cells.get(index).map_or(String::new(), Cell::text);
    if column.blank_zero && text == "0" { String::new() } else { text }
}

impl Cell {
    /// Its text in a terminal.
    fn text(&self) -> String {
        self.pieces.iter().map(|(_, text)| text.as_str()).collect::<Vec<&str>>().join(" ")
    }
}
