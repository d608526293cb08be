//! The figure of a grid: a square for each result, in rows by discipline and columns by cell.
//!
//! Its colour tells whether the guarantees were held, and the letters in it say so again, for readers who do not see
//! the difference between the colours. A bar at its foot is the served share of the possible load.

use std::fmt::Write as _;

use super::plot::{escape, text};
use super::{CHARACTER, LINE, STYLE, WHOLE};
use crate::report::grid::{Grid, Reached, Row};

/// Size of a square.
const SQUARE: (f64, f64) = (72.0, 30.0);

/// Free room between two squares.
const GAP: f64 = 3.0;

/// Height of the bar that tells the served share.
const BAR: f64 = 4.0;

/// Colours of the squares: a colour with its strength for all runs, some runs and no run.
const COLOURS: &str = "\
.weir .square{stroke:none}.weir .held{fill:#009e73;fill-opacity:.3}.weir .some{fill:#e69f00;fill-opacity:.38}\
.weir .none{fill:#d1242f;fill-opacity:.34}.weir .load{fill:#1f2328;fill-opacity:.55;stroke:none}\
.weir .all{fill:#1f2328;fill-opacity:.1;stroke:none}.weir .cell{text-anchor:middle}\
@media (prefers-color-scheme:dark){.weir .load{fill:#e6edf3}.weir .all{fill:#e6edf3;fill-opacity:.16}}";

/// Free room between two rows of a grid that are side by side.
const ASIDE: f64 = 24.0;

/// Draws a grid, as many of its rows side by side as a page has room for.
pub fn grid_figure(grid: &Grid) -> String {
    let names: Vec<&str> = grid.disciplines().collect();
    let left = 14.0 + CHARACTER * names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let most = grid.rows.iter().map(|row| row.cells.len()).max().unwrap_or(0) as f64;
    let part = left + most * (SQUARE.0 + GAP) + ASIDE;
    let aside = (((WHOLE.width + ASIDE) / part).floor() as usize).max(1);
    let width = WHOLE.width.max(part);
    let height = 2.0 * LINE + 6.0 + names.len() as f64 * (SQUARE.1 + GAP);
    let mut body = String::new();
    text(&mut body, "head", (4.0, LINE), &grid.title);
    let note =
        "held: every guarantee in every run; 3/5: in 3 of 5 runs; bar: served share of the load that could be served";
    text(&mut body, "tick", (4.0, 2.0 * LINE), note);
    for (index, row) in grid.rows.iter().enumerate() {
        let corner = ((index % aside) as f64 * part, 3.2 * LINE + (index / aside) as f64 * height);
        draw_row(&mut body, corner, row, (&names, left));
    }
    let height = 3.2 * LINE + grid.rows.len().div_ceil(aside) as f64 * height;
    let title = escape(&grid.title);
    format!(
        r#"<svg class="weir" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{title}"><title>{title}</title><style>{STYLE}{COLOURS}</style>{body}</svg>"#
    )
}

/// Draws a row of a grid below and right of a point. Its squares begin `left` pixels right of it.
fn draw_row(svg: &mut String, (from, mut y): (f64, f64), row: &Row, (names, left): (&[&str], f64)) {
    text(svg, "head", (from + 4.0, y), &row.row);
    y += LINE;
    let column = |at: usize| from + left + at as f64 * (SQUARE.0 + GAP);
    for (at, cell) in row.cells.iter().enumerate() {
        text(svg, "tick cell", (column(at) + SQUARE.0 / 2.0, y), &cell.name);
    }
    y += 6.0;
    for (line, name) in names.iter().enumerate() {
        text(svg, "", (from + 4.0, y + SQUARE.1 / 2.0 + 4.0), name);
        for (at, cell) in row.cells.iter().enumerate() {
            if let Some(reached) = cell.results.get(line) {
                square(svg, (column(at), y), reached, &format!("{}, {}", row.row, cell.name));
            }
        }
        y += SQUARE.1 + GAP;
    }
}

fn square(svg: &mut String, (x, y): (f64, f64), reached: &Reached, place: &str) {
    let word = reached.word();
    let class = match reached.held {
        _ if reached.all_held() => "held",
        0 => "none",
        _ => "some",
    };
    let (width, height) = SQUARE;
    let missed: Vec<String> =
        reached.missed.iter().take(5).map(|missed| format!("{} ({} runs)", missed.what, missed.runs)).collect();
    let told = match missed.is_empty() {
        true => String::new(),
        false => format!("; missed: {}", missed.join(", ")),
    };
    let told = format!("{}: {place}: {word}, served {:.2}{told}", reached.discipline, reached.served);
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        r#"<g><title>{}</title><rect class="square {class}" x="{x:.1}" y="{y:.1}" width="{width}" height="{height}" rx="3"/>"#,
        escape(&told)
    );
    text(svg, "cell", (x + width / 2.0, y + height / 2.0 + 1.0), &word);
    let (bar, top) = (width - 12.0, y + height - BAR - 4.0);
    let _ = write!(
        svg,
        r#"<rect class="all" x="{0:.1}" y="{top:.1}" width="{bar:.1}" height="{BAR}"/><rect class="load" x="{0:.1}" y="{top:.1}" width="{1:.1}" height="{BAR}"/></g>"#,
        x + 6.0,
        bar * reached.served.clamp(0.0, 1.0)
    );
}
