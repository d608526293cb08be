//! A resolved experiment: a policy, the cluster behind it, the traffic in front of it, and what goes
//! wrong when.
//!
//! The simulator and the lab run the same files. Like [`Site`], an [`Experiment`] has every default
//! filled in and every name bound to an index; it is made from the typed file in one place.

use std::time::Duration;

use weirgate_config::Site;
use weirgate_engine as engine;
use weirgate_spanned_yaml::errors::Place;

use crate::distribution::{Counts, Distribution};

/// Everything that one experiment needs.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name: the file's, without directory and extension, unless the file says otherwise.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// The policy under test. Its listeners are not used.
    pub site: Site,
    /// Every machine that the policy's nodes run on, in order of first mention.
    pub machines: Vec<Machine>,
    /// Per node of `site.policy.nodes` an index into `machines`.
    pub machine_of: Vec<usize>,
    /// One way between the gateway and a machine.
    pub network_delay: Duration,
    /// Who sends what.
    pub traffic: Vec<Traffic>,
    /// Named stretches of time, one after the other from 0 on; the run ends with the last.
    pub phases: Vec<Phase>,
    /// What the phases vary, with its unit; then at least one judged phase has an `x`.
    pub axis: Option<String>,
    /// How much of the beginning of a phase is judged apart.
    pub settle: Duration,
    /// What goes wrong, in order of time.
    pub faults: Vec<Fault>,
    /// Other policies that [`FaultKind::Reload`] puts in force, in order of time. Upstreams, nodes, the classes' names,
    /// their time limits and the discipline are those of the policy under test.
    pub reloads: Vec<Reload>,
    /// Published figures to print beside ours.
    pub published: Vec<Published>,
    /// How classes share the machines' CPUs; `None` is not at all: every request is equal.
    pub reserves: Option<CpuReserves>,
}

/// Shares of the machines' CPUs, per class. The simulator has them.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuReserves {
    /// Per class of the policy its share of the cluster, in percent; 0 for classes that have none, which run on what
    /// is left over.
    pub shares: Vec<f64>,
    /// Moves shares between machines; `None` leaves every class its share of every machine.
    pub manager: Option<Reallocation>,
}

/// When a manager moves shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reallocation {
    /// When it starts.
    pub from: Duration,
    /// Between two periodic runs, if there are any.
    pub every: Option<Duration>,
    /// Do machines ask for runs?
    pub on_demand: bool,
}

/// The files that a stream's requests ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Documents {
    /// How many, at least 1.
    pub files: u32,
    /// Their sizes together, in bytes.
    pub bytes: u64,
    /// The exponent of their popularity, > 0.
    pub zipf: f64,
    /// Names the set: sizes are drawn from it, the same in every run.
    pub seed: u64,
    /// What was counted in a log: per file its bytes and its requests, the most popular first. If there is any, it
    /// stands in place of all of the above; files of experiments have none.
    pub counted: Vec<(u64, u64)>,
    /// Streams that have a part of them, as indices into [`Experiment::traffic`], each with its share of the requests;
    /// at least one, and the shares sum to 1. The first is the stream's own.
    pub parts: Vec<(usize, f64)>,
}

/// A disk, and the memory that keeps what was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Time of a read before its first byte.
    pub access: Duration,
    /// Bytes read per second after that, > 0.
    pub bytes_per_s: f64,
    /// Bytes of memory for files.
    pub memory: u64,
}

/// A named stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Its name, unique.
    pub name: String,
    /// When it ends, from the start of the run; it begins where the one before ends.
    pub until: Duration,
    /// Is it judged? A warm-up is not.
    pub judged: bool,
    /// Its place on the axis, finite and ≥ 0; no two phases have the same.
    pub x: Option<f64>,
}

/// A machine, or several identical ones behind one address.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// As in [`engine::Node::machine`].
    pub name: String,
    /// CPUs of each server; a request occupies at most one at a time.
    pub cpus: u32,
    /// At the start of the run. 1 is nominal: a demand of 8 ms takes 8 ms of a CPU.
    pub speed: f64,
    /// How it changes: the factor by which the speed differs from that at the start, > 0. Its first knot is 1 at 0.
    pub drift: Profile,
    /// Servers hidden behind the address, at least 1. They take turns.
    pub servers: u32,
    /// The names of these servers, if they have any: what has the same name behind several addresses is one server.
    /// Empty for servers of its own.
    pub shared: Vec<String>,
    /// Requests that each server works on at once; more wait in its own queue. `None` is no limit.
    pub concurrency: Option<u32>,
    /// Requests that wait in each server's own queue; more are answered 503 at once. `None` is no limit.
    pub backlog: Option<u32>,
    /// How it slows down when too much runs at once.
    pub thrashing: Option<Thrashing>,
    /// The disk of each server, which requests that ask for a document read from; `None` has every document in memory.
    pub disk: Option<Disk>,
    /// What the lab puts there.
    pub service: Service,
}

/// What a machine is in the lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Service {
    /// An emulated node.
    #[default]
    Emulated,
    /// Apache with a PHP page that uses CPU time as asked.
    ApachePhp,
    /// Tomcat with a page that uses CPU time as asked.
    Tomcat,
    /// Xapian's full-text search behind Apache.
    Xapian,
}

/// Slow-down by concurrency: the speed is divided by 1 + `penalty` × (requests inside − `beyond`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thrashing {
    /// Requests inside a server without loss.
    pub beyond: u32,
    /// Loss per further one; ≥ 0.
    pub penalty: f64,
}

/// One stream of requests.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Whose requests.
    pub class: TrafficClass,
    /// When they come.
    pub source: Source,
    /// Each arrival is a client who asks for so many pages, one after the other; `None` is one.
    pub session: Option<Session>,
    /// Which files its requests ask for; `None` is none in particular.
    pub documents: Option<Documents>,
    /// What a request takes, over time: the entry in force at its arrival, the last with `at` ≤ then. The
    /// first one is at 0.
    pub demand: Vec<DemandFrom>,
    /// Beside that what the lines of a trace say, for each of its instants; empty if they say nothing.
    pub traced: Vec<[u64; PARTS]>,
    /// How long a client waits for the last byte of a reply before it leaves; `None` is for ever.
    pub patience: Option<Distribution>,
    /// Times a client tries again after a shed, a failure or its own leaving.
    pub retries: u32,
    /// How long it waits before that.
    pub retry_after: Distribution,
    /// What goes over the wire in the lab.
    pub request: RequestShape,
}

/// A request as it goes over the wire. Texts may have `{cpu_us}`, `{io_us}`, `{disk_us}`, `{link_us}`, `{stream_us}`,
/// `{id}`, `{key}`, `{word}`, `{object}`, `{bytes}` in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestShape {
    /// Its method.
    pub method: String,
    /// Path and query; `None` is what the service of the machines understands.
    pub path: Option<String>,
    /// Its `Host`; `None` is the class's name.
    pub host: Option<String>,
    /// Further header fields: name, value.
    pub headers: Vec<(String, String)>,
}

impl Default for RequestShape {
    /// A GET of what the service of the machines understands.
    fn default() -> Self {
        RequestShape { method: "GET".into(), path: None, host: None, headers: Vec::new() }
    }
}

/// Whose requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrafficClass {
    /// Those of a class of the policy.
    Class(usize),
    /// Those of a template's keys: `keys` of them, with Zipf-distributed popularity of exponent 1.
    Template {
        /// Index into the policy's templates.
        template: usize,
        /// How many keys.
        keys: u32,
    },
}

/// When requests come.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Clients that do not wait for one another.
    Open {
        /// The process.
        arrivals: Arrivals,
        /// Mean requests per second.
        rate: Profile,
    },
    /// The instants of a log, from the start of the run.
    Trace(Vec<Duration>),
    /// A population of users who send, wait for the reply, think, and send again.
    Users {
        /// How many.
        users: Profile,
        /// Time between a reply, or the last one of a page, and the next request.
        think: Distribution,
    },
    /// Objects that are embedded in the pages of another stream: they come when their page has come.
    Objects {
        /// The stream of the pages, an index into [`Experiment::traffic`] below this one's; no other has this one.
        page: usize,
        /// How many each page has, at most [`MOST_OF_A_PAGE`].
        count: Counts,
        /// How many are under way at once, at least 1.
        connections: u32,
    },
    /// Requests of another stream whose documents are this one's part: see [`Documents::parts`].
    Part {
        /// That stream, an index into [`Experiment::traffic`].
        of: usize,
    },
}

impl Traffic {
    /// Path and query of its requests, marks such as `{id}` not filled in; `/` where the machines' service says what
    /// they ask for.
    #[must_use]
    pub fn address(&self) -> (&str, Option<&str>) {
        let address = self.request.path.as_deref().unwrap_or("/");
        address.split_once('?').map_or((address, None), |(path, query)| (path, Some(query)))
    }
}

impl Source {
    /// The stream whose clients send this one's requests, if it has none of its own.
    #[must_use]
    pub fn part_of(&self) -> Option<usize> {
        if let Source::Part { of } = self { Some(*of) } else { None }
    }
}

/// Most objects of a page and most pages of a session: more than any page has that people read, and few enough that
/// one client's visit stays small beside a run.
pub const MOST_OF_A_PAGE: u32 = 1000;

/// The visit of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Session {
    /// How many pages it asks for; at least one and at most [`MOST_OF_A_PAGE`].
    pub pages: Counts,
    /// Time between the end of a page and the next one's request.
    pub think: Distribution,
}

/// An arrival process with a mean rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps.
    Even,
    /// A Markov-modulated Poisson process: calm and bursts take turns, both of exponential length.
    Mmpp {
        /// Rate in a burst over the mean rate, > 1.
        burst: f64,
        /// Share of time in bursts, with `burst · share` < 1.
        share: f64,
        /// Mean length of a burst.
        length: Duration,
    },
}

/// A figure over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile(
    /// In order of `at`; the first is at 0.
    pub Vec<Knot>,
);

/// From `at` on, after `over`, the figure is `value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knot {
    /// When the change begins.
    pub at: Duration,
    /// How long it takes, in a straight line; 0 is a step.
    pub over: Duration,
    /// The figure afterwards, ≥ 0.
    pub value: f64,
}

/// What a demand consists of: CPU, I/O, disk, link, stream, in this order where times are listed, in nanoseconds.
pub const PARTS: usize = 5;

/// What a request takes from an instant on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemandFrom {
    /// From when.
    pub at: Duration,
    /// How long the change takes. Meanwhile a request's demand lies between what it would have been before
    /// and after, in a straight line.
    pub over: Duration,
    /// CPU time of a nominal CPU.
    pub cpu: Distribution,
    /// Time that it then waits inside the machine without a CPU (a database, a disk).
    pub io: Distribution,
    /// Time for which it keeps a disk busy before its CPU time. What else is at the disk shares it.
    pub disk: Distribution,
    /// Time for which its reply keeps a network link busy, last of all. What else is at the link shares it.
    pub link: Distribution,
    /// Time for which its reply comes, the first byte at its begin. It keeps its worker and uses nothing.
    pub stream: Distribution,
}

/// Something goes wrong, or is done on purpose.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When.
    pub at: Duration,
    /// Until when; `None` is to the end.
    pub until: Option<Duration>,
    /// What.
    pub kind: FaultKind,
    /// Which machines; indices into [`Experiment::machines`].
    pub machines: Vec<usize>,
    /// Of which classes the requests are that fail: indices into the policy's classes, behind these its templates.
    /// Empty is all requests, health checks too.
    pub classes: Vec<usize>,
}

/// Another policy from an instant on, at which a phase begins.
#[derive(Clone, Debug)]
pub struct Reload {
    /// From when.
    pub at: Duration,
    /// Which.
    pub policy: engine::Policy,
    /// Where the experiment file says so.
    pub place: Place,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The operator takes the nodes out: the gateway knows at once, requests inside finish.
    Removed,
    /// The machine is gone: what is inside fails at once, so does every new connection.
    Crash,
    /// It accepts requests and does not work on anything.
    Stall,
    /// It works at this share of its speed, > 0.
    Slow(f64),
    /// It answers this share of requests 500 after a millisecond instead of working.
    FailFast(f64),
    /// The gateway gets no word of its nodes' health checks. (`machines` is empty: all.)
    LostReports,
    /// The policy is loaded again, or another one, if [`Experiment::reloads`] has one for this instant. (`machines` is
    /// empty.)
    Reload,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Discipline that it is about (`quorum`).
    pub discipline: String,
    /// Phase; index into [`Experiment::phases`].
    pub phase: usize,
    /// Class; index into the policy's classes.
    pub class: usize,
    /// Requests served per second.
    pub served_per_s: Option<f64>,
    /// The guaranteed statistic of the response time, or its mean if none is guaranteed, in milliseconds.
    pub response_time_ms: Option<f64>,
    /// Share of the requests that was turned away, 0 to 1.
    pub shed: Option<f64>,
}

impl Experiment {
    /// When the run ends.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.phases.last().map_or(Duration::ZERO, |phase| phase.until)
    }

    /// The stream of the objects that are embedded in the pages of stream `traffic`, if they have any.
    #[must_use]
    pub fn objects_of(&self, traffic: usize) -> Option<usize> {
        self.traffic.iter().position(|t| matches!(t.source, Source::Objects { page, .. } if page == traffic))
    }

    /// The stream whose clients send the requests of stream `traffic`: itself, unless it is a part of another.
    #[must_use]
    pub fn home_of(&self, traffic: usize) -> usize {
        self.traffic[traffic].source.part_of().unwrap_or(traffic)
    }

    /// Does a request of stream `traffic` ever take anything of a disk or a link of its own accord?
    #[must_use]
    pub fn takes_disk_or_link(&self, traffic: usize) -> bool {
        let never = Distribution::Fixed(Duration::ZERO);
        let Traffic { demand, traced, .. } = &self.traffic[traffic];
        demand.iter().any(|demand| demand.disk != never || demand.link != never)
            || traced.iter().any(|[_, _, disk, link, _]| disk + link > 0)
    }

    /// Does a reply to a request of stream `traffic` ever take time from its first byte to its last?
    #[must_use]
    pub fn streams(&self, traffic: usize) -> bool {
        let never = Distribution::Fixed(Duration::ZERO);
        let Traffic { demand, traced, .. } = &self.traffic[traffic];
        demand.iter().any(|demand| demand.stream != never) || traced.iter().any(|[.., stream]| *stream > 0)
    }

    /// Do requests take something of disks and links as well as of CPUs?
    #[must_use]
    pub fn uses_several_resources(&self) -> bool {
        (0..self.traffic.len()).any(|traffic| self.takes_disk_or_link(traffic))
    }

    /// Does stream `traffic` come as pages, with objects or in sessions?
    #[must_use]
    pub fn is_pages(&self, traffic: usize) -> bool {
        self.traffic[traffic].session.is_some() || self.objects_of(traffic).is_some()
    }

    /// Every policy that is in force at some time, and from when on, in order of time.
    pub fn policies(&self) -> impl DoubleEndedIterator<Item = (Duration, &engine::Policy)> {
        let later = self.reloads.iter().map(|reload| (reload.at, &reload.policy));
        std::iter::once((Duration::ZERO, &self.site.policy)).chain(later)
    }

    /// The policy in force at `at`.
    #[must_use]
    pub fn policy_at(&self, at: Duration) -> &engine::Policy {
        self.policies().rfind(|(from, _)| *from <= at).map_or(&self.site.policy, |(_, policy)| policy)
    }

    /// When phase `index` begins.
    #[must_use]
    pub fn phase_from(&self, index: usize) -> Duration {
        index.checked_sub(1).map_or(Duration::ZERO, |before| self.phases[before].until)
    }
}

impl Machine {
    /// One server with so many CPUs of nominal speed and no limits.
    #[must_use]
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

impl Profile {
    /// The same figure for ever.
    #[must_use]
    pub fn constant(value: f64) -> Profile {
        Profile(vec![Knot { at: Duration::ZERO, over: Duration::ZERO, value }])
    }

    /// The figure at `at`.
    #[must_use]
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

    /// Its mean from one instant to a later one; the figure then, if they are the same.
    #[must_use]
    pub fn mean(&self, from: Duration, to: Duration) -> f64 {
        let mut borders: Vec<Duration> = self.0.iter().flat_map(|knot| [knot.at, knot.at + knot.over]).collect();
        borders.retain(|at| from < *at && *at < to);
        borders.extend([from, to]);
        borders.sort_unstable();
        // Between two borders it is a straight line, whose mean is its middle.
        let area = |pair: &[Duration]| self.at(pair[0] + (pair[1] - pair[0]) / 2) * (pair[1] - pair[0]).as_secs_f64();
        let length = to.saturating_sub(from).as_secs_f64();
        if length > 0.0 { borders.windows(2).map(area).sum::<f64>() / length } else { self.at(from) }
    }

    /// Does it ever change?
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.0.len() == 1 && self.0[0].over.is_zero()
    }
}

impl TrafficClass {
    /// The name of the class or template in `policy`.
    #[must_use]
    pub fn name<'a>(&self, policy: &'a engine::Policy) -> &'a str {
        match self {
            TrafficClass::Class(class) => &policy.classes[*class].name,
            TrafficClass::Template { template, .. } => &policy.templates[*template].class.name,
        }
    }
}
