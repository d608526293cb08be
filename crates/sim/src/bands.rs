//! Bands: figures of the papers, the simulator's figures, and the allowed distance between the two.
//!
//! Each figure has one declaration: the experiment, its discipline and seeds, the quantity measured, the
//! paper's figure, the band in which our figure must lie, and the reason for the band's width. The
//! declarations stand in one module per paper. The command `weirgate bands` prints them as a table, and the
//! tests assert the same table.
//!
//! A figure holds if it lies within its band for every one of its seeds. If a paper's own figure lies
//! outside the band, ours departs from it, and the reason explains the departure. A figure that no paper
//! has is marked as ours. A figure of `weirgate`, which no paper has either, is a *target* that the default
//! discipline must reach.
//!
//! A run that several figures read is played once. [`Stored`] reads the same figures from stored runs of the lab.

mod mqos;
mod play;
mod quorum;
mod read;
mod reserves;
mod seda;
mod stored;
mod table;
mod web_switch;
mod weirgate;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

pub use play::{Data, Play, Played};
pub use stored::Stored;
pub use table::Table;

use crate::parallel::results;

/// The origin of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// The paper prints this number.
    Printed(f64),
    /// The paper states it in words, or its curve shows it.
    Said(&'static str),
    /// The paper has no such figure. The figure and its band are ours.
    Ours,
    /// No paper has this figure. The default discipline must reach the band.
    Target,
}

/// Reads a figure from the runs of one seed, in the order of [`Figure::plays`]. Returns `None` if the runs
/// have no such figure, for example because no request was served.
type Reading = Box<dyn Fn(&[&Played]) -> Option<f64> + Send + Sync>;

/// One figure with its band.
pub struct Figure {
    /// The paper, such as `Quorum`.
    pub paper: &'static str,
    /// The figure or table of the paper, such as `Table 3`.
    pub figure: &'static str,
    /// The quantity measured, with its unit.
    pub what: String,
    /// The discipline that the figure describes.
    pub discipline: &'static str,
    /// The origin of the figure: the number or words of the paper, or none.
    pub source: Source,
    /// The runs that the figure is read from.
    pub plays: Vec<Play>,
    /// The number of seeds. The seeds are 1 to this number.
    pub seeds: u64,
    /// The band in which our figure must lie.
    pub band: RangeInclusive<f64>,
    /// The reason for the band's width.
    pub why: &'static str,
    reading: Reading,
}

impl Figure {
    fn new(
        (paper, figure): (&'static str, &'static str),
        what: impl Into<String>,
        plays: &[Play],
        reading: impl Fn(&[&Played]) -> Option<f64> + Send + Sync + 'static,
    ) -> Figure {
        Figure {
            paper,
            figure,
            what: what.into(),
            discipline: plays[0].discipline,
            source: Source::Ours,
            plays: plays.to_vec(),
            seeds: 1,
            band: 0.0..=0.0,
            why: "",
            reading: Box::new(reading),
        }
    }

    fn said(self, words: &'static str) -> Figure {
        Figure { source: Source::Said(words), ..self }
    }

    fn printed(self, figure: f64) -> Figure {
        Figure { source: Source::Printed(figure), ..self }
    }

    fn target(self) -> Figure {
        Figure { source: Source::Target, ..self }
    }

    fn seeds(self, seeds: u64) -> Figure {
        Figure { seeds, ..self }
    }

    fn within(self, band: RangeInclusive<f64>, why: &'static str) -> Figure {
        Figure { band, why, ..self }
    }

    /// Returns whether the paper's own figure lies outside the band.
    pub fn departs(&self) -> bool {
        matches!(self.source, Source::Printed(printed) if !self.band.contains(&printed))
    }
}

/// Returns all figures, in the order of the papers.
pub fn figures() -> Vec<Figure> {
    let papers = [
        quorum::figures(),
        weirgate::figures(),
        seda::figures(),
        web_switch::figures(),
        reserves::figures(),
        mqos::figures(),
    ];
    papers.into_iter().flatten().collect()
}

/// The result of measuring a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The figure for each seed, or `None` where the runs have no such figure.
    Figures(Vec<Option<f64>>),
    /// The figure was skipped because its data is missing. The text gives the reason.
    Skipped(String),
}

impl Found {
    /// Returns whether the figure lies within `band` for every seed, or `None` if it was skipped.
    pub fn holds(&self, band: &RangeInclusive<f64>) -> Option<bool> {
        match self {
            Found::Figures(figures) => {
                Some(!figures.is_empty() && figures.iter().all(|f| f.is_some_and(|f| band.contains(&f))))
            }
            Found::Skipped(_) => None,
        }
    }
}

/// Plays all runs that `figures` need on `threads` threads (`None`: one per CPU) and reads the figures.
/// `on_played` receives the number of runs done and the number of all runs.
///
/// # Panics
/// Panics if an experiment of this repository cannot be loaded with a declaration's changes, which is a
/// defect of the declaration.
pub fn measure(figures: Vec<Figure>, threads: Option<usize>, mut on_played: impl FnMut(usize, usize)) -> Table {
    let of = |figure: &Figure| {
        (1..=figure.seeds)
            .flat_map(|seed| figure.plays.iter().map(move |play| (play.clone(), seed)))
            .collect::<Vec<_>>()
    };
    let asked: BTreeSet<(Play, u64)> = figures.iter().flat_map(of).collect();
    let asked: Vec<(Play, u64)> = asked.into_iter().collect();
    let mut done = 0;
    let play = |index: usize| asked[index].0.played(asked[index].1);
    let played = results(asked.len(), threads, play, || {
        done += 1;
        on_played(done, asked.len());
    });
    let runs = asked.iter().cloned().zip(played).collect();
    let found = figures.iter().map(|figure| found(figure, &runs)).collect();
    Table { figures, found, raw: None }
}

fn found(figure: &Figure, runs: &BTreeMap<(Play, u64), Result<Played, String>>) -> Found {
    let mut figures = Vec::new();
    for seed in 1..=figure.seeds {
        let mut played = Vec::new();
        for play in &figure.plays {
            match runs.get(&(play.clone(), seed)) {
                Some(Ok(run)) => played.push(run),
                Some(Err(why)) => return Found::Skipped(why.clone()),
                None => return Found::Skipped("it was not played".to_owned()),
            }
        }
        figures.push((figure.reading)(&played));
    }
    Found::Figures(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_declared_in_full() {
        let mut seen = std::collections::BTreeSet::new();
        for figure in figures() {
            let name = format!("{} {}, {}: {}", figure.paper, figure.figure, figure.discipline, figure.what);
            assert!(figure.why.len() > 20, "{name}: why is the band so wide?");
            assert!(figure.band.start() <= figure.band.end(), "{name}");
            assert!(figure.seeds >= 1 && !figure.plays.is_empty(), "{name}");
            assert!(seen.insert(name.clone()), "{name} is declared twice");
        }
    }

    #[test]
    fn a_figure_holds_if_every_seed_does() {
        let band = 1.0..=2.0;
        let holds = |figures: &[Option<f64>]| Found::Figures(figures.to_vec()).holds(&band);
        assert_eq!(holds(&[Some(1.0), Some(2.0)]), Some(true));
        assert_eq!(holds(&[Some(1.0), Some(2.1)]), Some(false));
        assert_eq!(holds(&[Some(1.0), None]), Some(false));
        assert_eq!(holds(&[Some(f64::NAN)]), Some(false));
        assert_eq!(holds(&[]), Some(false));
        assert_eq!(Found::Skipped("no data".to_owned()).holds(&band), None);
    }
}
