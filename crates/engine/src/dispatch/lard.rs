//! LARD: a request goes to the node that has its target in memory, unless that node is too busy.
//!
//! Source: Aron, Druschel and Zwaenepoel, *Cluster Reserves* (SIGMETRICS 2000), App. A.2 and Fig. 16, after
//! Pai et al., *Locality-Aware Request Distribution* (ASPLOS 1998). Every node has a cost that is the sum of
//! three terms, in units of the delay of a request for a cached target on an idle node:
//! - *Balancing* is the excess of its load over `idle`. It is infinite above `overload`.
//! - *Locality* is 1 where the target is mapped, otherwise the cost of a miss.
//! - *Replacement* is the cost of a miss again, for the data evicted from memory. It is 0 where the target
//!   is mapped, and on an idle node, which has memory to spare.
//!
//! The node with the smallest sum gets the request, and the target is mapped there.
//!
//! Points that the paper leaves open, and the choices here:
//! - *All nodes overloaded*: all sums are infinite. The least loaded node gets the request.
//! - *Equals* take turns, starting after the node that got a new target last. So new targets are spread
//!   evenly over idle nodes.
//! - *Load* is the number of requests in flight on a node's machine before this one, scaled to a node of the
//!   pool's mean weight.
//! - *A target has one node.* The papers also place targets on several nodes (replication). The formula of
//!   Fig. 16 does not, and replication needs a rule for shrinking a set. A target that is too popular for
//!   one node moves on once the node's load exceeds that of an idle one by a miss. The old node keeps it in
//!   memory for a while.
//! - *The map is bounded*: the least recently used target is forgotten. A node forgets as well.
//! - A target is not mapped anywhere if its node is gone, down, draining or ejected.
//!
//! A decision checks every node of the pool once.

use super::locality_keys::LocalityKeys;
use crate::index::Table;
use crate::policy::{Dispatch, Policy};
use crate::request::NodeId;
use crate::snapshot::LocalitySnapshot;

/// Figures of LARD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lard {
    /// Number of requests in flight on a node of mean weight below which it counts as idle, finite and ≥ 0.
    pub idle: f64,
    /// Number of requests in flight above which a node is too slow for any request, finite and ≥ `idle`.
    pub overload: f64,
    /// Cost of a target that is not in memory, in requests in flight, finite and ≥ 1.
    pub miss_cost: f64,
    /// Maximum number of mapped targets, at least 1.
    pub max_keys: u32,
}

impl Default for Lard {
    fn default() -> Self {
        Lard {
            // The three values of the paper's prototype.
            idle: 30.0,
            overload: 130.0,
            miss_cost: 50.0,
            // Three times the documents of the paper's trace, about 6 MB.
            max_keys: 100_000,
        }
    }
}

impl Lard {
    /// Largest valid number of targets: about a gigabyte.
    pub const MAX_KEYS: u32 = 1 << 24;

    /// The first invalid figure, as a message.
    pub(crate) fn complaint(&self) -> Option<&'static str> {
        let sound = |x: f64, min: f64| x.is_finite() && x >= min;
        match () {
            () if !sound(self.idle, 0.0) || !sound(self.overload, self.idle) => {
                Some("LARD needs 0 ≤ idle ≤ overload, both finite")
            }
            () if !sound(self.miss_cost, 1.0) => Some("a miss must cost at least 1, which is what a hit costs"),
            () if !(1..=Lard::MAX_KEYS).contains(&self.max_keys) => Some("LARD maps 1 to 16777216 documents"),
            () => None,
        }
    }

    /// Cost of sending a request to a node of this load.
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

/// Relation of the chosen node to the target of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The target was mapped to this node.
    Home,
    /// It was mapped to another usable node.
    Moved,
    /// It was not mapped.
    New,
}

/// Map of the targets of a pool.
#[derive(Clone, Debug)]
pub(super) struct Locality {
    keys: LocalityKeys,
    /// The node that got a new target last, or [`NodeId::NONE`].
    pub(super) last: NodeId,
    /// Mean weight of the pool's nodes.
    pub(super) scale: f64,
    /// Requests by [`Sent`].
    counts: [u64; 3],
}

impl Locality {
    /// The map of a pool, if the pool uses LARD.
    pub(super) fn of(policy: &Policy, pool: usize) -> Option<Locality> {
        let Dispatch::Lard(figures) = policy.pools[pool].dispatch else { return None };
        let weights = policy.nodes.iter().filter(|node| node.pool == pool).map(|node| node.weight);
        let scale = weights.clone().sum::<f64>() / weights.count().max(1) as f64;
        Some(Locality { keys: LocalityKeys::new(figures.max_keys), last: NodeId::NONE, scale, counts: [0; 3] })
    }

    /// The node that a target is mapped to.
    pub(super) fn node_of(&self, key: u64) -> Option<NodeId> {
        self.keys.get(key)
    }

    /// Records that a request for a target goes to `node`.
    pub(super) fn sent(&mut self, key: Option<u64>, node: NodeId, sent: Sent) {
        if sent == Sent::New {
            self.last = node;
        }
        let Some(key) = key else { return };
        self.counts[sent as usize] += 1;
        self.keys.set(key, node);
    }

    /// Takes over the map of `old`. Its node `n` is now `node_of[n]`, or [`NodeId::NONE`].
    pub(super) fn inherit(&mut self, old: &Locality, node_of: &Table<NodeId, NodeId>) {
        self.counts = old.counts;
        for (key, node) in old.keys.in_order_of_use() {
            if node_of[node] != NodeId::NONE {
                self.keys.set(key, node_of[node]);
            }
        }
    }

    pub(super) fn snapshot(&self, pool: &str) -> LocalitySnapshot {
        let [hits, moves, new] = self.counts;
        LocalitySnapshot { pool: pool.into(), keys: self.keys.len(), max: self.keys.max(), hits, moves, new }
    }
}
