//! Stage *dispatch*: which node of the pool, and which nodes may be chosen at all.
//!
//! Methods: least outstanding relative to weight (ties take turns, so that an idle pool is spread
//! evenly), weighted round robin (a node's next turn comes 1/weight after its last: the order of
//! stride scheduling), and power of two choices (Mitzenmacher 1996).
//!
//! A node is chosen only while it is up, not draining, not ejected and below its own bound. Passive
//! ejection answers a known trap: least outstanding sends everything to the node that fails fastest.
//! After `consecutive_failures` in a row a node is left out for `base`, twice as long each further
//! time, up to 16 times; never more than `max_share` of a pool at once, but always one of two or more.

use core::time::Duration;

use crate::heap::Heaps;
use crate::policy::{Dispatch, Ejection, Policy};
use crate::random::Random;
use crate::request::NodeEvent;
use crate::snapshot::NodeState;
use crate::ticket::NONE;
use crate::time::Time;

/// Longest ejection: base × 2⁴. A node that is back for good is missed for at most that long.
const MAX_DOUBLINGS: u32 = 4;

/// Good answers in a row after which earlier ejections are forgotten: enough to tell a healthy node
/// from one that fails every few requests, few enough to come within a second or two.
const FORGIVEN_AFTER: u32 = 20;

/// Draws of the power of two that ignore weights at last: with weights 100:1 a fair draw needs about
/// 50 on average; a bound keeps the decision's cost bounded.
const MAX_DRAWS: u32 = 64;

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct NodeInfo {
    pub(crate) pool: usize,
    pub(crate) weight: f64,
    pub(crate) capacity: Option<f64>,
    pub(crate) max_outstanding: u32,
    pub(crate) outstanding: u32,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    up: bool,
    draining: bool,
    ejected_until: Option<Time>,
    ejections: u32,
    failures: u32,
    successes: u32,
    /// Virtual time of its next turn under weighted round robin.
    turn: f64,
}

impl NodeInfo {
    pub(crate) fn usable(&self) -> bool {
        self.up && !self.draining && self.ejected_until.is_none()
    }

    pub(crate) fn state(&self) -> NodeState {
        match (self.draining, self.up, self.ejected_until) {
            (true, ..) => NodeState::Draining,
            (_, false, _) => NodeState::Down,
            (.., Some(until)) => NodeState::Ejected { until },
            _ => NodeState::Up,
        }
    }
}

/// All nodes of all pools.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<NodeInfo>,
    methods: Vec<Dispatch>,
    ejection: Vec<Ejection>,
    /// Per pool the nodes that can take a request now, best first.
    ready: Heaps<(f64, u64)>,
    /// Usable nodes per pool, whether or not they have room.
    usable: Vec<u32>,
    /// Virtual time of the last turn per pool, for weighted round robin.
    round: Vec<f64>,
    turns: u64,
    /// When the next ejected node returns.
    next_return: Option<Time>,
}

impl Nodes {
    pub(crate) fn new(policy: &Policy) -> Nodes {
        let nodes: Vec<NodeInfo> = policy
            .nodes
            .iter()
            .map(|n| NodeInfo {
                pool: n.pool,
                weight: n.weight,
                capacity: n.capacity,
                max_outstanding: n.max_outstanding.unwrap_or(u32::MAX),
                outstanding: 0,
                served: 0,
                failed: 0,
                up: true,
                draining: false,
                ejected_until: None,
                ejections: 0,
                failures: 0,
                successes: 0,
                turn: 1.0 / n.weight,
            })
            .collect();
        let mut all = Nodes {
            ready: Heaps::new(policy.pools.len(), nodes.len()),
            usable: vec![0; policy.pools.len()],
            methods: policy.pools.iter().map(|p| p.dispatch).collect(),
            ejection: policy.pools.iter().map(|p| p.ejection).collect(),
            nodes,
            round: vec![0.0; policy.pools.len()],
            turns: 0,
            next_return: None,
        };
        all.refresh();
        all
    }

    /// Takes over what is known of `old` about its node `from`, now called `to`.
    pub(crate) fn inherit(&mut self, to: usize, old: &Nodes, from: usize) {
        let (node, old) = (&mut self.nodes[to], &old.nodes[from]);
        let (pool, weight, max_outstanding) = (node.pool, node.weight, node.max_outstanding);
        let capacity = node.capacity.or(old.capacity);
        *node = NodeInfo { pool, weight, max_outstanding, capacity, ..old.clone() };
        self.refresh();
    }

    /// Recomputes everything that follows from the nodes' states.
    fn refresh(&mut self) {
        self.usable.fill(0);
        self.next_return = self.nodes.iter().filter_map(|n| n.ejected_until).min();
        for index in 0..self.nodes.len() as u32 {
            let node = &self.nodes[index as usize];
            self.usable[node.pool] += u32::from(node.usable());
            self.place(index);
        }
    }

    /// Can the pool take a request now?
    pub(crate) fn has_room(&self, pool: usize) -> bool {
        !self.ready.items(pool).is_empty()
    }

    /// Nodes of the pool that are neither down nor draining nor ejected.
    pub(crate) fn usable(&self, pool: usize) -> u32 {
        self.usable[pool]
    }

    /// Usable nodes of all pools together.
    pub(crate) fn all_usable(&self) -> u32 {
        self.usable.iter().sum()
    }

    /// Chooses a node of the pool and puts a request inside. `avoid` (the node that just failed, or
    /// [`NONE`]) is chosen only if there is no other.
    pub(crate) fn dispatch(&mut self, pool: usize, avoid: u32, random: &mut Random) -> Option<u32> {
        let ready = self.ready.items(pool);
        let (_, first) = *ready.first()?;
        let chosen = if self.methods[pool] == Dispatch::PowerOfTwo {
            let a = self.draw(pool, avoid, random);
            let b = self.draw(pool, avoid, random);
            let load = |n: u32| f64::from(self.nodes[n as usize].outstanding + 1) / self.nodes[n as usize].weight;
            if load(b) < load(a) { b } else { a }
        } else if first == avoid {
            // Only after a failure: look at all.
            let others = ready.iter().filter(|(_, n)| *n != avoid);
            others.min_by(|a, b| a.partial_cmp(b).unwrap_or(core::cmp::Ordering::Equal)).map_or(first, |(_, n)| *n)
        } else {
            first
        };
        if self.methods[pool] == Dispatch::WeightedRoundRobin {
            let node = &mut self.nodes[chosen as usize];
            self.round[pool] = self.round[pool].max(node.turn);
            node.turn += 1.0 / node.weight;
        }
        self.nodes[chosen as usize].outstanding += 1;
        self.turns += 1;
        self.place(chosen);
        Some(chosen)
    }

    /// A request is no longer inside.
    pub(crate) fn release(&mut self, node: u32) {
        if node != NONE {
            self.nodes[node as usize].outstanding -= 1;
            self.place(node);
        }
    }

    /// The node answered well.
    pub(crate) fn succeeded(&mut self, index: u32) {
        if index == NONE {
            return;
        }
        let node = &mut self.nodes[index as usize];
        node.served += 1;
        node.failures = 0;
        node.successes += 1;
        if node.successes >= FORGIVEN_AFTER {
            node.successes = 0;
            node.ejections = 0;
        }
    }

    /// The node failed; it may be ejected. True if the set of usable nodes changed.
    pub(crate) fn failed(&mut self, now: Time, index: u32) -> bool {
        if index == NONE {
            return false;
        }
        let node = &mut self.nodes[index as usize];
        node.failed += 1;
        node.failures += 1;
        node.successes = 0;
        let pool = node.pool;
        let rule = self.ejection[pool];
        if rule.consecutive_failures == 0 || node.failures < rule.consecutive_failures || !node.usable() {
            return false;
        }
        let members = self.nodes.iter().filter(|n| n.pool == pool).count();
        let ejected = self.nodes.iter().filter(|n| n.pool == pool && n.ejected_until.is_some()).count();
        let allowed = ((members as f64 * rule.max_share) as usize).max(usize::from(members >= 2));
        if ejected >= allowed || self.usable[pool] <= 1 {
            return false;
        }
        let node = &mut self.nodes[index as usize];
        let span: Duration = rule.base.saturating_mul(1 << node.ejections.min(MAX_DOUBLINGS));
        node.ejections = (node.ejections + 1).min(MAX_DOUBLINGS);
        node.failures = 0;
        node.ejected_until = Some(now + span);
        self.refresh();
        true
    }

    /// What the driver learned. True if the set of usable nodes changed.
    pub(crate) fn event(&mut self, event: NodeEvent) -> bool {
        let id = match event {
            NodeEvent::Up(id)
            | NodeEvent::Down(id)
            | NodeEvent::Draining(id)
            | NodeEvent::Resumed(id)
            | NodeEvent::Capacity(id, _) => id,
        };
        let Some(node) = self.nodes.get_mut(id.0 as usize) else { return false };
        let before = node.usable();
        match event {
            NodeEvent::Up(_) => node.up = true,
            NodeEvent::Down(_) => node.up = false,
            NodeEvent::Draining(_) => node.draining = true,
            NodeEvent::Resumed(_) => node.draining = false,
            NodeEvent::Capacity(_, capacity) => {
                if capacity.is_finite() && capacity > 0.0 {
                    node.capacity = Some(capacity);
                }
            }
        }
        let changed = before != node.usable();
        if changed {
            self.refresh();
        }
        changed
    }

    /// Lets ejected nodes back whose time is over. True if there were any.
    pub(crate) fn readmit(&mut self, now: Time) -> bool {
        if self.next_return.is_none_or(|at| at > now) {
            return false;
        }
        for node in &mut self.nodes {
            if node.ejected_until.is_some_and(|until| until <= now) {
                node.ejected_until = None;
            }
        }
        self.refresh();
        true
    }

    pub(crate) fn next_return(&self) -> Option<Time> {
        self.next_return
    }

    /// Puts a node where it belongs among those that can take a request.
    fn place(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        let pool = node.pool;
        if !node.usable() || node.outstanding >= node.max_outstanding {
            self.ready.remove(pool, index);
            return;
        }
        if !self.ready.contains(index) {
            // A node that was away does not catch up on the turns it missed.
            node.turn = node.turn.max(self.round[pool]);
        }
        let key = match self.methods[pool] {
            Dispatch::WeightedRoundRobin => node.turn,
            Dispatch::LeastOutstanding | Dispatch::PowerOfTwo => f64::from(node.outstanding + 1) / node.weight,
        };
        self.ready.set(pool, index, (key, self.turns));
    }

    /// A ready node, drawn in proportion to weight.
    fn draw(&self, pool: usize, avoid: u32, random: &mut Random) -> u32 {
        let ready = self.ready.items(pool);
        let heaviest = ready.iter().map(|(_, n)| self.nodes[*n as usize].weight).fold(0.0, f64::max);
        let mut last = ready[0].1;
        for _ in 0..MAX_DRAWS {
            let (_, n) = ready[random.below(ready.len() as u64) as usize];
            if n == avoid && ready.len() > 1 {
                continue;
            }
            last = n;
            if random.unit() * heaviest < self.nodes[n as usize].weight {
                break;
            }
        }
        last
    }
}
