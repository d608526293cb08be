//! The rule that makes every scenario feasible. In every judged phase, and for every set of pools, the
//! largest owed work is at most 92 % of the capacity of the machines of these pools. The same holds for the
//! slot-seconds of that work if worker slots are limited.
//!
//! The owed work is g × min(1, declared/actual) requests of the actual CPU time: a class that is more
//! expensive than declared is owed its capacity, not its rate. The judge derives the declared CPU time. The
//! check over every set of pools is Hall's condition: it holds iff work can be split over shared machines
//! so that everything fits.

use weirgate_experiment::{DemandFrom, Experiment, FaultKind};

/// Maximum owed work of a scenario, as a share of the capacity. The rest is room for queueing: with more
/// owed work, no order of service can hold limits of four times the unloaded p95.
pub const MAX_OWED: f64 = 0.92;

/// Maximum number of pools for which every set is checked.
const MAX_POOLS: usize = 8;

/// The useful share of a machine during a fault.
pub(crate) trait Usable {
    /// Returns the share of its speed that does useful work.
    fn usable(&self) -> f64;
}

impl Usable for FaultKind {
    fn usable(&self) -> f64 {
        match *self {
            FaultKind::Removed | FaultKind::Crash | FaultKind::Stall => 0.0,
            FaultKind::Slow(share) => share,
            FaultKind::FailFast(share) => 1.0 - share,
            FaultKind::LostReports | FaultKind::Reload | FaultKind::Restart { .. } => 1.0,
        }
    }
}

/// The effect of a declared service time on the owed work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The judge's reading: the declared CPU time over the actual CPU time scales the guaranteed rate.
    Declared,
    /// The guaranteed rate is owed at the requests' initial cost. A class that becomes more expensive is
    /// owed this capacity, or the declared one if that is larger. Machines that fail some of their requests
    /// have no capacity.
    TrueCost,
}

/// Returns the CPU time that a service time declares, given the CPU time and the other time of a request at
/// the start of the experiment.
pub(crate) fn declared_cpu(service: f64, [cpu, others]: [f64; 2]) -> f64 {
    (service - others).max(cpu.min(service))
}

/// Returns the largest share of any set of pools' CPUs or worker slots that is owed in phase `phase`.
/// Infinite if work is owed where no capacity is left.
///
/// With more than eight pools, only single pools and all pools together are checked.
pub fn owed_share(experiment: &Experiment, phase: usize, reading: Reading) -> f64 {
    let policy = &experiment.site.policy;
    let pools = policy.pools.len();
    let (mut work, mut held) = (vec![0.0; pools], vec![0.0; pools]);
    for traffic in &experiment.traffic {
        let (class, keys) = (traffic.class.class(policy), f64::from(traffic.class.keys()));
        let Some(rate) = class.guarantee.throughput else { continue };
        let service = class.service_time.map(|time| time.as_secs_f64());
        let from = experiment.phase_from(phase);
        let until = experiment.phases[phase].until;
        let first = traffic.demand.iter().rposition(|demand| demand.at <= from).unwrap_or(0);
        let during = traffic.demand[first..].iter().take_while(|demand| demand.at < until);
        let normal = traffic.demand[0].cpu.mean();
        let waits = |demand: &DemandFrom| demand.io.mean() + demand.disk.mean() + demand.link.mean();
        let declared = service.map(|service| declared_cpu(service, [normal, waits(&traffic.demand[0])]));
        let owed = |demand: &DemandFrom| {
            let (cpu, io) = (demand.cpu.mean(), waits(demand));
            let part = match reading {
                Reading::Declared => declared.map_or(1.0, |declared| declared / cpu),
                Reading::TrueCost => service.map_or(1.0, |service| service.max(normal) / cpu),
            };
            (part.min(1.0) * cpu, part.min(1.0) * (cpu + io))
        };
        let max = |of: fn((f64, f64)) -> f64| during.clone().map(|demand| of(owed(demand))).fold(0.0, f64::max);
        work[class.pool] += rate * keys * max(|(cpu, _)| cpu);
        held[class.pool] += rate * keys * max(|(_, held)| held);
    }
    let every: Vec<u32> = match pools {
        0..=MAX_POOLS => (1..1 << pools).collect(),
        _ => Vec::new(),
    };
    let alone_and_together = (0..pools).map(|pool| vec![pool]).chain([(0..pools).collect()]);
    let sets: Vec<Vec<usize>> = match every.is_empty() {
        true => alone_and_together.collect(),
        false => every.iter().map(|set| (0..pools).filter(|pool| set >> pool & 1 == 1).collect()).collect(),
    };
    let share = |set: &Vec<usize>| {
        let of = |owed: &[f64]| set.iter().map(|&pool| owed[pool]).sum::<f64>();
        let (cpus, slots) = live_capacity(experiment, phase, reading, |pool| set.contains(&pool));
        if of(&work) > 0.0 { (of(&work) / cpus).max(of(&held) / slots) } else { 0.0 }
    };
    sets.iter().map(share).fold(0.0, f64::max)
}

/// Returns the CPU-seconds and slot-seconds per second of the machines of the pools `of`, all through phase
/// `phase`.
fn live_capacity(experiment: &Experiment, phase: usize, reading: Reading, of: impl Fn(usize) -> bool) -> (f64, f64) {
    let (from, until) = (experiment.phase_from(phase), experiment.phases[phase].until);
    let nodes = experiment.site.policy.nodes.iter().zip(&experiment.machine_of);
    let mut machines: Vec<usize> = nodes.filter(|(node, _)| of(node.pool)).map(|(_, machine)| *machine).collect();
    machines.sort_unstable();
    machines.dedup();
    let capacity = |index: &usize| {
        let machine = &experiment.machines[*index];
        let faults = experiment.faults.iter().filter(|fault| fault.machines.contains(index));
        let during = faults.filter(|fault| fault.at < until && fault.until.is_none_or(|end| end > from));
        let left = |kind: FaultKind| match (kind, reading) {
            (FaultKind::FailFast(_), Reading::TrueCost) => 0.0,
            (kind, _) => kind.usable(),
        };
        let usable = during.map(|fault| left(fault.kind)).fold(1.0, f64::min);
        let slots = machine.concurrency.map_or(f64::INFINITY, |slots| f64::from(slots * machine.servers));
        // A slow machine has all its slots.
        let slots = if usable > 0.0 { slots } else { 0.0 };
        (f64::from(machine.cpus * machine.servers) * machine.speed * usable, slots)
    };
    machines.iter().map(capacity).fold((0.0, 0.0), |(cpus, slots), (c, s)| (cpus + c, slots + s))
}
