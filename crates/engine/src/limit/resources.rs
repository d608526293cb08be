//! The remaining resources of the machines, and the choice of the machine with the most of them.
//!
//! Source: Feng and Lin, mQoS, Sec. 3.3: a resource availability counter (RAC) per resource starts at 100 %.
//! A release takes the request's cost, and the response gives it back. With several servers (the paper's
//! future work) each machine has counters of its own. A request goes to the machine where the scarcest
//! resource after its release is least scarce, so that no machine runs out of one resource while it has
//! plenty of the others.
//!
//! A counter stores the amount *taken*, the sum over the requests in flight, in integer billionths. Every
//! request that leaves a machine, for any reason, gives back the amount it took, so nothing drifts. A machine
//! of weight 2 has twice as much of everything as the machine on which the page table was measured.

use std::collections::BTreeSet;

use crate::demand::{Demand, RESOURCES};
use crate::discipline::Availability;
use crate::dispatch::{Nodes, Wanted, min};
use crate::index::{MachineId, PartitionId, Table};
use crate::policy::{Policy, full};
use crate::request::NodeId;

/// Resources that are kept for a waiting request. No other request takes the resources it needs from the
/// machine, unless there is enough for both.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kept {
    machine: MachineId,
    demand: Demand,
}

/// A machine's amount of every resource, in billionths of a node-second.
#[derive(Clone, Debug)]
struct Counter {
    full: u64,
    /// Amount of each resource taken by requests in flight.
    taken: [u64; RESOURCES],
    /// Cost kept for a waiting request.
    kept: Option<Demand>,
}

impl Counter {
    /// Returns whether there is enough of everything in addition to the amounts kept for another request.
    fn holds(&self, demand: Demand) -> bool {
        self.lacks(demand) == [false; RESOURCES]
            && self.kept.is_none_or(|kept| {
                let mut needs = self.taken.iter().zip(demand.0).zip(kept.0);
                needs.all(|((taken, demand), kept)| {
                    demand == 0 || kept == 0 || taken + u64::from(demand) + u64::from(kept) <= self.full
                })
            })
    }

    /// Returns the largest shortage of a resource as a part of the machine's amount. It is negative if there
    /// is enough.
    fn shortage(&self, demand: Demand) -> f64 {
        let after = self.taken.iter().zip(demand.0).filter(|(_, demand)| *demand > 0);
        let max = after.map(|(taken, demand)| taken + u64::from(demand)).max().unwrap_or(0);
        max as f64 / self.full.max(1) as f64 - 1.0
    }

    /// Returns which resources are short.
    fn lacks(&self, demand: Demand) -> [bool; RESOURCES] {
        let lacks = |resource: usize| {
            let demand = u64::from(demand.0[resource]);
            demand > 0 && self.taken[resource] + demand > self.full
        };
        core::array::from_fn(lacks)
    }
}

/// The counters of all machines.
#[derive(Clone, Debug)]
pub(crate) struct Resources {
    machines: Table<MachineId, Counter>,
    /// Per partition, the first of the partitions with the same machines: their classes compete for the same resources.
    /// Partitions that share only some machines stay separate. Otherwise one would wait, although it has an idle
    /// machine, for resources that only the other's machines can provide.
    alike: Table<PartitionId, PartitionId>,
    /// Per partition, its largest usable machine.
    largest: Table<PartitionId, Option<u64>>,
    /// Per partition, the maximum cost that a request counts as, if costs are estimated.
    max: Table<PartitionId, u64>,
    /// For the first of the partitions with the same machines, the resources kept for a waiting request.
    kept: Table<PartitionId, Option<Kept>>,
    /// The first ticket not yet compared with its largest node since the usable nodes changed.
    pub(crate) unseen: Option<usize>,
}

impl Resources {
    pub(super) fn new(policy: &Policy, figures: Availability, nodes: &Nodes) -> Resources {
        let partitions = nodes.partitions.len();
        let counter = |machine: MachineId| Counter {
            full: full(figures.horizon, nodes.machine_weight(machine)),
            taken: [0; RESOURCES],
            kept: None,
        };
        let machines_of = |partition: PartitionId| -> BTreeSet<MachineId> {
            nodes.nodes.iter().filter(|node| node.partition == partition).map(|node| node.machine).collect()
        };
        let sets: Table<PartitionId, BTreeSet<MachineId>> = nodes.partitions.ids().map(machines_of).collect();
        let first_alike = |set: &BTreeSet<MachineId>| sets.pairs().find(|(_, other)| *other == set);
        let alike =
            sets.pairs().map(|(partition, set)| first_alike(set).map_or(partition, |(first, _)| first)).collect();
        let max = nodes.partitions.pools.iter().map(|pool| policy.largest(*pool).unwrap_or(u64::MAX));
        Resources {
            machines: nodes.machine_ids().map(counter).collect(),
            alike,
            largest: Table::filled(partitions, None),
            max: if policy.estimated { max.collect() } else { Table::new() },
            kept: Table::filled(partitions, None),
            unseen: None,
        }
    }

    /// Returns the first of the partitions with the same machines as this one.
    pub(crate) fn first_alike(&self, partition: PartitionId) -> PartitionId {
        self.alike[partition]
    }

    /// Finds the largest usable machine of every partition, in billionths, after the usable nodes changed. Kept
    /// resources are given up.
    pub(super) fn measure(&mut self, nodes: &Nodes) {
        self.largest.fill(None);
        for node in nodes.nodes.iter().filter(|node| node.usable()) {
            let largest = &mut self.largest[node.partition];
            *largest = (*largest).max(Some(self.machines[node.machine].full));
        }
        self.unseen = Some(0);
        self.kept.fill(None);
        self.machines.iter_mut().for_each(|machine| machine.kept = None);
    }

    /// Takes resources from a node's machine, or gives them back.
    pub(super) fn take(&mut self, nodes: &Nodes, node: NodeId, demand: Demand, enters: bool) {
        let taken = &mut self.machines[nodes.nodes[node].machine].taken;
        for (taken, demand) in taken.iter_mut().zip(demand.0) {
            let demand = u64::from(demand);
            *taken = if enters { *taken + demand } else { *taken - demand };
        }
    }

    fn counter(&self, nodes: &Nodes, node: NodeId) -> &Counter {
        &self.machines[nodes.nodes[node].machine]
    }

    /// Returns whether a node of the partition has enough left of everything.
    pub(crate) fn fits(&self, nodes: &Nodes, partition: PartitionId, demand: Demand) -> bool {
        nodes.ready_of(partition).any(|node| self.counter(nodes, node).holds(demand))
    }

    /// Keeps resources for a request of a partition on the machine with the smallest shortage for it. They stay
    /// kept until the next call. Returns true if a node has enough, and keeps nothing in that case.
    pub(crate) fn keep(&mut self, nodes: &Nodes, first: PartitionId, wanted: Option<(PartitionId, Demand)>) -> bool {
        let kept = self.kept[first].take();
        if let Some(kept) = kept {
            self.machines[kept.machine].kept = None;
        }
        let Some((partition, demand)) = wanted else { return false };
        if self.fits(nodes, partition, demand) {
            return true;
        }
        // An earlier reservation for the same cost stays on its machine.
        let begun = kept.filter(|kept| kept.demand == demand).map(|kept| kept.machine);
        let machine = begun.or_else(|| {
            let machines = nodes.ready_of(partition).map(|node| (self.counter(nodes, node), nodes.nodes[node].machine));
            let large = machines.filter(|(it, _)| it.kept.is_none() && u64::from(demand.dominant()) <= it.full);
            min(large.map(|(it, machine)| (it.shortage(demand), machine)))
        });
        if let Some(machine) = machine {
            self.machines[machine].kept = Some(demand);
            self.kept[first] = Some(Kept { machine, demand });
        }
        false
    }

    /// Returns the cost that a request counts as. Estimated costs are capped at the amount of the partition's
    /// largest node.
    pub(crate) fn estimated(&self, partition: PartitionId, demand: Demand) -> Demand {
        self.max.get(partition).map_or(demand, |max| demand.at_most(*max))
    }

    /// Returns whether a request is too large for every usable node of the partition, even for an idle one.
    /// Without any usable node nothing is too large.
    pub(crate) fn is_too_large(&self, partition: PartitionId, demand: Demand) -> bool {
        self.largest[partition].is_some_and(|largest| u64::from(demand.dominant()) > largest)
    }

    /// Returns the resources that are short on the partition's nodes.
    pub(crate) fn lacking(&self, nodes: &Nodes, partition: PartitionId, demand: Demand) -> [bool; RESOURCES] {
        let mut lacking = [false; RESOURCES];
        for node in nodes.ready_of(partition) {
            let lacks = self.counter(nodes, node).lacks(demand);
            lacking.iter_mut().zip(lacks).for_each(|(all, one)| *all |= one);
        }
        lacking
    }

    /// Returns the remaining share of each resource in the usable machines of partitions with the same ones, or of
    /// all machines. A node that has become smaller than the amount taken has nothing left.
    pub(crate) fn left(&self, nodes: &Nodes, first: Option<PartitionId>) -> [f64; RESOURCES] {
        let (mut left, mut full) = ([0u64; RESOURCES], 0);
        for (id, machine) in self.machines.pairs() {
            let of = |node: &&NodeId| first.is_none_or(|first| self.alike[nodes.nodes[**node].partition] == first);
            if !nodes.nodes_of(id).iter().filter(of).any(|node| nodes.nodes[*node].usable()) {
                continue;
            }
            full += machine.full;
            for (left, taken) in left.iter_mut().zip(machine.taken) {
                *left += machine.full.saturating_sub(taken);
            }
        }
        left.map(|left| if full == 0 { 0.0 } else { left as f64 / full as f64 })
    }

    /// Returns the remaining share of each resource on one node's machine.
    pub(crate) fn left_of(&self, nodes: &Nodes, node: NodeId) -> [f64; RESOURCES] {
        let machine = self.counter(nodes, node);
        machine.taken.map(|taken| match machine.full {
            0 => 1.0,
            full => full.saturating_sub(taken) as f64 / full as f64,
        })
    }

    /// Returns the node-seconds of a resource on all usable machines of partitions with the same ones, or on all
    /// of these machines if none is usable.
    pub(crate) fn whole(&self, nodes: &Nodes, first: PartitionId) -> f64 {
        let of = |node: &&NodeId| self.alike[nodes.nodes[**node].partition] == first;
        let whole = |usable: bool| {
            let counts = |node: &NodeId| !usable || nodes.nodes[*node].usable();
            let members = self.machines.pairs().filter(|(id, _)| nodes.nodes_of(*id).iter().filter(of).any(counts));
            members.map(|(_, machine)| machine.full as f64 / 1e9).sum::<f64>()
        };
        let usable = whole(true);
        if usable > 0.0 { usable } else { whole(false) }
    }

    /// Returns the node with the least scarce scarcest resource after the release, among nodes that have
    /// enough. Ties go to the node with the fewest requests in flight, then to the one with the next turn.
    pub(crate) fn roomiest(&self, nodes: &Nodes, wanted: &Wanted) -> Option<NodeId> {
        let fitting =
            nodes.ready_keys(wanted.partition).filter(|(_, node)| self.counter(nodes, *node).holds(wanted.demand));
        min(fitting.map(|(rank, node)| {
            let machine = self.counter(nodes, *node);
            let after = machine.taken.iter().zip(wanted.demand.0).map(|(taken, more)| taken + u64::from(more));
            let scarcest = after.max().unwrap_or(0) as f64 / machine.full as f64;
            ((*node == wanted.avoid, scarcest, *rank), *node)
        }))
    }
}
