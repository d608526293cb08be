//! Requests that pass (see [`crate::passing`]) on the nodes. They count for the load of a node, and not for its bounds.

use super::choice::{Wanted, min};
use super::{Machine, Nodes};
use crate::index::MachineId;
use crate::limit::Limit;
use crate::policy::Content;
use crate::random::Random;
use crate::request::NodeId;

impl Nodes {
    /// Chooses a node of the partition for a request that passes, and counts the request on it. If all nodes are full,
    /// it is the usable one with the smallest load.
    pub(crate) fn dispatch_passing(&mut self, wanted: &Wanted, limit: &Limit, random: &mut Random) -> Option<NodeId> {
        let chosen = self.choose(wanted, limit, random).or_else(|| {
            let usable = self
                .nodes
                .pairs()
                .filter(|(index, node)| node.partition == wanted.partition && node.usable() && *index != wanted.avoid);
            min(usable.map(|(index, _)| (self.load(index), index)))
        })?;
        self.count_passing(chosen, wanted.content, true);
        Some(chosen)
    }

    /// Counts the end of a request that has passed.
    pub(crate) fn passed(&mut self, node: NodeId, content: Content) {
        if node != NodeId::NONE {
            self.count_passing(node, content, false);
        }
    }

    /// Counts the start or the end on a node of a request that passes.
    fn count_passing(&mut self, index: NodeId, content: Content, enters: bool) {
        self.count_content(index, content, enters);
        let node = &mut self.nodes[index];
        let machine = &mut self.machines[node.machine];
        for passing in [&mut node.passing, &mut machine.passing] {
            *passing = if enters { *passing + 1 } else { *passing - 1 };
        }
        let machine = node.machine;
        self.place_all(machine);
    }

    /// All requests in flight on a machine.
    pub(crate) fn on(&self, machine: MachineId) -> u32 {
        self.machines[machine].in_flight + self.machines[machine].passing
    }

    /// Capacity of each machine, as far as it is known of one of its nodes.
    pub(crate) fn capacities(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let of =
            |machine: &Machine| machine.nodes.iter().filter_map(|node| self.nodes[*node].capacity).reduce(f64::max);
        self.machines.iter().map(of)
    }
}
