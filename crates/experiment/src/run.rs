//! Result of a run: one record per request and one per page, samples of the state, learned costs and violations.

use weirgate_emulator::station::Demand;
use weirgate_engine::ShedReason;

use crate::idle::Idle;
use crate::learned_costs::RouteCosts;

/// Number of resources of the machines of an experiment: those of [`weirgate_wire::RESOURCE_NAMES`].
pub const RESOURCES: usize = weirgate_wire::RESOURCE_NAMES.len();

/// Seconds of each resource: of a nominal CPU, of a disk, of a network link.
pub type Work = [f64; RESOURCES];

/// Outcome of a request. One request of a client may be several records, because each attempt is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Its last byte arrived, with a status below 500.
    Served,
    /// The gateway shed it.
    Shed,
    /// The node failed it, or it timed out.
    Failed,
    /// The client left, during the wait or later.
    Left,
    /// The run ended first.
    #[default]
    Cut,
}

/// One attempt of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Record {
    /// Index into [`crate::Experiment::traffic`].
    pub traffic: u32,
    /// Outcome of the attempt.
    pub fate: Fate,
    /// Nanoseconds from the start of the run until its head reached the gateway.
    pub arrived: u64,
    /// Nanoseconds from the start of the run until it was first released to a node, or 0 if it never was.
    /// (A release at the very start is recorded as 1.)
    pub released: u64,
    /// Nanoseconds from the start of the run until its last byte came from the node, it was shed, it
    /// failed, its client left, or the run ended.
    pub ended: u64,
    /// CPU time that it needs, in seconds of a nominal CPU.
    pub cpu: f32,
    /// Time that it spends in service without a CPU, in seconds. Includes the time for which its reply streams.
    pub io: f32,
    /// Time of a disk that it needs, in seconds.
    pub disk: f32,
    /// Time of a network link that its reply needs, in seconds.
    pub link: f32,
    /// Reason of the last refusal, if the gateway refused it. A request that its fallback class served has one too.
    pub shed: Option<ShedReason>,
    /// Node to which it was sent last, as an index into the policy's nodes. `None` if it was not sent, or if that was
    /// not recorded.
    pub node: Option<u32>,
    /// Index into [`Run::pages`] of the page that it belongs to. It is the page's own request if it has the
    /// traffic index of the page, and otherwise one of its objects.
    pub page: Option<u32>,
}

/// A page that a client asked for: a request, and the objects embedded in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Index into [`crate::Experiment::traffic`]. Its class is that of the page.
    pub traffic: u32,
    /// [`Fate::Served`] if the page is complete, and [`Fate::Cut`] if the run ended first. Otherwise the
    /// final outcome of its first request that was not served.
    pub fate: Fate,
    /// Nanoseconds from the start of the run until its own request first reached the gateway.
    pub arrived: u64,
    /// Nanoseconds from the start of the run until the last of its requests ended.
    pub ended: u64,
    /// Number of embedded objects, whether requested or not.
    pub objects: u32,
}

/// State at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Nanoseconds from the start.
    pub at: u64,
    /// Maximum number of requests in flight over all windows. `None` means no limit.
    pub window: Option<u32>,
    /// Requests in flight.
    pub outstanding: u32,
    /// Waiting requests by class of the policy.
    pub waiting: Vec<u32>,
    /// Work done by each machine since the start, in seconds of a nominal CPU. In full use it grows by
    /// servers × CPUs × speed per second. Work for requests that were cut off counts.
    pub busy: Vec<f64>,
    /// Seconds since the start for which the disks of each machine were busy, summed over all its servers.
    pub disk: Vec<f64>,
    /// Seconds since the start for which the network links of each machine were busy, summed over all its servers.
    pub link: Vec<f64>,
    /// Work done for each class of the policy on all machines together, where classes have shares of the
    /// CPUs. Otherwise empty.
    pub usage: Vec<f64>,
    /// Requests since the start that passed, because their class is observed, and would have been refused, by class of
    /// the policy and then by template. Empty if all classes are enforced.
    pub would_shed: Vec<u64>,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Nanoseconds from the start.
    pub at: u64,
    /// Name of the invariant in one word (`conservation`, `window`, `time`, …).
    pub invariant: &'static str,
    /// Description of the violation, with figures.
    pub what: String,
}

impl Record {
    /// Creates the record of an attempt that arrives at `arrived` and has no end yet. It belongs to no page.
    pub fn new(traffic: u32, arrived: u64, demand: Demand) -> Record {
        let seconds = |nanos: u64| (nanos as f64 / 1e9) as f32;
        Record {
            traffic,
            arrived,
            ended: arrived,
            cpu: seconds(demand.cpu),
            io: seconds(demand.io.saturating_add(demand.stream)),
            disk: seconds(demand.disk),
            link: seconds(demand.link),
            ..Record::default()
        }
    }

    /// Work that it needs of each resource.
    pub fn work(&self) -> Work {
        [self.cpu, self.disk, self.link].map(f64::from)
    }

    /// Seconds for which it would be in service at an idle machine without using a CPU.
    pub fn beside_cpu(&self) -> f64 {
        f64::from(self.io) + f64::from(self.disk) + f64::from(self.link)
    }
}

/// One run of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Seed of the run.
    pub seed: u64,
    /// Name of the discipline.
    pub discipline: String,
    /// Every attempt, in order of arrival.
    pub records: Vec<Record>,
    /// Every page, in order of arrival, for streams that consist of pages.
    pub pages: Vec<Page>,
    /// Samples every half second from 0 on, and at the end of each phase.
    pub samples: Vec<Sample>,
    /// Idle time of the machines over the run. Empty if nothing measured it.
    pub idle: Idle,
    /// Costs in a learned page table over time. Empty without such a table.
    pub learned_costs: Vec<RouteCosts>,
    /// Violations found by the checkers. An empty list is a success.
    pub violations: Vec<Violation>,
}
