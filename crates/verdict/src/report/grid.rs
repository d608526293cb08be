//! A grid: one experiment under several disciplines, with one figure after the other changed.
//!
//! Each discipline has one configuration for all cells. The question is not which one is best where its figures are
//! right, but which ones survive the unforeseen. So a cell shows two figures: in how many of its runs every
//! guarantee was held, and the share of the possible load that was served.

use std::fmt::Write as _;

use serde::Serialize;

use super::svg::grid_figure;
use crate::judge::{Kind, Verdict};

/// A grid that has been played.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grid {
    /// Title of the experiment.
    pub title: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A row of a grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The figure that it changes.
    pub row: String,
    /// Its cells, at least one.
    pub cells: Vec<Cell>,
}

/// A cell of a grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Name of the cell.
    pub name: String,
    /// The result of each discipline, in the same order in every cell.
    pub results: Vec<Reached>,
}

/// The result of a discipline in a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reached {
    /// Name of the discipline. It may end with the choice for this cell, in parentheses.
    pub discipline: String,
    /// Number of runs in which every guarantee was held.
    pub held: usize,
    /// Number of runs.
    pub runs: usize,
    /// Served share of the load that could have been served, over all judged phases and runs.
    pub served: f64,
    /// The guarantees that were missed, each with the number of its runs, the most frequent first.
    pub missed: Vec<Missed>,
}

/// A missed guarantee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// Class and phase.
    pub what: String,
    /// Number of runs.
    pub runs: usize,
}

impl Reached {
    /// Sums up the runs of a discipline, at least one.
    pub fn of(discipline: String, verdicts: &[Verdict]) -> Reached {
        let held = verdicts.iter().filter(|verdict| verdict.misses().next().is_none()).count();
        let mut missed: Vec<Missed> = Vec::new();
        for verdict in verdicts {
            let mut here: Vec<String> = verdict
                .misses()
                .map(|miss| format!("{} of {} in {}", guarantee(miss.kind), miss.class.class, miss.phase.name))
                .collect();
            here.dedup();
            for what in here {
                match missed.iter_mut().find(|known| known.what == what) {
                    Some(known) => known.runs += 1,
                    None => missed.push(Missed { what, runs: 1 }),
                }
            }
        }
        missed.sort_by_key(|missed| std::cmp::Reverse(missed.runs));
        let phases = verdicts.iter().flat_map(|verdict| &verdict.phases).filter(|phase| phase.judged);
        let (mut served, mut seconds) = (0.0, 0.0);
        for phase in phases {
            let length = phase.to_s - phase.judged_from_s;
            // Work that arrived before the phase may make it more than all.
            served += length * phase.served_over_oracle.unwrap_or(1.0).min(1.0);
            seconds += length;
        }
        let served = if seconds > 0.0 { served / seconds } else { 1.0 };
        Reached { discipline, held, runs: verdicts.len(), served, missed }
    }

    /// Whether every guarantee was held in every run.
    pub fn all_held(&self) -> bool {
        self.held == self.runs
    }

    /// `held`, or in how many of its runs every guarantee was held.
    pub fn word(&self) -> String {
        if self.all_held() { "held".to_owned() } else { format!("{}/{}", self.held, self.runs) }
    }

    /// Name of the discipline without the choice for the cell.
    pub fn name(&self) -> &str {
        self.discipline.split(" (").next().unwrap_or_default()
    }
}

/// Returns the name of a guarantee.
fn guarantee(kind: Kind) -> &'static str {
    match kind {
        Kind::Floor => "throughput",
        Kind::Ceiling => "response time",
        Kind::Avoidable => "avoidable refusals",
        Kind::Settling => "start",
    }
}

impl Grid {
    /// Names of the disciplines.
    pub fn disciplines(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().flat_map(|row| &row.cells).take(1).flat_map(|cell| &cell.results).map(Reached::name)
    }

    /// Number of cells in which the discipline at `at` held every guarantee in every run, and of all cells.
    pub fn survived(&self, at: usize) -> (usize, usize) {
        let cells = || self.rows.iter().flat_map(|row| &row.cells).filter_map(|cell| cell.results.get(at));
        (cells().filter(|reached| reached.all_held()).count(), cells().count())
    }

    /// Text for a terminal.
    pub fn text(&self) -> String {
        let widest = self.disciplines().map(|name| name.chars().count()).max().unwrap_or(0).max(8);
        let mut out = format!("{}\n", self.title);
        for row in &self.rows {
            let _ = write!(out, "\n{}\n{:widest$}", row.row, "");
            for cell in &row.cells {
                let _ = write!(out, "  {:>12}", cell.name);
            }
            out.push('\n');
            for (at, name) in self.disciplines().enumerate() {
                let _ = write!(out, "{name:widest$}");
                for reached in row.cells.iter().filter_map(|cell| cell.results.get(at)) {
                    let _ = write!(out, "  {:>12}", format!("{} {:>4.0}%", reached.word(), 100.0 * reached.served));
                }
                out.push('\n');
            }
        }
        out.push('\n');
        for (at, name) in self.disciplines().enumerate() {
            let (held, cells) = self.survived(at);
            let _ = writeln!(out, "{name:widest$}  every guarantee held in every run of {held} of {cells} cells");
        }
        out
    }

    /// A figure.
    pub fn svg(&self) -> String {
        grid_figure(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(discipline: &str, held: usize, served: f64) -> Reached {
        Reached { discipline: discipline.into(), held, runs: 5, served, missed: Vec::new() }
    }

    fn grid() -> Grid {
        let cell =
            |name: &str, one, two| Cell { name: name.into(), results: vec![reached("weirgate", one, 0.98), two] };
        let first = cell("1", 5, reached("best-fixed (24)", 5, 0.9));
        let second = cell("<5", 4, reached("best-fixed (8)", 0, 0.456));
        Grid { title: "What & when".into(), rows: vec![Row { row: "cost".into(), cells: vec![first, second] }] }
    }

    #[test]
    fn the_text_has_a_line_for_each_discipline() {
        let text = "What & when\n\ncost\n                       1            <5\n\
                    weirgate      held   98%     4/5   98%\nbest-fixed    held   90%     0/5   46%\n\n\
                    weirgate    every guarantee held in every run of 1 of 2 cells\n\
                    best-fixed  every guarantee held in every run of 1 of 2 cells\n";
        assert_eq!(grid().text(), text);
    }

    #[test]
    fn the_figure_has_a_square_for_each_result_and_says_what_it_means() {
        let svg = grid().svg();
        assert_eq!(svg.matches("<rect class=\"square").count(), 4);
        assert!(svg.contains("What &amp; when") && svg.contains("&lt;5") && !svg.contains("<5"));
        assert!(svg.contains(">4/5<") && svg.contains("0.98"), "{svg}");
    }
}
