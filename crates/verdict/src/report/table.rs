//! Columns of text.

/// A table. Its first line is the head.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns that are aligned left. All others, which hold numbers, are aligned right.
    left: Vec<usize>,
}

impl Table {
    /// A table with these columns. Those in `left` hold words.
    #[must_use]
    pub fn new(head: &[&str], left: &[usize]) -> Table {
        Table { rows: vec![head.iter().map(|&name| name.to_owned()).collect()], left: left.to_vec() }
    }

    /// Adds a line.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The lines, each after `indent`. A column that is empty below its head is left out.
    #[must_use]
    pub fn lines(&self, indent: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |text| text.chars().count());
        let used = |column: &usize| self.rows.iter().skip(1).any(|row| cell(row, *column) > 0);
        let used: Vec<usize> = (0..columns).filter(used).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for &column in &used {
                let width = self.rows.iter().map(|row| cell(row, column)).max().unwrap_or(0);
                let content = row.get(column).map_or("", String::as_str);
                if self.left.contains(&column) {
                    line += &format!("{content:<width$}  ");
                } else {
                    line += &format!("{content:>width$}  ");
                }
            }
            text += &format!("{indent}{}\n", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_empty_ones_are_left_out() {
        let mut table = Table::new(&["class", "empty", "per s"], &[0]);
        table.row(vec!["é".into(), String::new(), "7.5".into()]);
        table.row(vec!["other one".into(), String::new(), "1000.5".into()]);
        assert_eq!(table.lines("  "), "  class       per s\n  é             7.5\n  other one  1000.5\n");
    }
}
