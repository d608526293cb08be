//! The nodes of a site and the table that all of them teach.
//!
//! A node of weight `w` does `w` times as much in a second as one of weight 1, so a request takes a `w`th of its seconds. Costs
//! are in seconds of a node of weight 1, whichever node it was.
//!
//! A request that is cut off while it is inside did a part of its work: as much as it was there of the time for which
//! others of its route stay. Servers that notice late did more; that is not known here.

use std::collections::BTreeMap;

use crate::learner::{Learner, RESOURCES, Shares};
use crate::windows::{Counters, Windows};

/// A learner and the windows of the nodes that it learns from.
#[derive(Clone, Debug)]
pub struct Study {
    /// What is learned.
    pub learner: Learner,
    /// What a node of weight 1 has in a second, in the units in which agents count. It comes before what agents say.
    pub capacity: [Option<f64>; RESOURCES],
    nodes: BTreeMap<u64, Node>,
    /// Per route how long requests stay, in seconds: a mean that forgets.
    stays: BTreeMap<Option<u32>, f64>,
}

/// Part of the mean stay that a request renews: some dozens say how long they stay now.
const RENEWED: f64 = 0.05;

#[derive(Clone, Debug)]
struct Node {
    weight: f64,
    windows: Windows,
}

impl Study {
    /// Without nodes.
    #[must_use]
    pub fn new(learner: Learner, capacity: [Option<f64>; RESOURCES]) -> Study {
        Study { learner, capacity, nodes: BTreeMap::new(), stays: BTreeMap::new() }
    }

    /// Learns from these nodes, each with its weight, and no others. Windows of those that stay go on.
    pub fn follow(&mut self, nodes: impl IntoIterator<Item = (u64, f64)>) {
        let mut before = std::mem::take(&mut self.nodes);
        for (id, weight) in nodes {
            let windows = before.remove(&id).map(|node| node.windows).unwrap_or_default();
            self.nodes.insert(id, Node { weight, windows });
        }
    }

    /// A request of a route, or of none, was inside a node from `from` to `until`, in seconds; `whole` unless it was cut off.
    pub fn finished(&mut self, node: u64, route: Option<u32>, (from, until): (f64, f64), whole: bool) {
        let stay = (until - from).max(0.0);
        let done = match self.stays.get_mut(&route) {
            Some(mean) if whole => {
                *mean += RENEWED * (stay - *mean);
                1.0
            }
            Some(mean) if stay < *mean => stay / *mean,
            Some(_) => 1.0,
            None => {
                self.stays.insert(route, stay);
                1.0
            }
        };
        if let Some(node) = self.nodes.get_mut(&node) {
            node.windows.finished(route, from, until, done);
        }
    }

    /// Another table, as [`Learner::replace`] has it.
    pub fn replace(&mut self, routes: impl IntoIterator<Item = (Option<usize>, Option<Shares>)>) {
        self.learner.replace(routes);
        self.stays.clear();
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
