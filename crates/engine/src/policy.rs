//! The resolved policy: the operator's settings, with every name bound and every default filled in.
//!
//! `weirgate-config` turns a YAML file into this type. The simulator and the tests build it directly.
//! Source: Blanquer et al., *Quorum* (NSDI 2005), Sec. 3: a QoS class is a classification rule and a
//! guarantee. The rules stay with the driver (they need HTTP). Everything after them is here. Departure:
//! classes may lack either guarantee or both (best effort), may be made from templates, and are bound to a
//! pool of nodes.
//!
//! A *discipline* is one choice of method per stage. See [`Discipline`].

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;

use crate::demand::{Costs, Demand, RESOURCES};
use crate::discipline::{Discipline, LoadControl, Precedence};
use crate::dispatch::{Lard, Partitions, Resize, ServiceSet};
use crate::mode::Mode;
use crate::time::nanos;

/// The complete input of the engine. Build it, then [`Policy::validate`] it.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// One method per stage.
    pub discipline: Discipline,
    /// Targets of the classes. A class names a pool by its index.
    pub pools: Vec<Pool>,
    /// Members of all pools. A [`crate::NodeId`] is an index here.
    pub nodes: Vec<Node>,
    /// Service classes. A [`crate::ClassId`] below `classes.len()` is an index here. Names are unique. The
    /// last class inherits the waiting requests of removed classes, so there is always at least one.
    pub classes: Vec<Class>,
    /// Templates from which classes are made at run time, one per key.
    pub templates: Vec<Template>,
    /// Maximum number of waiting requests in all queues together.
    pub max_waiting: u32,
    /// Names of the resources of a [`Demand`] (`cpu`, `disk`, …), at most [`RESOURCES`]. If empty, request
    /// costs are unknown.
    pub resources: Vec<String>,
    /// Whether costs are only estimates (learned ones, for example). A cost that seems to exceed every node
    /// then counts as the whole of the largest node instead of leading to a refusal. A request that is never
    /// admitted can never correct its estimate.
    pub estimated: bool,
}

impl Policy {
    /// Creates a policy with one pool, no templates and no resources. At most a million requests wait, which bounds
    /// memory only.
    pub fn of_one_pool(discipline: Discipline, pool: Pool, nodes: Vec<Node>, classes: Vec<Class>) -> Policy {
        Policy {
            discipline,
            pools: vec![pool],
            nodes,
            classes,
            templates: Vec::new(),
            max_waiting: 1_000_000,
            resources: Vec::new(),
            estimated: false,
        }
    }
}

/// Stage *dispatch*: the choice of a node of the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dispatch {
    /// The node with the fewest requests in flight, relative to its weight.
    LeastOutstanding,
    /// Weighted round robin, whatever is in flight.
    WeightedRoundRobin,
    /// The least loaded node, equals in turn: the round robin of Cluster Reserves (App. A.1).
    LeastLoaded {
        /// Whether a class avoids the node of its last request if another node can take the request.
        avoid_last: bool,
    },
    /// The node that has the target of the request in memory, unless it is too busy (App. A.2 there).
    Lard(Lard),
    /// Two nodes drawn at random in proportion to weight, then the less loaded of the two.
    PowerOfTwo,
    /// The nodes are divided among the pool's sets of services (see [`ServiceSet`]), with round robin within
    /// a set.
    PartitionStatic {
        /// Sizes of the partitions.
        sizes: Sizes,
    },
    /// The same, but the partitions follow the demand.
    PartitionDynamic {
        /// Initial sizes of the partitions.
        sizes: Sizes,
        /// The rule for resizing.
        resize: Resize,
    },
}

/// Relative sizes of a pool's partitions by [`ServiceSet::ALL`], finite and > 0. `None` derives them from
/// the guarantees.
pub type Sizes = Option<[f64; ServiceSet::ALL.len()]>;

/// The kind of content that the requests of a class ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Plain files: cheap.
    Static,
    /// Computed pages.
    #[default]
    Dynamic,
}

/// A set of nodes that serve the same requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Unique name.
    pub name: String,
    /// The choice of a node for each request.
    pub dispatch: Dispatch,
    /// The rule for ejecting failing nodes.
    pub ejection: Ejection,
    /// Time in which a node that appears grows from a tenth of its weight to all of it. Zero turns slow start off.
    pub slow_start: Duration,
}

impl Pool {
    /// Creates a pool with the usual settings: the node with the fewest requests in flight, ejection, no slow start.
    pub fn new(name: impl Into<String>) -> Pool {
        let (dispatch, ejection) = (Dispatch::LeastOutstanding, Ejection::default());
        Pool { name: name.into(), dispatch, ejection, slow_start: Duration::ZERO }
    }
}

/// Passive ejection: a node that keeps failing gets no requests for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ejection {
    /// Consecutive failures that eject a node. 0 turns ejection off.
    pub consecutive_failures: u32,
    /// Duration of the first ejection. Each further one lasts twice as long, up to 16 times the first.
    pub base: Duration,
    /// Largest share of the pool's nodes that may be ejected at once, from 0 to 1. One node may always be
    /// ejected from a pool of two or more.
    pub max_share: f64,
}

/// A member of a pool. A machine in two pools is two nodes with the same `machine`.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name, unique in its pool.
    pub name: String,
    /// The machine it runs on. Nodes of one machine share its capacity.
    pub machine: String,
    /// Index into [`Policy::pools`].
    pub pool: usize,
    /// Relative share of the pool's requests, finite and > 0.
    pub weight: f64,
    /// Slot-seconds of service per second (the number of CPUs, for example). `None` is unknown.
    pub capacity: Option<f64>,
    /// Maximum number of requests in flight on this node. `None` is no limit of its own.
    pub max_outstanding: Option<u32>,
}

impl Node {
    /// Creates a node of weight 1 with a machine of its own and no bounds.
    pub fn new(name: impl Into<String>, pool: usize) -> Node {
        let name = name.into();
        Node { machine: name.clone(), name, pool, weight: 1.0, capacity: None, max_outstanding: None }
    }
}

/// A service class.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Unique name.
    pub name: String,
    /// Index into [`Policy::pools`].
    pub pool: usize,
    /// Its guarantee. [`Guarantee::default`] is best effort.
    pub guarantee: Guarantee,
    /// The content that its requests ask for.
    pub content: Content,
    /// Declared service time of one request on an unloaded node. If `None`, it is learned.
    pub service_time: Option<Duration>,
    /// Value of serving one request when the guarantees do not all fit. See [`crate::Infeasible`]. Finite
    /// and > 0. The usual value is 1.
    pub utility: f64,
    /// Its share of every resource relative to other classes, under [`crate::Precedence::Mdrr`] and
    /// [`crate::Precedence::Drfq`]. Finite and > 0. The usual value is 1.
    pub weight: f64,
    /// Cost assumed for requests with an unknown route.
    pub demand: Demand,
    /// The first SEDA priority of its requests, as an index into [`Discipline::priorities`]. 0 if there are none.
    pub priority: u32,
    /// The fallback class, as an index into [`Policy::classes`]: a request that is refused as one of this
    /// class may arrive once more as one of that class. See [`crate::Shed::fallback`]. The fallback class
    /// has no fallback itself.
    pub fallback: Option<usize>,
    /// Bounds of its queue.
    pub queue: QueueBounds,
    /// Budget for retries of failed requests.
    pub retry: RetryBudget,
    /// Whether it is enforced or only observed.
    pub mode: Mode,
}

impl Class {
    /// Creates a class of dynamic content without a guarantee and with the usual settings.
    pub fn best_effort(name: impl Into<String>, pool: usize) -> Class {
        Class {
            name: name.into(),
            pool,
            guarantee: Guarantee::default(),
            content: Content::default(),
            service_time: None,
            utility: 1.0,
            weight: 1.0,
            demand: Demand::default(),
            priority: 0,
            fallback: None,
            queue: QueueBounds::default(),
            retry: RetryBudget::default(),
            mode: Mode::default(),
        }
    }
}

/// A class per key (one per tenant, for example), made on first use.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Settings of each class. Its `name` is the name of the template.
    pub class: Class,
    /// Maximum number of live classes, at least 1. Beyond it the longest idle class is evicted. If none is
    /// idle, the request goes to the template's shared overflow class.
    pub max_live: u32,
}

/// The guarantee of a class. Without either part the class is best effort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guarantee {
    /// Minimum throughput in requests per second, finite and > 0.
    pub throughput: Option<f64>,
    /// Maximum response time.
    pub response_time: Option<ResponseTime>,
}

/// A limit on a statistic of the response time (from the request head to the node's last byte).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResponseTime {
    /// The limited statistic.
    pub statistic: Statistic,
    /// The limit, > 0.
    pub limit: Duration,
}

/// A statistic over a sliding window of served requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The mean.
    Average,
    /// A percentile, in percent, between 50 and 99.9.
    Percentile(f64),
}

impl fmt::Display for Statistic {
    /// `avg`, `p95`, `p99.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Average => f.write_str("avg"),
            Statistic::Percentile(p) => write!(f, "p{p}"),
        }
    }
}

/// Bounds of one class's queue and of its sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueBounds {
    /// Maximum number of waiting requests.
    pub max_waiting: u32,
    /// Maximum number of waiting requests per source (see [`crate::Arrival::flow`]).
    pub max_waiting_per_flow: u32,
    /// Maximum rate of arrivals in requests per second, > 0, with a burst of one second. `None` means no limit.
    pub max_rate: Option<f64>,
    /// Maximum rate of arrivals per source in requests per second, > 0, with a burst of one second. `None` means
    /// no limit.
    pub max_rate_per_flow: Option<f64>,
    /// Longest wait, whatever the admit method, > 0.
    pub max_wait: Duration,
}

impl Default for QueueBounds {
    /// 10,000 waiting requests (about 10 MB of request heads). A tenth of them may come from one source, so
    /// that no single client fills the queue. The maximum wait is 30 s, as long as people wait for a page.
    fn default() -> Self {
        QueueBounds {
            max_waiting: 10_000,
            max_waiting_per_flow: 1_000,
            max_rate: None,
            max_rate_per_flow: None,
            max_wait: Duration::from_secs(30),
        }
    }
}

/// Retries of one class: a token bucket filled by its first attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// Retries per first attempt, from 0 (none) to 1.
    pub ratio: f64,
    /// Retries per second that are allowed even at a low rate.
    pub min_per_second: f64,
    /// Maximum number of retries of one request.
    pub max_retries: u8,
}

impl Default for RetryBudget {
    /// Linkerd's figures: 20 % of requests plus 10 per second, and one retry per request.
    fn default() -> Self {
        RetryBudget { ratio: 0.2, min_per_second: 10.0, max_retries: 1 }
    }
}

impl Default for Ejection {
    /// Five failures in a row, 1 s at first, at most three quarters of the nodes.
    fn default() -> Self {
        Ejection { consecutive_failures: 5, base: Duration::from_secs(1), max_share: 0.75 }
    }
}

/// The reason why a policy cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicy(pub(crate) String);

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for InvalidPolicy {}

impl Policy {
    /// Returns the classes, and then the class of each template. Counts by class or template are in this order.
    pub fn all_classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().chain(self.templates.iter().map(|template| &template.class))
    }

    /// Checks the rules that the types cannot express.
    ///
    /// # Errors
    /// The first fault found, with the name of the class, pool or node.
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        let fail = |text: String| Err(InvalidPolicy(text));
        if self.classes.is_empty() {
            return fail("a policy needs at least one class".into());
        }
        if self.pools.is_empty() {
            return fail("a policy needs at least one pool".into());
        }
        if self.max_waiting == 0 {
            return fail("max_waiting must be at least 1".into());
        }
        if self.classes.len() + self.templates.len() > u32::MAX as usize / 2 || self.nodes.len() > u32::MAX as usize {
            return fail("too many classes or nodes".into());
        }
        for node in &self.nodes {
            if node.pool >= self.pools.len() {
                return fail(format!("node {} names a pool that does not exist", node.name));
            }
            if !(node.weight.is_finite() && node.weight > 0.0) {
                return fail(format!("node {}: weight must be finite and > 0", node.name));
            }
            if node.capacity.is_some_and(|c| !(c.is_finite() && c > 0.0)) {
                return fail(format!("node {}: capacity must be finite and > 0", node.name));
            }
            if node.max_outstanding == Some(0) {
                return fail(format!("node {}: max_outstanding must be at least 1", node.name));
            }
        }
        for pool in &self.pools {
            if !(0.0..=1.0).contains(&pool.ejection.max_share) {
                return fail(format!("pool {}: ejection share must lie between 0 and 1", pool.name));
            }
            if let Dispatch::Lard(figures) = pool.dispatch
                && let Some(what) = figures.complaint()
            {
                return fail(format!("pool {}: {what}", pool.name));
            }
        }
        for class in self.all_classes() {
            class.validate(self.pools.len())?;
            if class.priority != 0 && class.priority as usize >= self.discipline.priorities.len() {
                return fail(format!("class {}: its priority does not exist", class.name));
            }
            let Some(fallback) = class.fallback else { continue };
            if self.classes.get(fallback).is_none_or(|other| other.fallback.is_some()) {
                return fail(format!("class {}: its fallback does not exist, or has one itself", class.name));
            }
        }
        for template in &self.templates {
            if template.max_live == 0 {
                return fail(format!("template {}: max_live must be at least 1", template.class.name));
            }
        }
        for pool in 0..self.pools.len() {
            self.validate_partition(pool)?;
        }
        self.validate_resources()?;
        self.discipline.validate()
    }

    /// Checks that the discipline fits the known resources.
    fn validate_resources(&self) -> Result<(), InvalidPolicy> {
        let fail = |what: &str| Err(InvalidPolicy(what.into()));
        let Discipline { load_control, precedence, .. } = &self.discipline;
        let by_credit = matches!(precedence, Precedence::Mdrr | Precedence::Drfq);
        if self.resources.len() > RESOURCES {
            return fail("there are too many resources");
        }
        let LoadControl::ResourceAvailability(figures) = load_control else {
            return if by_credit { fail("mdrr and drfq need load control by resource availability") } else { Ok(()) };
        };
        if !by_credit {
            return fail("load control by resource availability needs mdrr or drfq");
        }
        if self.resources.is_empty() || figures.only.is_some_and(|only| only >= self.resources.len()) {
            return fail("load control by resource availability needs resources with known costs");
        }
        if self
            .pools
            .iter()
            .any(|pool| matches!(pool.dispatch, Dispatch::PartitionStatic { .. } | Dispatch::PartitionDynamic { .. }))
        {
            return fail("load control by resource availability chooses among all nodes of a pool: no partitions");
        }
        Ok(())
    }

    /// Checks that the pool can be divided as configured.
    fn validate_partition(&self, pool: usize) -> Result<(), InvalidPolicy> {
        let Pool { name, dispatch, .. } = &self.pools[pool];
        let fail = |what: String| Err(InvalidPolicy(format!("pool {name}: {what}")));
        let (sizes, resize) = match dispatch {
            Dispatch::PartitionStatic { sizes } => (sizes, None),
            Dispatch::PartitionDynamic { sizes, resize } => (sizes, Some(resize)),
            _ => return Ok(()),
        };
        let sets = Partitions::new(self).of_pool(pool).len();
        let nodes = self.nodes.iter().filter(|node| node.pool == pool).count();
        if nodes < sets {
            return fail(format!("{nodes} nodes cannot be divided over {sets} sets of services"));
        }
        if sizes.is_some_and(|sizes| sizes.iter().any(|size| !(size.is_finite() && *size > 0.0))) {
            return fail("sizes of partitions must be finite and > 0".into());
        }
        if resize.is_some_and(|r| r.every.is_zero() || !(r.busy > 0.0 && r.busy <= 1.0)) {
            return fail("resizing needs a time > 0 and a busy share above 0 and at most 1".into());
        }
        if self.discipline.load_control.divides_machines() {
            // Its windows belong to groups of nodes that serve the same classes, and learn for minutes.
            return fail("partitions need one window for all nodes: not window_adaptive".into());
        }
        Ok(())
    }
}

/// Amount of each resource on a machine of this weight. One nanosecond of the whole node is a billionth of a
/// node-second.
pub(crate) fn full(horizon: Duration, weight: f64) -> u64 {
    // The cast saturates.
    (nanos(horizon) as f64 * weight).round().max(1.0) as u64
}

impl Policy {
    /// Number of sub-queues of a class: one per resource if load control manages resources, otherwise one.
    pub(crate) fn sub_queues(&self) -> usize {
        if self.is_priced() { self.resources.len() } else { 1 }
    }

    /// The sub-queue in which a request waits.
    pub(crate) fn sub_queue_of(&self, demand: Demand) -> usize {
        if self.is_priced() { self.managed(demand).tendency() } else { 0 }
    }

    /// Whether requests count by the cost on their dominant resource instead of as slots.
    pub fn is_priced(&self) -> bool {
        self.costs() == Costs::Shared
    }

    /// Knowledge of request costs, and its use.
    pub(crate) fn costs(&self) -> Costs {
        match (self.resources.is_empty(), self.discipline.load_control.looks_at_costs()) {
            (true, _) => Costs::Unknown,
            (false, false) => Costs::Recorded,
            (false, true) => Costs::Shared,
        }
    }

    /// Amount of each resource on the largest node of a pool, in billionths of a node-second. `None` if load
    /// control manages no resources, or the pool has no node.
    pub fn largest(&self, pool: usize) -> Option<u64> {
        let figures = self.discipline.load_control.availability()?;
        let machines: BTreeSet<&str> =
            self.nodes.iter().filter(|node| node.pool == pool).map(|node| node.machine.as_str()).collect();
        let all = self.nodes.iter().filter(|node| machines.contains(node.machine.as_str()));
        all.map(|node| full(figures.horizon, node.weight)).max()
    }

    /// The part of a demand that load control manages.
    pub(crate) fn managed(&self, demand: Demand) -> Demand {
        let only = self.discipline.load_control.availability().and_then(|figures| figures.only);
        let kept = |resource: usize| resource < self.resources.len() && only.is_none_or(|only| only == resource);
        Demand(core::array::from_fn(|resource| if kept(resource) { demand.0[resource] } else { 0 }))
    }
}

impl Policy {
    /// Maximum number of requests in flight on a node, by its own bound and by load control.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn max_in_flight(&self, node: usize) -> u32 {
        let node = &self.nodes[node];
        let own = node.max_outstanding.unwrap_or(u32::MAX);
        let slots = self.discipline.load_control.slots(node.capacity.unwrap_or(node.weight));
        slots.map_or(own, |slots| own.min(slots))
    }
}

impl Class {
    fn validate(&self, pools: usize) -> Result<(), InvalidPolicy> {
        let fail = |what: &str| Err(InvalidPolicy(format!("class {}: {what}", self.name)));
        if self.pool >= pools {
            return fail("its pool does not exist");
        }
        if self.guarantee.throughput.is_some_and(|g| !(g.is_finite() && g > 0.0)) {
            return fail("throughput must be finite and > 0");
        }
        if let Some(rt) = self.guarantee.response_time {
            if rt.limit.is_zero() {
                return fail("the response-time limit must be > 0");
            }
            if let Statistic::Percentile(p) = rt.statistic
                && !(50.0..=99.9).contains(&p)
            {
                return fail("a percentile must lie between 50 and 99.9");
            }
        }
        if !(self.utility.is_finite() && self.utility > 0.0) {
            return fail("utility must be finite and > 0");
        }
        // Quanta are integer billionths of a node-second. More extreme ratios could not be represented.
        if !(1e-3..=1e6).contains(&self.weight) {
            return fail("weight must lie between 0.001 and 1,000,000");
        }
        if self.service_time.is_some_and(|t| t.is_zero()) {
            return fail("service_time must be > 0");
        }
        if self.queue.max_waiting == 0 || self.queue.max_waiting_per_flow == 0 || self.queue.max_wait.is_zero() {
            return fail("queue bounds must be > 0");
        }
        let rates = [self.queue.max_rate, self.queue.max_rate_per_flow];
        if rates.into_iter().flatten().any(|rate| !(rate.is_finite() && rate > 0.0)) {
            return fail("the rates of a class and of a source must be finite and > 0");
        }
        if !(0.0..=1.0).contains(&self.retry.ratio)
            || self.retry.min_per_second.is_nan()
            || self.retry.min_per_second < 0.0
        {
            return fail("retry ratio must lie between 0 and 1, min_per_second must be ≥ 0");
        }
        if !self.mode.is_valid() {
            return fail("an enforced share must lie between 0 and 1");
        }
        Ok(())
    }
}
