//! The rule by which every scenario is feasible: in every judged phase, and for every set of pools, the work
//! that is owed at most is at most 92 % of what the machines of these pools can do.
//!
//! What is owed is g × min(1, agreed/actual mean cost) requests of the actual CPU time: a class that is dearer than
//! agreed is owed its capacity, not its rate. Looking at every set of pools is Hall's condition: it holds
//! iff work can be split over shared machines so that everything fits.

use weirgate_config::{DemandFrom, Experiment, FaultKind, TrafficClass};

/// Most work that scenarios owe, as a share of the capacity. The rest is room for queueing: at more, limits of
/// four times the unloaded p95 cannot be held by any order of service.
pub const MOST_OWED: f64 = 0.92;

/// Most pools of which every set is looked at.
const MOST_POOLS: usize = 8;

/// How much of a machine is left while a fault lasts.
pub(crate) trait Usable {
    /// The share of its speed that does useful work.
    fn usable(&self) -> f64;
}

impl Usable for FaultKind {
    fn usable(&self) -> f64 {
        match *self {
            FaultKind::Removed | FaultKind::Crash | FaultKind::Stall => 0.0,
            FaultKind::Slow(share) => share,
            FaultKind::FailFast(share) => 1.0 - share,
            FaultKind::LostReports | FaultKind::Reload => 1.0,
        }
    }
}

/// The largest share of any set of pools' capacity that is owed in phase `phase`. Infinite if something is owed
/// where nothing is left.
///
/// More than eight pools are looked at one by one and all together only.
#[must_use]
pub fn owed_share(experiment: &Experiment, phase: usize) -> f64 {
    let policy = &experiment.site.policy;
    let pools = policy.pools.len();
    let mut work = vec![0.0; pools];
    for traffic in &experiment.traffic {
        let (class, keys) = match traffic.class {
            TrafficClass::Class(class) => (&policy.classes[class], 1.0),
            TrafficClass::Template { template, keys } => (&policy.templates[template].class, f64::from(keys)),
        };
        let Some(rate) = class.guarantee.throughput else { continue };
        let agreed = class.service_time.map(|time| time.as_secs_f64());
        let from = experiment.phase_from(phase);
        let until = experiment.phases[phase].until;
        let first = traffic.demand.iter().rposition(|demand| demand.at <= from).unwrap_or(0);
        let during = traffic.demand[first..].iter().take_while(|demand| demand.at < until);
        let owed = |demand: &DemandFrom| {
            let (cpu, io) = (demand.cpu.mean(), demand.io.mean() + demand.disk.mean() + demand.link.mean());
            agreed.map_or(1.0, |agreed| (agreed / (cpu + io)).min(1.0)) * cpu
        };
        work[class.pool] += rate * keys * during.map(owed).fold(0.0, f64::max);
    }
    let every: Vec<u32> = match pools {
        0..=MOST_POOLS => (1..1 << pools).collect(),
        _ => Vec::new(),
    };
    let alone_and_together = (0..pools).map(|pool| vec![pool]).chain([(0..pools).collect()]);
    let sets: Vec<Vec<usize>> = match every.is_empty() {
        true => alone_and_together.collect(),
        false => every.iter().map(|set| (0..pools).filter(|pool| set >> pool & 1 == 1).collect()).collect(),
    };
    let share = |set: &Vec<usize>| {
        let owed: f64 = set.iter().map(|&pool| work[pool]).sum();
        let capacity = live_capacity(experiment, phase, |pool| set.contains(&pool));
        if owed > 0.0 { owed / capacity } else { 0.0 }
    };
    sets.iter().map(share).fold(0.0, f64::max)
}

/// CPU-seconds per second of the machines that serve pools of `of`, all through phase `phase`.
fn live_capacity(experiment: &Experiment, phase: usize, of: impl Fn(usize) -> bool) -> f64 {
    let (from, until) = (experiment.phase_from(phase), experiment.phases[phase].until);
    let nodes = experiment.site.policy.nodes.iter().zip(&experiment.machine_of);
    let mut machines: Vec<usize> = nodes.filter(|(node, _)| of(node.pool)).map(|(_, machine)| *machine).collect();
    machines.sort_unstable();
    machines.dedup();
    let capacity = |index: &usize| {
        let machine = &experiment.machines[*index];
        let faults = experiment.faults.iter().filter(|fault| fault.machines.contains(index));
        let during = faults.filter(|fault| fault.at < until && fault.until.is_none_or(|end| end > from));
        let usable = during.map(|fault| fault.kind.usable()).fold(1.0, f64::min);
        f64::from(machine.cpus * machine.servers) * machine.speed * usable
    };
    machines.iter().map(capacity).sum()
}
