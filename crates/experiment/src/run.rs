//! What a run leaves behind: one record per request and one per page, samples of the state, what was believed,
//! violations.

use crate::beliefs::RouteBeliefs;
use crate::idle::Idle;

/// How many resources the machines of an experiment have: those of [`weirgate_config::RESOURCE_NAMES`].
pub const RESOURCES: usize = weirgate_config::RESOURCE_NAMES.len();

/// Per resource so many seconds: of a nominal CPU, of a disk, of a network link.
pub type Work = [f64; RESOURCES];

/// What became of a request. One request of a client may be several records: each attempt is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Its last byte came with a status below 500.
    Served,
    /// The gateway turned it away.
    Shed,
    /// The node failed it, or it timed out.
    Failed,
    /// The client left, while it waited or later.
    Left,
    /// The run ended first.
    Cut,
}

/// One attempt of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Index into [`crate::Experiment::traffic`].
    pub traffic: u32,
    /// What became of it.
    pub fate: Fate,
    /// Nanoseconds from the start of the run: its head reached the gateway.
    pub arrived: u64,
    /// It was released to a node for the first time; 0 if it never was. (What is released at the very
    /// start says 1.)
    pub released: u64,
    /// Its last byte came from the node, or it was shed, failed or left, or the run ended.
    pub ended: u64,
    /// CPU time that it needs, in seconds of a nominal CPU.
    pub cpu: f32,
    /// Time that it spends inside without a CPU, in seconds; that for which its reply streams too.
    pub io: f32,
    /// Time of a disk that it needs, in seconds.
    pub disk: f32,
    /// Time of a network link that its reply needs, in seconds.
    pub link: f32,
    /// The page that it belongs to, an index into [`Run::pages`]. It is the page's own request if it is of the page's
    /// traffic, else one of its objects.
    pub page: Option<u32>,
}

/// A page that a client asked for: a request, and the objects embedded in what it brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Index into [`crate::Experiment::traffic`]; its class is the page's.
    pub traffic: u32,
    /// [`Fate::Served`] if it is complete; what became of the first of its requests that was not served in the end;
    /// [`Fate::Cut`] if the run ended first.
    pub fate: Fate,
    /// Nanoseconds from the start of the run: its own request reached the gateway for the first time.
    pub arrived: u64,
    /// The last of its requests was over.
    pub ended: u64,
    /// Objects that are embedded in it, asked for or not.
    pub objects: u32,
}

/// The state at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Nanoseconds from the start.
    pub at: u64,
    /// Requests that may be inside, all windows together; `None` is no limit.
    pub window: Option<u32>,
    /// Requests inside.
    pub outstanding: u32,
    /// Waiting requests per class of the policy.
    pub waiting: Vec<u32>,
    /// Per machine the work done since the start, in seconds of a nominal CPU: in full use it grows by
    /// servers × CPUs × speed a second. What was done of requests that were cut off counts.
    pub busy: Vec<f64>,
    /// Per machine the seconds since the start for which its disks were busy, those of all its servers together.
    pub disk: Vec<f64>,
    /// The same of their network links.
    pub link: Vec<f64>,
    /// Per class of the policy the same of all machines together, where classes have shares of the CPUs; else empty.
    pub usage: Vec<f64>,
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Nanoseconds from the start.
    pub at: u64,
    /// Which invariant, in one word (`conservation`, `window`, `time`, …).
    pub invariant: &'static str,
    /// What was found, with figures.
    pub what: String,
}

impl Record {
    /// What it takes of each resource.
    #[must_use]
    pub fn work(&self) -> Work {
        [self.cpu, self.disk, self.link].map(f64::from)
    }

    /// Time that it spends inside an idle machine without a CPU, in seconds.
    #[must_use]
    pub fn beside_cpu(&self) -> f64 {
        f64::from(self.io) + f64::from(self.disk) + f64::from(self.link)
    }
}

/// One run of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// The discipline's name.
    pub discipline: String,
    /// Every attempt, in order of arrival.
    pub records: Vec<Record>,
    /// Every page, in order of arrival; of the streams that come as pages.
    pub pages: Vec<Page>,
    /// Every half second from 0 on, and at the end of each phase.
    pub samples: Vec<Sample>,
    /// What the machines left undone over time; empty if nothing measured it.
    pub idle: Idle,
    /// What a page table that is learned took for true; without one empty.
    pub beliefs: Vec<RouteBeliefs>,
    /// What the checkers found; empty is good.
    pub violations: Vec<Violation>,
}
