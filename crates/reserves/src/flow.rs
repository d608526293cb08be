//! Maximum flow.
//!
//! Source: E. A. Dinic, *Algorithm for solution of a problem of maximum flow in a network with power
//! estimation* (1970): breadth-first levels, then blocking flows along edges that go one level down.
//! Capacities are integers, so the answer is exact and the search ends. The caller chooses the unit. The
//! networks here are small (classes × machines) and take microseconds.

use std::collections::VecDeque;

/// A directed network with integer capacities.
#[derive(Clone, Debug)]
pub struct Network {
    /// The edges of each node, as indices into `edges`.
    outgoing: Vec<Vec<usize>>,
    /// Edge 2i is an added edge, and edge 2i + 1 is its reverse.
    edges: Vec<Edge>,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    to: usize,
    /// Remaining capacity.
    rest: u64,
}

/// An edge of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeId(usize);

impl Network {
    /// Creates a network of `nodes` nodes, numbered from 0, without edges.
    pub fn new(nodes: usize) -> Network {
        Network { outgoing: vec![Vec::new(); nodes], edges: Vec::new() }
    }

    /// Adds an edge.
    ///
    /// # Panics
    /// If a node does not exist.
    pub fn edge(&mut self, from: usize, to: usize, capacity: u64) -> EdgeId {
        let id = self.edges.len();
        self.edges.push(Edge { to, rest: capacity });
        self.edges.push(Edge { to: from, rest: 0 });
        self.outgoing[from].push(id);
        self.outgoing[to].push(id + 1);
        EdgeId(id)
    }

    /// Sends as much as possible from `source` to `sink`, in addition to the present flow, and returns that
    /// amount. Returns 0 if they are the same node.
    ///
    /// # Panics
    /// If a node does not exist, or if more than `u64::MAX` could flow.
    pub fn maximum(&mut self, source: usize, sink: usize) -> u64 {
        let mut total = 0_u64;
        if source == sink {
            return total;
        }
        while let Some(level) = self.levels(source, sink) {
            let mut next = vec![0; self.outgoing.len()];
            loop {
                let sent = self.send(source, sink, u64::MAX, &level, &mut next);
                if sent == 0 {
                    break;
                }
                total = total.checked_add(sent).expect("capacities are chosen so that their sum fits");
            }
        }
        total
    }

    /// Returns the flow through an edge.
    pub fn flow(&self, edge: EdgeId) -> u64 {
        self.edges[edge.0 + 1].rest
    }

    /// Returns for each node whether more could still be sent there from `source`. After [`Network::maximum`]
    /// these are the nodes on the source's side of a minimum cut: edges that leave them are full, edges that
    /// enter them are empty.
    pub fn reachable(&self, source: usize) -> Vec<bool> {
        let mut reached = vec![false; self.outgoing.len()];
        reached[source] = true;
        let mut stack = vec![source];
        while let Some(node) = stack.pop() {
            for edge in self.outgoing[node].iter().map(|id| self.edges[*id]) {
                if edge.rest > 0 && !reached[edge.to] {
                    reached[edge.to] = true;
                    stack.push(edge.to);
                }
            }
        }
        reached
    }

    /// Returns the distance of each node from `source` over edges with remaining capacity, or `None` if
    /// `sink` is out of reach.
    fn levels(&self, source: usize, sink: usize) -> Option<Vec<u32>> {
        let mut level = vec![u32::MAX; self.outgoing.len()];
        level[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for edge in self.outgoing[node].iter().map(|id| self.edges[*id]) {
                if edge.rest > 0 && level[edge.to] == u32::MAX {
                    level[edge.to] = level[node] + 1;
                    queue.push_back(edge.to);
                }
            }
        }
        (level[sink] != u32::MAX).then_some(level)
    }

    /// Sends up to `max` along one path. `next` holds the first usable edge of each node. The recursion is
    /// as deep as the path is long, at most the number of nodes.
    fn send(&mut self, node: usize, sink: usize, max: u64, level: &[u32], next: &mut [usize]) -> u64 {
        if node == sink {
            return max;
        }
        while let Some(&id) = self.outgoing[node].get(next[node]) {
            let Edge { to, rest } = self.edges[id];
            if rest > 0 && level[to] == level[node] + 1 {
                let sent = self.send(to, sink, max.min(rest), level, next);
                if sent > 0 {
                    self.edges[id].rest -= sent;
                    self.edges[id ^ 1].rest += sent;
                    return sent;
                }
            }
            next[node] += 1;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_textbook_network() {
        let mut network = Network::new(6);
        for (from, to, capacity) in
            [(0, 1, 16), (0, 2, 13), (1, 3, 12), (2, 1, 4), (3, 2, 9), (2, 4, 14), (4, 3, 7), (3, 5, 20), (4, 5, 4)]
        {
            network.edge(from, to, capacity);
        }
        assert_eq!((network.maximum(0, 5), network.maximum(0, 5), network.maximum(3, 3)), (23, 0, 0));
    }

    #[test]
    fn an_earlier_choice_is_undone() {
        // The first path found may be 0-1-2-3. Both units fit only if the flow through 1-2 is taken back.
        let mut network = Network::new(4);
        let ids = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)].map(|(from, to)| network.edge(from, to, 1));
        assert_eq!(network.maximum(0, 3), 2);
        assert_eq!(ids.map(|id| network.flow(id)), [1, 1, 0, 1, 1]);
    }

    proptest! {
        /// The maximum flow equals the minimum cut. Every cut of a small network is tried.
        #[test]
        fn it_is_the_smallest_cut(edges in prop::collection::vec((0..6_usize, 0..6_usize, 0..20_u64), 0..24)) {
            let mut network = Network::new(6);
            let ids: Vec<EdgeId> = edges.iter().map(|(from, to, capacity)| network.edge(*from, *to, *capacity)).collect();
            let flow = network.maximum(0, 5);
            let cut = |inside: u32| -> u64 {
                let is_in = |node: &usize| inside & (1 << node) != 0;
                edges.iter().filter(|(from, to, _)| is_in(from) && !is_in(to)).map(|(_, _, capacity)| capacity).sum()
            };
            let smallest = (0..64_u32).filter(|set| set & 1 == 1 && set & 32 == 0).map(cut).min();
            prop_assert_eq!(Some(flow), smallest);
            let side = network.reachable(0).iter().enumerate().map(|(node, is)| u32::from(*is) << node).sum();
            prop_assert_eq!(flow, cut(side));
            for (id, (_, _, capacity)) in ids.iter().zip(&edges) {
                prop_assert!(network.flow(*id) <= *capacity);
            }
            for node in 1..5 {
                let sum = |at: fn(&(usize, usize, u64)) -> usize| -> u64 {
                    ids.iter().zip(&edges).filter(|(_, e)| at(e) == node).map(|(id, _)| network.flow(*id)).sum()
                };
                prop_assert_eq!(sum(|e| e.0), sum(|e| e.1));
            }
        }
    }
}
