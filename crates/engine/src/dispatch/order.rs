//! The order of the nodes that can take a request: a heap for each overlap, by load or by turn.

use super::{Machine, NodeInfo, Nodes};
use crate::index::{Id, MachineGroupId, MachineId, OverlapId, Table};
use crate::policy::Dispatch;
use crate::request::NodeId;

/// Place of a node in the order. Compared as whole numbers, of which a heap with many nodes compares twenty for each
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Bits of a number that is not negative. They have the order of the numbers.
    key: u64,
    turn: u64,
}

impl Rank {
    fn new(key: f64, turn: u64) -> Rank {
        debug_assert!(key >= 0.0, "{key}");
        Rank { key: key.to_bits(), turn }
    }

    /// Load of the node's machine with one more request, relative to the node's weight, or the virtual time of its next
    /// turn.
    pub(super) fn key(self) -> f64 {
        f64::from_bits(self.key)
    }

    /// Number of choices before the latest change of its place.
    pub(super) fn turn(self) -> u64 {
        self.turn
    }
}

impl Nodes {
    /// Load of a node's machine with one more request, relative to the node's weight.
    pub(super) fn load(&self, index: NodeId) -> f64 {
        load(&self.nodes[index], &self.machines)
    }

    /// Load of a node's machine without it.
    pub(super) fn requests(&self, index: NodeId) -> f64 {
        let node = &self.nodes[index];
        let machine = &self.machines[node.machine];
        f64::from(machine.in_flight + machine.passing) / (node.weight * machine.learned)
    }

    /// Updates the position of every node of a machine.
    pub(super) fn place_all(&mut self, machine: MachineId) {
        for at in 0..self.machines[machine].nodes.len() {
            self.place(self.machines[machine].nodes[at]);
        }
    }

    /// Updates the position of those nodes of a machine that are in `overlap`.
    fn place_all_of(&mut self, machine: MachineId, overlap: OverlapId) {
        for at in 0..self.machines[machine].nodes.len() {
            let node = self.machines[machine].nodes[at];
            if self.nodes[node].overlap == overlap {
                self.place(node);
            }
        }
    }

    /// Updates the position of a node among those that can take a request.
    pub(super) fn place(&mut self, index: NodeId) {
        let load = self.load(index);
        let node = &mut self.nodes[index];
        let (partition, overlap) = (node.partition, node.overlap.row());
        let machine = &self.machines[node.machine];
        let full = node.in_flight >= node.max_outstanding || machine.in_flight >= machine.max;
        if !node.usable() || full {
            self.ready.remove(overlap, index);
            return;
        }
        if !self.ready.contains(index) {
            // A node that was away does not catch up on missed turns.
            node.turn = node.turn.max(self.round[partition]);
        }
        let key = match self.methods[partition] {
            Dispatch::WeightedRoundRobin => node.turn,
            _ => load,
        };
        // A node that has just been chosen is among the last ones.
        self.ready.set_late(overlap, index, Rank::new(key, self.turns));
    }

    /// Updates the positions of all nodes of a group after their loads have changed. None of them becomes full, or
    /// ceases to be.
    pub(super) fn place_group(&mut self, group: MachineGroupId) {
        for overlap in 0..self.groups[group].overlaps.len() {
            let overlap = self.groups[group].overlaps[overlap];
            let method = self.methods[self.overlaps[overlap].partition];
            if method == Dispatch::PowerOfTwo {
                // It draws by the positions in the heap, which depend on the order of the updates.
                for machine in 0..self.groups[group].machines.len() {
                    self.place_all_of(self.groups[group].machines[machine], overlap);
                }
                continue;
            }
            let Nodes { nodes, machines, turns, ready, .. } = self;
            ready.rekey(overlap.row(), |index| match method {
                Dispatch::WeightedRoundRobin => Rank::new(nodes[index].turn, *turns),
                _ => Rank::new(load(&nodes[index], machines), *turns),
            });
        }
    }
}

/// Load of a node's machine with one more request, relative to the node's weight.
fn load(node: &NodeInfo, machines: &Table<MachineId, Machine>) -> f64 {
    let machine = &machines[node.machine];
    f64::from(machine.in_flight + machine.passing + 1) / (node.weight * machine.learned)
}
