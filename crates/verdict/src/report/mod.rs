//! Verdicts for people and programs: a table for terminals, JSON, and a page with figures.
//!
//! The simulator reports an experiment that it [`Played`], and the lab reports run files. Both are reduced
//! to a [`Report`]: the experiment's [`Outline`] and the runs, grouped by the discipline that had to keep
//! the guarantees.

mod curve;
mod drawings;
pub mod grid;
pub mod html;
pub mod json;
mod learned;
mod outline;
mod pages;
mod resources;
mod series;
mod summary;
pub mod svg;
mod table;
#[cfg(test)]
mod tests;
pub mod text;
mod verdicts;

use weirgate_experiment::Experiment;

use crate::judge::{Avoidable, AvoidableVerdict, Verdict, Word};

pub use curve::Curve;
pub use drawings::{Drawing, drawings};
pub use outline::{Outline, OutlinedClass, OutlinedFault, OutlinedFigure, OutlinedPhase};
pub use series::{ClassSeries, InFlightSeries, Series};
pub use summary::{ClassRuns, Kept, PhaseRuns, Spread};
pub use table::{Cell, Column, Form, Table, Tone};

/// An experiment that was played, under one discipline or several.
#[derive(Clone, Debug)]
pub struct Played {
    /// The experiment.
    pub experiment: Experiment,
    /// Runs of each discipline.
    pub groups: Vec<Group>,
}

/// Runs of one discipline.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Name of the discipline. In the lab, that of the approach.
    pub discipline: String,
    /// One verdict per seed, at least one.
    pub verdicts: Vec<Verdict>,
    /// The first run over time, for figures.
    pub series: Option<Series>,
}

/// Source of tables and figures. Every verdict has the outline's phases, in their order, and all have the
/// same classes in the same order.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Outline of the experiment.
    pub outline: &'a Outline,
    /// Its runs.
    pub groups: &'a [Group],
    /// Property that distinguishes the groups, as the head of a column: `discipline`, `approach`.
    pub by: &'static str,
}

impl Played {
    /// Whether every run held its guarantees and no invariant was violated.
    pub fn sound(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.verdicts).all(Verdict::sound)
    }

    fn report<'a>(&'a self, outline: &'a Outline) -> Report<'a> {
        Report { outline, groups: &self.groups, by: "discipline" }
    }
}

impl Group {
    /// Guarantees missed and guarantees that count, summed over all runs.
    pub fn missed(&self) -> Kept {
        Kept {
            missed: self.verdicts.iter().map(Verdict::missed).sum(),
            runs: self.verdicts.iter().map(Verdict::judged).sum(),
        }
    }

    /// Whether any run was broken.
    pub fn broken(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.verdict == Word::Broken)
    }

    /// The worst run and its seed, for each class with owed requests that were refused or late while
    /// machines idled.
    pub fn worst_avoidable(&self) -> Vec<(u64, &AvoidableVerdict)> {
        let classes = self.verdicts.iter().map(|verdict| verdict.avoidable.len()).max().unwrap_or(0);
        let worst = |class: usize| {
            let runs = self.verdicts.iter().filter_map(|verdict| Some((verdict.seed, verdict.avoidable.get(class)?)));
            runs.max_by(|(_, a), (_, b)| a.whole.share().total_cmp(&b.whole.share()))
        };
        (0..classes).filter_map(worst).filter(|(_, worst)| worst.whole.count() > 0).collect()
    }

    /// Avoidable refusals of all classes, summed over all runs.
    pub fn avoidable(&self) -> Avoidable {
        self.verdicts.iter().flat_map(|verdict| &verdict.avoidable).fold(Avoidable::default(), |sum, of| sum + of.whole)
    }

    /// Violations of invariants, summed over all runs.
    pub fn violations(&self) -> usize {
        self.verdicts.iter().map(|verdict| verdict.violations.len()).sum()
    }

    /// Seeds that were played: `seed 7`, `seeds 1–3`, `seeds 1, 4, 9`.
    pub fn seeds(&self) -> String {
        let seeds: Vec<u64> = self.verdicts.iter().map(|verdict| verdict.seed).collect();
        match seeds.as_slice() {
            [] => "no seed".to_owned(),
            [one] => format!("seed {one}"),
            [first, .., last] if seeds.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1])) => {
                format!("seeds {first}–{last}")
            }
            all => format!("seeds {}", all.iter().map(u64::to_string).collect::<Vec<String>>().join(", ")),
        }
    }
}

impl Report<'_> {
    fn phase_name(&self, phase: usize) -> Option<&str> {
        self.outline.phases.get(phase).map(|phase| phase.name.as_str())
    }

    fn class_count(&self, phase: usize) -> usize {
        let verdicts = self.groups.iter().flat_map(|group| &group.verdicts);
        verdicts.filter_map(|verdict| verdict.phases.get(phase)).map(|phase| phase.classes.len()).max().unwrap_or(0)
    }

    /// Published figures of a phase, for the disciplines that were played.
    fn published(&self, phase: &str) -> Vec<&OutlinedFigure> {
        let ours = |figure: &&OutlinedFigure| {
            figure.phase == phase && self.groups.iter().any(|group| group.discipline == figure.discipline)
        };
        self.outline.published.iter().filter(ours).collect()
    }

    /// Columns of the names in a row that belongs to a phase, a class and a group. A terminal has a table per
    /// phase, with `text_head` above the classes.
    fn columns_of_phases(&self, text_head: &str) -> impl Iterator<Item = Column> + use<> {
        let phase = Column::words("phase").once().only(Form::Page);
        let class = Column::words("class").in_text(text_head);
        [phase, class, Column::words(self.by).on_page_if(self.groups.len() > 1)].into_iter()
    }

    /// Cells of these columns.
    fn names(&self, phase: usize, class: &str, group: &Group) -> [Cell; 3] {
        [Cell::bold(self.phase_name(phase).unwrap_or_default()), class.into(), self.by_cell(&group.discipline)]
    }

    /// Name of a group. Empty if it is the only one.
    fn by_cell(&self, name: &str) -> Cell {
        if self.groups.len() > 1 { name.into() } else { Cell::default() }
    }
}
