//! Timing and measurements for the division of pools: the load of partitions, the demand of sets.
//!
//! Source: Andreolini et al., Sec. 2 (DynamicPart): every ten seconds the switch checks the load and may
//! change the partitions. The demand of a set is the number of its *arrivals* in the period, including
//! refused requests, times the declared or learned service times. Measured by served requests, a set that is
//! too small would always look small.
//!
//! Departure: a node that fails, drains or is ejected leaves its set at once, and the others are divided
//! again at once. A node that returns goes where it is needed. The paper does not discuss failures. In a
//! static partition a node keeps its set whatever happens.
//!
//! Requests in flight on a node that moves finish there. The cost is O(nodes × sets) and a few allocations,
//! every ten seconds and when a node changes its state.

use core::time::Duration;

use super::division::{Wants, divide, millionths, redivide};
use super::{NodeInfo, Nodes, Partitions, ServiceSet};
use crate::classify::Classes;
use crate::engine::{ASSUMED_COMPUTE, Engine};
use crate::index::{Id, PartitionId, Table};
use crate::policy::{Content, Dispatch, Policy, Sizes};
use crate::request::{ClassId, NodeId};
use crate::snapshot::{DividedPoolSnapshot, PartitionSnapshot};
use crate::ticket::{State, Tickets};
use crate::time::Time;

/// The rule for resizing dynamic partitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resize {
    /// Time between two checks of the demand, > 0.
    pub every: Duration,
    /// Largest share of its CPUs that a set of top users may keep busy, above 0 and at most 1.
    pub busy: f64,
}

impl Default for Resize {
    fn default() -> Self {
        Resize {
            // The paper's value: long enough to count hundreds of arrivals, short enough for a surge.
            every: Duration::from_secs(10),
            // Under processor sharing, times are 1/(1 − busy) of those on an idle node: five times here, and
            // beyond it they grow fast. Limits are usually more generous than that, and a tenth more demand
            // does no harm.
            busy: 0.8,
        }
    }
}

/// A pool that is divided.
#[derive(Clone, Debug)]
pub(crate) struct DividedPool {
    pool: usize,
    /// The first of its partitions, one per set.
    first: PartitionId,
    resize: Option<Resize>,
    /// Demand per set: as declared, or as measured in the last period.
    wants: Vec<Wants>,
    /// Sum of the service times of this period's arrivals per set, in seconds.
    offered: Vec<f64>,
    since: Time,
    next: Time,
    pub(crate) moves: u64,
}

/// Load of the usable nodes of a partition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Requests in flight, by content.
    counts: [u64; 2],
    cpus: f64,
}

/// Dispatch method within a partition.
pub(super) fn within(dispatch: Dispatch) -> Dispatch {
    match dispatch {
        Dispatch::PartitionStatic { .. } | Dispatch::PartitionDynamic { .. } => Dispatch::WeightedRoundRobin,
        other => other,
    }
}

impl DividedPool {
    /// The divided pools of a policy, before the first measurement.
    pub(super) fn all(policy: &Policy, partitions: &Partitions) -> Vec<DividedPool> {
        let divided = policy.pools.iter().enumerate().filter_map(|(pool, spec)| match spec.dispatch {
            Dispatch::PartitionStatic { sizes } => Some((pool, sizes, None)),
            Dispatch::PartitionDynamic { sizes, resize } => Some((pool, sizes, Some(resize))),
            _ => None,
        });
        let divided = divided.filter(|(pool, ..)| partitions.sets_of(*pool).next().is_some());
        let made = divided.map(|(pool, sizes, resize)| {
            let first = partitions.first_of(pool);
            let wants = declared(policy, partitions, pool, sizes, resize.unwrap_or_default().busy);
            let offered = vec![0.0; wants.len()];
            let (since, next) = (Time::ZERO, Time::NEVER);
            DividedPool { pool, first, resize, wants, offered, since, next, moves: 0 }
        });
        made.collect()
    }

    /// Whether two divided pools have the same sets.
    fn same_sets(&self, mine: &Partitions, other: &DividedPool, its: &Partitions) -> bool {
        mine.sets_of(self.pool).eq(its.sets_of(other.pool))
    }

    /// The set of a partition as an index into the sets of this pool, or `None` if it belongs to another pool.
    fn set_of(&self, partition: PartitionId) -> Option<usize> {
        partition.row().checked_sub(self.first.row()).filter(|set| *set < self.wants.len())
    }
}

/// The partition of a set, given by its index, in a pool with this first partition.
fn partition_of(first: PartitionId, set: usize) -> PartitionId {
    PartitionId::of(first.row() + set)
}

/// Demand of the sets of a pool before it is measured: their configured sizes, or the guaranteed throughput
/// × service time of top classes. Normal sets then share the rest in the same mix of content (in equal parts
/// if the mix is not known for both). A top set with unknown demand gets an equal share of the CPUs.
fn declared(policy: &Policy, partitions: &Partitions, pool: usize, sizes: Sizes, busy: f64) -> Vec<Wants> {
    let nodes = policy.nodes.iter().filter(|node| node.pool == pool);
    let cpus: f64 = nodes.map(|node| node.capacity.unwrap_or(node.weight)).sum();
    let sets: Vec<_> = partitions.sets_of(pool).collect();
    if let Some(sizes) = sizes {
        let whole: f64 = sets.iter().map(|set| sizes[set.index()]).sum();
        // All sets count as top ones, because configured sizes have no precedence.
        let part = |set: &ServiceSet| sizes[set.index()] / whole * cpus;
        return sets.iter().map(|set| Wants { top: true, demand: part(set), busy: 1.0 }).collect();
    }
    let owed = |set: ServiceSet| -> f64 {
        let mine = policy.all_classes().filter(|class| class.pool == pool && ServiceSet::of(class) == set);
        mine.filter_map(|class| Some(class.guarantee.throughput? * class.service_time?.as_secs_f64())).sum()
    };
    let equal = cpus / sets.len() as f64;
    let top = |set: ServiceSet| if owed(set) > 0.0 { owed(set) } else { equal * busy };
    let mix = match [ServiceSet::TopStatic, ServiceSet::TopDynamic].map(owed) {
        known if known.iter().all(|owed| *owed > 0.0) => known,
        _ => [1.0; 2],
    };
    let normal = |set: ServiceSet| mix[usize::from(set == ServiceSet::NormalDynamic)];
    let taken: f64 = sets.iter().filter(|set| set.is_top()).map(|set| top(*set) / busy).sum();
    let parts: f64 = sets.iter().filter(|set| !set.is_top()).map(|set| normal(*set)).sum();
    let wants = sets.iter().map(|set| match set.is_top() {
        true => Wants { top: true, demand: top(*set), busy },
        false => Wants { top: false, demand: (cpus - taken).max(0.0) * normal(*set) / parts, busy: 1.0 },
    });
    wants.collect()
}

impl Nodes {
    /// Starts the first period of every dynamic partition.
    pub(crate) fn begin(&mut self, now: Time) {
        for divided in &mut self.divided_pools {
            divided.since = now;
            divided.next = divided.resize.map_or(Time::NEVER, |resize| now + resize.every);
        }
    }

    /// Time of the next check of a partition, or [`Time::NEVER`].
    pub(crate) fn next_resize(&self) -> Time {
        self.divided_pools.iter().map(|divided| divided.next).min().unwrap_or(Time::NEVER)
    }

    /// Whether the pool is divided again when its nodes change.
    pub(super) fn resizes(&self, pool: usize) -> bool {
        self.divided_pools.iter().any(|divided| divided.pool == pool && divided.resize.is_some())
    }

    /// Checks the demand of the partitions that are due.
    pub(crate) fn resize(&mut self, now: Time) {
        for index in 0..self.divided_pools.len() {
            let divided = &mut self.divided_pools[index];
            let Some(resize) = divided.resize.filter(|_| divided.next <= now) else { continue };
            let seconds = now.since(divided.since).as_secs_f64();
            for (set, offered) in divided.offered.iter_mut().enumerate() {
                let top = self.partitions.sets[partition_of(divided.first, set)].is_some_and(ServiceSet::is_top);
                let busy = if top { resize.busy } else { 1.0 };
                divided.wants[set] = Wants { top, demand: core::mem::take(offered) / seconds, busy };
            }
            divided.since = now;
            divided.next = now + resize.every;
            self.divide(index);
        }
    }

    /// Divides dynamic partitions again after nodes came or went. Static ones are divided once.
    pub(crate) fn rebalance(&mut self) {
        for index in 0..self.divided_pools.len() {
            let pool = self.divided_pools[index].pool;
            let fresh = self.nodes.iter().all(|node| node.pool != pool || !node.placed);
            if fresh || self.divided_pools[index].resize.is_some() {
                self.divide(index);
            }
        }
    }

    /// Divides the usable nodes of a pool.
    fn divide(&mut self, index: usize) {
        let divided = &self.divided_pools[index];
        let (pool, first, dynamic) = (divided.pool, divided.first, divided.resize.is_some());
        let (mut members, mut cpus, mut current) = (Vec::new(), Vec::new(), Vec::new());
        for (number, node) in self.nodes.pairs_mut().filter(|(_, node)| node.pool == pool) {
            if dynamic && !node.usable() {
                node.placed = false;
                continue;
            }
            members.push(number);
            cpus.push(millionths(node.cpus()).max(1));
            current.push(node.placed.then(|| node.partition.row() - first.row()));
        }
        if members.is_empty() {
            return;
        }
        let decide = if dynamic { redivide } else { divide };
        let division = decide(&cpus, &divided.wants, &current);
        let mut changed = false;
        for ((number, set), was) in members.into_iter().zip(division).zip(current) {
            self.divided_pools[index].moves += u64::from(was.is_some_and(|was| was != set));
            self.nodes[number].placed = true;
            changed |= self.put(number, partition_of(first, set));
        }
        if changed {
            self.refresh();
        }
    }

    /// Moves a node into a partition. Returns true if it was in another one.
    fn put(&mut self, number: NodeId, partition: PartitionId) -> bool {
        let (round, overlap) = (self.round[partition], self.overlaps_of[partition][0]);
        let node = &mut self.nodes[number];
        if node.partition == partition {
            return false;
        }
        self.ready.remove(node.overlap.row(), number);
        node.partition = partition;
        node.overlap = overlap;
        // It neither catches up nor waits for the turns of its old partition.
        node.turn = round + 1.0 / node.weight;
        true
    }

    /// Counts the start or the end of a request on a node, by content.
    pub(super) fn count_content(&mut self, index: NodeId, content: Content, enters: bool) {
        let node = &mut self.nodes[index];
        let in_flight_by_content = &mut node.in_flight_by_content[content as usize];
        *in_flight_by_content = if enters { *in_flight_by_content + 1 } else { *in_flight_by_content - 1 };
        if node.usable() && !self.reported {
            let count = &mut self.loads[node.partition].counts[content as usize];
            *count = if enters { *count + 1 } else { *count - 1 };
        }
    }

    /// Recomputes the load of all partitions.
    pub(super) fn weigh_partitions(&mut self) {
        self.loads.fill(Load::default());
        for index in self.nodes.ids() {
            let node = &self.nodes[index];
            if node.usable() {
                let counts = self.counted(node);
                let load = &mut self.loads[node.partition];
                load.counts = [load.counts[0] + u64::from(counts[0]), load.counts[1] + u64::from(counts[1])];
                load.cpus += node.cpus();
            }
        }
    }

    /// Recounts the requests in flight on every node.
    pub(crate) fn recount(&mut self, tickets: &Tickets, classes: &Classes) {
        for node in &mut self.nodes {
            node.in_flight_by_content = [0; 2];
        }
        for entry in tickets.entries.iter().filter(|entry| entry.state == State::InFlight && entry.node != NodeId::NONE)
        {
            let content = classes.spec(entry.class).content;
            self.nodes[entry.node].in_flight_by_content[content as usize] += 1;
        }
        self.weigh_partitions();
    }

    /// Static and dynamic requests of a node that count for its load.
    fn counted(&self, node: &NodeInfo) -> [u32; 2] {
        if self.reported { node.reported.unwrap_or_default() } else { node.in_flight_by_content }
    }

    /// Load of a node per CPU.
    pub(crate) fn node_load(&self, node: &NodeInfo) -> f64 {
        let [cheap, expensive] = self.counted(node).map(f64::from);
        (cheap + self.omega * expensive) / node.cpus()
    }

    /// Load of the usable nodes of a partition per CPU; 0 without nodes.
    pub(crate) fn partition_load(&self, partition: PartitionId) -> f64 {
        let Load { counts: [cheap, expensive], cpus } = self.loads[partition];
        if cpus > 0.0 { (cheap as f64 + self.omega * expensive as f64) / cpus } else { 0.0 }
    }
}

impl Engine {
    /// Adds the service time of an arrival of the class to the demand of its set.
    pub(crate) fn demand(&mut self, class: ClassId) {
        if self.nodes.divided_pools.is_empty() {
            return;
        }
        let partition = self.classes[class].partition;
        let seconds = self.classes.service_time(class).unwrap_or(ASSUMED_COMPUTE);
        for divided in &mut self.nodes.divided_pools {
            if let Some(set) = divided.set_of(partition) {
                divided.offered[set] += seconds;
            }
        }
    }

    /// Carries partitions over to a new policy. A dynamic partition stays as it is if its pool has the same
    /// sets, as far as its nodes stay.
    pub(crate) fn carry_partitions(&self, nodes: &mut Nodes, policy: &Policy, node_of: &Table<NodeId, NodeId>) {
        for index in 0..nodes.divided_pools.len() {
            let name = &policy.pools[nodes.divided_pools[index].pool].name;
            let known = self.nodes.divided_pools.iter().find(|old| {
                let same = nodes.divided_pools[index].same_sets(&nodes.partitions, old, &self.nodes.partitions);
                same && self.policy.pools[old.pool].name == *name
            });
            let Some(old) = known.filter(|_| nodes.divided_pools[index].resize.is_some()) else { continue };
            let divided = &mut nodes.divided_pools[index];
            let (pool, first) = (divided.pool, divided.first);
            if old.resize.is_some() {
                divided.wants.clone_from(&old.wants);
                divided.offered.clone_from(&old.offered);
                divided.since = old.since;
                divided.moves = old.moves;
            }
            for node in nodes.nodes.iter_mut().filter(|node| node.pool == pool) {
                node.placed = false;
            }
            for (old_node, new) in self.nodes.nodes.iter().zip(node_of).filter(|(_, new)| **new != NodeId::NONE) {
                let set = old.set_of(old_node.partition).filter(|_| nodes.nodes[*new].pool == pool);
                if let Some(set) = set {
                    nodes.put(*new, partition_of(first, set));
                    nodes.nodes[*new].placed = old_node.placed;
                }
            }
            nodes.refresh();
        }
    }

    pub(crate) fn divided_pool_snapshot(&self, divided: &DividedPool) -> DividedPoolSnapshot {
        let partitions = self.nodes.partitions.of_pool(divided.pool).zip(&divided.wants);
        let partitions = partitions.filter_map(|(partition, wants)| {
            Some(PartitionSnapshot {
                set: self.nodes.partitions.sets[partition]?,
                nodes: self.nodes.usable(partition),
                cpus: self.nodes.loads[partition].cpus,
                load: self.nodes.partition_load(partition),
                demand: wants.demand,
            })
        });
        DividedPoolSnapshot {
            pool: self.policy.pools[divided.pool].name.clone(),
            moves: divided.moves,
            partitions: partitions.collect(),
        }
    }
}
