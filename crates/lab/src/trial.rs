//! A trial: one experiment, one approach, one seed, on real processes.
//!
//! The axis of time is the experiment's: everything counts from the instant at which the first request may
//! leave. The thread that calls [`play`] waits for the next thing to do on it: a fault begins or ends, a
//! sample is due. Machines get their faults from the lab; a node that the operator takes out is taken out of
//! the gateway, in the gateway's own way.
//!
//! Departures from the simulator: response times count from the instant at which a client meant to send
//! until its last byte (Weirgate's own share of the CPU included), and a gateway learns of a removal when
//! its manual's way is done.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use weirgate_config::{RESOURCE_NAMES, admin};
use weirgate_emulator::clock;
use weirgate_experiment::{
    Belief, Beliefs, Change, Condition, Experiment, FaultKind, IdleMeter, Run, Sample, Turn, condition, turns,
};
use weirgate_verdict::{Verdict, judge};

use crate::backing::Backing;
use crate::evidence::{evidence, quantiles, violations};
use crate::gateways::{Approach, Gateway, Setting, Source};
use crate::load::{self, Plan};
use crate::report::{CoreUse, Evidence, Quantiles};

/// What is played, and where.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The approach.
    pub approach: &'a Approach,
    /// Where the approach's policy comes from, if it is Weirgate's.
    pub source: &'a Source,
    /// The seed of the traffic.
    pub seed: u64,
    /// An empty directory for configuration and logs.
    pub directory: &'a Path,
    /// Who runs on which CPU.
    pub cpus: Cpus,
}

/// Who runs on which CPU; `None` is on any.
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
    /// A CPU for each where there are three. With two, nodes have the last, gateway and load the first: as many
    /// requests as pass the gateway reach the nodes, and what is shed costs gateway and load only. All are free on a
    /// machine with one CPU.
    ///
    /// # Errors
    /// The system does not say which CPUs there are.
    pub fn of_this_machine() -> Result<Cpus, String> {
        Ok(match *usable()? {
            [gateway, load, .., nodes] => Cpus { gateway: Some(gateway), load: Some(load), nodes: Some(nodes) },
            [first, last] => Cpus { gateway: Some(first), load: Some(first), nodes: Some(last) },
            _ => Cpus::default(),
        })
    }

    /// Which CPU is used for what.
    #[must_use]
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

/// Three CPUs, as in `0,1,1`: the gateway's, the load generator's, the nodes'.
impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpus, String> {
        let usable = usable()?;
        let cpu = |part: &str| match part.trim().parse() {
            Ok(cpu) if usable.contains(&cpu) => Ok(Some(cpu)),
            _ => Err(format!("{part:?} is none of this process's CPUs, which are {usable:?}")),
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

/// What a trial leaves.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What became of every request.
    pub run: Run,
    /// Which guarantees held.
    pub verdict: Verdict,
    /// The gateway's version.
    pub version: String,
    /// What shows that the figures can be trusted.
    pub evidence: Evidence,
    /// Response times per phase and class.
    pub latency: Vec<Quantiles>,
}

/// How far a trial is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since its start.
    pub elapsed: Duration,
    /// Of so long.
    pub length: Duration,
    /// Requests sent.
    pub sent: u64,
}

/// From the end of all preparations to the first request: threads must have been started by then.
const LEAD: Duration = Duration::from_millis(200);

/// Between two samples, as in the simulator.
const SAMPLE: Duration = Duration::from_millis(500);

/// Shortest pause between two looks at what the machines are occupied with: the emulated ones are interrupted by them.
const SHORTEST_TICK: Duration = Duration::from_millis(50);

/// Most connections of one stream of requests. More requests than that wait in the gateway only if it queues
/// for longer than any limit of ours.
const CONNECTIONS: usize = 4096;

/// How many connections each of so many streams may have: half of the descriptors that the system allows are for them,
/// the rest for what the nodes, in this process too, accept.
fn connections(streams: usize) -> usize {
    let allowed = getrlimit(Resource::Nofile).maximum.map_or(usize::MAX, |most| most as usize);
    CONNECTIONS.min(allowed / 2 / streams.max(1))
}

/// Plays `trial`; `watch` is told now and then how far it is.
///
/// # Errors
/// Something could not be started, ended early, or refused an order: with its words.
pub fn play(trial: &Trial<'_>, mut watch: impl FnMut(&Progress)) -> Result<Outcome, String> {
    let experiment = trial.experiment;
    let backing = Backing::start(experiment, trial.seed, trial.cpus.nodes, trial.directory)?;
    let mut gateway = trial.approach.start(&Setting {
        experiment,
        source: Some(trial.source),
        addresses: backing.addresses(),
        directory: trial.directory,
        cpu: trial.cpus.gateway,
    })?;
    let used_before = gateway.cpu_time();
    let start = clock::now() + clock::nanos(LEAD);
    let load = load::start(&Plan {
        experiment,
        seed: trial.seed,
        target: gateway.address(),
        templates: &backing.templates(experiment)?,
        cpu: trial.cpus.load,
        connections: connections(experiment.traffic.len()),
        most_requests: load::MOST_REQUESTS,
        start,
    });
    let load = load.map_err(|error| format!("load generator: {error}"))?;
    let beliefs = Beliefs::new(experiment.duration());
    let mut stage =
        Stage { experiment, backing: &backing, gateway: gateway.as_mut(), start, active: Vec::new(), beliefs };
    let mut turns = turns(experiment).into_iter().peekable();
    let mut samples = Vec::new();
    let mut idle = IdleMeter::new(experiment);
    let tick = Duration::from_nanos(idle.every()).max(SHORTEST_TICK);
    let (mut next_sample, mut next_tick) = (Duration::ZERO, tick);
    let length = experiment.duration();
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
            let occupied = stage.backing.occupied()?;
            let now = stage.now();
            idle.read(clock::nanos(now), &occupied);
            next_tick = (next_tick + tick).max(now);
            continue;
        }
        samples.push(stage.sample()?);
        // A sample that came late is the one that was due.
        let now = stage.now();
        next_sample = (next_sample + SAMPLE).max(whole_steps(now));
        let sent = load.progress().traffic.iter().map(|counts| counts.sent).sum();
        watch(&Progress { elapsed: now, length, sent });
    }
    idle.read(clock::nanos(stage.now()), &stage.backing.occupied()?);
    let beliefs = stage.beliefs.into_routes();
    let sent = load.join().map_err(|error| format!("load generator: {error}"))?;
    let used = gateway.cpu_time().saturating_sub(used_before);
    if let Some(why) = gateway.ended() {
        return Err(format!("{why}; its log is in {}", trial.directory.display()));
    }
    let version = gateway.version().to_owned();
    drop(gateway);
    let (evidence, proof) = evidence(&sent, &backing.close()?, used)?;
    let latency = quantiles(experiment, &sent);
    let run = Run {
        seed: trial.seed,
        discipline: trial.approach.to_string(),
        violations: violations(&proof, length),
        records: sent.records,
        pages: sent.pages,
        samples,
        idle: idle.finish(),
        beliefs,
    };
    let verdict = judge(experiment, &run);
    Ok(Outcome { run, verdict, version, evidence, latency })
}

/// The next multiple of [`SAMPLE`] not before `at`.
fn whole_steps(at: Duration) -> Duration {
    SAMPLE.mul_f64((at.as_secs_f64() / SAMPLE.as_secs_f64()).ceil())
}

/// What faults and samples act on.
struct Stage<'a> {
    experiment: &'a Experiment,
    backing: &'a Backing,
    gateway: &'a mut dyn Gateway,
    /// On the clock.
    start: u64,
    active: Vec<usize>,
    beliefs: Beliefs,
}

impl Stage<'_> {
    /// A fault begins or ends, or a machine has another speed.
    fn turn(&mut self, turn: Turn) -> Result<(), String> {
        let experiment = self.experiment;
        let fault = match turn.what {
            Change::Drifts(machine) => return self.backing.set_condition(machine, self.condition(machine, turn.at)),
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
                self.backing.set_condition(machine, now)?;
            }
        }
        Ok(())
    }

    /// Time since the start.
    fn now(&self) -> Duration {
        Duration::from_nanos(clock::now().saturating_sub(self.start))
    }

    fn condition(&self, machine: usize, at: Duration) -> Condition {
        condition(machine, at, self.active.iter().copied(), self.experiment)
    }

    fn sample(&mut self) -> Result<Sample, String> {
        if let Some(why) = self.gateway.ended() {
            return Err(why);
        }
        let done = self.backing.done()?;
        let of = |resource: usize| done.iter().map(|machine| machine[resource]).collect();
        let at = clock::nanos(self.now());
        let state = self.gateway.state().unwrap_or_default();
        if !state.learned.is_empty() && self.beliefs.is_due(at) {
            state.learned.iter().for_each(|route| self.beliefs.note(&route.pattern, belief(at, route)));
        }
        Ok(Sample {
            at,
            window: state.window,
            outstanding: state.outstanding,
            waiting: state.waiting,
            busy: of(0),
            disk: of(1),
            link: of(2),
            usage: Vec::new(),
        })
    }
}

/// What the gateway takes a request of a route to cost at `at`, in nanoseconds.
fn belief(at: u64, route: &admin::Route) -> Belief {
    let of = |figures: &BTreeMap<String, f64>| RESOURCE_NAMES.map(|name| figures.get(name).copied());
    Belief { at, cost: of(&route.cost).map(Option::unwrap_or_default), error: of(&route.error) }
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
        assert!(error.starts_with("\"70000\" is none of this process's CPUs"), "{error}");
    }
}
