//! What is left of the machines' resources, and the machine that has most of it.
//!
//! Source: Feng and Lin, mQoS, Sec. 3.3: a resource availability counter (RAC) per resource, 100 % at first; a release
//! takes what the request requires, the response gives it back. With several servers (the paper's future work) each
//! machine has counters of its own, and a request goes where the scarcest resource after it is least scarce, so that
//! no machine runs out of one resource while it has plenty of the others.
//!
//! A counter is kept as what is *taken*, the sum over the requests inside, in whole billionths: what left the machine
//! by whatever way gave back what it took, and nothing drifts. A machine of weight 2 has twice as much of everything as
//! the one that the page table was measured on.

use std::collections::BTreeSet;

use crate::demand::{Demand, RESOURCES};
use crate::discipline::Availability;
use crate::dispatch::{Nodes, Wanted, least};
use crate::index::{MachineId, Table};
use crate::policy::{Policy, full};
use crate::request::NodeId;

/// Resources that are kept for a request that waits: nothing goes to the machine that takes of what it needs, unless
/// there is enough for both.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Kept {
    machine: MachineId,
    demand: Demand,
}

/// What a machine has of every resource, in billionths of a node-second.
#[derive(Clone, Debug)]
struct Counter {
    full: u64,
    /// What the requests in flight take of each.
    taken: [u64; RESOURCES],
    /// What is kept there for a request that waits.
    kept: Option<Demand>,
}

impl Counter {
    /// Is there enough of everything, beside what is kept for another?
    fn holds(&self, demand: Demand) -> bool {
        self.lacks(demand) == [false; RESOURCES]
            && self.kept.is_none_or(|kept| {
                let mut needs = self.taken.iter().zip(demand.0).zip(kept.0);
                needs.all(|((taken, demand), kept)| {
                    demand == 0 || kept == 0 || taken + u64::from(demand) + u64::from(kept) <= self.full
                })
            })
    }

    /// The largest part of what it has by which it has too little of a resource; negative if it has enough.
    fn shortage(&self, demand: Demand) -> f64 {
        let after = self.taken.iter().zip(demand.0).filter(|(_, demand)| *demand > 0);
        let most = after.map(|(taken, demand)| taken + u64::from(demand)).max().unwrap_or(0);
        most as f64 / self.full.max(1) as f64 - 1.0
    }

    /// Which resources it has not enough of.
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
    /// Per pool the first of those that have the same machines: their classes compete for the same resources. Pools
    /// that share some of their machines stay apart, or one would wait beside its idle machine for what only the
    /// other's can do.
    alike: Vec<usize>,
    /// Per pool its largest usable machine.
    largest: Vec<Option<u64>>,
    /// Per pool the most that a request counts as, if costs are estimated.
    most: Vec<u64>,
    /// Per first of the pools that have the same machines what is kept for a request that waits.
    kept: Vec<Option<Kept>>,
    /// The first ticket that has not been compared with its largest node, since other nodes became usable.
    pub(crate) unseen: Option<usize>,
}

impl Resources {
    pub(super) fn new(policy: &Policy, figures: Availability, nodes: &Nodes) -> Resources {
        let pools = nodes.sections.len();
        let counter = |machine: MachineId| Counter {
            full: full(figures.horizon, nodes.machine_weight(machine)),
            taken: [0; RESOURCES],
            kept: None,
        };
        let machines_of = |pool: usize| -> BTreeSet<MachineId> {
            nodes.nodes.iter().filter(|node| node.pool == pool).map(|node| node.machine).collect()
        };
        let sets: Vec<BTreeSet<MachineId>> = (0..pools).map(machines_of).collect();
        let alike = sets.iter().enumerate();
        let most = nodes.sections.pools.iter().map(|pool| policy.largest(*pool).unwrap_or(u64::MAX));
        Resources {
            machines: nodes.machine_ids().map(counter).collect(),
            alike: alike.map(|(pool, set)| sets.iter().position(|other| other == set).unwrap_or(pool)).collect(),
            largest: vec![None; pools],
            most: if policy.estimated { most.collect() } else { Vec::new() },
            kept: vec![None; pools],
            unseen: None,
        }
    }

    /// The first of the pools that have the same machines as this one.
    pub(crate) fn first_alike(&self, pool: usize) -> usize {
        self.alike[pool]
    }

    /// Finds the largest machine of every pool that is usable, in billionths: other nodes are usable. Nothing is kept
    /// any more.
    pub(super) fn measure(&mut self, nodes: &Nodes) {
        self.largest.fill(None);
        for node in nodes.nodes.iter().filter(|node| node.usable()) {
            let largest = &mut self.largest[node.pool];
            *largest = (*largest).max(Some(self.machines[node.machine].full));
        }
        self.unseen = Some(0);
        self.kept.fill(None);
        self.machines.iter_mut().for_each(|machine| machine.kept = None);
    }

    /// Takes from a node's machine, or gives back.
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

    /// Has a node of the pool enough left of everything?
    pub(crate) fn fits(&self, nodes: &Nodes, pool: usize, demand: Demand) -> bool {
        nodes.ready_of(pool).any(|node| self.counter(nodes, node).holds(demand))
    }

    /// Keeps resources for a request of a pool: those of the machine that lacks least for it, from then until another
    /// is kept for, or nobody. True if a node has enough; then nothing is kept.
    pub(crate) fn keep(&mut self, nodes: &Nodes, first: usize, wanted: Option<(usize, Demand)>) -> bool {
        let kept = self.kept[first].take();
        if let Some(kept) = kept {
            self.machines[kept.machine].kept = None;
        }
        let Some((pool, demand)) = wanted else { return false };
        if self.fits(nodes, pool, demand) {
            return true;
        }
        // It goes on where it was begun.
        let begun = kept.filter(|kept| kept.demand == demand).map(|kept| kept.machine);
        let machine = begun.or_else(|| {
            let machines = nodes.ready_of(pool).map(|node| (self.counter(nodes, node), nodes.nodes[node].machine));
            let large = machines.filter(|(it, _)| it.kept.is_none() && u64::from(demand.dominant()) <= it.full);
            least(large.map(|(it, machine)| (it.shortage(demand), machine)))
        });
        if let Some(machine) = machine {
            self.machines[machine].kept = Some(demand);
            self.kept[first] = Some(Kept { machine, demand });
        }
        false
    }

    /// What a request counts as: where costs are estimates, nothing takes more than the pool's largest node has.
    pub(crate) fn estimated(&self, pool: usize, demand: Demand) -> Demand {
        self.most.get(pool).map_or(demand, |most| demand.at_most(*most))
    }

    /// Has no usable node of the pool so much of a resource at all, be it idle? Without any usable node nothing is too
    /// large.
    pub(crate) fn is_too_large(&self, pool: usize, demand: Demand) -> bool {
        self.largest[pool].is_some_and(|largest| u64::from(demand.dominant()) > largest)
    }

    /// Which resources keep the pool's nodes from taking it.
    pub(crate) fn lacking(&self, nodes: &Nodes, pool: usize, demand: Demand) -> [bool; RESOURCES] {
        let mut lacking = [false; RESOURCES];
        for node in nodes.ready_of(pool) {
            let lacks = self.counter(nodes, node).lacks(demand);
            lacking.iter_mut().zip(lacks).for_each(|(all, one)| *all |= one);
        }
        lacking
    }

    /// What is left of each resource in the usable machines of pools that have the same ones, or of all, as a share of
    /// what they have. A node of which more is taken than it has (it became smaller) has nothing left.
    pub(crate) fn left(&self, nodes: &Nodes, first: Option<usize>) -> [f64; RESOURCES] {
        let (mut left, mut full) = ([0u64; RESOURCES], 0);
        for (id, machine) in self.machines.pairs() {
            let of = |node: &&NodeId| first.is_none_or(|first| self.alike[nodes.nodes[**node].pool] == first);
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

    /// The same of one node's machine.
    pub(crate) fn left_of(&self, nodes: &Nodes, node: NodeId) -> [f64; RESOURCES] {
        let machine = self.counter(nodes, node);
        machine.taken.map(|taken| match machine.full {
            0 => 1.0,
            full => full.saturating_sub(taken) as f64 / full as f64,
        })
    }

    /// Node-seconds of a resource that all usable machines of pools with the same ones have; or all machines, if none
    /// is usable.
    pub(crate) fn whole(&self, nodes: &Nodes, first: usize) -> f64 {
        let of = |node: &&NodeId| self.alike[nodes.nodes[**node].pool] == first;
        let whole = |usable: bool| {
            let counts = |node: &NodeId| !usable || nodes.nodes[*node].usable();
            let members = self.machines.pairs().filter(|(id, _)| nodes.nodes_of(*id).iter().filter(of).any(counts));
            members.map(|(_, machine)| machine.full as f64 / 1e9).sum::<f64>()
        };
        let usable = whole(true);
        if usable > 0.0 { usable } else { whole(false) }
    }

    /// The node whose scarcest resource is least scarce afterwards; of equals the one with the fewest requests inside,
    /// then the one whose turn it is. Only nodes that have enough.
    pub(crate) fn roomiest(&self, nodes: &Nodes, wanted: &Wanted) -> Option<NodeId> {
        let fitting = nodes.ready_keys(wanted.pool).filter(|(_, node)| self.counter(nodes, *node).holds(wanted.demand));
        least(fitting.map(|((load, turn), node)| {
            let machine = self.counter(nodes, *node);
            let after = machine.taken.iter().zip(wanted.demand.0).map(|(taken, more)| taken + u64::from(more));
            let scarcest = after.max().unwrap_or(0) as f64 / machine.full as f64;
            ((*node == wanted.avoid, scarcest, *load, *turn), *node)
        }))
    }
}
