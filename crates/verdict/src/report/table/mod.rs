//! Tables of reports, built once as cells and printed in two forms: columns of text for a terminal, and a
//! table of a page.
//!
//! A column or a row that only one of the forms shows says so where the table is built. Two rules hold for
//! all tables: a terminal leaves out columns that are empty below their heads, and a page separates groups
//! of rows with a line.

mod html;
mod text;

use super::summary::{Kept, Spread};

/// A form in which tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Columns of text in a terminal.
    Text,
    /// A table of an HTML page.
    Page,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
    /// The next row is the first of a group.
    starts: bool,
}

/// A column.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Its head on a page, and in text unless `text_head` differs.
    head: String,
    text_head: Option<String>,
    left_in_text: bool,
    left_on_page: bool,
    /// The only form that has it. `None` if both have it.
    only: Option<Form>,
    /// A page shows it only in the first row of a group.
    once: bool,
    /// A page leaves it out if it is empty.
    optional: bool,
    /// Text leaves out its zeros.
    blank_zero: bool,
    /// The head above it on a page.
    part: Option<Part>,
}

/// Head above several columns of a page.
#[derive(Clone, Debug)]
enum Part {
    /// The first of the columns, with the head.
    First(String),
    /// Another one of them.
    Later,
}

#[derive(Clone, Debug)]
struct Row {
    cells: Vec<Cell>,
    first: bool,
    published: bool,
    only: Option<Form>,
}

/// A cell: pieces of text with spaces in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pieces: Vec<(Style, String)>,
    tone: Option<Tone>,
}

/// Look of a piece of text on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Bold,
    Faint,
    /// The smallest and the largest of several values.
    Extremes,
}

/// Colour of a cell on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A guarantee was held, or a value is better.
    Good,
    /// A guarantee was missed, or a value is worse.
    Bad,
    /// The cell is of less importance, such as a limit that is impossible.
    Faint,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), ..Table::default() }
    }

    /// Makes the next row the first of a group.
    pub fn start_group(&mut self) {
        self.starts = true;
    }

    /// Adds a row. Columns without a cell at the end of the row are empty.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.add(cells, false, None);
    }

    /// Adds a row that only one form has.
    pub fn row_only<C: Into<Cell>>(&mut self, form: Form, cells: impl IntoIterator<Item = C>) {
        self.add(cells, false, Some(form));
    }

    /// Adds a row of published figures.
    pub fn published<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.add(cells, true, None);
    }

    fn add<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>, published: bool, only: Option<Form>) {
        let first = std::mem::take(&mut self.starts);
        self.rows.push(Row { cells: cells.into_iter().map(Into::into).collect(), first, published, only });
    }

    /// Whether it has no rows in a form.
    pub fn is_empty(&self, form: Form) -> bool {
        self.rows(form).next().is_none()
    }

    fn rows(&self, form: Form) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.only.is_none_or(|only| only == form))
    }

    fn columns(&self, form: Form) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(move |(_, column)| column.only.is_none_or(|only| only == form))
    }
}

impl Column {
    /// A column of numbers, which are aligned right.
    pub fn numbers(head: impl Into<String>) -> Column {
        Column { head: head.into(), ..Column::default() }
    }

    /// A column of words, which are aligned left.
    pub fn words(head: impl Into<String>) -> Column {
        Column { left_in_text: true, left_on_page: true, ..Column::numbers(head) }
    }

    /// A column of marks, such as `✔`, that belong to the numbers before them.
    pub fn marks(head: impl Into<String>) -> Column {
        Column { left_in_text: true, ..Column::numbers(head) }
    }

    /// Columns below a common head, which only a page has.
    pub fn part(head: &str, columns: impl IntoIterator<Item = Column>) -> impl Iterator<Item = Column> {
        let part = move |number| if number == 0 { Part::First(head.to_owned()) } else { Part::Later };
        columns.into_iter().enumerate().map(move |(number, column)| Column { part: Some(part(number)), ..column })
    }

    /// Gives it another head in text.
    #[must_use]
    pub fn in_text(self, head: impl Into<String>) -> Column {
        Column { text_head: Some(head.into()), ..self }
    }

    /// Shows it in one form only.
    #[must_use]
    pub fn only(self, form: Form) -> Column {
        Column { only: Some(form), ..self }
    }

    /// Shows it in text only, unless `page` is true.
    #[must_use]
    pub fn on_page_if(self, page: bool) -> Column {
        if page { self } else { self.only(Form::Text) }
    }

    /// Aligns it left on a page.
    #[must_use]
    pub fn left_on_page(self) -> Column {
        Column { left_on_page: true, ..self }
    }

    /// Shows it on a page only in the first row of each group.
    #[must_use]
    pub fn once(self) -> Column {
        Column { once: true, ..self }
    }

    /// Leaves it out of a page, too, if it is empty.
    #[must_use]
    pub fn optional(self) -> Column {
        Column { optional: true, ..self }
    }

    /// Leaves out zeros in text, and so the whole column if nothing was counted.
    #[must_use]
    pub fn blank_zero(self) -> Column {
        Column { blank_zero: true, ..self }
    }
}

impl Cell {
    fn piece(style: Style, text: impl Into<String>) -> Cell {
        let text = text.into();
        Cell { pieces: if text.is_empty() { Vec::new() } else { vec![(style, text)] }, tone: None }
    }

    /// Text that is bold on a page.
    pub fn bold(text: impl Into<String>) -> Cell {
        Cell::piece(Style::Bold, text)
    }

    /// Text that is grey on a page.
    pub fn faint(text: impl Into<String>) -> Cell {
        Cell::piece(Style::Faint, text)
    }

    /// The value. Several runs add the extremes, in smaller print on a page.
    pub fn spread(spread: Option<Spread>, digits: usize) -> Cell {
        let Some(spread) = spread else { return Cell::default() };
        let text = spread.text(digits);
        match text.split_once(' ') {
            Some((median, extremes)) => Cell::from(median).and(Cell::piece(Style::Extremes, extremes)),
            None => Cell::from(text),
        }
    }

    /// The median only, with one decimal.
    pub fn median(spread: Option<Spread>) -> Cell {
        Cell::from(spread.map_or(String::new(), |spread| format!("{:.1}", spread.median)))
    }

    /// Result of a guarantee. Empty without one.
    pub fn kept(kept: Option<Kept>) -> Cell {
        kept.map_or_else(Cell::default, |kept| {
            Cell::from(kept.text()).tone(if kept.missed == 0 { Tone::Good } else { Tone::Bad })
        })
    }

    /// `✔` or `✘`.
    pub fn holds(holds: bool) -> Cell {
        Cell::kept(Some(Kept { missed: usize::from(!holds), runs: 1 }))
    }

    /// Its pieces, followed by those of another cell.
    #[must_use]
    pub fn and(mut self, other: impl Into<Cell>) -> Cell {
        self.pieces.extend(other.into().pieces);
        self
    }

    /// Colours it.
    #[must_use]
    pub fn tone(self, tone: Tone) -> Cell {
        Cell { tone: Some(tone), ..self }
    }

    /// Whether it has no text.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::piece(Style::Plain, text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::piece(Style::Plain, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_empty_ones_are_left_out() {
        let mut table = Table::new([Column::words("class"), Column::numbers("empty"), Column::numbers("per s")]);
        table.row(["é", "", "7.5"]);
        table.row(["other one", "", "1000.5"]);
        assert_eq!(table.text("  "), "  class       per s\n  é             7.5\n  other one  1000.5\n");
    }

    #[test]
    fn each_form_has_its_own_columns_and_rows() {
        let of = Column::part("<A>", [Column::numbers("served/s").in_text("A/s"), Column::marks("")]);
        let mut columns = vec![Column::words("phase").once(), Column::words("by").only(Form::Page)];
        columns.extend(of.chain([Column::numbers("left").blank_zero(), Column::numbers("oracle").optional()]));
        let mut table = Table::new(columns);
        let spread = Spread::of([1.0, 2.0, 4.0].into_iter());
        table.start_group();
        let phase = || Cell::bold("surge").and(Cell::faint("not judged"));
        table.row([phase(), "x".into(), Cell::spread(spread, 1), Cell::holds(false), "0".into()]);
        table.row([phase(), "y".into(), Cell::median(spread), Cell::default(), "7".into()]);
        table.row_only(Form::Text, ["paper"]);
        let text = "\
phase                       A/s     left
surge not judged  2.0 (1.0–4.0)  ✘
surge not judged            2.0        7
paper
";
        assert_eq!(table.text(""), text);
        let page = "<div class=\"wide\"><table>\
            <tr><th rowspan=\"2\" class=\"l\">phase<th rowspan=\"2\" class=\"l\">by<th colspan=\"2\" class=\"l part\">&lt;A&gt;\
            <th rowspan=\"2\">left</tr><tr><th class=\"part\">served/s<th></tr>\
            <tr class=\"first\"><td class=\"l\"><b>surge</b> <span class=\"m\">not judged</span><td class=\"l\">x\
            <td class=\"part\">2.0 <span class=\"spread\">(1.0–4.0)</span><td class=\"n\">✘<td>0</tr>\
            <tr><td class=\"l\"><td class=\"l\">y<td class=\"part\">2.0<td><td>7</tr></table></div>";
        assert_eq!(table.html(), page);
    }
}
