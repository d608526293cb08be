//! Verdicts for people and programs: a table for terminals, JSON, and a page with figures.

pub mod html;
pub mod json;
mod series;
mod summary;
pub mod svg;
mod table;
#[cfg(test)]
mod tests;
pub mod text;

use weirgate_config::Experiment;

use crate::judge::Verdict;

pub use series::{ClassSeries, Series};

/// An experiment that was played, under one discipline or several.
#[derive(Clone, Debug)]
pub struct Played {
    /// The experiment.
    pub experiment: Experiment,
    /// Per discipline its runs.
    pub groups: Vec<Group>,
}

/// The runs of one discipline.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The discipline's name.
    pub discipline: String,
    /// One verdict per seed, at least one.
    pub verdicts: Vec<Verdict>,
    /// The first run over time, for figures.
    pub series: Option<Series>,
}

impl Played {
    /// Every run held its guarantees and no invariant was violated.
    #[must_use]
    pub fn sound(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.verdicts).all(Verdict::sound)
    }
}
