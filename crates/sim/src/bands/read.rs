//! Functions that read figures from runs. The declarations are written in terms of them.

use weirgate_verdict::{Part, PhaseVerdict, ResourceUse};

use super::play::Played;

impl Played {
    pub(super) fn phase(&self, name: &str) -> Option<&PhaseVerdict> {
        self.verdict.phases.iter().find(|phase| phase.name == name)
    }

    pub(super) fn part(&self, phase: &str, class: &str) -> Option<&Part> {
        self.phase(phase)?.classes.iter().find(|verdict| verdict.class == class).map(|verdict| &verdict.part)
    }

    /// Returns the parts of a class in the phases with an axis value from `low` to `high`.
    fn points<'a>(&'a self, class: &'a str, [low, high]: [f64; 2]) -> impl Iterator<Item = (f64, &'a Part)> {
        let points = self.experiment.phases.iter().zip(&self.verdict.phases).filter_map(move |(phase, verdict)| {
            let part = verdict.classes.iter().find(|verdict| verdict.class == class).map(|verdict| &verdict.part)?;
            Some((phase.x?, part))
        });
        points.filter(move |(x, _)| (low..=high).contains(x))
    }

    /// Returns the smallest and the largest value of a figure over the axis values within `between`.
    pub(super) fn over(
        &self,
        class: &str,
        between: [f64; 2],
        figure: impl Fn(&Part) -> Option<f64>,
    ) -> Option<(f64, f64)> {
        let figures: Vec<f64> = self.points(class, between).filter_map(|(_, part)| figure(part)).collect();
        let min = figures.iter().copied().reduce(f64::min)?;
        Some((min, figures.iter().copied().fold(min, f64::max)))
    }

    /// Returns the largest axis value up to which `figure` of the class is at most `limit`.
    pub(super) fn holds_up_to(&self, class: &str, limit: f64, figure: impl Fn(&Part) -> Option<f64>) -> Option<f64> {
        let held =
            self.points(class, [0.0, f64::INFINITY]).take_while(|(_, part)| figure(part).is_some_and(|f| f <= limit));
        held.last().map(|(x, _)| x)
    }

    pub(super) fn used(&self, phase: usize) -> Option<&ResourceUse> {
        self.verdict.phases.get(phase)?.resources.as_ref()
    }

    /// Returns each class's share of the cluster in percent, in the phase with this index.
    pub(super) fn shares(&self, phase: usize) -> Vec<f64> {
        let phase = self.verdict.phases.get(phase);
        phase.into_iter().flat_map(|p| &p.classes).filter_map(|class| class.cpu_share).map(|s| s * 100.0).collect()
    }

    /// Returns the requests served per second by all classes together, in the last phase.
    pub(super) fn served_last(&self) -> Option<f64> {
        Some(self.verdict.phases.last()?.classes.iter().map(|class| class.part.served_per_s).sum())
    }
}

/// Returns the guaranteed statistic of the response time, in milliseconds.
pub(super) fn time(part: &Part) -> Option<f64> {
    part.ceiling.as_ref()?.value_ms
}

/// Returns the mean response time, in milliseconds.
pub(super) fn mean(part: &Part) -> Option<f64> {
    part.response_ms.as_ref().map(|times| times.mean)
}

/// Returns the requests served per second.
pub(super) fn served(part: &Part) -> Option<f64> {
    Some(part.served_per_s)
}

/// Returns the share of arrivals that was shed, in percent.
pub(super) fn shed(part: &Part) -> Option<f64> {
    Some(part.shed.share * 100.0)
}

/// Returns the 95th percentile of the time until a refusal, in milliseconds.
pub(super) fn refused_after(part: &Part) -> Option<f64> {
    Some(part.shed.latency_ms.p95)
}

/// Reads a figure of a class in a phase of the first run.
pub(super) fn of(
    phase: &'static str,
    class: &'static str,
    figure: fn(&Part) -> Option<f64>,
) -> impl Fn(&[&Played]) -> Option<f64> + Send + Sync {
    move |runs| runs.first()?.part(phase, class).and_then(figure)
}

/// Reads the smallest (`false`) or largest (`true`) value of a class's figure over axis values of the first
/// run.
pub(super) fn extreme(
    class: &'static str,
    between: [f64; 2],
    figure: fn(&Part) -> Option<f64>,
    largest: bool,
) -> impl Fn(&[&Played]) -> Option<f64> + Send + Sync {
    move |runs| {
        let (min, max) = runs.first()?.over(class, between, figure)?;
        Some(if largest { max } else { min })
    }
}

/// Returns the largest distance, in percent, between any class's share of any resource and its share by
/// weight.
pub(super) fn off_the_split(used: &ResourceUse, weights: &[f64]) -> Option<f64> {
    let all: f64 = weights.iter().sum();
    let mut max: Option<f64> = None;
    for resource in 0..used.names.len() {
        for (part, weight) in used.split(resource).zip(weights) {
            let off = (part * all / weight - 1.0).abs() * 100.0;
            max = Some(max.unwrap_or(0.0).max(off));
        }
    }
    max
}
