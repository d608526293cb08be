//! Cost of a class's requests relative to the declared cost: the number of tokens of its guaranteed rate
//! that a request takes.
//!
//! A class with requests that became five times as expensive is owed its *capacity*: the normalised
//! guarantee of Blanquer et al., *Quorum* (NSDI 2005), Sec. 5.2, g × declared / actual. Cost is the
//! capacity that other classes lose: seconds of the resource of which the class takes the largest part of
//! its pool (a CPU, a disk, a link: dominant resource, Ghodsi et al., NSDI 2011). Waiting is no cost,
//! neither in a queue nor for a database: a class with requests that begin to wait 25 times longer is owed
//! as much as before.
//!
//! Departure: workers also count as a cost where they are scarce, for example when four workers each wait
//! half a second for a database. They are scarce in an interval if the workers of the pools that share
//! machines cannot hold all requests that are owed by the resources above.
//!
//! `service_time` states the time of a request on an idle machine, but not the part of it that is waiting.
//! The declared time of a resource is therefore the service time minus the time that the experiment's
//! requests spend elsewhere at its start. It is at least the time that they need of the resource then, up
//! to the service time.

use std::ops::Range;
use std::time::Duration;

use weirgate_experiment::{Experiment, RESOURCES, Run, Source, Work};

use super::class::{Subject, seconds};
use crate::oracle::Cluster;

/// Declared cost of the requests of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    /// Service time, in seconds.
    service: f64,
    /// Declared time of each resource, in seconds.
    resources: Work,
}

impl Declared {
    /// The cost that a class declares by this service time, if its requests need `at_first` at the start of
    /// the experiment (see [`at_first`]).
    pub(crate) fn of(service: Duration, at_first: Option<(Work, f64)>) -> Declared {
        let service = service.as_secs_f64();
        let resources = match at_first {
            None => [service; RESOURCES],
            Some((takes, io)) => {
                let whole = takes.iter().sum::<f64>() + io;
                takes.map(|own| (service - (whole - own)).max(own.min(service)))
            }
        };
        Declared { service, resources }
    }

    /// Tokens taken by a request that needs `work` (with the CPU time as it passes on the machines) of a
    /// pool that has `has`.
    pub(crate) fn tokens(&self, work: &Work, has: &Work) -> f64 {
        let part = |resource: &usize| if has[*resource] > 0.0 { work[*resource] / has[*resource] } else { 0.0 };
        let max = (0..RESOURCES).max_by(|a, b| part(a).total_cmp(&part(b)).then(b.cmp(a))).unwrap_or(0);
        over(work[max], self.resources[max])
    }

    /// Tokens taken by a request that holds a worker for `held` seconds, where workers are scarce.
    pub(crate) fn tokens_of_worker(&self, held: f64) -> f64 {
        over(held, self.service)
    }
}

/// Actual cost over declared cost, at least 1.
fn over(actual: f64, declared: f64) -> f64 {
    if actual > declared && declared > 0.0 { actual / declared } else { 1.0 }
}

/// Work of each resource that requests of class number `subject` need when the experiment begins, and the
/// time for which they wait for something else. Both are means over its streams, weighted by their numbers
/// of requests. `None` where files or logs determine the requests. `pace` is the number of seconds that a
/// second of nominal CPU time takes.
pub(crate) fn at_first(experiment: &Experiment, run: &Run, subject: usize, pace: f64) -> Option<(Work, f64)> {
    let policy = &experiment.site.policy;
    let mut counts = vec![0_u32; experiment.traffic.len()];
    for record in &run.records {
        if let Some(count) = counts.get_mut(record.traffic as usize) {
            *count += 1;
        }
    }
    let (mut takes, mut io, mut all) = ([0.0; RESOURCES], 0.0, 0.0);
    for (traffic, count) in experiment.traffic.iter().zip(counts) {
        if traffic.class.index(policy) != subject || count == 0 {
            continue;
        }
        if traffic.documents.is_some() || matches!(traffic.source, Source::Trace(_) | Source::Part { .. }) {
            return None;
        }
        let demand = traffic.demand.first()?;
        let mean = [demand.cpu.mean() * pace, demand.disk.mean(), demand.link.mean()];
        takes.iter_mut().zip(mean).for_each(|(sum, mean)| *sum += mean * f64::from(count));
        io += demand.io.mean() * f64::from(count);
        all += f64::from(count);
    }
    (all > 0.0).then(|| (takes.map(|sum| sum / all), io / all))
}

/// Whether workers are scarce for each class in an interval. They are if the workers of all pools that
/// share machines with its own, directly or through others, cannot hold all owed requests there.
pub(crate) fn short_of_workers(
    cluster: &Cluster,
    subjects: &[Subject<'_>],
    (phase, stretch): (usize, &Range<u64>),
) -> Vec<bool> {
    let length = seconds(stretch);
    let held = subjects.iter().map(|subject| subject.owed_workers(phase, stretch) / length.max(1e-9));
    let held: Vec<f64> = held.collect();
    if length <= 0.0 || cluster.holds(&held) {
        return vec![false; subjects.len()];
    }
    let islands = islands(&cluster.reach);
    let is_short = |island: usize| {
        let own = held.iter().zip(&islands).map(|(held, of)| if *of == island { *held } else { 0.0 });
        !cluster.holds(&own.collect::<Vec<f64>>())
    };
    let short: Vec<bool> = (0..islands.len()).map(is_short).collect();
    islands.iter().map(|island| short[*island]).collect()
}

/// A number for each class, equal for classes with connected machines.
fn islands(reach: &[Vec<usize>]) -> Vec<usize> {
    let machines = reach.iter().flatten().max().map_or(0, |max| max + 1);
    let mut islands: Vec<usize> = (0..reach.len()).collect();
    loop {
        let mut of_machine = vec![usize::MAX; machines];
        for (island, reach) in islands.iter().zip(reach) {
            reach.iter().for_each(|machine| of_machine[*machine] = of_machine[*machine].min(*island));
        }
        let min = |(island, reach): (&usize, &Vec<usize>)| {
            reach.iter().map(|machine| of_machine[*machine]).min().map_or(*island, |min| min.min(*island))
        };
        let next: Vec<usize> = islands.iter().zip(reach).map(min).collect();
        if next == islands {
            return islands;
        }
        islands = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_share_machines_are_one_island() {
        let reach = [vec![0, 1], vec![2], vec![1, 3], vec![3, 4], vec![2], vec![]];
        assert_eq!(islands(&reach), [0, 1, 0, 0, 1, 5]);
    }

    #[test]
    fn the_resource_that_a_class_takes_most_of_is_its_cost() {
        let declared = Declared { service: 0.010, resources: [0.006, 0.004, 0.0] };
        let has = [16.0, 8.0, 8.0];
        assert_eq!(declared.tokens(&[0.006, 0.002, 0.0], &has), 1.0);
        // The CPU cost tripled. The class takes a smaller part of the disk, so the disk does not count.
        assert_eq!(declared.tokens(&[0.018, 0.008, 0.0], &has), 0.018 / 0.006);
        assert_eq!(declared.tokens(&[0.006, 0.008, 0.0], &has), 2.0);
        assert_eq!(declared.tokens(&[0.0; 3], &has), 1.0);
        assert_eq!((declared.tokens_of_worker(0.005), declared.tokens_of_worker(0.040)), (1.0, 4.0));
    }
}
