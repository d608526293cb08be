//! Idle seconds of CPUs, disks, links and workers over time. The judge compares them with refusals.
//!
//! Machines that serve the same pools form one *group*, because a request for these pools may go to any of
//! them. Every group has one entry for each short interval (a *tick*). The size therefore does not depend
//! on the number of machines, and a run of any length has at most [`MAX_TICKS`] entries per group.
//!
//! Only machines that are alive can be idle: faults are subtracted while they last, as the oracle does. If
//! the workers of a machine are limited and all are taken, the machine has no idle CPUs either, because
//! nothing more can use them.

use std::time::Duration;

use crate::Experiment;
use crate::condition::availability;
use crate::run::RESOURCES;

/// Number of measured kinds: CPUs, disks and links, and last the workers.
pub const KINDS: usize = RESOURCES + 1;

/// Longest tick. Half of the shortest burst that experiments describe, and a fraction of the time for which
/// clients wait.
const LONGEST: Duration = Duration::from_millis(100);

/// Shortest tick. If each machine serves 100 requests per second, such ticks take a few percent of the time of a run.
const SHORTEST: Duration = Duration::from_millis(10);

/// Minimum number of ticks within a response-time limit. Idle seconds of a tick are assumed to be spread
/// evenly over it.
const TICKS_IN_A_LIMIT: u32 = 4;

/// Maximum number of ticks in a run. Longer runs have longer ticks. With four figures of four bytes, a
/// group takes a megabyte.
const MAX_TICKS: u64 = 1 << 16;

/// Occupied time of a machine since the start of the run, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Occupied {
    /// Busy seconds of its CPUs (whatever their speed), its disks and its links.
    pub resources: [f64; RESOURCES],
    /// Seconds for which requests held its workers. `None` if that is not known, which counts as all of them.
    pub workers: Option<f64>,
}

/// Idle seconds of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Idle {
    /// Pools that the machines of each group serve, in ascending order.
    pub groups: Vec<Vec<usize>>,
    /// End of each tick, in nanoseconds from the start of the run. The first tick began at 0.
    pub ends: Vec<u64>,
    /// Idle seconds of nominal CPUs, of disks, of links and of workers, by tick and group, with the groups
    /// of a tick adjacent. Infinite where workers are not limited.
    pub seconds: Vec<[f32; KINDS]>,
}

/// Turns the occupied time of machines into idle time.
#[derive(Clone, Debug)]
pub struct IdleMeter<'a> {
    experiment: &'a Experiment,
    every: u64,
    /// Group of each machine, or `None` if it serves no pool.
    group_of: Vec<Option<usize>>,
    before: Vec<Occupied>,
    idle: Idle,
}

impl Idle {
    /// Idle seconds of the groups in tick number `tick`.
    pub fn tick(&self, tick: usize) -> &[[f32; KINDS]] {
        let groups = self.groups.len();
        self.seconds.get(tick * groups..(tick + 1) * groups).unwrap_or_default()
    }

    /// The same data in longer ticks. `count` ticks become one.
    pub fn merged(&self, count: usize) -> Idle {
        let (groups, count) = (self.groups.len(), count.max(1));
        let sum = |ticks: &[[f32; KINDS]]| {
            let of = |group: usize, kind: usize| ticks.iter().skip(group).step_by(groups).map(|tick| tick[kind]).sum();
            (0..groups).map(|group| std::array::from_fn(|kind| of(group, kind))).collect::<Vec<[f32; KINDS]>>()
        };
        Idle {
            groups: self.groups.clone(),
            ends: self.ends.chunks(count).filter_map(<[u64]>::last).copied().collect(),
            seconds: self.seconds.chunks((count * groups).max(1)).flat_map(sum).collect(),
        }
    }
}

impl<'a> IdleMeter<'a> {
    /// A meter without any reading.
    pub fn new(experiment: &'a Experiment) -> IdleMeter<'a> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let group = |machine: usize| {
            let nodes = experiment.site.policy.nodes.iter().zip(&experiment.machine_of);
            let mut pools: Vec<usize> = nodes.filter(|(_, of)| **of == machine).map(|(node, _)| node.pool).collect();
            pools.sort_unstable();
            pools.dedup();
            if pools.is_empty() {
                return None;
            }
            Some(groups.iter().position(|known| *known == pools).unwrap_or_else(|| {
                groups.push(pools);
                groups.len() - 1
            }))
        };
        let group_of = (0..experiment.machines.len()).map(group).collect();
        IdleMeter {
            experiment,
            every: every(experiment),
            group_of,
            before: vec![Occupied::default(); experiment.machines.len()],
            idle: Idle { groups, ..Idle::default() },
        }
    }

    /// The meter with ticks `times` as long.
    #[must_use]
    pub fn with_ticks(self, times: f64) -> IdleMeter<'a> {
        IdleMeter { every: (self.every as f64 * times) as u64, ..self }
    }

    /// Nanoseconds from one reading to the next.
    pub fn every(&self) -> u64 {
        self.every
    }

    /// Records the occupied time of every machine until `at`, in nanoseconds from the start. Ignores a
    /// reading that is not later than the last one.
    pub fn read(&mut self, at: u64, machines: &[Occupied]) {
        let from = self.idle.ends.last().copied().unwrap_or(0);
        if at <= from {
            return;
        }
        let first = self.idle.seconds.len();
        self.idle.ends.push(at);
        self.idle.seconds.resize(first + self.idle.groups.len(), [0.0; KINDS]);
        for (index, now) in machines.iter().enumerate().take(self.group_of.len()) {
            let before = std::mem::replace(&mut self.before[index], *now);
            let Some(group) = self.group_of[index] else { continue };
            let left = left(self.experiment, index, (from, at), &before, now);
            for (sum, left) in self.idle.seconds[first + group].iter_mut().zip(left) {
                *sum += left as f32;
            }
        }
    }

    /// All readings so far.
    #[must_use]
    pub fn finish(self) -> Idle {
        self.idle
    }
}

/// Idle seconds of machine number `index` between two readings.
fn left(
    experiment: &Experiment,
    index: usize,
    (from, to): (u64, u64),
    before: &Occupied,
    now: &Occupied,
) -> [f64; KINDS] {
    let machine = &experiment.machines[index];
    let length = (to - from) as f64 / 1e9;
    let strikes = experiment.faults.iter().any(|fault| fault.machines.contains(&index));
    let available = match strikes {
        true => availability(experiment, index, Duration::from_nanos(from), Duration::from_nanos(to)),
        false => [1.0; RESOURCES],
    };
    let servers = f64::from(machine.servers);
    // Fraction of the time for which the machine is alive. The fraction of its CPUs also includes slow-downs.
    let alive = available[1];
    let workers = match (machine.concurrency, now.workers) {
        (None, _) if alive > 0.0 => f64::INFINITY,
        (Some(concurrency), Some(held)) => {
            let had = f64::from(concurrency) * servers * length * alive;
            (had - (held - before.workers.unwrap_or(0.0))).max(0.0)
        }
        _ => 0.0,
    };
    let unit = |resource: usize, had: f64| {
        (had * length * alive - (now.resources[resource] - before.resources[resource])).max(0.0)
    };
    // A request uses one CPU at a time, and holds a worker meanwhile.
    let cpus = unit(0, f64::from(machine.cpus) * servers).min(workers);
    let pace = if alive > 0.0 { machine.speed * available[0] / alive } else { 0.0 };
    [cpus * pace, unit(1, servers), unit(2, servers), workers]
}

/// Length of a tick in nanoseconds: short compared with the tightest limit, unless the run is very long.
fn every(experiment: &Experiment) -> u64 {
    let classes = experiment.policies().flat_map(|(_, policy)| &policy.classes);
    let limits = classes.filter_map(|class| class.guarantee.response_time);
    let tightest = limits.map(|promised| promised.limit / TICKS_IN_A_LIMIT).min().unwrap_or(LONGEST);
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let wanted = nanos(tightest.clamp(SHORTEST, LONGEST));
    wanted.max(nanos(experiment.duration()).div_ceil(MAX_TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::hand_made;
    use crate::{Fault, FaultKind};

    const SECOND: u64 = 1_000_000_000;

    fn occupied(cpu: f64, workers: Option<f64>) -> Occupied {
        Occupied { resources: [cpu, 0.0, 0.0], workers }
    }

    #[test]
    fn what_is_not_occupied_is_idle_as_far_as_machines_live_and_workers_are_free() {
        // Two machines of two CPUs. Both serve the only pool.
        let mut experiment = hand_made();
        experiment.machines[1].speed = 0.5;
        experiment.machines[1].concurrency = Some(2);
        let until = Some(Duration::from_secs(2));
        experiment.faults.push(Fault::plain(FaultKind::Crash, Duration::from_secs(1), until, &[0]));
        let mut meter = IdleMeter::new(&experiment);
        assert_eq!(meter.every(), 12_500_000);
        meter.read(SECOND, &[occupied(0.5, Some(0.5)), occupied(0.0, Some(1.0))]);
        // The first machine is down. All workers of the second wait for something.
        meter.read(2 * SECOND, &[occupied(0.5, Some(0.5)), occupied(0.0, Some(3.0))]);
        meter.read(2 * SECOND, &[occupied(9.0, None), occupied(9.0, None)]);
        meter.read(3 * SECOND, &[occupied(2.5, None), occupied(0.0, None)]);
        let idle = meter.finish();
        assert_eq!((idle.groups.as_slice(), idle.ends.len()), ([vec![0]].as_slice(), 3));
        assert_eq!(idle.tick(0), [[1.5 + 0.5, 2.0, 2.0, f32::INFINITY]]);
        assert_eq!(idle.tick(1), [[0.0, 1.0, 1.0, 0.0]]);
        // Workers of unknown use count as busy.
        assert_eq!(idle.tick(2), [[0.0, 2.0, 2.0, f32::INFINITY]]);
        assert_eq!(idle.tick(3), [[0.0; KINDS]; 0]);
        let merged = idle.merged(2);
        assert_eq!((merged.ends.as_slice(), merged.seconds.len()), ([2 * SECOND, 3 * SECOND].as_slice(), 2));
        assert_eq!((merged.tick(0), merged.tick(1)), ([[2.0, 3.0, 3.0, f32::INFINITY]].as_slice(), idle.tick(2)));
    }

    #[test]
    fn ticks_are_short_against_limits_and_few() {
        let mut experiment = hand_made();
        let limit = |experiment: &mut Experiment, ms| {
            let promised = experiment.site.policy.classes[2].guarantee.response_time.as_mut().expect("a limit");
            promised.limit = Duration::from_millis(ms);
        };
        for (ms, every) in [(50, 12_500_000), (8, 10_000_000), (4_000, 100_000_000)] {
            limit(&mut experiment, ms);
            assert_eq!(IdleMeter::new(&experiment).every(), every, "{ms} ms");
        }
        experiment.phases[2].until = Duration::from_secs(1 << 16);
        assert_eq!(IdleMeter::new(&experiment).every(), SECOND);
    }
}
