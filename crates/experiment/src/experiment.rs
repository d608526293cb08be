//! A resolved experiment: a policy, the cluster behind it, the traffic in front of it, and faults over time.
//!
//! The simulator and the lab run the same files. Like [`Site`], an [`Experiment`] has every default filled in
//! and every name bound to an index. It is made from the typed file in one place.

use std::time::Duration;

use weirgate_config::Site;
use weirgate_emulator::{Disk, Thrashing};
use weirgate_engine as engine;
use weirgate_spanned_yaml::errors::Position;

use crate::distribution::{Counts, Distribution};
use crate::grid::GridRow;

/// Everything that one experiment needs.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name. By default the file's name without directory and extension.
    pub name: String,
    /// Title, in one line.
    pub title: String,
    /// The policy under test. Its listeners are not used.
    pub site: Site,
    /// Every machine that the policy's nodes run on, in order of first mention.
    pub machines: Vec<Machine>,
    /// For each node of `site.policy.nodes`, an index into `machines`.
    pub machine_of: Vec<usize>,
    /// One-way delay between the gateway and a machine.
    pub network_delay: Duration,
    /// Streams of requests.
    pub traffic: Vec<Traffic>,
    /// Named phases, one after the other from 0 on. The run ends with the last.
    pub phases: Vec<Phase>,
    /// The quantity that the phases vary, with its unit. If given, at least one judged phase has an `x`.
    pub axis: Option<String>,
    /// Length of the beginning of each phase that is judged separately.
    pub settle: Duration,
    /// Faults, in order of time.
    pub faults: Vec<Fault>,
    /// Other policies that [`FaultKind::Reload`] puts in force, in order of time. They have the upstreams,
    /// the nodes, the classes' names and timeouts, and the discipline of the policy under test.
    pub reloads: Vec<Reload>,
    /// Rows of cells, each of which is this experiment with some figures changed.
    pub grid: Vec<GridRow>,
    /// Published figures to print next to the measured ones.
    pub published: Vec<Published>,
    /// Shares of the machines' CPUs for classes. `None` gives every request an equal share.
    pub reserves: Option<CpuReserves>,
}

/// Shares of the machines' CPUs, per class. Only the simulator implements them.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuReserves {
    /// For each class of the policy, its share of the cluster in percent. A class with 0 has no share and
    /// runs on the remainder.
    pub shares: Vec<f64>,
    /// When shares move between machines. `None` leaves every class its share of every machine.
    pub coordinator: Option<Reallocation>,
}

/// When a coordinator moves shares between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reallocation {
    /// Start of the coordinator.
    pub from: Duration,
    /// Time between two periodic runs, if there are any.
    pub every: Option<Duration>,
    /// Whether machines ask for runs.
    pub on_demand: bool,
}

/// The files that a stream's requests ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Documents {
    /// Number of files, at least 1.
    pub files: u32,
    /// Size of all files together, in bytes.
    pub bytes: u64,
    /// Exponent of their popularity, > 0.
    pub zipf: f64,
    /// Seed from which sizes are drawn, so that they are the same in every run.
    pub seed: u64,
    /// Counts from a log: for each file its bytes and its requests, the most popular first. If not empty,
    /// they replace all fields above. Experiment files leave them empty.
    pub counted: Vec<(u64, u64)>,
    /// Streams that have a part of the files, as indices into [`Experiment::traffic`], each with its share of
    /// the requests. There is at least one, and the shares sum to 1. The first is the stream's own.
    pub parts: Vec<(usize, f64)>,
}

/// A named part of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name, unique.
    pub name: String,
    /// End, from the start of the run. The phase begins where the one before ends.
    pub until: Duration,
    /// Whether guarantees are judged in this phase. A warm-up is not judged.
    pub judged: bool,
    /// Coordinate on the axis, finite and ≥ 0. No two phases have the same.
    pub x: Option<f64>,
}

/// A machine, or several identical ones behind one address.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Name, as in [`engine::Node::machine`].
    pub name: String,
    /// CPUs of each server. A request occupies at most one at a time.
    pub cpus: u32,
    /// Speed at the start of the run. 1 is nominal: a demand of 8 ms takes 8 ms of a CPU.
    pub speed: f64,
    /// Speed over time relative to that at the start, > 0. The first knot is 1 at 0.
    pub drift: Profile,
    /// Servers hidden behind the address, at least 1. They take turns.
    pub servers: u32,
    /// Names of these servers, if they have any. The same name behind several addresses means the same
    /// server. Empty if the servers belong to this address alone.
    pub shared: Vec<String>,
    /// Maximum number of requests that each server works on at once. Further requests wait in its own queue.
    /// `None` means no limit.
    pub concurrency: Option<u32>,
    /// Maximum number of requests that wait in each server's own queue. Further requests are answered with
    /// 503 at once. `None` means no limit.
    pub backlog: Option<u32>,
    /// Slow-down of each server when too many requests are in flight.
    pub thrashing: Option<Thrashing>,
    /// The disk of each server, for requests that ask for a document. `None` means that every document is in memory.
    pub disk: Option<Disk>,
    /// Service that the lab starts on the machine.
    pub service: Service,
}

/// Service on a machine of the lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Service {
    /// An emulated node.
    #[default]
    Emulated,
    /// Apache with a PHP page that uses the requested CPU time.
    ApachePhp,
    /// Tomcat with a page that uses the requested CPU time.
    Tomcat,
    /// Xapian's full-text search behind Apache.
    Xapian,
    /// MediaWiki behind Apache, with one database for all machines.
    MediaWiki,
    /// An API in Python with gunicorn that uses the requested CPU time.
    Gunicorn,
    /// cgit behind Apache, with one Git repository for all machines.
    Cgit,
}

/// One stream of requests.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Class of the requests.
    pub class: TrafficClass,
    /// Name of the clients, for reports. `None` means that their class says enough.
    pub name: Option<String>,
    /// Arrivals of the requests.
    pub source: Source,
    /// Each arrival is a client that asks for this many pages, one after the other. `None` means one request.
    pub session: Option<Session>,
    /// Files that its requests ask for. `None` means none in particular.
    pub documents: Option<Documents>,
    /// Cost of a request over time. The entry in force at its arrival counts, which is the last with `at` ≤
    /// then. The first entry is at 0.
    pub demand: Vec<DemandFrom>,
    /// Costs from the lines of a trace, in addition to `demand`, one entry for each of its timestamps. Empty
    /// if the trace gives no costs.
    pub traced: Vec<[u64; PARTS]>,
    /// Clients of the requests of a trace, one for each of its timestamps. If empty, clients are drawn. Experiment
    /// files leave it empty.
    pub senders: Vec<Sender>,
    /// Number of addresses that the clients come from. `None` means that each has one of its own.
    pub sources: Option<u32>,
    /// How long a client waits for the last byte of a reply before it leaves. `None` means that it never leaves.
    pub patience: Option<Distribution>,
    /// Number of times that a client tries again after its request was shed or failed, or after it left.
    pub retries: u32,
    /// How long the client waits before it tries again.
    pub retry_after: Distribution,
    /// Form of the request that the lab sends.
    pub request: RequestShape,
}

/// The client of a request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Key of the template, below the number of keys.
    pub key: u32,
    /// Hash of the source.
    pub flow: u64,
    /// Time for which it waits, in nanoseconds. `u64::MAX` means for ever.
    pub patience: u64,
}

/// A request as it is sent. Texts may contain `{cpu_us}`, `{io_us}`, `{disk_us}`, `{link_us}`, `{stream_us}`,
/// `{id}`, `{key}`, `{source}`, `{word}`, `{object}`, `{bytes}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestShape {
    /// Method.
    pub method: String,
    /// Path and query. `None` means a path that the service of the machines understands.
    pub path: Option<String>,
    /// Value of `Host`. `None` means the class's name.
    pub host: Option<String>,
    /// Further header fields: name and value.
    pub headers: Vec<(String, String)>,
}

impl Default for RequestShape {
    /// Returns a GET request that the service of the machines understands.
    fn default() -> Self {
        RequestShape { method: "GET".into(), path: None, host: None, headers: Vec::new() }
    }
}

/// Class of a stream's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficClass {
    /// A class of the policy.
    Class(usize),
    /// The classes of a template, for `keys` keys with Zipf-distributed popularity of exponent 1.
    Template {
        /// Index into the policy's templates.
        template: usize,
        /// Number of keys.
        keys: u32,
    },
}

/// Source of a stream's arrivals.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Clients that arrive independently of each other.
    Open {
        /// Arrival process.
        arrivals: Arrivals,
        /// Mean requests per second.
        rate: Profile,
    },
    /// Timestamps of a log, from the start of the run.
    Trace(Vec<Duration>),
    /// Users that send a request, wait for the reply, think, and send again.
    Users {
        /// Number of users.
        users: Profile,
        /// Time between a reply, or the last reply of a page, and the next request.
        think: Distribution,
    },
    /// Objects embedded in the pages of another stream, requested when their page has been received.
    Objects {
        /// The stream of the pages, an index into [`Experiment::traffic`] below this stream's. No other
        /// stream has the same.
        page: usize,
        /// Number of objects per page, at most [`MAX_OF_A_PAGE`].
        count: Counts,
        /// Maximum number of requests for objects in flight at once, at least 1.
        connections: u32,
    },
    /// Requests of another stream for the documents that belong to this one. See [`Documents::parts`].
    Part {
        /// Index of that stream in [`Experiment::traffic`].
        of: usize,
    },
}

impl Traffic {
    /// Returns path and query of its requests, with placeholders such as `{id}` not filled in. The path is
    /// `/` if the service of the machines determines it.
    pub fn address(&self) -> (&str, Option<&str>) {
        let address = self.request.path.as_deref().unwrap_or("/");
        address.split_once('?').map_or((address, None), |(path, query)| (path, Some(query)))
    }
}

impl Source {
    /// Returns the stream with the clients that send this stream's requests, if it has no clients of its own.
    pub fn part_of(&self) -> Option<usize> {
        if let Source::Part { of } = self { Some(*of) } else { None }
    }
}

/// Maximum number of objects in a page and of pages in a session. Real pages have fewer, and one client's
/// visit stays short compared with a run.
pub const MAX_OF_A_PAGE: u32 = 1000;

/// The visit of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session {
    /// Number of pages that it asks for, at least 1 and at most [`MAX_OF_A_PAGE`].
    pub pages: Counts,
    /// Time between the end of a page and the request for the next.
    pub think: Distribution,
}

/// An arrival process with a mean rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps.
    Even,
    /// A Markov-modulated Poisson process: calm and bursts alternate, both of exponential length.
    Mmpp {
        /// Rate in a burst divided by the mean rate, > 1.
        burst: f64,
        /// Share of time in bursts, with `burst · share` < 1.
        share: f64,
        /// Mean length of a burst.
        length: Duration,
    },
}

/// A value over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile(
    /// In order of `at`. The first is at 0.
    pub Vec<Knot>,
);

/// One step: from `at` the value changes for `over`, and then it is `value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knot {
    /// Start of the change.
    pub at: Duration,
    /// Duration of the change, in a straight line. 0 is an immediate step.
    pub over: Duration,
    /// The value after the change, ≥ 0.
    pub value: f64,
}

/// Number of parts of a demand: CPU, I/O, disk, link, stream, in this order wherever times are listed, in
/// nanoseconds.
pub const PARTS: usize = 5;

/// Cost of a request from an instant on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemandFrom {
    /// Start of the change.
    pub at: Duration,
    /// Duration of the change. During it a request's cost lies on a straight line between the costs before
    /// and after.
    pub over: Duration,
    /// Time on a nominal CPU.
    pub cpu: Distribution,
    /// Time that the request then waits in the machine without a CPU (for a database, a disk).
    pub io: Distribution,
    /// Time for which it keeps a disk busy before its CPU time. Other requests at the disk share it.
    pub disk: Distribution,
    /// Time for which its reply keeps a network link busy, at the end. Other replies on the link share it.
    pub link: Distribution,
    /// Duration of its reply after the first byte. The request keeps its worker for that time and uses no
    /// other resource.
    pub stream: Distribution,
}

/// A fault, or a deliberate change.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Start, from the start of the run.
    pub at: Duration,
    /// End, from the start of the run. `None` means the end of the run.
    pub until: Option<Duration>,
    /// Kind of fault.
    pub kind: FaultKind,
    /// Machines concerned, as indices into [`Experiment::machines`].
    pub machines: Vec<usize>,
    /// Classes of the failing requests, as indices into the policy's classes, with its templates counted
    /// after them. Empty means all requests, health checks included.
    pub classes: Vec<usize>,
}

/// Another policy from an instant on, at which a phase begins.
#[derive(Clone, Debug)]
pub struct Reload {
    /// Time at which it is loaded, from the start of the run.
    pub at: Duration,
    /// The policy.
    pub policy: engine::Policy,
    /// Place of the reload in the experiment file.
    pub position: Position,
}

/// Kind of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The operator takes the nodes out. The gateway knows at once, and requests in flight finish.
    Removed,
    /// The machine is gone. Requests in flight and new connections fail at once.
    Crash,
    /// The machine accepts requests and works on none.
    Stall,
    /// The machine works at this share of its speed, > 0.
    Slow(f64),
    /// The machine answers this share of requests with 500 after a millisecond instead of working on them.
    FailFast(f64),
    /// The gateway receives no results of health checks. (`machines` is empty, which means all.)
    LostReports,
    /// The policy is loaded again, or another one, if [`Experiment::reloads`] has one for this instant.
    /// (`machines` is empty.)
    Reload,
    /// The gateway's process ends with its requests, and another one takes its clients at once. (`machines` is empty.)
    Restart {
        /// Whether the other process has followed this one, and begins with what it had learned up to a second before.
        follows: bool,
    },
}

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Discipline that the figure is from, such as `quorum`.
    pub discipline: String,
    /// Phase, as an index into [`Experiment::phases`].
    pub phase: usize,
    /// Class, as an index into the policy's classes.
    pub class: usize,
    /// Requests served per second.
    pub served_per_s: Option<f64>,
    /// The guaranteed statistic of the response time, or its mean if none is guaranteed, in milliseconds.
    pub response_time_ms: Option<f64>,
    /// Share of the requests that were turned away, 0 to 1.
    pub shed: Option<f64>,
}

impl Experiment {
    /// Returns the part of it before `end`: the phase of this instant ends there, and later phases are left out.
    pub fn until(&self, end: Duration) -> Experiment {
        let begun = |index: usize| self.phase_from(index) < end;
        let phases = self.phases.iter().enumerate().filter(|(index, _)| begun(*index));
        let phases = phases.map(|(_, phase)| Phase { until: phase.until.min(end), ..phase.clone() }).collect();
        Experiment { phases, ..self.clone() }
    }

    /// Returns the length of the run.
    pub fn duration(&self) -> Duration {
        self.phases.last().map_or(Duration::ZERO, |phase| phase.until)
    }

    /// Returns the stream of the objects embedded in the pages of stream `traffic`, if they have any.
    pub fn objects_of(&self, traffic: usize) -> Option<usize> {
        self.traffic.iter().position(|t| matches!(t.source, Source::Objects { page, .. } if page == traffic))
    }

    /// Returns the stream with the clients that send the requests of stream `traffic`: itself, unless it is a
    /// part of another.
    pub fn home_of(&self, traffic: usize) -> usize {
        self.traffic[traffic].source.part_of().unwrap_or(traffic)
    }

    /// Whether a request of stream `traffic` ever uses a disk or a link by its own cost.
    pub fn takes_disk_or_link(&self, traffic: usize) -> bool {
        let never = Distribution::Fixed(Duration::ZERO);
        let Traffic { demand, traced, .. } = &self.traffic[traffic];
        demand.iter().any(|demand| demand.disk != never || demand.link != never)
            || traced.iter().any(|[_, _, disk, link, _]| disk + link > 0)
    }

    /// Whether a reply to a request of stream `traffic` ever takes time from its first byte to its last.
    pub fn streams(&self, traffic: usize) -> bool {
        let never = Distribution::Fixed(Duration::ZERO);
        let Traffic { demand, traced, .. } = &self.traffic[traffic];
        demand.iter().any(|demand| demand.stream != never) || traced.iter().any(|[.., stream]| *stream > 0)
    }

    /// Whether requests use disks or links as well as CPUs.
    pub fn uses_several_resources(&self) -> bool {
        (0..self.traffic.len()).any(|traffic| self.takes_disk_or_link(traffic))
    }

    /// Whether stream `traffic` consists of pages, with objects or in sessions.
    pub fn is_pages(&self, traffic: usize) -> bool {
        self.traffic[traffic].session.is_some() || self.objects_of(traffic).is_some()
    }

    /// Returns every policy with the time from which it is in force, in order of time.
    pub fn policies(&self) -> impl DoubleEndedIterator<Item = (Duration, &engine::Policy)> {
        let later = self.reloads.iter().map(|reload| (reload.at, &reload.policy));
        std::iter::once((Duration::ZERO, &self.site.policy)).chain(later)
    }

    /// Returns the policy in force at `at`.
    pub fn policy_at(&self, at: Duration) -> &engine::Policy {
        self.policies().rfind(|(from, _)| *from <= at).map_or(&self.site.policy, |(_, policy)| policy)
    }

    /// Returns the start of phase `index`.
    pub fn phase_from(&self, index: usize) -> Duration {
        index.checked_sub(1).map_or(Duration::ZERO, |before| self.phases[before].until)
    }
}

impl Machine {
    /// Returns one server with `cpus` CPUs of nominal speed and no limits.
    pub fn nominal(name: &str, cpus: u32) -> Machine {
        Machine {
            name: name.to_owned(),
            cpus,
            speed: 1.0,
            drift: Profile::constant(1.0),
            servers: 1,
            shared: Vec::new(),
            concurrency: None,
            backlog: None,
            thrashing: None,
            disk: None,
            service: Service::Emulated,
        }
    }
}

impl Traffic {
    /// Returns the mean CPU time of a request at `at`, without changes in between.
    pub fn cpu_at(&self, at: Duration) -> Duration {
        let demand = self.demand.iter().rfind(|demand| demand.at <= at).or(self.demand.first());
        demand.map_or(Duration::ZERO, |demand| Duration::from_secs_f64(demand.cpu.mean()))
    }

    /// Returns the requests per second at `at`, or `None` if users, pages or a trace make them.
    pub fn rate_at(&self, at: Duration) -> Option<f64> {
        if let Source::Open { rate, .. } = &self.source { Some(rate.at(at)) } else { None }
    }
}

impl Profile {
    /// Returns a constant value.
    pub fn constant(value: f64) -> Profile {
        Profile(vec![Knot { at: Duration::ZERO, over: Duration::ZERO, value }])
    }

    /// Returns the value at `at`.
    pub fn at(&self, at: Duration) -> f64 {
        let mut value = 0.0;
        for knot in self.0.iter().take_while(|knot| knot.at <= at) {
            let passed = (at - knot.at).as_secs_f64();
            let over = knot.over.as_secs_f64();
            let done = if over > 0.0 { (passed / over).min(1.0) } else { 1.0 };
            value += (knot.value - value) * done;
        }
        value
    }

    /// Returns the mean from one instant to a later one, or the value at that time if they are equal.
    pub fn mean(&self, from: Duration, to: Duration) -> f64 {
        let mut borders: Vec<Duration> = self.0.iter().flat_map(|knot| [knot.at, knot.at + knot.over]).collect();
        borders.retain(|at| from < *at && *at < to);
        borders.extend([from, to]);
        borders.sort_unstable();
        // Between two borders it is a straight line, with its mean in the middle.
        let area = |pair: &[Duration]| self.at(pair[0] + (pair[1] - pair[0]) / 2) * (pair[1] - pair[0]).as_secs_f64();
        let length = to.saturating_sub(from).as_secs_f64();
        if length > 0.0 { borders.windows(2).map(area).sum::<f64>() / length } else { self.at(from) }
    }

    /// Whether it never changes.
    pub fn is_constant(&self) -> bool {
        self.0.len() == 1 && self.0[0].over.is_zero()
    }
}

impl TrafficClass {
    /// Returns its index among [`engine::Policy::all_classes`].
    pub fn index(&self, policy: &engine::Policy) -> usize {
        match self {
            TrafficClass::Class(class) => *class,
            TrafficClass::Template { template, .. } => policy.classes.len() + template,
        }
    }

    /// Returns the class, or that of the template.
    pub fn class<'a>(&self, policy: &'a engine::Policy) -> &'a engine::Class {
        match self {
            TrafficClass::Class(class) => &policy.classes[*class],
            TrafficClass::Template { template, .. } => &policy.templates[*template].class,
        }
    }

    /// Returns the number of keys of a template. A class counts as one.
    pub fn keys(&self) -> u32 {
        match self {
            TrafficClass::Class(_) => 1,
            TrafficClass::Template { keys, .. } => *keys,
        }
    }

    /// Returns the name of the class or template in `policy`.
    pub fn name<'a>(&self, policy: &'a engine::Policy) -> &'a str {
        &self.class(policy).name
    }
}
