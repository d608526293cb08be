//! LARD: a request goes to the node that has its target in memory, unless that node is too busy.
//!
//! Source: Aron, Druschel and Zwaenepoel, *Cluster Reserves* (SIGMETRICS 2000), App. A.2 and Fig. 16, after Pai et al.,
//! *Locality-Aware Request Distribution* (ASPLOS 1998). Three costs are added up for every node, in delays of a request
//! for a cached target on an idle node: of *balancing* (how far its load is above `idle`; infinite above `overload`),
//! of *locality* (1 where the target is mapped, else a miss) and of *replacement* (what a miss drives out of the memory
//! of a node that has no room to spare: of any that is not idle). The least sum wins, and the target is mapped there.
//!
//! What the paper leaves open, and what is done here:
//! - *All nodes overloaded*: all sums are infinite; the least loaded gets the request.
//! - *Equals*: they take turns, the first after the node that got a new target last. So new targets are spread evenly
//!   over idle nodes.
//! - *Load* counts requests inside a node's machine before this one, on a node of the pool's mean weight.
//! - *A target has one node.* The papers also have targets on several nodes (replication); the formula of Fig. 16 does
//!   not, and it needs a rule for when a set shrinks. A target that is too popular for one node moves on once the
//!   node's load is a miss above that of an idle one, and the node that it leaves has it in memory for a while.
//! - *The map is bounded*: the target that was not asked for longest is forgotten. A node forgets as well.
//! - A target whose node is gone, down, draining or ejected is not mapped anywhere.
//!
//! A decision looks at every node of the pool once.

use super::targets::Targets;
use crate::index::Table;
use crate::policy::{Dispatch, Policy};
use crate::request::NodeId;
use crate::snapshot::LocalitySnapshot;

/// Figures of LARD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lard {
    /// Requests inside a node of mean weight below which it has something to spare; finite and ≥ 0.
    pub idle: f64,
    /// Requests inside beyond which it is too slow for anybody; finite and ≥ `idle`.
    pub overload: f64,
    /// What reading a target costs that is not in memory, in requests inside; finite and ≥ 1.
    pub miss_cost: f64,
    /// Most targets that are mapped, at least 1.
    pub targets: u32,
}

impl Default for Lard {
    fn default() -> Self {
        Lard {
            // The three of the paper's prototype.
            idle: 30.0,
            overload: 130.0,
            miss_cost: 50.0,
            // Three times the documents of the paper's trace; about 6 MB.
            targets: 100_000,
        }
    }
}

impl Lard {
    /// Most targets that may be asked for: about a gigabyte.
    pub const MOST_TARGETS: u32 = 1 << 24;

    /// What is wrong with the figures.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        let sound = |x: f64, least: f64| x.is_finite() && x >= least;
        match () {
            () if !sound(self.idle, 0.0) || !sound(self.overload, self.idle) => {
                Some("LARD needs 0 ≤ idle ≤ overload, both finite")
            }
            () if !sound(self.miss_cost, 1.0) => Some("a miss must cost at least 1, which is what a hit costs"),
            () if !(1..=Lard::MOST_TARGETS).contains(&self.targets) => Some("LARD maps 1 to 16777216 targets"),
            () => None,
        }
    }

    /// What sending a request to a node of this load costs.
    pub(super) fn cost(&self, load: f64, mapped: bool) -> f64 {
        let balancing = match load {
            load if load < self.idle => 0.0,
            load if load > self.overload => f64::INFINITY,
            load => load - self.idle,
        };
        let locality = if mapped { 1.0 } else { self.miss_cost };
        let replacement = if mapped || load < self.idle { 0.0 } else { self.miss_cost };
        balancing + locality + replacement
    }
}

/// What a request's node has to do with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The target was mapped there.
    Home,
    /// It was mapped to another usable node.
    Moved,
    /// It was not mapped.
    New,
}

/// Where the targets of a pool are.
#[derive(Clone, Debug)]
pub(super) struct Locality {
    targets: Targets,
    /// The node that got a target last that was not mapped, or [`NodeId::NONE`].
    pub(super) last: NodeId,
    /// Mean weight of the pool's nodes.
    pub(super) scale: f64,
    /// By [`Sent`].
    counts: [u64; 3],
}

impl Locality {
    /// That of a pool, if it has one.
    pub(super) fn of(policy: &Policy, pool: usize) -> Option<Locality> {
        let Dispatch::Lard(figures) = policy.pools[pool].dispatch else { return None };
        let weights = policy.nodes.iter().filter(|node| node.pool == pool).map(|node| node.weight);
        let scale = weights.clone().sum::<f64>() / weights.count().max(1) as f64;
        Some(Locality { targets: Targets::new(figures.targets), last: NodeId::NONE, scale, counts: [0; 3] })
    }

    /// The node that a target is mapped to.
    pub(super) fn node_of(&self, target: u64) -> Option<NodeId> {
        self.targets.get(target)
    }

    /// A request for a target goes to `node`.
    pub(super) fn sent(&mut self, target: Option<u64>, node: NodeId, sent: Sent) {
        if sent == Sent::New {
            self.last = node;
        }
        let Some(target) = target else { return };
        self.counts[sent as usize] += 1;
        self.targets.set(target, node);
    }

    /// Takes over what `old` knows; its node `n` is now `node_of[n]`, or [`NodeId::NONE`].
    pub(super) fn inherit(&mut self, old: &Locality, node_of: &Table<NodeId, NodeId>) {
        self.counts = old.counts;
        for (target, node) in old.targets.in_order_of_use() {
            if node_of[node] != NodeId::NONE {
                self.targets.set(target, node_of[node]);
            }
        }
    }

    pub(super) fn snapshot(&self, pool: &str) -> LocalitySnapshot {
        let [hits, moves, new] = self.counts;
        LocalitySnapshot { pool: pool.into(), targets: self.targets.len(), most: self.targets.most(), hits, moves, new }
    }
}
