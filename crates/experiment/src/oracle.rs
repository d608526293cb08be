//! What a scheduler could serve that knows every capacity and every demand.
//!
//! A cluster is a network: work flows from each class to the machines of its pool, as much as arrives, and
//! from each machine on, as much as its live CPUs do. The maximum flow is the most CPU work that can be
//! served; what is owed fits if it flows whole. The oracle has no queues, no random gaps and no limits
//! inside the machines, and time that a request spends without a CPU costs it nothing: it is a bound, not a
//! competitor.
//!
//! How it shares what does not fit: first what is owed, by the same fraction of each; then the rest of what
//! is asked for, in proportion to weights, max-min fair (progressive filling: Bertsekas & Gallager, *Data
//! Networks*, Sec. 6.5.2).

use std::time::Duration;

use weirgate_config::{Experiment, Fault, FaultKind};
use weirgate_engine::{Class, Policy};

use weirgate_reserves::flow::Network;

/// Work is counted in millionths of a CPU: finer than any figure printed, coarser than the rounding of
/// doubles, so that what fits exactly does fit.
const UNIT: f64 = 1e6;

/// A class whose work could grow by so little (CPUs) is at its end: a hundred units.
const STEP: f64 = 1e-4;

/// Halvings of an interval: to a 2^40th, below a unit for clusters of up to a million CPUs.
const HALVINGS: u32 = 40;

/// Share of all guarantees' weight that a class without one has: the engine's default for best effort.
const BEST_EFFORT: f64 = 0.01;

/// Which machines work for which class, and how much they can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Per machine CPU-seconds of a nominal CPU per second, faults taken off.
    pub capacity: Vec<f64>,
    /// Per class of the policy, then per template, the machines of its pool.
    pub reach: Vec<Vec<usize>>,
}

/// What the classes ask for, per class of the policy, then per template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// CPU work owed, in nominal CPU-seconds per second.
    pub owed: Vec<f64>,
    /// CPU work asked for; at least what is owed.
    pub offered: Vec<f64>,
}

/// The classes of a policy, then the shapes of its templates: the order of everything that is per class here.
pub fn classes(policy: &Policy) -> impl Iterator<Item = &Class> {
    policy.classes.iter().chain(policy.templates.iter().map(|template| &template.class))
}

/// Share of its work that a machine can do on average between two instants.
#[must_use]
pub fn availability(experiment: &Experiment, machine: usize, from: Duration, to: Duration) -> f64 {
    let end = experiment.duration();
    let faults: Vec<(&Fault, Duration)> = experiment
        .faults
        .iter()
        .filter(|fault| fault.machines.contains(&machine))
        .map(|fault| (fault, fault.until.unwrap_or(end)))
        .collect();
    let mut borders: Vec<Duration> = faults.iter().flat_map(|(fault, until)| [fault.at, *until]).collect();
    borders.retain(|at| from < *at && *at < to);
    borders.extend([from, to]);
    borders.sort_unstable();
    let mut sum = 0.0;
    for pair in borders.windows(2) {
        let in_force = faults.iter().filter(|(fault, until)| fault.at <= pair[0] && pair[0] < *until);
        sum += left(in_force.map(|(fault, _)| fault.kind)) * (pair[1] - pair[0]).as_secs_f64();
    }
    let length = to.saturating_sub(from).as_secs_f64();
    if length > 0.0 { sum / length } else { 1.0 }
}

/// Share of its work that a machine still does under faults: slow-downs multiply, of the shares that fail the
/// largest counts.
fn left(faults: impl Iterator<Item = FaultKind>) -> f64 {
    let (mut speed, mut fails) = (1.0, 0.0_f64);
    for fault in faults {
        match fault {
            FaultKind::Removed | FaultKind::Crash | FaultKind::Stall => speed = 0.0,
            FaultKind::Slow(share) => speed *= share,
            FaultKind::FailFast(share) => fails = fails.max(share),
            FaultKind::LostReports | FaultKind::Reload => {}
        }
    }
    speed * (1.0 - fails)
}

/// The weights of the classes: guaranteed rate × service time (`costs`, in seconds, where none is agreed);
/// a class that is promised no rate has a hundredth of all of them.
#[must_use]
pub fn weights(policy: &Policy, costs: &[f64]) -> Vec<f64> {
    let guaranteed = |(class, cost): (&Class, &f64)| {
        let time = class.service_time.map_or(*cost, |time| time.as_secs_f64());
        class.guarantee.throughput.map(|rate| rate * time)
    };
    let weights: Vec<Option<f64>> = classes(policy).zip(costs).map(guaranteed).collect();
    let sum: f64 = weights.iter().flatten().sum();
    let rest = if sum > 0.0 { BEST_EFFORT * sum } else { 1.0 };
    weights.into_iter().map(|weight| weight.filter(|w| *w > 0.0).unwrap_or(rest)).collect()
}

impl Cluster {
    /// The cluster between two instants, faults averaged over that time.
    #[must_use]
    pub fn live(experiment: &Experiment, from: Duration, to: Duration) -> Cluster {
        let capacity = |(index, machine): (usize, &weirgate_config::Machine)| {
            let cpus = f64::from(machine.cpus) * f64::from(machine.servers);
            cpus * machine.speed * availability(experiment, index, from, to)
        };
        let policy = &experiment.site.policy;
        let machines = |pool: usize| {
            let nodes = policy.nodes.iter().zip(&experiment.machine_of).filter(|(node, _)| node.pool == pool);
            let mut machines: Vec<usize> = nodes.map(|(_, machine)| *machine).collect();
            machines.sort_unstable();
            machines.dedup();
            machines
        };
        Cluster {
            capacity: experiment.machines.iter().enumerate().map(capacity).collect(),
            reach: classes(policy).map(|class| machines(class.pool)).collect(),
        }
    }

    /// The most of `work` (per class, in CPU-seconds per second) that can be served.
    #[must_use]
    pub fn most(&self, work: &[f64]) -> f64 {
        self.flow(work).0 as f64 / UNIT
    }

    /// Can all of `work` be served?
    #[must_use]
    pub fn carries(&self, work: &[f64]) -> bool {
        let (flow, asked) = self.flow(work);
        flow == asked
    }

    /// What the oracle serves each class, in CPU-seconds per second.
    #[must_use]
    pub fn shares(&self, demand: &Demand, weights: &[f64]) -> Vec<f64> {
        let floors = self.fill(&vec![0.0; demand.owed.len()], &demand.owed, &demand.owed);
        self.fill(&floors, &demand.offered, weights)
    }

    /// Maximum flow and what was asked for, in units.
    fn flow(&self, work: &[f64]) -> (u64, u64) {
        let (classes, machines) = (self.reach.len(), self.capacity.len());
        let (source, sink) = (classes + machines, classes + machines + 1);
        let mut network = Network::new(classes + machines + 2);
        let mut asked = 0;
        for (class, reach) in self.reach.iter().enumerate() {
            let units = (work.get(class).copied().unwrap_or(0.0).max(0.0) * UNIT) as u64;
            asked += units;
            network.edge(source, class, units);
            for machine in reach {
                network.edge(class, classes + machine, units);
            }
        }
        for (machine, capacity) in self.capacity.iter().enumerate() {
            network.edge(classes + machine, sink, (capacity.max(0.0) * UNIT).ceil() as u64);
        }
        (network.maximum(source, sink), asked)
    }

    /// Raises every class from `start` in proportion to its weight, up to its limit, until the machines are
    /// full; a class that can rise no more stays, the others go on.
    fn fill(&self, start: &[f64], limits: &[f64], weights: &[f64]) -> Vec<f64> {
        let mut at = start.to_vec();
        let mut rising: Vec<usize> = (0..at.len()).filter(|i| limits[*i] > at[*i] && weights[*i] > 0.0).collect();
        while !rising.is_empty() {
            let raised = |level: f64| {
                let mut to = at.clone();
                rising.iter().for_each(|i| to[*i] = (at[*i] + level * weights[*i]).min(limits[*i]));
                to
            };
            let top = rising.iter().map(|i| (limits[*i] - at[*i]) / weights[*i]).fold(0.0, f64::max);
            let (mut low, mut high) = (0.0, top);
            if self.carries(&raised(top)) {
                low = top;
            }
            for _ in 0..HALVINGS {
                let middle = f64::midpoint(low, high);
                if self.carries(&raised(middle)) { low = middle } else { high = middle }
            }
            at = raised(low);
            let before = rising.len();
            rising.retain(|i| {
                let mut more = at.clone();
                more[*i] += STEP;
                more[*i] <= limits[*i] && self.carries(&more)
            });
            if rising.len() == before {
                // What is left to share is below the grain of counting.
                break;
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: &[f64], expected: &[f64]) {
        let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(found.len() == expected.len() && off < 1e-3, "{found:?}, not {expected:?}");
    }

    /// Three machines: class 0 on the first two, class 1 on the last two, class 2 on all.
    fn cluster() -> Cluster {
        Cluster { capacity: vec![2.0, 2.0, 4.0], reach: vec![vec![0, 1], vec![1, 2], vec![0, 1, 2]] }
    }

    #[test]
    fn work_that_fits_as_a_whole_may_not_fit_where_it_may_go() {
        let cluster = cluster();
        assert!(cluster.carries(&[4.0, 4.0, 0.0]) && cluster.carries(&[4.0, 0.0, 4.0]));
        assert!(!cluster.carries(&[4.1, 0.0, 0.0]) && !cluster.carries(&[3.0, 3.0, 2.1]));
        near(&[cluster.most(&[9.0, 1.0, 0.0]), cluster.most(&[9.0, 9.0, 9.0])], &[5.0, 8.0]);
    }

    #[test]
    fn floors_come_first_then_the_rest_by_weight() {
        let cluster = Cluster { capacity: vec![10.0], reach: vec![vec![0], vec![0], vec![0]] };
        let demand = Demand { owed: vec![2.0, 1.0, 0.0], offered: vec![9.0, 1.0, 20.0] };
        near(&cluster.shares(&demand, &[3.0, 3.0, 1.0]), &[7.25, 1.0, 1.75]);
        // What is not asked for goes to who asks.
        let demand = Demand { owed: vec![2.0, 1.0, 0.0], offered: vec![2.5, 1.0, 20.0] };
        near(&cluster.shares(&demand, &[3.0, 3.0, 1.0]), &[2.5, 1.0, 6.5]);
    }

    #[test]
    fn what_is_owed_and_does_not_fit_is_cut_by_one_fraction() {
        let cluster = Cluster { capacity: vec![12.0], reach: vec![vec![0], vec![0]] };
        let demand = Demand { owed: vec![9.0, 6.0], offered: vec![15.0, 6.0] };
        near(&cluster.shares(&demand, &[1.0, 1.0]), &[7.2, 4.8]);
    }

    #[test]
    fn a_class_that_is_stuck_does_not_stop_the_others() {
        let demand = Demand { owed: vec![0.0; 3], offered: vec![9.0; 3] };
        // Machines 0 and 1 are full first; the rest of machine 2 goes to whoever reaches it.
        near(&cluster().shares(&demand, &[10.0, 1.0, 1.0]), &[4.0, 2.0, 2.0]);
    }
}
