//! The nodes of a site and the cost table that is learned from all of them.
//!
//! A node of weight `w` does `w` times as much work per second as one of weight 1, so a request takes a `w`th
//! of its seconds. Costs are in seconds of a node of weight 1, whichever node measured them.
//!
//! A request that is cut off in flight did a part of its work: the ratio of its time in flight to the mean
//! service time of its route. If the server notices late it did more, but that is not known here.

use std::collections::BTreeMap;

use crate::learner::{Learner, RESOURCES, Shares};
use crate::windows::{Counters, LONGEST, Outcomes, Windows};

/// A learner and the windows of the nodes that it learns from.
#[derive(Clone, Debug)]
pub struct Study {
    /// The learned costs.
    pub learner: Learner,
    /// Capacity per second of a node of weight 1, in the units in which agents count. It overrides the
    /// agents' figures.
    capacity: [Option<f64>; RESOURCES],
    /// Outcomes of the windows of all nodes so far.
    pub outcomes: Outcomes,
    nodes: BTreeMap<u64, Node>,
    /// Mean service time per route in seconds, exponentially weighted.
    intervals: BTreeMap<Option<u32>, f64>,
}

/// Weight of a new service time in the mean. Some dozens of requests renew the mean.
const RENEWED: f64 = 0.05;

#[derive(Clone, Debug)]
struct Node {
    weight: f64,
    windows: Windows,
    /// The agent that provides the counters, and the time of its last report.
    agent: Option<(u64, f64)>,
}

impl Study {
    /// Creates a study without nodes.
    pub fn new(learner: Learner, capacity: [Option<f64>; RESOURCES]) -> Study {
        Study { learner, capacity, outcomes: Outcomes::default(), nodes: BTreeMap::new(), intervals: BTreeMap::new() }
    }

    /// Sets the nodes to learn from, each with its weight. Windows of nodes that stay continue.
    pub fn follow(&mut self, nodes: impl IntoIterator<Item = (u64, f64)>) {
        let mut before = std::mem::take(&mut self.nodes);
        for (id, weight) in nodes {
            let node = match before.remove(&id) {
                Some(node) => Node { weight, ..node },
                None => Node { weight, windows: Windows::default(), agent: None },
            };
            self.nodes.insert(id, node);
        }
    }

    /// Records that a request of a route, or of none, was in flight on a node from `from` to `until`, in
    /// seconds. `whole` is false if it was cut off.
    pub fn finished(&mut self, node: u64, route: Option<u32>, (from, until): (f64, f64), whole: bool) {
        let interval = (until - from).max(0.0);
        let done = match self.intervals.get_mut(&route) {
            Some(mean) if whole => {
                *mean += RENEWED * (interval - *mean);
                1.0
            }
            Some(mean) if interval < *mean => interval / *mean,
            Some(_) => 1.0,
            None => {
                self.intervals.insert(route, interval);
                1.0
            }
        };
        if let Some(node) = self.nodes.get_mut(&node) {
            node.windows.finished(route, from, until, done);
        }
    }

    /// Sets the capacity of a node of weight 1. Learned costs are adjusted where the previous capacity is
    /// known. The open windows of all nodes are not learned.
    pub fn set_capacity(&mut self, capacity: [Option<f64>; RESOURCES]) {
        if self.capacity == capacity {
            return;
        }
        for resource in (0..RESOURCES).filter(|resource| self.capacity[*resource] != capacity[*resource]) {
            let factor = self.capacity[resource].zip(capacity[resource]).map(|(before, after)| before / after);
            self.learner.rescale(resource, factor);
        }
        self.capacity = capacity;
        self.spoil();
    }

    /// Replaces the table as in [`Learner::replace`]. If the routes differ, the open windows are not learned,
    /// because numbers then mean other routes.
    pub fn replace(&mut self, routes: impl IntoIterator<Item = (Option<usize>, Option<Shares>)>) {
        let routes: Vec<_> = routes.into_iter().collect();
        let same = routes.len() == self.learner.routes() && routes.iter().enumerate().all(|(at, r)| r.0 == Some(at));
        self.learner.replace(routes);
        if !same {
            self.intervals.clear();
            self.spoil();
        }
    }

    /// Prevents learning from the open windows of all nodes, because requests were lost.
    pub fn spoil(&mut self) {
        self.nodes.values_mut().for_each(|node| node.windows.spoil());
    }

    /// Takes the report of the agent `from` at `at`: the counters `used` of its node, and the node's capacity
    /// per second. Returns whether a window was learned.
    ///
    /// If a node has several agents, one is used until it has been silent for [`LONGEST`], because each may
    /// count something else.
    pub fn reported(
        &mut self,
        node: u64,
        from: u64,
        at: f64,
        used: [Option<f64>; RESOURCES],
        capacity: [Option<f64>; RESOURCES],
    ) -> bool {
        let Some(node) = self.nodes.get_mut(&node) else { return false };
        if let Some((_, last)) = node.agent.filter(|(agent, _)| *agent != from) {
            if at - last <= LONGEST {
                return false;
            }
            node.windows.restart();
        }
        node.agent = Some((from, at));
        let of_one = |resource: usize| self.capacity[resource].or(capacity[resource].map(|all| all / node.weight));
        let counters = Counters { used, capacity: std::array::from_fn(of_one), weight: node.weight };
        let window = node.windows.reported(at, counters);
        let Some(window) = window else { return false };
        self.outcomes.count(&window);
        self.learner.learn(&window);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs requests of route 0 on a node of weight 1 and one of weight 2. Their number changes every second.
    /// Each is in flight for 50 ms and takes 20 ms of one CPU, or half of both if it is cut off.
    fn taught(capacity: [Option<f64>; RESOURCES], cut: impl Fn(usize) -> bool) -> f64 {
        let mut study = Study::new(Learner::new([None]), capacity);
        study.follow([(7, 1.0), (8, 2.0)]);
        for (node, cpus) in [(7, 2.0), (8, 4.0)] {
            let mut used = 100.0;
            for second in 0..120usize {
                let at = second as f64;
                study.reported(node, node, at, [Some(used), None, None], [Some(cpus), None, None]);
                for request in 0..(second * 7) % 40 {
                    let (from, cut) = (at + 0.02 * request as f64, cut(request));
                    study.finished(node, Some(0), (from, from + if cut { 0.025 } else { 0.05 }), !cut);
                    used += if cut { 0.01 } else { 0.02 };
                }
            }
        }
        study.learner.cost(0).expect("there were requests")[0]
    }

    #[test]
    fn nodes_teach_one_table_whatever_their_weight() {
        // A node of weight 1 has two CPUs, so 20 ms are 1 % of its second.
        let cost = taught([None; RESOURCES], |_| false);
        assert!((cost / 0.01 - 1.0).abs() < 0.02, "{cost}");
        let said = taught([Some(1.0), None, None], |_| false);
        assert!((said / 0.02 - 1.0).abs() < 0.02, "the policy's capacity counts: {said}");
    }

    #[test]
    fn what_was_cut_off_counts_for_a_part() {
        let cost = taught([None; RESOURCES], |request| request % 3 == 2);
        assert!((cost / 0.01 - 1.0).abs() < 0.05, "{cost}");
    }

    /// Runs twenty requests a second on a node of one CPU. Each takes 1 %. `agents` gives the reports of each
    /// second.
    fn counted(seconds: usize, agents: impl Fn(usize, f64) -> Vec<(u64, f64)>) -> f64 {
        let mut study = Study::new(Learner::new([Some([0.01, 0.0, 0.0])]), [None; RESOURCES]);
        study.follow([(7, 1.0)]);
        let mut used = 0.0;
        for second in 0..seconds {
            let at = second as f64;
            for (agent, counter) in agents(second, used) {
                study.reported(7, agent, at, [Some(counter), None, None], [Some(1.0), None, None]);
            }
            for request in 0..10 + second * 7 % 20 {
                study.finished(7, Some(0), (at + 0.02 * request as f64, at + 0.02 * request as f64 + 0.05), true);
                used += 0.01;
            }
        }
        study.learner.cost(0).expect("it is in the table")[0]
    }

    #[test]
    fn a_counter_that_jumps_is_not_learned() {
        for jump in [3.0, 1e4, 1e6] {
            let cost = counted(220, |second, used| vec![(1, if second < 200 { used } else { used + jump })]);
            assert!((cost / 0.01 - 1.0).abs() < 0.05, "{jump}: {cost}");
        }
    }

    #[test]
    fn of_several_agents_of_a_node_one_is_listened_to_until_it_is_silent() {
        // The second agent counts a tenth more. At 100 s the first agent disappears.
        let agents = |second, used| match second {
            0..100 => vec![(1, used), (2, 1.1 * used + 0.5)],
            _ => vec![(2, 1.1 * used + 0.5)],
        };
        let (before, after) = (counted(100, agents), counted(500, agents));
        assert!((before / 0.01 - 1.0).abs() < 0.02 && (after / 0.011 - 1.0).abs() < 0.05, "{before} {after}");
    }

    #[test]
    fn another_capacity_is_another_measure_of_the_same_costs() {
        let lesson = |study: &mut Study, seconds: std::ops::Range<usize>| {
            for second in seconds {
                let at = second as f64;
                let used = 0.02 * (0..second).map(|second| 10 + second * 7 % 20).sum::<usize>() as f64;
                study.reported(7, 7, at, [Some(used), None, None], [Some(4.0), None, None]);
                for request in 0..10 + second * 7 % 20 {
                    study.finished(7, Some(0), (at + 0.02 * request as f64, at + 0.02 * request as f64 + 0.05), true);
                }
            }
        };
        let mut study = Study::new(Learner::new([Some([0.01, 0.0, 0.0])]), [Some(2.0), None, None]);
        study.follow([(7, 1.0)]);
        lesson(&mut study, 0..200);
        let cpu = |study: &Study| study.learner.cost(0).expect("it is in the table")[0];
        assert!((cpu(&study) / 0.01 - 1.0).abs() < 0.02);
        study.set_capacity([Some(1.0), None, None]);
        assert!((cpu(&study) / 0.02 - 1.0).abs() < 0.02, "at once: {}", cpu(&study));
        lesson(&mut study, 200..210);
        assert!((cpu(&study) / 0.02 - 1.0).abs() < 0.02, "and it stays: {}", cpu(&study));
        study.set_capacity([None; RESOURCES]);
        assert_eq!(cpu(&study), 0.01, "what agents have said is not known here: the table's");
        lesson(&mut study, 210..300);
        assert!((cpu(&study) / 0.005 - 1.0).abs() < 0.1, "{}", cpu(&study));
    }

    #[test]
    fn a_route_that_is_put_before_the_others_spoils_no_cost() {
        let costs = [0.012, 0.003, 0.001];
        let mut study = Study::new(Learner::new(costs.map(|cost| Some([cost; RESOURCES]))), [None; RESOURCES]);
        study.follow((0..4).map(|node| (node, 1.0)));
        let mut used = [0.0; 4];
        let mut first = 0;
        for second in 0..140usize {
            let at = second as f64;
            if second == 120 {
                study.replace([(None, Some([0.005; RESOURCES])), (Some(0), None), (Some(1), None), (Some(2), None)]);
                first = 1;
            }
            for node in 0..4u64 {
                let used = &mut used[node as usize];
                study.reported(node, node, at, [Some(*used), None, None], [Some(1.0), None, None]);
                for (route, cost) in costs.iter().enumerate() {
                    let count = 10 + (second * (7 + 4 * route) + 5 * node as usize) % 20;
                    for request in 0..count {
                        let from = at + request as f64 / 40.0;
                        study.finished(node, Some(first + route as u32), (from, from + 0.01), true);
                    }
                    *used += cost * count as f64;
                }
            }
            let known = |route: usize| study.learner.cost(first as usize + route).map_or(0.0, |cost| cost[0]);
            let off = (0..3).map(|route| (known(route) / costs[route] - 1.0).abs()).fold(0.0, f64::max);
            assert!(second < 100 || off < 0.05, "{second}: {off}");
        }
    }

    #[test]
    fn nodes_that_are_not_followed_teach_nothing() {
        let mut study = Study::new(Learner::new([None]), [None; RESOURCES]);
        study.finished(1, Some(0), (0.0, 1.0), true);
        assert!(!study.reported(1, 1, 0.0, [Some(1.0); RESOURCES], [Some(1.0); RESOURCES]));
        assert_eq!(study.learner.cost(0), None);
    }
}
