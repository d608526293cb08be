//! A trial: one experiment, one approach, one seed, on real processes.
//!
//! All times count from the instant at which the first request may leave, as in the experiment. The thread
//! that calls [`play`] waits for the next event on this axis: a fault begins or ends, or a sample is due.
//! The lab applies faults to the machines. If the operator removes a node, the lab removes it from the
//! gateway in the gateway's own way.
//!
//! Departures from the simulator: response times count from the client's intended instant to the last byte
//! at the client, which includes Weirgate's own CPU time. A removal is known to a gateway only after the
//! procedure in its manual is complete.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use weirgate_emulator::clock;
use weirgate_experiment::{
    Change, Condition, CostEstimate, Experiment, FaultKind, IdleMeter, LearnedCosts, Run, Sample, Turn, condition,
    turns,
};
use weirgate_verdict::{Verdict, judge};
use weirgate_wire::{RESOURCE_NAMES, admin};

use crate::evidence::{evidence, quantiles, violations};
use crate::gateways::{Approach, Gateway, Setting, Source, State};
use crate::load::{self, Counts, Plan, Running};
use crate::report::{CoreUse, Evidence, Quantiles};
use crate::servers::Servers;

/// The parameters of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The approach.
    pub approach: &'a Approach,
    /// Source of the approach's policy, if the approach is Weirgate's.
    pub source: &'a Source,
    /// The seed of the traffic.
    pub seed: u64,
    /// An empty directory for configuration and logs.
    pub directory: &'a Path,
    /// The CPU of each process.
    pub cpus: Cpus,
}

/// The CPU of each process. `None` means any CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// The gateway.
    pub gateway: Option<usize>,
    /// The load generator.
    pub load: Option<usize>,
    /// The nodes.
    pub nodes: Option<usize>,
}

impl Cpus {
    /// Assigns a CPU to each process if there are at least three. With two, the nodes get the last, and
    /// gateway and load share the first, because the nodes receive as many requests as pass the gateway,
    /// and shed requests cost only gateway and load. With one CPU nothing is pinned.
    ///
    /// # Errors
    /// The system does not report its CPUs.
    pub fn of_this_machine() -> Result<Cpus, String> {
        Ok(match *usable()? {
            [gateway, load, .., nodes] => Cpus { gateway: Some(gateway), load: Some(load), nodes: Some(nodes) },
            [first, last] => Cpus { gateway: Some(first), load: Some(first), nodes: Some(last) },
            _ => Cpus::default(),
        })
    }

    /// Returns the use of each CPU.
    pub fn uses(&self) -> Vec<CoreUse> {
        let mut uses: Vec<CoreUse> = Vec::new();
        for (cpu, what) in [(self.gateway, "gateway"), (self.load, "load generator"), (self.nodes, "nodes")] {
            let Some(core) = cpu else { continue };
            match uses.iter_mut().find(|entry| entry.core == core) {
                Some(entry) => entry.used_for = format!("{}, {what}", entry.used_for),
                None => uses.push(CoreUse { core, used_for: what.to_owned() }),
            }
        }
        uses
    }
}

/// Parses three CPUs, as in `0,1,1`: those of the gateway, the load generator and the nodes.
impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpus, String> {
        let usable = usable()?;
        let cpu = |part: &str| match part.trim().parse() {
            Ok(cpu) if usable.contains(&cpu) => Ok(Some(cpu)),
            _ => Err(format!("{part:?} is not one of this process's CPUs {usable:?}")),
        };
        match text.split(',').collect::<Vec<_>>()[..] {
            [gateway, load, nodes] => Ok(Cpus { gateway: cpu(gateway)?, load: cpu(load)?, nodes: cpu(nodes)? }),
            _ => Err("write three CPUs: of the gateway, the load generator and the nodes, such as 0,1,1".to_owned()),
        }
    }
}

fn usable() -> Result<Vec<usize>, String> {
    crate::process::cpus().map_err(|error| format!("which CPUs there are: {error}"))
}

/// The result of a trial.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The outcome of every request.
    pub run: Run,
    /// The part of the experiment that was played: all of it, unless the trial was ended early.
    pub played: Experiment,
    /// The judge's verdict on each guarantee.
    pub verdict: Verdict,
    /// The gateway's version.
    pub version: String,
    /// Evidence that the figures can be trusted.
    pub evidence: Evidence,
    /// Response times per phase and class.
    pub latency: Vec<Quantiles>,
}

/// Progress of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Time since its start.
    pub elapsed: Duration,
    /// Total length of the trial.
    pub length: Duration,
    /// Counts of each traffic source of the experiment since the start.
    pub traffic: Vec<Counts>,
    /// State of the gateway.
    pub state: State,
    /// Id of the gateway's process.
    pub process: u32,
    /// Address of the gateway.
    pub address: SocketAddr,
    /// Where the gateway's admin API listens, if it has one.
    pub admin: Option<String>,
}

impl Progress {
    /// Returns the number of attempts sent by all traffic sources.
    pub fn sent(&self) -> u64 {
        self.traffic.iter().map(|counts| counts.sent).sum()
    }
}

/// Time from the end of all preparations to the first request, in which all threads must start.
const LEAD: Duration = Duration::from_millis(200);

/// Interval between two samples, as in the simulator.
const SAMPLE: Duration = Duration::from_millis(500);

/// Minimum interval between two readings of the machines' use, because each reading interrupts the emulated machines.
const SHORTEST_TICK: Duration = Duration::from_millis(50);

/// Maximum number of connections of one stream of requests. More requests wait in the gateway only if it
/// queues for longer than any limit in the experiments.
const CONNECTIONS: usize = 4096;

/// Returns the number of connections that each of `streams` streams may have. Half of the descriptors that
/// the system allows are for them, and the rest for the connections that the nodes in this process accept.
fn connections(streams: usize) -> usize {
    let allowed = getrlimit(Resource::Nofile).maximum.map_or(usize::MAX, |max| max as usize);
    CONNECTIONS.min(allowed / 2 / streams.max(1))
}

/// Plays `trial`. `watch` gets its progress and the running load every half second and may end it early. Then the
/// verdict covers the part that was played.
///
/// # Errors
/// A part could not be started, stopped early, or refused a command. The error quotes its message.
pub fn play(
    trial: &Trial<'_>,
    mut watch: impl FnMut(&Progress, &Running) -> ControlFlow<()>,
) -> Result<Outcome, String> {
    let experiment = trial.experiment;
    let mut servers = Servers::start(experiment, trial.seed, trial.cpus.nodes, trial.directory)?;
    let mut gateway = trial.approach.start(&Setting {
        experiment,
        source: Some(trial.source),
        addresses: servers.addresses(),
        directory: trial.directory,
        cpu: trial.cpus.gateway,
    })?;
    let used_before = gateway.cpu_time();
    let start = clock::now() + clock::nanos(LEAD);
    let load = load::start(&Plan {
        experiment,
        seed: trial.seed,
        target: gateway.address(),
        templates: &servers.templates(experiment)?,
        cpu: trial.cpus.load,
        connections: connections(experiment.traffic.len()),
        max_requests: load::MAX_REQUESTS,
        start,
    });
    let load = load.map_err(|error| format!("load generator: {error}"))?;
    let learned_costs = LearnedCosts::new(experiment.duration());
    let mut stage =
        Stage { experiment, servers: &mut servers, gateway: &mut gateway, start, active: Vec::new(), learned_costs };
    let mut turns = turns(experiment).into_iter().peekable();
    let mut samples = Vec::new();
    let mut idle = IdleMeter::new(experiment);
    let tick = Duration::from_nanos(idle.every()).max(SHORTEST_TICK);
    let (mut next_sample, mut next_tick) = (Duration::ZERO, tick);
    let length = experiment.duration();
    let mut played = experiment.clone();
    while next_sample <= length {
        let turn = turns.peek().map_or(Duration::MAX, |turn| turn.at);
        let due = start + clock::nanos(next_sample.min(turn).min(next_tick));
        clock::pause(Duration::from_nanos(due.saturating_sub(clock::now())));
        if turn <= next_sample.min(next_tick) {
            if let Some(turn) = turns.next() {
                stage.turn(turn)?;
            }
            continue;
        }
        if next_tick <= next_sample {
            let occupied = stage.servers.occupied()?;
            let now = stage.now();
            idle.read(clock::nanos(now), &occupied);
            next_tick = (next_tick + tick).max(now);
            continue;
        }
        let state = stage.state()?;
        samples.push(stage.sample(&state)?);
        // A late sample counts as the one that was due.
        let now = stage.now();
        next_sample = (next_sample + SAMPLE).max(whole_steps(now));
        let progress = Progress {
            elapsed: now,
            length,
            traffic: load.progress().traffic,
            state,
            process: stage.gateway.process(),
            address: stage.gateway.address(),
            admin: stage.gateway.admin(),
        };
        if watch(&progress, &load).is_break() {
            load.stop();
            // Whole milliseconds: reports print instants.
            played = experiment.until(Duration::from_millis(now.as_millis() as u64));
            break;
        }
    }
    idle.read(clock::nanos(stage.now()), &stage.servers.occupied()?);
    let learned_costs = stage.learned_costs.into_routes();
    let sent = load.join().map_err(|error| format!("load generator: {error}"))?;
    let used = gateway.cpu_time().saturating_sub(used_before);
    if let Some(why) = gateway.ended() {
        return Err(format!("{why}; its log is in {}", trial.directory.display()));
    }
    let version = gateway.version().to_owned();
    drop(gateway);
    let (evidence, proof) = evidence(&sent, &servers.close()?, used)?;
    let latency = quantiles(experiment, &sent);
    let run = Run {
        seed: trial.seed,
        discipline: trial.approach.to_string(),
        violations: violations(&proof, length),
        records: sent.records,
        pages: sent.pages,
        samples,
        idle: idle.finish(),
        learned_costs,
    };
    let verdict = judge(&played, &run);
    Ok(Outcome { run, played, verdict, version, evidence, latency })
}

/// Returns the smallest multiple of [`SAMPLE`] that is not before `at`.
fn whole_steps(at: Duration) -> Duration {
    SAMPLE.mul_f64((at.as_secs_f64() / SAMPLE.as_secs_f64()).ceil())
}

/// The objects that faults and samples act on.
struct Stage<'a> {
    experiment: &'a Experiment,
    servers: &'a mut Servers,
    gateway: &'a mut Gateway,
    /// Instant 0 on [`clock::now`], in nanoseconds.
    start: u64,
    active: Vec<usize>,
    learned_costs: LearnedCosts,
}

impl Stage<'_> {
    /// Applies the begin or end of a fault, or a new speed of a machine.
    fn turn(&mut self, turn: Turn) -> Result<(), String> {
        let experiment = self.experiment;
        let fault = match turn.what {
            Change::Drifts(machine) => return self.servers.set_condition(machine, self.condition(machine, turn.at)),
            Change::Begins(fault) | Change::Ends(fault) => &experiment.faults[fault],
        };
        let before: Vec<Condition> = fault.machines.iter().map(|&machine| self.condition(machine, turn.at)).collect();
        match turn.what {
            Change::Begins(fault) => self.active.push(fault),
            Change::Ends(fault) => self.active.retain(|active| *active != fault),
            Change::Drifts(_) => {}
        }
        if fault.kind == FaultKind::Reload && matches!(turn.what, Change::Begins(_)) {
            match experiment.reloads.iter().rposition(|reload| reload.at == fault.at) {
                Some(number) => self.gateway.load(number)?,
                None => self.gateway.reload()?,
            }
        }
        for (&machine, before) in fault.machines.iter().zip(before) {
            let now = self.condition(machine, turn.at);
            if now.removed != before.removed {
                let nodes = experiment.machine_of.iter().enumerate().filter(|(_, of)| **of == machine);
                for (node, _) in nodes {
                    self.gateway.set_out(node, now.removed)?;
                }
            }
            let of_machine = |condition| Condition { removed: false, ..condition };
            let now = of_machine(now);
            if now != of_machine(before) {
                self.servers.set_condition(machine, now)?;
            }
        }
        Ok(())
    }

    /// Returns the time since the start.
    fn now(&self) -> Duration {
        Duration::from_nanos(clock::now().saturating_sub(self.start))
    }

    fn condition(&self, machine: usize, at: Duration) -> Condition {
        condition(machine, at, self.active.iter().copied(), self.experiment)
    }

    /// Returns the state of the gateway, which must still run.
    fn state(&mut self) -> Result<State, String> {
        match self.gateway.ended() {
            Some(why) => Err(why),
            None => Ok(self.gateway.state().unwrap_or_default()),
        }
    }

    fn sample(&mut self, state: &State) -> Result<Sample, String> {
        let done = self.servers.done()?;
        let of = |resource: usize| done.iter().map(|machine| machine[resource]).collect();
        let at = clock::nanos(self.now());
        if !state.learned.is_empty() && self.learned_costs.is_due(at) {
            state.learned.iter().for_each(|route| self.learned_costs.note(&route.pattern, estimate(at, route)));
        }
        Ok(Sample {
            at,
            window: state.window,
            outstanding: state.outstanding,
            waiting: state.waiting.clone(),
            busy: of(0),
            disk: of(1),
            link: of(2),
            usage: Vec::new(),
            would_shed: state.would_shed.clone(),
        })
    }
}

/// Returns the gateway's estimate at `at`, in nanoseconds, of the cost of a request of a route.
fn estimate(at: u64, route: &admin::Route) -> CostEstimate {
    let of = |figures: &BTreeMap<String, f64>| RESOURCE_NAMES.map(|name| figures.get(name).copied());
    CostEstimate { at, cost: of(&route.cost).map(Option::unwrap_or_default), error: of(&route.error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_what_is_no_cpu_is_named() {
        let cpu = crate::process::cpus().unwrap()[0];
        let all = Cpus { gateway: Some(cpu), load: Some(cpu), nodes: Some(cpu) };
        assert_eq!(format!("{cpu},{cpu},{cpu}").parse(), Ok(all));
        assert!(format!("{cpu},{cpu}").parse::<Cpus>().unwrap_err().contains("three CPUs"));
        let error = format!("{cpu},70000,{cpu}").parse::<Cpus>().unwrap_err();
        assert!(error.starts_with("\"70000\" is not one of this process's CPUs"), "{error}");
    }
}
