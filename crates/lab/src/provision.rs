//! The number of CPUs that an approach needs to keep the guarantees.
//!
//! Source: Blanquer et al., *Quorum* (NSDI 2005), Sec. 4.4, which adds nodes behind a plain load balancer
//! until the guarantees hold. This module does it for any approach, by bisection over trials on real
//! processes. It adds and removes machines in proportion ([`weirgate_experiment::scale`]).
//!
//! A floor that the judge calls infeasible on a small cluster counts as missed, because the cluster is too
//! small. One trial decides each size, so the answer may be off by one machine at the edge.

use weirgate_experiment::Experiment;
use weirgate_experiment::scale::{groups, scale_cluster};
use weirgate_verdict::Verdict;

use crate::campaign::Campaign;
use crate::gateways::Approach;
use crate::trial::Progress;

/// Largest cluster to try, as a multiple of the present machines. Beyond it, more capacity does not help
/// the approach.
const MAX_TIMES: usize = 4;

/// The needs of an approach.
#[derive(Clone, Debug, PartialEq)]
pub struct Provision {
    /// The smallest cluster that held, or `None` if four times the present machines did not hold.
    pub needed: Option<Size>,
    /// The first guarantee that the largest failing cluster missed.
    pub missed: Option<String>,
}

/// The size of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of machines.
    pub machines: usize,
    /// Total number of their CPUs.
    pub cpus: u64,
}

/// An event during the search.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A trial of this size begins.
    Tries(Size),
    /// The trial is running.
    Goes(&'a Progress),
    /// The trial has ended, and the guarantees held (`true`) or not.
    Ends(Size, bool),
}

/// Returns the size of the cluster of `experiment`.
pub fn size(experiment: &Experiment) -> Size {
    let cpus = experiment.machines.iter().map(|machine| u64::from(machine.cpus) * u64::from(machine.servers)).sum();
    Size { machines: experiment.machines.len(), cpus }
}

/// Returns the needs of `approach` for the experiment of `campaign`, with its first seed.
///
/// # Errors
/// The experiment is invalid, or a trial could not be played.
pub fn provision(
    campaign: &Campaign,
    approach: &Approach,
    mut watch: impl FnMut(Step<'_>),
) -> Result<Provision, String> {
    let experiment = campaign.experiment()?;
    let present: Vec<usize> = groups(&experiment).iter().map(|group| group.machines.len()).collect();
    let total: usize = present.iter().sum();
    let seed = campaign.seeds.first().copied().unwrap_or(1);
    let mut held = |machines: usize| -> Result<(Size, Option<String>), String> {
        let scaled = scale_cluster(&experiment, &proportional(&present, machines));
        let size = size(&scaled);
        watch(Step::Tries(size));
        let trial = campaign.trial(&scaled, approach, seed, |progress| watch(Step::Goes(progress)))?;
        let missed = first_miss(&trial.verdict);
        watch(Step::Ends(size, missed.is_none()));
        Ok((size, missed))
    };
    // Grow the cluster until it holds, then narrow the gap from below.
    let (mut small, mut large) = (0, total);
    let mut missed = None;
    let needed = loop {
        match held(large)? {
            (size, None) => break Some(size),
            (_, what) => (small, missed) = (large, what),
        }
        if large >= total * MAX_TIMES {
            break None;
        }
        large = (large * 3).div_ceil(2).min(total * MAX_TIMES);
    };
    let Some(mut needed) = needed else { return Ok(Provision { needed: None, missed }) };
    // Each group keeps at least one machine, so totals below the number of groups change nothing.
    let min = present.len();
    while large - small > 1 && large > min {
        let middle = small.midpoint(large).max(min);
        match held(middle)? {
            (size, None) => (large, needed) = (middle, size),
            (_, what) => (small, missed) = (middle, what),
        }
    }
    Ok(Provision { needed: Some(needed), missed })
}

/// Distributes `machines` machines over groups in proportion to `present`, with at least one in each.
fn proportional(present: &[usize], machines: usize) -> Vec<usize> {
    let total: usize = present.iter().sum();
    let mut below = 0;
    let mut given = 0;
    present
        .iter()
        .map(|count| {
            below += count;
            let upto = (machines * below + total / 2) / total;
            let count = (upto - given).max(1);
            given = upto;
            count
        })
        .collect()
}

/// Returns the first guarantee that was missed, including those that the judge calls infeasible.
fn first_miss(verdict: &Verdict) -> Option<String> {
    verdict.phases.iter().filter(|phase| phase.judged).find_map(|phase| {
        phase.classes.iter().find_map(|class| {
            let floor = class
                .part
                .floor
                .as_ref()
                .filter(|floor| !floor.ok)
                .map(|floor| format!("{:.0}/s of {:.0}/s owed", class.part.served_per_s, floor.owed_per_s));
            let ceiling = class.part.ceiling.as_ref().filter(|ceiling| !ceiling.ok).map(|ceiling| {
                let value = ceiling.value_ms.map_or("nothing".to_owned(), |value| format!("{value:.0} ms"));
                format!("{} {value} of {:.0} ms", ceiling.statistic, ceiling.limit_ms)
            });
            Some(format!("{} in {}: {}", class.class, phase.name, floor.or(ceiling)?))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_grow_in_proportion_and_never_vanish() {
        assert_eq!(proportional(&[8], 5), [5]);
        assert_eq!(proportional(&[1, 7, 2, 3], 26), [2, 14, 4, 6]);
        assert_eq!(proportional(&[1, 7, 2, 3], 13), [1, 7, 2, 3]);
        assert!(proportional(&[1, 7, 2, 3], 4).iter().all(|count| *count >= 1));
    }
}
