//! The driver: virtual time around the engine.
//!
//! It calls the engine as the gateway does, in the same order (see the crate documentation of
//! `weirgate_engine`), with simulated clients and servers instead of sockets. Time is a count of
//! nanoseconds that jumps from one event to the next. The engine is called at the exact instant of every
//! event and of its own timer, and is then asked for actions until it has none. The driver contains no rule
//! of a discipline.
//!
//! A request holds its slot from release until the news of the reply's last byte has reached the gateway.
//! This includes the network delay in both directions. A reply comes in one piece unless it streams: its
//! first byte is its last.

mod exchange;
mod pages;
mod reserves;
mod succession;
mod trouble;

use std::collections::VecDeque;
use std::time::Duration;

use pages::Table;
use reserves::Managed;
use weirgate_engine::{Admit, ClassId, Engine, InvalidPolicy, Learned, LoadSource, NodeId, ServerLoad, Time};
use weirgate_experiment::random::{Purpose, generator, seed_for};
use weirgate_experiment::traffic::visits::{VisitId, Visits};
use weirgate_experiment::traffic::{Event, Stream};
use weirgate_experiment::{Experiment, IdleMeter, LearnedCosts, Record, Run, Sample, Turn, Violation, turns};

use crate::agenda::{Agenda, Errands};
use crate::checks::Checks;
use crate::health::Watch;
use crate::late::{Limit, Queues};
use crate::machine::Machines;
use crate::requests::{Place, Requests};

/// The interval between samples: a quarter of the two-second windows in which guarantees are judged.
const SAMPLE_EVERY: u64 = 500_000_000;

/// Maximum number of attempts of one run. They take six gigabytes of records. A larger number means a
/// mistake in the experiment.
const MAX_RECORDS: usize = 1 << 27;

/// Plays `experiment` once. `seed` determines every random draw: the same experiment and seed give the same
/// run to the bit. `progress` receives the simulated time at every sample.
///
/// A policy that the engine refuses (the loader makes none) gives an empty run with one violation.
pub fn run(experiment: &Experiment, seed: u64, progress: impl FnMut(Duration)) -> Run {
    run_metered(experiment, seed, IdleMeter::new(experiment), progress)
}

/// Plays `experiment` as [`run`] does, with another meter of the machines' idle capacity.
pub fn run_metered(experiment: &Experiment, seed: u64, meter: IdleMeter<'_>, progress: impl FnMut(Duration)) -> Run {
    match Driver::new(experiment, seed, meter) {
        Ok(driver) => driver.play(progress),
        Err(invalid) => Run {
            seed,
            discipline: experiment.site.policy.discipline.name.clone(),
            violations: vec![Violation { at: 0, invariant: "policy", what: invalid.to_string() }],
            ..Run::default()
        },
    }
}

/// Returns `span` in nanoseconds, saturated to 64 bits.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The state of one run.
struct Driver<'a> {
    experiment: &'a Experiment,
    seed: u64,
    now: u64,
    delay: u64,
    engine: Engine,
    /// The instant of the next call of the engine: its timer's instant or an earlier one.
    engine_at: u64,
    checks: Checks,
    agenda: Agenda,
    sources: Sources,
    streams: Vec<Stream<'a>>,
    /// The next event of each stream.
    coming: Vec<Option<Event>>,
    /// The class or template of each stream, as an index into the checkers' tallies.
    specs: Vec<usize>,
    /// Costs of requests by the policy's page table.
    table: Table,
    visits: Visits,
    requests: Requests,
    records: Vec<Record>,
    errands: Errands<Errand>,
    machines: Machines,
    /// The coordinator that moves shares of the machines' CPUs, if the experiment has one.
    managed: Option<Managed>,
    /// Messages on the way to the machines or back. Both directions take equally long, so this is a queue
    /// in order of arrival. Its head is compared with the agenda's first instant instead of being put into
    /// the agenda, because messages are the largest part of all events.
    wire: VecDeque<Message>,
    /// Failures on the way back, after the millisecond that a fast failure takes.
    failing: VecDeque<Message>,
    late: Queues,
    /// The queues of the two time limits of each class or template.
    limits: Vec<[usize; 2]>,
    watches: Vec<Option<Watch>>,
    turns: Vec<Turn>,
    next_turn: usize,
    /// Indices of the faults in force.
    active: Vec<usize>,
    sample_times: Vec<u64>,
    samples: Vec<Sample>,
    idle: IdleMeter<'a>,
    learned_costs: LearnedCosts,
    /// What a standby knows of the gateway, and since when.
    followed: Option<(u64, Learned)>,
    /// Number of processes that have taken over.
    successions: usize,
}

/// A message under way between the gateway and a machine.
#[derive(Clone, Copy, Debug)]
struct Message {
    at: u64,
    /// A slab entry of [`Requests`], or [`CHECK`] plus a node.
    id: u64,
    /// The request's attempt, or the round of the check.
    stamp: u32,
    /// The content of the message.
    news: News,
}

/// Marks the id of a health check. The remaining bits are the node.
const CHECK: u64 = 1 << 32;

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// To a machine: a request.
    Request,
    /// The first byte of a reply that streams, or another sign of its progress.
    FirstByte,
    /// A whole reply with this status.
    Status(u16),
    /// The connection was refused or broke.
    Broken,
}

/// An event of the agenda's heap: for a single request, user or node, or a periodic reading.
#[derive(Clone, Copy, Debug)]
enum Errand {
    /// The client of this request runs out of patience, unless the request has another life by then.
    Leave { slot: u32, life: u32 },
    /// A client retries.
    Retry { slot: u32 },
    /// A user has finished thinking.
    User { traffic: u32, user: u32 },
    /// A client has finished thinking and asks for its next page.
    Page { visit: VisitId },
    /// A client asks for an object of its page.
    Object { visit: VisitId },
    /// A node is due for a health check.
    Check { node: u32 },
    /// A health check reaches its time limit.
    CheckLate { node: u32, round: u32 },
    /// The trackers measure the classes' use of the machines' CPUs.
    Window,
    /// The nodes' collectors report.
    Collect { every: u64 },
    /// The page table learns the cost of requests from the machines' use.
    Lesson,
}

/// The numbers of the agenda's sources. At equal instants messages come first, then the source with the
/// lower number. The outside world comes before the gateway, events that free capacity come before events
/// that take it, and samples come last.
struct Sources {
    servers: usize,
    late: usize,
    errands: usize,
    engine: usize,
    streams: usize,
    samples: usize,
    idle: usize,
}

impl Sources {
    const FAULTS: usize = 0;
    const FAILING: usize = 1;

    fn new(servers: usize, late: usize, streams: usize) -> Sources {
        let first = Sources::FAILING + 1;
        let errands = first + servers + late;
        Sources {
            servers: first,
            late: first + servers,
            errands,
            engine: errands + 1,
            streams: errands + 2,
            samples: errands + 2 + streams,
            idle: errands + 3 + streams,
        }
    }
}

impl<'a> Driver<'a> {
    fn new(experiment: &'a Experiment, seed: u64, idle: IdleMeter<'a>) -> Result<Driver<'a>, InvalidPolicy> {
        let policy = &experiment.site.policy;
        let engine = Engine::new(Time::ZERO, policy.clone(), seed_for(seed, Purpose::Engine, 0))?;
        let machines = Machines::new(experiment, seed);
        let mut late = Queues::default();
        let class_sites = experiment.site.classes.iter().chain(&experiment.site.templates);
        let limits: Vec<[usize; 2]> = class_sites
            .map(|site| {
                let timeouts = site.timeouts;
                [late.number(Limit::FirstByte, timeouts.first_byte), late.number(Limit::Total, timeouts.total)]
            })
            .collect();
        let traffic = &experiment.traffic;
        let sources = Sources::new(machines.servers(), late.all.len(), traffic.len());
        let watch = |node: usize| {
            let check = experiment.site.pools[policy.nodes[node].pool].health.clone()?;
            Some(Watch::new(check, generator(seed, Purpose::Checks, node)))
        };
        let mut driver = Driver {
            experiment,
            seed,
            now: 0,
            delay: nanos(experiment.network_delay),
            checks: Checks::new(policy, experiment.reloads.iter().map(|reload| &reload.policy)),
            agenda: Agenda::new(sources.idle + 1),
            streams: (0..traffic.len()).map(|index| Stream::new(experiment, index, seed)).collect(),
            coming: vec![None; traffic.len()],
            specs: traffic.iter().map(|t| t.class.index(policy)).collect(),
            table: Table::of(experiment),
            visits: Visits::new(experiment, seed),
            requests: Requests::default(),
            records: Vec::new(),
            errands: Errands::new(),
            wire: VecDeque::new(),
            failing: VecDeque::new(),
            watches: (0..policy.nodes.len()).map(watch).collect(),
            turns: turns(experiment),
            next_turn: 0,
            active: Vec::new(),
            sample_times: sample_times(experiment),
            samples: Vec::new(),
            idle,
            learned_costs: LearnedCosts::new(experiment.duration()),
            followed: None,
            successions: 0,
            engine,
            engine_at: u64::MAX,
            sources,
            machines,
            managed: Managed::of(experiment),
            late,
            limits,
        };
        driver.begin();
        Ok(driver)
    }

    /// Sets the first instant of every source.
    fn begin(&mut self) {
        for stream in 0..self.streams.len() {
            self.expect(stream);
        }
        for node in 0..self.watches.len() as u32 {
            self.plan_check(node);
        }
        if let Admit::ServerLoad(ServerLoad { source: LoadSource::Reports { every }, .. }) =
            self.experiment.site.policy.discipline.admit
        {
            self.errand(nanos(every), Errand::Collect { every: nanos(every) });
        }
        self.plan_window();
        self.plan_lesson();
        self.checks.look(&self.engine.snapshot(Time::ZERO));
        self.agenda.set(Sources::FAULTS, self.turns.first().map(|turn| nanos(turn.at)));
        self.agenda.set(self.sources.samples, self.sample_times.first().copied());
        self.agenda.set(self.sources.idle, Some(self.idle.every()));
        self.settle();
    }

    fn play(mut self, progress: impl FnMut(Duration)) -> Run {
        self.go(progress);
        self.finish()
    }

    /// Plays until the end, or until there are too many records.
    fn go(&mut self, mut progress: impl FnMut(Duration)) {
        let end = nanos(self.experiment.duration());
        while self.records.len() < MAX_RECORDS {
            let planned = self.agenda.first();
            let arrives = self.wire.front().map(|message| message.at);
            let arrives = arrives.filter(|arrives| planned.is_none_or(|(at, _)| *arrives <= at));
            let Some(at) = arrives.or(planned.map(|(at, _)| at)).filter(|at| *at <= end) else { break };
            self.checks.time(at);
            self.now = at;
            if arrives.is_some() {
                if let Some(message) = self.wire.pop_front() {
                    self.arrive(message);
                }
            } else if let Some((_, source)) = planned {
                let before = self.samples.len();
                self.step(source);
                if self.samples.len() > before {
                    progress(Duration::from_nanos(at));
                }
            }
        }
        if self.records.len() >= MAX_RECORDS {
            self.checks.note("bound", format!("stopped after {MAX_RECORDS} attempts"));
        } else {
            self.now = end;
        }
    }

    /// Handles the event of `source` that is due.
    fn step(&mut self, source: usize) {
        let sources = &self.sources;
        match source {
            Sources::FAULTS => self.turn(),
            Sources::FAILING => {
                let message = self.failing.pop_front();
                self.agenda.set(source, self.failing.front().map(|next| next.at));
                if let Some(message) = message {
                    self.arrive(message);
                }
            }
            _ if source < sources.late => {
                let server = (source - sources.servers) as u32;
                self.machines.advance(self.now, server);
                self.touched(server);
            }
            _ if source < sources.errands => self.expire(source - sources.late),
            _ if source == sources.errands => {
                let errand = self.errands.pop(self.now);
                self.agenda.set(source, self.errands.next());
                if let Some(errand) = errand {
                    self.run_errand(errand);
                }
            }
            _ if source == sources.engine => {
                self.engine_at = u64::MAX;
                self.agenda.set(source, None);
                self.settle();
            }
            _ if source < sources.samples => {
                let stream = source - sources.streams;
                let event = self.coming[stream].take();
                self.expect(stream);
                if let Some(event) = event {
                    self.come(stream, event);
                }
            }
            _ if source == sources.samples => self.sample(),
            _ => {
                self.read_idle();
                self.agenda.set(source, Some(self.now.saturating_add(self.idle.every())));
            }
        }
    }

    fn arrive(&mut self, message: Message) {
        match message.news {
            News::Request => self.reach(message),
            News::FirstByte => self.hear_first_byte(message),
            News::Status(_) | News::Broken => self.hear(message),
        }
    }

    /// Plans the next event of a stream.
    fn expect(&mut self, stream: usize) {
        let next = self.streams[stream].next_event();
        self.coming[stream] = next.map(|(_, event)| event);
        self.agenda.set(self.sources.streams + stream, next.map(|(at, _)| at));
    }

    fn run_errand(&mut self, errand: Errand) {
        match errand {
            Errand::Leave { slot, life } => self.leave(slot, life),
            Errand::Retry { slot } => self.send(slot),
            Errand::User { traffic, user } => {
                if self.streams[traffic as usize].is_wanted(user) {
                    self.first_send(traffic as usize, user);
                }
            }
            Errand::Page { visit } => self.next_page(visit),
            Errand::Object { visit } => self.next_object(visit),
            Errand::Check { node } => self.check(node),
            Errand::CheckLate { node, round } => self.check_is_late(node, round),
            Errand::Window => self.look_at_use(),
            Errand::Collect { every } => self.report(every),
            Errand::Lesson => self.learn(),
        }
    }

    /// Plans an errand `after` nanoseconds from now.
    fn errand(&mut self, after: u64, errand: Errand) {
        self.errands.push(self.now.saturating_add(after), errand);
        self.agenda.set(self.sources.errands, self.errands.next());
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    fn machine_of(&self, node: NodeId) -> usize {
        self.experiment.machine_of[node.0 as usize]
    }

    fn sample(&mut self) {
        let snapshot = self.engine.snapshot(self.time());
        let classes = || self.engine.classes(Time::from_nanos(self.now), ClassId(0), usize::MAX);
        self.checks.look_at_rest(&snapshot, classes);
        let classes = self.experiment.site.policy.classes.len();
        let [busy, disk, link] = self.machines.done(self.now);
        self.collect();
        self.samples.push(Sample {
            at: self.now,
            window: snapshot.window,
            outstanding: snapshot.outstanding,
            waiting: self.checks.tallies[..classes].iter().map(|tally| tally.waiting).collect(),
            busy,
            disk,
            link,
            usage: self.usage(),
            would_shed: self.would_shed(),
        });
        self.note_learned_costs();
        self.follow();
        self.agenda.set(self.sources.samples, self.sample_times.get(self.samples.len()).copied());
    }

    /// Reads the machines' occupied time. Changes nothing in them.
    fn read_idle(&mut self) {
        self.idle.read(self.now, &self.machines.occupied_until(self.now));
    }

    /// Returns, per class and template, the requests that passed and would have been refused. Empty if all are
    /// enforced.
    fn would_shed(&self) -> Vec<u64> {
        if !self.checks.observes {
            return Vec::new();
        }
        let mut sums = vec![0; self.checks.tallies.len()];
        for class in self.engine.classes(self.time(), ClassId(0), usize::MAX) {
            if let Some(index) = self.checks.place_of(&class) {
                sums[index] += class.would_shed.iter().sum::<u64>();
            }
        }
        sums
    }

    /// Returns, per class of the policy, the CPU-seconds done on all machines. Empty without shares.
    fn usage(&self) -> Vec<f64> {
        let Some(reserves) = &self.experiment.reserves else { return Vec::new() };
        let mut usage = vec![0.0; reserves.shares.len()];
        for machine in 0..self.experiment.machines.len() {
            let done = self.machines.done_of(machine);
            usage.iter_mut().zip(done).for_each(|(sum, done)| *sum += done);
        }
        usage
    }

    /// Ends the run: requests under way are cut, and the final checks are made.
    fn finish(mut self) -> Run {
        let open = self.requests.iter().filter(|(_, r)| r.place == Place::Waiting || r.place.is_in_flight());
        for request in open.map(|(_, request)| request) {
            let record = &mut self.records[request.record as usize];
            record.ended = self.now;
        }
        self.read_idle();
        self.checks.look(&self.engine.snapshot(self.time()));
        let counts = self.engine.classes(self.time(), ClassId(0), usize::MAX);
        self.checks.guarantees(&self.experiment.site.policy, &counts);
        self.checks.conservation(&self.records);
        let pages = self.visits.finish(self.now);
        self.checks.pages(&pages, &self.records);
        Run {
            seed: self.seed,
            discipline: self.experiment.site.policy.discipline.name.clone(),
            records: self.records,
            pages,
            samples: self.samples,
            idle: self.idle.finish(),
            learned_costs: self.learned_costs.into_routes(),
            violations: self.checks.violations,
        }
    }
}

/// Returns the instants of all samples: every half second and every phase's end.
fn sample_times(experiment: &Experiment) -> Vec<u64> {
    let end = nanos(experiment.duration());
    let mut times: Vec<u64> = (0..=end / SAMPLE_EVERY).map(|n| n * SAMPLE_EVERY).collect();
    times.extend(experiment.phases.iter().map(|phase| nanos(phase.until)));
    times.sort_unstable();
    times.dedup();
    times
}
