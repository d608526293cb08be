//! The nodes of a site and the table that all of them teach.
//!
//! A node of weight `w` does `w` times as much in a second as one of weight 1, so a request takes a `w`th of its seconds. Costs
//! are in seconds of a node of weight 1, whichever node it was.

use std::collections::BTreeMap;

use crate::learner::{Learner, RESOURCES};
use crate::windows::{Counters, Windows};

/// A learner and the windows of the nodes that it learns from.
#[derive(Clone, Debug)]
pub struct Study {
    /// What is learned.
    pub learner: Learner,
    /// What a node of weight 1 has in a second, in the units in which agents count. It comes before what agents say.
    pub capacity: [Option<f64>; RESOURCES],
    nodes: BTreeMap<u64, Node>,
}

#[derive(Clone, Debug)]
struct Node {
    weight: f64,
    windows: Windows,
}

impl Study {
    /// Without nodes.
    #[must_use]
    pub fn new(learner: Learner, capacity: [Option<f64>; RESOURCES]) -> Study {
        Study { learner, capacity, nodes: BTreeMap::new() }
    }

    /// Learns from these nodes, each with its weight, and no others. Windows of those that stay go on.
    pub fn follow(&mut self, nodes: impl IntoIterator<Item = (u64, f64)>) {
        let mut before = std::mem::take(&mut self.nodes);
        for (id, weight) in nodes {
            let windows = before.remove(&id).map(|node| node.windows).unwrap_or_default();
            self.nodes.insert(id, Node { weight, windows });
        }
    }

    /// A request of a route, or of none, was inside a node from `from` to `until`, in seconds.
    pub fn finished(&mut self, node: u64, route: Option<u32>, from: f64, until: f64) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.windows.finished(route, from, until);
        }
    }

    /// Requests were lost: what all nodes do now cannot be learned.
    pub fn spoil(&mut self) {
        self.nodes.values_mut().for_each(|node| node.windows.spoil());
    }

    /// An agent said at `at` what its node has `used`, and what the node has in a second. Whether something was learned.
    pub fn reported(
        &mut self,
        node: u64,
        at: f64,
        used: [Option<f64>; RESOURCES],
        capacity: [Option<f64>; RESOURCES],
    ) -> bool {
        let Some(node) = self.nodes.get_mut(&node) else { return false };
        let of_one = |resource: usize| self.capacity[resource].or(capacity[resource].map(|all| all / node.weight));
        let counters = Counters { used, capacity: std::array::from_fn(of_one) };
        let window = node.windows.reported(at, counters);
        window.iter().for_each(|window| self.learner.learn(window));
        window.is_some()
    }
}
