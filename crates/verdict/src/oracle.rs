//! Best possible service by a scheduler that knows every capacity and every demand.
//!
//! A cluster is a network: work flows from each class to the machines of its pool, up to the amount that
//! arrives, and from each machine on, up to the amount that it can do. The maximum flow is the maximum work
//! that can be served. Guaranteed work fits if all of it flows. Requests need several resources (CPUs,
//! disks, links), and each resource has a separate flow: work fits only if it flows in every one. The
//! oracle has no queues, no random gaps and no limits within the machines. Time that a request spends
//! without any of its machine's resources is free. The oracle is therefore a bound, not a competitor. With
//! several resources it is a bound in a further respect: the flow of the CPUs may spread a class over the
//! machines differently from the flow of the disks, although a request takes both from one machine. Where
//! all machines of a pool are proportional to one another, both flows spread a class in the same way.
//!
//! If demand does not fit, the oracle first serves guaranteed work, reduced by the same fraction for each
//! class. It then divides the rest of the demand in proportion to weights, max-min fair (progressive
//! filling: Bertsekas & Gallager, *Data Networks*, Sec. 6.5.2). The size of a class is its part of the
//! resource of which it needs the largest part (dominant resource fairness: Ghodsi et al., NSDI 2011).
//! Where requests need CPU time alone, this is its CPU work.

use std::time::Duration;

use weirgate_engine::{Class, Policy};
use weirgate_experiment::{Experiment, RESOURCES, Work, availability};
use weirgate_reserves::flow::Network;

/// Work is counted in millionths of a CPU, disk or link. This is finer than any printed figure and coarser
/// than the rounding of doubles, so work that fits exactly does fit.
const UNIT: f64 = 1e6;

/// Growth of a class's work (in CPUs, disks or links) below which the class counts as unable to grow: a
/// hundred units.
const STEP: f64 = 1e-4;

/// Number of halvings of an interval: down to a 2^40th, which is below a unit for clusters of up to a million CPUs.
const HALVINGS: u32 = 40;

/// Weight of a class without a guarantee, as a fraction of the weight of all guarantees: the engine's
/// default for best effort.
const BEST_EFFORT: f64 = 0.01;

/// Machines of each class and their capacities. A server that several addresses share is a separate machine
/// here, and is as available as the best of these addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Work per second of each machine, reduced by its faults.
    pub capacity: Vec<Work>,
    /// Maximum number of requests in each machine at once, reduced by its faults. Infinite without a limit.
    pub workers: Vec<f64>,
    /// Machines of the pool of each class of the policy, then of each template.
    pub reach: Vec<Vec<usize>>,
}

/// Demand of the classes, by class of the policy, then by template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Offered work per second.
    pub offered: Vec<Work>,
    /// Guaranteed fraction of the offered work, 0 to 1.
    pub owed: Vec<f64>,
}

/// Fraction of its work that a machine can do on average between two instants, by resource. More than 1 for
/// CPUs that became faster.
// Faults of single classes take nothing from the other classes.
/// Fraction of its work that a machine can still do under faults. Slow-downs multiply and apply to its
/// CPUs. Of several failing fractions the largest applies.
/// Weights of the classes: guaranteed rate × declared service time (or `costs`, in seconds, where none is
/// declared). A class without a guaranteed rate has a hundredth of the sum.
pub fn weights(policy: &Policy, costs: &[f64]) -> Vec<f64> {
    let guaranteed = |(class, cost): (&Class, &f64)| {
        let time = class.service_time.map_or(*cost, |time| time.as_secs_f64());
        class.guarantee.throughput.map(|rate| rate * time)
    };
    let weights: Vec<Option<f64>> = policy.all_classes().zip(costs).map(guaranteed).collect();
    let sum: f64 = weights.iter().flatten().sum();
    let rest = if sum > 0.0 { BEST_EFFORT * sum } else { 1.0 };
    weights.into_iter().map(|weight| weight.filter(|w| *w > 0.0).unwrap_or(rest)).collect()
}

impl Cluster {
    /// The cluster between two instants, with faults averaged over that time.
    pub fn live(experiment: &Experiment, from: Duration, to: Duration) -> Cluster {
        // Every server has its own disk and link.
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
        // The servers that addresses share follow the machines.
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
            reach: policy.all_classes().map(|class| machines(class.pool)).collect(),
        }
    }

    /// The cluster without faults.
    pub fn nominal(experiment: &Experiment) -> Cluster {
        Cluster::live(experiment, Duration::ZERO, Duration::ZERO)
    }

    /// Work per second of the machines in a class's pool.
    pub fn reached(&self, class: usize) -> Work {
        let machines = self.reach.get(class).into_iter().flatten();
        machines.fold([0.0; RESOURCES], |sum, machine| {
            std::array::from_fn(|resource| sum[resource] + self.capacity[*machine][resource])
        })
    }

    /// Work per second of all machines together.
    pub fn whole(&self) -> Work {
        std::array::from_fn(|resource| self.capacity.iter().map(|capacity| capacity[resource]).sum())
    }

    /// Maximum part of `work` (by class, per second) that can be served, for each resource separately.
    pub fn max(&self, work: &[Work]) -> Work {
        std::array::from_fn(|resource| self.flow(work, resource).0 as f64 / UNIT)
    }

    /// Whether all of `work` can be served.
    pub fn carries(&self, work: &[Work]) -> bool {
        (0..RESOURCES).all(|resource| {
            let (flow, asked) = self.flow(work, resource);
            flow == asked
        })
    }

    /// Whether there are workers for `held` requests at once, by class on average.
    pub fn holds(&self, held: &[f64]) -> bool {
        let (flow, asked) =
            self.network(|class| held.get(class).copied().unwrap_or(0.0), |machine| self.workers[machine]);
        flow == asked
    }

    /// Fraction, 0 to 1, of each class's demand that the oracle serves. It is 1 for a class that needs no resource.
    pub fn shares(&self, demand: &Demand, weights: &[f64]) -> Vec<f64> {
        let whole = self.whole();
        // Part of the resource of which the class needs the largest part.
        let size = |work: &Work| {
            let parts = work.iter().zip(whole).map(|(work, whole)| if whole > 0.0 { work / whole } else { *work });
            parts.fold(0.0, f64::max)
        };
        let sizes: Vec<f64> = demand.offered.iter().map(size).collect();
        let by_weight: Vec<f64> =
            weights.iter().zip(&sizes).map(|(weight, size)| if *size > 0.0 { weight / size } else { 0.0 }).collect();
        let floors = self.fill(&demand.offered, &vec![0.0; sizes.len()], &demand.owed, &demand.owed);
        let max = vec![1.0; sizes.len()];
        let parts = self.fill(&demand.offered, &floors, &max, &by_weight);
        parts.into_iter().zip(sizes).map(|(part, size)| if size > 0.0 { part } else { 1.0 }).collect()
    }

    /// Maximum flow of one resource and its demand, in units.
    fn flow(&self, work: &[Work], resource: usize) -> (u64, u64) {
        let asked = |class: usize| work.get(class).map_or(0.0, |work| work[resource]);
        self.network(asked, |machine| self.capacity[machine][resource])
    }

    /// Maximum flow from the demand of the classes to the capacity of the machines, and the total demand, in units.
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
            // An unlimited machine takes as much as can come.
            network.edge(classes + machine, sink, ((has(machine).max(0.0) * UNIT).ceil() as u64).min(asked));
        }
        (network.maximum(source, sink), asked)
    }

    /// Raises the served part of every class's `work` from `start` in proportion to its weight, up to its
    /// limit, until the machines are full. A class that can rise no further stays, and the others continue.
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
                // The rest is smaller than the unit of counting.
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

    /// Served part of CPU work.
    fn served(cluster: &Cluster, owed: &[f64], offered: &[f64], weights: &[f64]) -> Vec<f64> {
        let owed = owed.iter().zip(offered).map(|(owed, offered)| owed / offered).collect();
        let parts = cluster.shares(&Demand { offered: cpu(offered), owed }, weights);
        parts.iter().zip(offered).map(|(part, offered)| part * offered).collect()
    }

    /// A cluster without limits on requests in flight.
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
        let max = |work: [f64; 3]| cluster.max(&cpu(&work))[0];
        near(&[max([9.0, 1.0, 0.0]), max([9.0, 9.0, 9.0])], &[5.0, 8.0]);
    }

    #[test]
    fn floors_come_first_then_the_rest_by_weight() {
        let cluster = of(cpu(&[10.0]), vec![vec![0], vec![0], vec![0]]);
        let (owed, weights) = ([2.0, 1.0, 0.0], [3.0, 3.0, 1.0]);
        near(&served(&cluster, &owed, &[9.0, 1.0, 20.0], &weights), &[7.25, 1.0, 1.75]);
        // Capacity that one class does not ask for goes to the class that does.
        near(&served(&cluster, &owed, &[2.5, 1.0, 20.0], &weights), &[2.5, 1.0, 6.5]);
    }

    #[test]
    fn what_is_owed_and_does_not_fit_is_cut_by_one_fraction() {
        let cluster = of(cpu(&[12.0]), vec![vec![0], vec![0]]);
        near(&served(&cluster, &[9.0, 6.0], &[15.0, 6.0], &[1.0, 1.0]), &[7.2, 4.8]);
    }

    #[test]
    fn a_class_that_is_stuck_does_not_stop_the_others() {
        // Machines 0 and 1 are full first. The rest of machine 2 goes to the classes that reach it.
        near(&served(&cluster(), &[0.0; 3], &[9.0; 3], &[10.0, 1.0, 1.0]), &[4.0, 2.0, 2.0]);
    }

    #[test]
    fn what_is_served_must_fit_every_resource() {
        let cluster = of(vec![[2.0, 1.0, 1.0]], vec![vec![0], vec![0], vec![0]]);
        // Both need the disk. The CPU alone would carry them.
        let work = vec![[0.4, 0.6, 0.0], [0.4, 0.5, 0.0], [0.0; 3]];
        assert!(!cluster.carries(&work) && cluster.carries(&[[2.0, 0.5, 0.0], [0.0, 0.5, 1.0]]));
        near(&cluster.max(&work), &[0.8, 1.0, 0.0]);
        // By weight of the disk. A class that needs no resource is served completely.
        let demand = Demand { offered: work, owed: vec![0.0; 3] };
        near(&cluster.shares(&demand, &[1.0, 1.0, 1.0]), &[0.5 / 0.6, 1.0, 1.0]);
        // A class that needs the CPU is not held back by a full disk, and its part of the CPU equals the
        // parts of the others of their resources.
        let apart = Demand { offered: vec![[0.1, 3.0, 0.0], [9.0, 0.0, 0.0], [0.0, 3.0, 0.1]], owed: vec![0.0; 3] };
        let served = cluster.shares(&apart, &[1.0, 1.0, 1.0]);
        near(&served, &[0.5 / 3.0, (2.0 - 0.1 / 6.0) / 9.0, 0.5 / 3.0]);
    }
}
