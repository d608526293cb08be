//! The resolved policy: what the operator wants, with every name bound and every default filled in.
//!
//! `weirgate-config` turns a YAML file into this type; the simulator and the tests build it directly.
//! Source: Blanquer et al., *Quorum* (NSDI 2005), Sec. 3: a QoS class is a classification rule and a
//! guarantee. The rules stay with the driver (they need HTTP); everything after them is here.
//! Departure: classes may lack either guarantee or both (best effort), may be made from templates,
//! and are bound to a pool of nodes.
//!
//! A *discipline* is one choice of method per stage; see [`Discipline`].

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;

use crate::demand::{Costs, Demand, RESOURCES};
use crate::discipline::{Discipline, LoadControl, Precedence};
use crate::dispatch::{Lard, Resize, Sections, ServiceSet};
use crate::time::nanos;

/// Everything the engine needs to know. Build it, then [`Policy::validate`] it.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// One method per stage.
    pub discipline: Discipline,
    /// Where classes send their requests; a class names one by its index.
    pub pools: Vec<Pool>,
    /// Members of all pools; a [`crate::NodeId`] is an index here.
    pub nodes: Vec<Node>,
    /// Service classes; a [`crate::ClassId`] below `classes.len()` is an index here. Names are unique.
    /// The last one takes what a removed class leaves behind, so there is always at least one.
    pub classes: Vec<Class>,
    /// Shapes from which classes are made at run time, one per key.
    pub templates: Vec<Template>,
    /// Most requests that may wait in all queues together.
    pub max_waiting: u32,
    /// What the resources of a [`Demand`] are called (`cpu`, `disk`, …), at most [`RESOURCES`]. Empty: nobody knows
    /// what requests take.
    pub resources: Vec<String>,
    /// What requests take is only estimated (learned, say): what seems to be more than any node has is taken for all of
    /// the largest one instead of being refused. Whoever is never let in teaches nobody better.
    pub estimated: bool,
}

/// Stage *dispatch*: which node of the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dispatch {
    /// The node with the fewest requests inside, relative to its weight.
    LeastOutstanding,
    /// Turns in proportion to the weights, whatever is inside.
    WeightedTurns,
    /// The least loaded, equals in turn: the round robin of Cluster Reserves (App. A.1).
    RoundRobin {
        /// A class's request does not go where its last one went, if another node can take it.
        never_twice: bool,
    },
    /// The node that has a request's target in memory, unless it is too busy (App. A.2 there).
    Lard(Lard),
    /// Two nodes drawn at random in proportion to weight, the less loaded of the two.
    PowerOfTwo,
    /// The nodes are divided over the sets of services that the pool has (see [`ServiceSet`]), in turns within
    /// a set.
    PartitionStatic {
        /// How large the parts are.
        sizes: Sizes,
    },
    /// The same, and the parts follow what is asked of them.
    PartitionDynamic {
        /// How large the parts are at first.
        sizes: Sizes,
        /// When and how they move.
        resize: Resize,
    },
}

/// Relative sizes of a pool's parts by [`ServiceSet::ALL`], finite and > 0; `None` derives them from the guarantees.
pub type Sizes = Option<[f64; ServiceSet::ALL.len()]>;

/// What a class's requests ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Files as they lie there: cheap.
    Static,
    /// Pages that are computed.
    #[default]
    Dynamic,
}

/// A set of nodes that serve the same requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Unique name.
    pub name: String,
    /// How requests are spread over its nodes.
    pub dispatch: Dispatch,
    /// When a failing node is left out.
    pub ejection: Ejection,
}

/// Passive ejection: a node that keeps failing is left out for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ejection {
    /// Failures in a row that eject a node; 0 switches ejection off.
    pub consecutive_failures: u32,
    /// How long the first ejection lasts; each further one lasts twice as long, up to 16 times.
    pub base: Duration,
    /// Largest share of the pool's nodes that may be ejected at once, 0 to 1. One node may always
    /// be ejected from a pool of two or more.
    pub max_share: f64,
}

/// A member of a pool. A machine in two pools is two nodes with the same `machine`.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name, unique in its pool.
    pub name: String,
    /// The machine it runs on; nodes of one machine share its capacity.
    pub machine: String,
    /// Index into [`Policy::pools`].
    pub pool: usize,
    /// Relative share of the pool's requests; finite and > 0.
    pub weight: f64,
    /// Slot-seconds of service it gives per second (its CPUs, say); `None` is unknown.
    pub capacity: Option<f64>,
    /// Most requests inside it at once; `None` is no limit of its own.
    pub max_outstanding: Option<u32>,
}

/// A service class.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Unique name.
    pub name: String,
    /// Index into [`Policy::pools`].
    pub pool: usize,
    /// What it is promised; [`Guarantee::default`] is best effort.
    pub guarantee: Guarantee,
    /// What its requests ask for.
    pub content: Content,
    /// Agreed service time of one request on an unloaded node; `None` is learned.
    pub service_time: Option<Duration>,
    /// What serving one request is worth where the guarantees do not all fit; see
    /// [`crate::Infeasible`]. Finite and > 0; 1 is usual.
    pub utility: f64,
    /// Its part of every resource relative to other classes, under [`crate::Precedence::Mdrr`] and
    /// [`crate::Precedence::Drfq`]. Finite and > 0; 1 is usual.
    pub weight: f64,
    /// What one of its requests takes of which nobody knows the route.
    pub demand: Demand,
    /// The first tag of its requests: a code, an index into [`Discipline::tags`]; 0 where there are none.
    pub tag: u32,
    /// The class as which a request may arrive once more that was turned away as one of this class, as an index into
    /// [`Policy::classes`]; see [`crate::Shed::fallback`]. That class has no fallback itself.
    pub fallback: Option<usize>,
    /// Bounds of its queue.
    pub queue: QueueBounds,
    /// How often failed requests may be tried again.
    pub retry: RetryBudget,
}

/// A class per key (one per tenant, say), made on first use.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// What each class gets; its `name` is the template's.
    pub class: Class,
    /// Most classes alive at once, at least 1. Past it the longest idle one makes room; when none is
    /// idle the request goes to the template's shared overflow class.
    pub max_live: u32,
}

/// What a class is promised. Neither part: best effort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guarantee {
    /// Least throughput in requests per second; finite and > 0.
    pub throughput: Option<f64>,
    /// Largest response time.
    pub response_time: Option<ResponseTime>,
}

/// A limit on a statistic of the response time (request head received to the node's last byte).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResponseTime {
    /// Which statistic is limited.
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

/// Bounds of one class's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    /// Most requests that wait.
    pub max_waiting: u32,
    /// Most requests that wait for one source (see [`crate::Arrival::flow`]).
    pub max_waiting_per_flow: u32,
    /// Longest wait, whatever the admit method; > 0.
    pub max_wait: Duration,
}

impl Default for QueueBounds {
    /// 10,000 waiting (about 10 MB of request heads), a tenth of them from one source so that no single
    /// client fills the queue, for 30 s, as long as people wait for a page.
    fn default() -> Self {
        QueueBounds { max_waiting: 10_000, max_waiting_per_flow: 1_000, max_wait: Duration::from_secs(30) }
    }
}

/// Retries of one class: a token bucket filled by its first attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// Retries per first attempt, 0 (none) to 1.
    pub ratio: f64,
    /// Retries per second that are allowed even at a low rate.
    pub min_per_second: f64,
    /// Attempts of one request after the first.
    pub max_retries: u8,
}

impl Default for RetryBudget {
    /// Linkerd's figures: 20 % of requests plus 10 a second; one retry a request.
    fn default() -> Self {
        RetryBudget { ratio: 0.2, min_per_second: 10.0, max_retries: 1 }
    }
}

impl Default for Ejection {
    /// Five failures in a row, 1 s at first, at most 34 % of the nodes (one of three).
    fn default() -> Self {
        Ejection { consecutive_failures: 5, base: Duration::from_secs(1), max_share: 0.75 }
    }
}

/// Why a policy cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicy(pub(crate) String);

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for InvalidPolicy {}

impl Policy {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// The first thing found wrong, with the name of the class, pool or node.
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
        for class in self.classes.iter().chain(self.templates.iter().map(|t| &t.class)) {
            class.validate(self.pools.len())?;
            if class.tag != 0 && class.tag as usize >= self.discipline.tags.len() {
                return fail(format!("class {}: its tag does not exist", class.name));
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

    /// Does the discipline know the resources that it manages?
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
            return fail("load control by resource availability manages resources that nobody knows");
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

    /// Can the pool be divided as it says?
    fn validate_partition(&self, pool: usize) -> Result<(), InvalidPolicy> {
        let Pool { name, dispatch, .. } = &self.pools[pool];
        let fail = |what: String| Err(InvalidPolicy(format!("pool {name}: {what}")));
        let (sizes, resize) = match dispatch {
            Dispatch::PartitionStatic { sizes } => (sizes, None),
            Dispatch::PartitionDynamic { sizes, resize } => (sizes, Some(resize)),
            _ => return Ok(()),
        };
        let sets = Sections::new(self).of_pool(pool).len();
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

/// What a machine of this weight has of each resource: a nanosecond of the whole node is a billionth of its second.
pub(crate) fn full(horizon: Duration, weight: f64) -> u64 {
    // The cast saturates.
    (nanos(horizon) as f64 * weight).round().max(1.0) as u64
}

impl Policy {
    /// How many lines a class's queue has: one per resource where load control knows them, else one.
    pub(crate) fn sub_queues(&self) -> usize {
        if self.is_priced() { self.resources.len() } else { 1 }
    }

    /// The line in which a request waits.
    pub(crate) fn sub_queue_of(&self, demand: Demand) -> usize {
        if self.is_priced() { self.managed(demand).tendency() } else { 0 }
    }

    /// Do requests count as what they take of the resource of which they take most, rather than as slots?
    #[must_use]
    pub fn is_priced(&self) -> bool {
        self.costs() == Costs::Shared
    }

    /// What is known of costs, and what for.
    pub(crate) fn costs(&self) -> Costs {
        match (self.resources.is_empty(), self.discipline.load_control.looks_at_costs()) {
            (true, _) => Costs::Unknown,
            (false, false) => Costs::Recorded,
            (false, true) => Costs::Shared,
        }
    }

    /// What the largest node of a pool has of each resource, in billionths of a node-second; `None` if load control
    /// manages no resources, or the pool has no node.
    #[must_use]
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
    /// Most requests inside a node at once, by its own bound and by load control.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn most_inside(&self, node: usize) -> u32 {
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
        // Quanta are whole billionths of a node-second: ratios beyond these would be none.
        if !(1e-3..=1e6).contains(&self.weight) {
            return fail("weight must lie between 0.001 and 1,000,000");
        }
        if self.service_time.is_some_and(|t| t.is_zero()) {
            return fail("service_time must be > 0");
        }
        if self.queue.max_waiting == 0 || self.queue.max_waiting_per_flow == 0 || self.queue.max_wait.is_zero() {
            return fail("queue bounds must be > 0");
        }
        if !(0.0..=1.0).contains(&self.retry.ratio)
            || self.retry.min_per_second.is_nan()
            || self.retry.min_per_second < 0.0
        {
            return fail("retry ratio must lie between 0 and 1, min_per_second must be ≥ 0");
        }
        Ok(())
    }
}
