//! Summary of several runs of one discipline: smallest, median and largest of each value, and the number of
//! runs that missed a guarantee.

use super::table::{Cell, Tone};
use crate::judge::{CeilingVerdict, ClassVerdict, FloorVerdict, PhaseVerdict, Verdict};

/// A value over the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Smallest value.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Largest value.
    pub max: f64,
    /// Number of runs.
    pub runs: usize,
}

/// A guarantee over the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Number of runs in which it was not held.
    pub missed: usize,
    /// Number of runs.
    pub runs: usize,
}

/// One phase under one discipline, over all runs.
#[derive(Clone, Copy, Debug)]
pub struct PhaseRuns<'a> {
    verdicts: &'a [Verdict],
    phase: usize,
}

/// One class in a phase, over all runs.
#[derive(Clone, Copy, Debug)]
pub struct ClassRuns<'a> {
    phase: PhaseRuns<'a>,
    class: usize,
}

impl Spread {
    /// The spread of `figures`. `None` if there are none.
    pub fn of(figures: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Spread { min, median, max, runs: sorted.len() })
    }

    /// The value of a single run. Several runs give the median followed by the smallest and the largest,
    /// unless these read alike.
    pub fn text(&self, digits: usize) -> String {
        let [min, median, max] = [self.min, self.median, self.max].map(|figure| format!("{figure:.digits$}"));
        if self.runs == 1 || min == max { median } else { format!("{median} ({min}–{max})") }
    }
}

impl Kept {
    /// `✔`, `✘`. Several runs add the number of runs that missed.
    pub fn text(&self) -> String {
        match (self.missed, self.runs) {
            (0, _) => "✔".to_owned(),
            (_, 1) => "✘".to_owned(),
            (missed, runs) => format!("✘ {missed}/{runs}"),
        }
    }
}

impl<'a> PhaseRuns<'a> {
    /// Phase number `phase` of these runs.
    pub fn new(verdicts: &'a [Verdict], phase: usize) -> PhaseRuns<'a> {
        PhaseRuns { verdicts, phase }
    }

    /// The phase in every run.
    pub fn each(&self) -> impl Iterator<Item = &'a PhaseVerdict> + use<'a> {
        let phase = self.phase;
        self.verdicts.iter().filter_map(move |verdict| verdict.phases.get(phase))
    }

    /// Class number `class`.
    pub fn class(&self, class: usize) -> ClassRuns<'a> {
        ClassRuns { phase: *self, class }
    }

    /// Work done over capacity.
    pub fn utilisation(&self) -> Option<Spread> {
        Spread::of(self.each().map(|phase| phase.utilisation))
    }

    /// Work served over the work that an oracle could have served.
    pub fn served_over_oracle(&self) -> Option<Spread> {
        Spread::of(self.each().filter_map(|phase| phase.served_over_oracle))
    }

    /// Requests served per second, summed over all classes.
    pub fn served(&self) -> Option<Spread> {
        Spread::of(self.each().map(|phase| phase.classes.iter().map(|class| class.part.served_per_s).sum()))
    }

    /// Arrivals per second that were served within their classes' limits, summed over all classes: the goodput.
    pub fn in_time(&self) -> Option<Spread> {
        Spread::of(self.each().map(|phase| phase.classes.iter().map(|class| class.part.in_time_per_s).sum()))
    }

    /// Number of runs in which the owed requests did not fit.
    pub fn infeasible(&self) -> Kept {
        Kept { missed: self.each().filter(|phase| !phase.feasible).count(), runs: self.verdicts.len() }
    }
}

impl<'a> ClassRuns<'a> {
    /// The class in every run.
    pub fn each(&self) -> impl Iterator<Item = &'a ClassVerdict> + use<'a> {
        let class = self.class;
        self.phase.each().filter_map(move |phase| phase.classes.get(class))
    }

    /// Spread of a value that every run has.
    pub fn spread(&self, figure: impl Fn(&'a ClassVerdict) -> f64) -> Option<Spread> {
        Spread::of(self.each().map(figure))
    }

    /// Spread of a value over the runs that have it.
    pub fn option(&self, figure: impl Fn(&'a ClassVerdict) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.each().filter_map(figure))
    }

    /// Its throughput guarantee in every run.
    pub fn floors(&self) -> impl Iterator<Item = FloorVerdict> + use<'a> {
        self.each().filter_map(|class| class.part.floor)
    }

    /// Its response-time guarantee in every run.
    pub fn ceilings(&self) -> impl Iterator<Item = &'a CeilingVerdict> + use<'a> {
        self.each().filter_map(|class| class.part.ceiling.as_ref())
    }

    /// Guaranteed statistic of the response time, or the mean without a guarantee, in milliseconds.
    pub fn response(&self) -> Option<Spread> {
        self.option(|class| match &class.part.ceiling {
            Some(ceiling) => ceiling.value_ms,
            None => class.part.response_ms.map(|times| times.mean),
        })
    }

    /// Name of the statistic that [`ClassRuns::response`] returns.
    pub fn statistic(&self) -> &'a str {
        self.ceilings().next().map_or("avg", |ceiling| ceiling.statistic.as_str())
    }

    /// Requests shed, in percent of the arrivals.
    pub fn shed_percent(&self) -> Option<Spread> {
        self.spread(|class| class.part.shed.share * 100.0)
    }

    /// Name of the statistic for people: `p95`, or `p95 page` where it is one of pages.
    pub fn statistic_text(&self) -> String {
        let of_pages = self.each().any(|class| class.part.pages.is_some());
        format!("{}{}", self.statistic(), if of_pages { " page" } else { "" })
    }

    /// Name of the class.
    pub fn name(&self) -> &'a str {
        self.each().next().map_or("", |class| class.class.as_str())
    }

    /// Result of the throughput guarantee. `None` without one.
    pub fn floor(&self) -> Option<Kept> {
        let kept = Kept { missed: self.floors().filter(|f| !f.ok).count(), runs: self.floors().count() };
        (kept.runs > 0).then_some(kept)
    }

    /// Result of the response-time guarantee. `None` without one, where nothing was served and so there is
    /// no time to judge, and where the limit is impossible.
    pub fn ceiling(&self) -> Option<Kept> {
        let timed = self.ceilings().filter(|c| c.value_ms.is_some() && !c.is_impossible()).count();
        let kept = Kept { missed: self.ceilings().filter(|c| c.is_missed()).count(), runs: timed };
        (kept.runs > 0).then_some(kept)
    }

    /// Result of the response-time guarantee in a table.
    pub(super) fn ceiling_cell(&self) -> Cell {
        match self.ceiling() {
            None if self.ceilings().any(CeilingVerdict::is_impossible) => Cell::from("impossible").tone(Tone::Faint),
            kept => Cell::kept(kept),
        }
    }

    /// Seconds until the class's guarantees held for good. `None` if they did not in some run.
    pub fn reaction(&self) -> Option<Spread> {
        let all = self.each().all(|class| class.reaction_s.is_some());
        if all { self.option(|class| class.reaction_s) } else { None }
    }

    /// Whether there were any requests in any run.
    pub fn any(&self) -> bool {
        self.each().any(|c| c.part.offered_per_s > 0.0 || c.part.served_per_s > 0.0 || c.settling.offered_per_s > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_runs_read_as_median_and_extremes() {
        let text = |figures: &[f64]| Spread::of(figures.iter().copied()).map(|spread| spread.text(1));
        assert_eq!(text(&[]), None);
        assert_eq!(text(&[4.0]).as_deref(), Some("4.0"));
        assert_eq!(text(&[4.0, 1.0, 2.0]).as_deref(), Some("2.0 (1.0–4.0)"));
        assert_eq!(text(&[1.0, 2.0]).as_deref(), Some("1.5 (1.0–2.0)"));
        assert_eq!(text(&[4.01, 4.02]).as_deref(), Some("4.0"));
        assert_eq!([(0, 8), (1, 1), (3, 8)].map(|(missed, runs)| Kept { missed, runs }.text()), ["✔", "✘", "✘ 3/8"]);
    }
}
