//! Capacity planning: the smallest cluster and the headroom of the present one, by bisection over
//! simulations.
//!
//! The *smallest cluster* is the smallest number of machines with which every guarantee holds for the
//! traffic of the experiment, in every judged phase and with every seed. Groups of machines (alike, and
//! serving the same pools) grow and shrink in proportion, unless the question names one of them. The
//! *headroom* is the largest factor by which all guaranteed throughputs can grow together with the traffic
//! of their classes. Growing the traffic alone would test nothing, as nothing is owed beyond a guarantee.
//! Growing the guarantees alone would ask nothing of classes that stay within theirs. Limits on response
//! times stay as they are.
//!
//! Throughput floors count here even in phases that the judge calls infeasible: a cluster on which they are
//! not feasible is too small. The bisection assumes that more machines, or smaller guarantees, never make a
//! result worse. With few seeds a verdict right at the edge can be luck.

use std::fmt;
use std::ops::ControlFlow;

use weirgate_experiment::Experiment;
use weirgate_experiment::scale::{Group, groups, scale_cluster, scale_guarantees};
use weirgate_verdict::{Kind, Miss, Verdict, judge};

use crate::parallel::for_each_job;
use crate::run;

/// Maximum multiple of the present number of machines, or of the present guarantees, that the search tries.
/// A larger need means a mistake in the file.
pub const MAX_TIMES: usize = 16;

/// The headroom is found to one percent. Two seeds differ by about as much.
const PRECISION: f64 = 1.01;

/// A question about an experiment.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The present cluster, its policy and its traffic.
    pub experiment: &'a Experiment,
    /// Seeds with which everything must hold. Not empty.
    pub seeds: Vec<u64>,
    /// Scale only the group of this machine (an index). `None` scales all groups in proportion.
    pub machine: Option<usize>,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The smallest cluster.
    pub smallest: Smallest,
    /// The largest factor that the present cluster holds: 0 if not even a sixteenth holds, 16 if sixteen
    /// times hold.
    pub headroom: f64,
    /// The guarantee that breaks first beyond the headroom. `None` if sixteen times hold.
    pub beyond: Option<Broken>,
}

/// A guarantee that was not held: the one missed by the largest factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// The class with the guarantee.
    pub class: String,
    /// The phase in which it was missed.
    pub phase: String,
    /// Throughput, response time or avoidable refusals.
    pub kind: Kind,
    /// The guaranteed value: requests per second, the limit in milliseconds, or the share of owed requests
    /// that may be refused although machines are idle.
    pub promised: f64,
    /// The value reached: requests per second that count as served, the statistic in milliseconds, or the
    /// share that was refused.
    pub got: f64,
    /// The seed of the run.
    pub seed: u64,
}

impl Broken {
    /// A miss in the run of `seed`.
    pub fn new(miss: &Miss<'_>, seed: u64) -> Broken {
        Broken {
            class: miss.class.class.clone(),
            phase: miss.phase.name.clone(),
            kind: miss.kind,
            promised: miss.promised,
            got: miss.got,
            seed,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Broken { class, phase, kind, promised, got, seed } = self;
        match kind {
            Kind::Floor => write!(f, "{class} gets {got:.0}/s of {promised:.0}/s owed in `{phase}` (seed {seed})"),
            Kind::Avoidable => write!(
                f,
                "{:.2} % of the owed requests of {class} are refused although machines idle, mainly in `{phase}` (seed \
                 {seed})",
                got * 100.0
            ),
            Kind::Ceiling | Kind::Settling => {
                write!(f, "{class} takes {got:.0} ms, promised {promised:.0} ms, in `{phase}` (seed {seed})")
            }
        }
    }
}

/// One simulation campaign of a search, for progress reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Machines in the cluster.
    pub machines: usize,
    /// Factor on the guarantees.
    pub factor: f64,
    /// Whether every guarantee held.
    pub held: bool,
}

/// The smallest cluster: the part of a [`Plan`] that needs no other guarantees.
#[derive(Clone, Debug, PartialEq)]
pub struct Smallest {
    /// The groups of machines in the cluster.
    pub groups: Vec<Group>,
    /// Whether the present cluster holds every guarantee. If not, the guarantee that it misses by the
    /// largest factor.
    pub present: Result<(), Broken>,
    /// Machines per group of the smallest cluster that holds. `None` if sixteen times the present one does
    /// not hold.
    pub needed: Option<Vec<usize>>,
    /// The guarantee that breaks with one machine fewer. `None` if there is no smaller cluster.
    pub one_fewer: Option<Broken>,
}

/// Answers `question`. Calls `watch` with every step.
///
/// # Errors
/// Returns a violation of an invariant. The simulation cannot be trusted then, so there is no plan.
pub fn plan(question: &Question<'_>, mut watch: impl FnMut(&Step)) -> Result<Plan, String> {
    let smallest = smallest(question, &mut watch)?;
    let machines = question.experiment.machines.len();
    let mut at_factor = |factor: f64| -> Result<Option<Broken>, String> {
        let broken = trial(&scale_guarantees(question.experiment, factor), &question.seeds)?;
        watch(&Step { machines, factor, held: broken.is_none() });
        Ok(broken)
    };
    let (headroom, beyond) = headroom(smallest.present.clone().err(), &mut at_factor)?;
    Ok(Plan { smallest, headroom, beyond })
}

/// Finds the smallest cluster only. Calls `watch` with every step.
///
/// # Errors
/// As [`plan`].
pub fn smallest(question: &Question<'_>, mut watch: impl FnMut(&Step)) -> Result<Smallest, String> {
    let groups = groups(question.experiment);
    let sizes = Sizes::new(&groups, question.machine);
    let mut at_size = |size: usize| -> Result<Option<Broken>, String> {
        let counts = sizes.counts(size);
        let broken = trial(&scale_cluster(question.experiment, &counts), &question.seeds)?;
        watch(&Step { machines: counts.iter().sum(), factor: 1.0, held: broken.is_none() });
        Ok(broken)
    };
    let present = at_size(sizes.present)?;
    let (mut small, mut large) = (sizes.min - 1, sizes.present);
    let mut one_fewer = None;
    let mut found = present.is_none();
    if let Some(broken) = &present {
        (small, one_fewer) = (sizes.present, Some(broken.clone()));
        while !found && large < sizes.present * MAX_TIMES {
            large = (large * 2).min(sizes.present * MAX_TIMES);
            match at_size(large)? {
                None => found = true,
                Some(broken) => (small, one_fewer) = (large, Some(broken)),
            }
        }
    }
    while found && large - small > 1 {
        let middle = usize::midpoint(small, large);
        match at_size(middle)? {
            None => large = middle,
            Some(broken) => (small, one_fewer) = (middle, Some(broken)),
        }
    }
    let needed = found.then(|| sizes.counts(large));
    Ok(Smallest { groups, present: present.map_or(Ok(()), Err), needed, one_fewer })
}

/// Returns the largest factor that holds and the guarantee that breaks beyond it. `present` is the
/// guarantee that breaks at factor 1.
fn headroom(
    present: Option<Broken>,
    at_factor: &mut impl FnMut(f64) -> Result<Option<Broken>, String>,
) -> Result<(f64, Option<Broken>), String> {
    let max = MAX_TIMES as f64;
    let (mut holds, mut breaks) = (1.0, 1.0);
    let mut beyond = present;
    if beyond.is_none() {
        while beyond.is_none() && breaks < max {
            holds = breaks;
            breaks *= 2.0;
            beyond = at_factor(breaks)?;
        }
        if beyond.is_none() {
            return Ok((max, None));
        }
    } else {
        loop {
            holds /= 2.0;
            if holds < 1.0 / max {
                return Ok((0.0, beyond));
            }
            match at_factor(holds)? {
                None => break,
                broken => (breaks, beyond) = (holds, broken),
            }
        }
    }
    while breaks / holds > PRECISION {
        let middle = (holds * breaks).sqrt();
        match at_factor(middle)? {
            None => holds = middle,
            broken => (breaks, beyond) = (middle, broken),
        }
    }
    Ok((holds, beyond))
}

/// Translates a total number of machines into a count per group.
struct Sizes {
    /// The present counts of the groups.
    counts: Vec<usize>,
    /// The group that is scaled. `None` is all.
    only: Option<usize>,
    /// The smallest total of the scaled groups: one machine per group.
    min: usize,
    /// The present total of the scaled groups.
    present: usize,
}

impl Sizes {
    fn new(groups: &[Group], machine: Option<usize>) -> Sizes {
        let counts: Vec<usize> = groups.iter().map(|group| group.machines.len()).collect();
        let only = machine.and_then(|machine| groups.iter().position(|group| group.machines.contains(&machine)));
        let (min, present) = match only {
            Some(group) => (1, counts[group]),
            None => (counts.len(), counts.iter().sum()),
        };
        Sizes { counts, only, min, present }
    }

    /// Returns counts that add up to `size`, in the present proportion by largest remainders, and at least
    /// one each.
    fn counts(&self, size: usize) -> Vec<usize> {
        if let Some(only) = self.only {
            let mut counts = self.counts.clone();
            counts[only] = size;
            return counts;
        }
        let exact: Vec<f64> = self.counts.iter().map(|c| (*c * size) as f64 / self.present as f64).collect();
        let mut counts: Vec<usize> = exact.iter().map(|share| (*share as usize).max(1)).collect();
        while counts.iter().sum::<usize>() < size {
            let short = |i: &usize| exact[*i] - counts[*i] as f64;
            let max = (0..counts.len()).rev().max_by(|a, b| short(a).total_cmp(&short(b)));
            counts[max.unwrap_or(0)] += 1;
        }
        // A group rounded up to one machine takes it from the group that is furthest above its share.
        while counts.iter().sum::<usize>() > size.max(counts.len()) {
            let over = |i: &usize| counts[*i] as f64 - exact[*i];
            let max = (0..counts.len()).filter(|i| counts[*i] > 1).max_by(|a, b| over(a).total_cmp(&over(b)));
            counts[max.unwrap_or(0)] -= 1;
        }
        counts
    }
}

/// Plays `experiment` with every seed, on as many threads as there are CPUs, until one seed does not hold.
/// Returns the largest miss of the first seed (of those that were played) that does not hold.
fn trial(experiment: &Experiment, seeds: &[u64]) -> Result<Option<Broken>, String> {
    let mut found: Vec<(usize, Result<Broken, String>)> = Vec::new();
    let play = |index: usize| broken(&judge(experiment, &run(experiment, seeds[index], |_| ())));
    for_each_job(seeds.len(), None, play, |index, broken| match broken.transpose() {
        Some(broken) => {
            found.push((index, broken));
            ControlFlow::Break(())
        }
        None => ControlFlow::Continue(()),
    });
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().next().map(|(_, broken)| broken).transpose()
}

/// Returns the guarantee that a run misses by the largest factor.
fn broken(verdict: &Verdict) -> Result<Option<Broken>, String> {
    if let Some(violation) = verdict.violations.first() {
        let (at, seed) = (violation.at_s, verdict.seed);
        return Err(format!("seed {seed}, {at} s: invariant {}: {}", violation.invariant, violation.what));
    }
    // A cluster that cannot carry the owed load is too small. No cluster meets a limit below the requests'
    // own time.
    let missed = verdict.all_misses(true).max_by(|a, b| a.by().total_cmp(&b.by()));
    Ok(missed.map(|miss| Broken::new(&miss, verdict.seed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(counts: &[usize]) -> Sizes {
        let group = |count: usize| Group { machines: (0..count).collect(), pools: Vec::new() };
        let groups: Vec<Group> = counts.iter().copied().map(group).collect();
        Sizes::new(&groups, None)
    }

    #[test]
    fn groups_grow_and_shrink_in_proportion_and_never_vanish() {
        let sizes = sizes(&[8, 4, 1]);
        assert_eq!((sizes.min, sizes.present), (3, 13));
        assert_eq!(sizes.counts(13), [8, 4, 1]);
        assert_eq!(sizes.counts(26), [16, 8, 2]);
        assert_eq!(sizes.counts(3), [1, 1, 1]);
        for size in 3..100 {
            let counts = sizes.counts(size);
            assert_eq!(counts.iter().sum::<usize>(), size);
            assert!(counts.iter().all(|count| *count >= 1), "{size}: {counts:?}");
            let exact = 8.0 * size as f64 / 13.0;
            assert!((counts[0] as f64 - exact).abs() <= 1.5, "{size}: {counts:?}");
        }
    }

    fn a_break() -> Broken {
        let (class, phase) = ("A".to_owned(), "steady".to_owned());
        Broken { class, phase, kind: Kind::Floor, promised: 100.0, got: 50.0, seed: 1 }
    }

    #[test]
    fn the_headroom_is_found_to_one_percent() {
        for edge in [0.0, 0.07, 0.3, 0.999, 1.0, 1.37, 5.0, 15.9, 40.0] {
            let mut steps = 0;
            let mut at = |factor: f64| {
                steps += 1;
                Ok((factor > edge).then(a_break))
            };
            let present = (1.0 > edge).then(a_break);
            let (found, beyond) = headroom(present, &mut at).unwrap();
            let expected = if edge > 16.0 { 16.0 } else { edge };
            assert!(found <= expected && found * PRECISION >= expected, "{edge}: {found}");
            assert_eq!(beyond.is_none(), edge > 16.0);
            assert!(steps <= 12, "{edge}: {steps} steps");
        }
    }
}
