//! What a scheduler could serve that knows every capacity and every demand.
//!
//! A cluster is a network: work flows from each class to the machines of its pool, as much as arrives, and
//! from each machine on, as much as it does. The maximum flow is the most work that can be
//! served; what is owed fits if it flows whole. Requests take something of several resources (CPUs, disks, links), and
//! each resource has a flow of its own: what fits must flow in every one. The oracle has no queues, no random gaps and
//! no limits inside the machines, and time that a request spends with none of its machine's resources costs it nothing:
//! it is a bound, not a competitor. With several resources it is one more time: in the flow of the CPUs a class may be
//! spread over the machines otherwise than in that of the disks, and a request takes both from one machine. Where all
//! machines of a pool are in proportion to one another, it is the same spreading.
//!
//! How it shares what does not fit: first what is owed, by the same fraction of each; then the rest of what
//! is asked for, in proportion to weights, max-min fair (progressive filling: Bertsekas & Gallager, *Data
//! Networks*, Sec. 6.5.2). A class is as large as its part of the resource of which it takes most (dominant resource
//! fairness: Ghodsi et al., NSDI 2011); where requests take CPU time alone, that is its CPU work.

use std::time::Duration;

use weirgate_engine::{Class, Policy};
use weirgate_experiment::{Experiment, RESOURCES, Work, availability};
use weirgate_reserves::flow::Network;

/// Work is counted in millionths of a CPU, disk or link: finer than any figure printed, coarser than the rounding of
/// doubles, so that what fits exactly does fit.
const UNIT: f64 = 1e6;

/// A class whose work could grow by so little (CPUs, disks or links) is at its end: a hundred units.
const STEP: f64 = 1e-4;

/// Halvings of an interval: to a 2^40th, below a unit for clusters of up to a million CPUs.
const HALVINGS: u32 = 40;

/// Share of all guarantees' weight that a class without one has: the engine's default for best effort.
const BEST_EFFORT: f64 = 0.01;

/// Which machines work for which class, and how much they can do. A server that several addresses share is a machine of
/// its own here, as available as the best of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Per machine what it does in a second, faults taken off.
    pub capacity: Vec<Work>,
    /// Per machine how many requests may be in it at once, faults taken off; infinite without a limit.
    pub workers: Vec<f64>,
    /// Per class of the policy, then per template, the machines of its pool.
    pub reach: Vec<Vec<usize>>,
}

/// What the classes ask for, per class of the policy, then per template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Work asked for, per second.
    pub offered: Vec<Work>,
    /// The part of it that is owed, 0 to 1.
    pub owed: Vec<f64>,
}

/// The classes of a policy, then the shapes of its templates: the order of everything that is per class here.
pub fn classes(policy: &Policy) -> impl Iterator<Item = &Class> {
    policy.classes.iter().chain(policy.templates.iter().map(|template| &template.class))
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
        // Every server has a disk and a link of its own.
        let capacity = |index: usize, servers: u32| {
            let machine = &experiment.machines[index];
            let [cpu, disk, link] = availability(experiment, index, from, to);
            let servers = f64::from(servers);
            [f64::from(machine.cpus) * servers * machine.speed * cpu, servers * disk, servers * link]
        };
        let workers = |index: usize, servers: u32| {
            let [_, alive, _] = availability(experiment, index, from, to);
            let limit = experiment.machines[index].concurrency;
            limit.map_or(f64::INFINITY, |limit| f64::from(limit) * f64::from(servers)) * alive
        };
        // Behind the machines the servers that addresses share.
        let mut capacities: Vec<Work> = Vec::new();
        let mut slots: Vec<f64> = Vec::new();
        for (index, machine) in experiment.machines.iter().enumerate() {
            let own = if machine.shared.is_empty() { machine.servers } else { 0 };
            capacities.push(capacity(index, own));
            slots.push(if own > 0 { workers(index, own) } else { 0.0 });
        }
        let mut shared: Vec<&str> = Vec::new();
        for (index, machine) in experiment.machines.iter().enumerate() {
            for server in &machine.shared {
                let own = capacity(index, 1);
                match shared.iter().position(|known| known == server) {
                    Some(place) => {
                        let place = experiment.machines.len() + place;
                        capacities[place].iter_mut().zip(own).for_each(|(best, own)| *best = best.max(own));
                        slots[place] = slots[place].max(workers(index, 1));
                    }
                    None => {
                        shared.push(server);
                        capacities.push(own);
                        slots.push(workers(index, 1));
                    }
                }
            }
        }
        let behind = |machine: &usize| {
            let place = |server: &String| shared.iter().position(|known| known == server);
            let servers = experiment.machines[*machine].shared.iter().filter_map(place);
            servers.map(|place| experiment.machines.len() + place).chain([*machine]).collect::<Vec<usize>>()
        };
        let policy = &experiment.site.policy;
        let machines = |pool: usize| {
            let nodes = policy.nodes.iter().zip(&experiment.machine_of).filter(|(node, _)| node.pool == pool);
            let mut machines: Vec<usize> = nodes.flat_map(|(_, machine)| behind(machine)).collect();
            machines.sort_unstable();
            machines.dedup();
            machines
        };
        Cluster {
            capacity: capacities,
            workers: slots,
            reach: classes(policy).map(|class| machines(class.pool)).collect(),
        }
    }

    /// The cluster without faults.
    #[must_use]
    pub fn nominal(experiment: &Experiment) -> Cluster {
        Cluster::live(experiment, Duration::ZERO, Duration::ZERO)
    }

    /// What the machines of a class's pool do in a second.
    #[must_use]
    pub fn reached(&self, class: usize) -> Work {
        let machines = self.reach.get(class).into_iter().flatten();
        machines.fold([0.0; RESOURCES], |sum, machine| {
            std::array::from_fn(|resource| sum[resource] + self.capacity[*machine][resource])
        })
    }

    /// What all machines together do in a second.
    #[must_use]
    pub fn whole(&self) -> Work {
        std::array::from_fn(|resource| self.capacity.iter().map(|capacity| capacity[resource]).sum())
    }

    /// The most of `work` (per class, per second) that can be served, of each resource by itself.
    #[must_use]
    pub fn most(&self, work: &[Work]) -> Work {
        std::array::from_fn(|resource| self.flow(work, resource).0 as f64 / UNIT)
    }

    /// Can all of `work` be served?
    #[must_use]
    pub fn carries(&self, work: &[Work]) -> bool {
        (0..RESOURCES).all(|resource| {
            let (flow, asked) = self.flow(work, resource);
            flow == asked
        })
    }

    /// Are there workers for so many requests at once, per class on average?
    #[must_use]
    pub fn holds(&self, held: &[f64]) -> bool {
        let (flow, asked) =
            self.network(|class| held.get(class).copied().unwrap_or(0.0), |machine| self.workers[machine]);
        flow == asked
    }

    /// The part that the oracle serves of what each class asks for, 0 to 1; all of what takes nothing.
    #[must_use]
    pub fn shares(&self, demand: &Demand, weights: &[f64]) -> Vec<f64> {
        let whole = self.whole();
        // Its part of the resource of which it asks for most.
        let size = |work: &Work| {
            let parts = work.iter().zip(whole).map(|(work, whole)| if whole > 0.0 { work / whole } else { *work });
            parts.fold(0.0, f64::max)
        };
        let sizes: Vec<f64> = demand.offered.iter().map(size).collect();
        let by_weight: Vec<f64> =
            weights.iter().zip(&sizes).map(|(weight, size)| if *size > 0.0 { weight / size } else { 0.0 }).collect();
        let floors = self.fill(&demand.offered, &vec![0.0; sizes.len()], &demand.owed, &demand.owed);
        let most = vec![1.0; sizes.len()];
        let parts = self.fill(&demand.offered, &floors, &most, &by_weight);
        parts.into_iter().zip(sizes).map(|(part, size)| if size > 0.0 { part } else { 1.0 }).collect()
    }

    /// Maximum flow of one resource and what was asked for, in units.
    fn flow(&self, work: &[Work], resource: usize) -> (u64, u64) {
        let asked = |class: usize| work.get(class).map_or(0.0, |work| work[resource]);
        self.network(asked, |machine| self.capacity[machine][resource])
    }

    /// Maximum flow of what classes ask for to what machines have, and all that was asked for, in units.
    fn network(&self, work: impl Fn(usize) -> f64, has: impl Fn(usize) -> f64) -> (u64, u64) {
        let (classes, machines) = (self.reach.len(), self.capacity.len());
        let (source, sink) = (classes + machines, classes + machines + 1);
        let mut network = Network::new(classes + machines + 2);
        let mut asked = 0;
        for (class, reach) in self.reach.iter().enumerate() {
            let units = (work(class).max(0.0) * UNIT) as u64;
            asked += units;
            network.edge(source, class, units);
            for machine in reach {
                network.edge(class, classes + machine, units);
            }
        }
        if asked == 0 {
            return (0, 0);
        }
        for machine in 0..machines {
            // What is not limited takes all that can come.
            network.edge(classes + machine, sink, ((has(machine).max(0.0) * UNIT).ceil() as u64).min(asked));
        }
        (network.maximum(source, sink), asked)
    }

    /// Raises the served part of every class's `work` from `start` in proportion to its weight, up to its limit, until
    /// the machines are full; a class that can rise no more stays, the others go on.
    fn fill(&self, work: &[Work], start: &[f64], limits: &[f64], weights: &[f64]) -> Vec<f64> {
        let carries = |parts: &[f64]| {
            let served: Vec<Work> =
                work.iter().zip(parts).map(|(work, part)| work.map(|seconds| seconds * part)).collect();
            self.carries(&served)
        };
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
            if carries(&raised(top)) {
                low = top;
            }
            for _ in 0..HALVINGS {
                let middle = f64::midpoint(low, high);
                if carries(&raised(middle)) { low = middle } else { high = middle }
            }
            at = raised(low);
            let before = rising.len();
            rising.retain(|i| {
                let mut more = at.clone();
                more[*i] += STEP / work[*i].iter().copied().fold(0.0, f64::max);
                more[*i] <= limits[*i] && carries(&more)
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

    /// CPU work alone.
    fn cpu(seconds: &[f64]) -> Vec<Work> {
        seconds.iter().map(|seconds| [*seconds, 0.0, 0.0]).collect()
    }

    /// What is served of CPU work.
    fn served(cluster: &Cluster, owed: &[f64], offered: &[f64], weights: &[f64]) -> Vec<f64> {
        let owed = owed.iter().zip(offered).map(|(owed, offered)| owed / offered).collect();
        let parts = cluster.shares(&Demand { offered: cpu(offered), owed }, weights);
        parts.iter().zip(offered).map(|(part, offered)| part * offered).collect()
    }

    /// Without limits on what is inside.
    fn of(capacity: Vec<Work>, reach: Vec<Vec<usize>>) -> Cluster {
        Cluster { workers: vec![f64::INFINITY; capacity.len()], capacity, reach }
    }

    #[test]
    fn workers_hold_what_waits_inside() {
        let cluster = Cluster { workers: vec![4.0, f64::INFINITY, 0.0], ..cluster() };
        assert!(cluster.holds(&[4.0, 1e9, 0.0]) && cluster.holds(&[1e9, 0.0, 4.0]));
        let first = Cluster { workers: vec![4.0, 2.0, 1.0], ..cluster };
        assert!(first.holds(&[3.0, 2.0, 2.0]) && !first.holds(&[3.0, 2.0, 2.1]) && !first.holds(&[0.0, 3.1, 0.0]));
    }

    /// Three machines: class 0 on the first two, class 1 on the last two, class 2 on all.
    fn cluster() -> Cluster {
        of(cpu(&[2.0, 2.0, 4.0]), vec![vec![0, 1], vec![1, 2], vec![0, 1, 2]])
    }

    #[test]
    fn work_that_fits_as_a_whole_may_not_fit_where_it_may_go() {
        let cluster = cluster();
        let carries = |work: [f64; 3]| cluster.carries(&cpu(&work));
        assert!(carries([4.0, 4.0, 0.0]) && carries([4.0, 0.0, 4.0]));
        assert!(!carries([4.1, 0.0, 0.0]) && !carries([3.0, 3.0, 2.1]));
        let most = |work: [f64; 3]| cluster.most(&cpu(&work))[0];
        near(&[most([9.0, 1.0, 0.0]), most([9.0, 9.0, 9.0])], &[5.0, 8.0]);
    }

    #[test]
    fn floors_come_first_then_the_rest_by_weight() {
        let cluster = of(cpu(&[10.0]), vec![vec![0], vec![0], vec![0]]);
        let (owed, weights) = ([2.0, 1.0, 0.0], [3.0, 3.0, 1.0]);
        near(&served(&cluster, &owed, &[9.0, 1.0, 20.0], &weights), &[7.25, 1.0, 1.75]);
        // What is not asked for goes to who asks.
        near(&served(&cluster, &owed, &[2.5, 1.0, 20.0], &weights), &[2.5, 1.0, 6.5]);
    }

    #[test]
    fn what_is_owed_and_does_not_fit_is_cut_by_one_fraction() {
        let cluster = of(cpu(&[12.0]), vec![vec![0], vec![0]]);
        near(&served(&cluster, &[9.0, 6.0], &[15.0, 6.0], &[1.0, 1.0]), &[7.2, 4.8]);
    }

    #[test]
    fn a_class_that_is_stuck_does_not_stop_the_others() {
        // Machines 0 and 1 are full first; the rest of machine 2 goes to whoever reaches it.
        near(&served(&cluster(), &[0.0; 3], &[9.0; 3], &[10.0, 1.0, 1.0]), &[4.0, 2.0, 2.0]);
    }

    #[test]
    fn what_is_served_must_fit_every_resource() {
        let cluster = of(vec![[2.0, 1.0, 1.0]], vec![vec![0], vec![0], vec![0]]);
        // Both need the disk: the CPU alone would carry them.
        let work = vec![[0.4, 0.6, 0.0], [0.4, 0.5, 0.0], [0.0; 3]];
        assert!(!cluster.carries(&work) && cluster.carries(&[[2.0, 0.5, 0.0], [0.0, 0.5, 1.0]]));
        near(&cluster.most(&work), &[0.8, 1.0, 0.0]);
        // By weight of the disk; what takes nothing is served.
        let demand = Demand { offered: work, owed: vec![0.0; 3] };
        near(&cluster.shares(&demand, &[1.0, 1.0, 1.0]), &[0.5 / 0.6, 1.0, 1.0]);
        // Who needs the CPU is not held back by a disk that is full, and gets as much of the one as others of the
        // other.
        let apart = Demand { offered: vec![[0.1, 3.0, 0.0], [9.0, 0.0, 0.0], [0.0, 3.0, 0.1]], owed: vec![0.0; 3] };
        let served = cluster.shares(&apart, &[1.0, 1.0, 1.0]);
        near(&served, &[0.5 / 3.0, (2.0 - 0.1 / 6.0) / 9.0, 0.5 / 3.0]);
    }
}
