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

use super::choice::{Wanted, least};
use super::{Machine, Nodes};
use crate::demand::{Demand, RESOURCES};
use crate::discipline::LoadControl;
use crate::index::{Id, MachineId};
use crate::policy::{Policy, full};
use crate::request::NodeId;

/// Resources that are kept for a request that waits: nothing goes to the machine that takes of what it needs, unless there is
/// enough for both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kept {
    machine: MachineId,
    demand: Demand,
}

impl Machine {
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

impl Nodes {
    /// Sets what every machine has.
    pub(super) fn provide(&mut self, policy: &Policy) {
        let LoadControl::ResourceAvailability(figures) = policy.discipline.load_control else { return };
        for index in self.machines.ids() {
            self.machines[index].full = full(figures.horizon, self.machines[index].weight(&self.nodes));
        }
        if policy.estimated {
            let most = self.sections.pools.iter().map(|pool| policy.largest(*pool).unwrap_or(u64::MAX));
            self.most = most.collect();
        }
        self.available = true;
        self.unite();
    }

    /// Finds the pools that have the same machines: their classes compete for the same resources. Pools that share some of
    /// their machines stay apart, or one would wait beside its idle machine for what only the other's can do.
    fn unite(&mut self) {
        let machines = |pool: usize| -> BTreeSet<MachineId> {
            self.nodes.iter().filter(|node| node.pool == pool).map(|node| node.machine).collect()
        };
        let sets: Vec<BTreeSet<MachineId>> = (0..self.domains.len()).map(machines).collect();
        for (pool, set) in sets.iter().enumerate() {
            self.domains[pool] = sets.iter().position(|other| other == set).unwrap_or(pool);
        }
    }

    /// The first of the pools that have the same machines as this one.
    pub(crate) fn domain(&self, pool: usize) -> usize {
        self.domains[pool]
    }

    /// Finds the largest machine of every pool that is usable, in billionths.
    pub(super) fn measure(&mut self) {
        self.largest.fill(None);
        for node in self.nodes.iter().filter(|node| node.usable()) {
            let largest = &mut self.largest[node.pool];
            *largest = (*largest).max(Some(self.machines[node.machine].full));
        }
        self.unseen = Some(0);
        self.keep_nothing();
    }

    /// Takes from a node's machine, or gives back, where that bounds what is inside.
    pub(super) fn take(&mut self, node: NodeId, demand: Demand, enters: bool) {
        if !self.available {
            return;
        }
        let taken = &mut self.machines[self.nodes[node].machine].taken;
        for (taken, demand) in taken.iter_mut().zip(demand.0) {
            let demand = u64::from(demand);
            *taken = if enters { *taken + demand } else { *taken - demand };
        }
    }

    /// Nodes of the pool that may take requests now, windows aside.
    fn ready_of(&self, pool: usize) -> impl Iterator<Item = NodeId> + '_ {
        self.lanes_of[pool].iter().flat_map(|lane| self.ready.items(lane.row())).map(|(_, node)| *node)
    }

    fn machine_of(&self, node: NodeId) -> &Machine {
        &self.machines[self.nodes[node].machine]
    }

    /// Has the pool a node that can take requests now?
    pub(crate) fn is_ready(&self, pool: usize) -> bool {
        self.ready_of(pool).next().is_some()
    }

    /// Has a node of the pool enough left of everything?
    pub(crate) fn fits(&self, pool: usize, demand: Demand) -> bool {
        self.ready_of(pool).any(|node| self.machine_of(node).holds(demand))
    }

    /// Keeps resources for a request of a pool: those of the machine that lacks least for it, from then until another is kept
    /// for, or nobody. True if a node has enough; then nothing is kept.
    pub(crate) fn keep(&mut self, domain: usize, wanted: Option<(usize, Demand)>) -> bool {
        let kept = self.kept[domain].take();
        if let Some(kept) = kept {
            self.machines[kept.machine].kept = None;
        }
        let Some((pool, demand)) = wanted else { return false };
        if self.fits(pool, demand) {
            return true;
        }
        // It goes on where it was begun.
        let begun = kept.filter(|kept| kept.demand == demand).map(|kept| kept.machine);
        let machine = begun.or_else(|| {
            let machines = self.ready_of(pool).map(|node| (self.machine_of(node), self.nodes[node].machine));
            let large = machines.filter(|(it, _)| it.kept.is_none() && u64::from(demand.dominant()) <= it.full);
            least(large.map(|(it, machine)| (it.shortage(demand), machine)))
        });
        if let Some(machine) = machine {
            self.machines[machine].kept = Some(demand);
            self.kept[domain] = Some(Kept { machine, demand });
        }
        false
    }

    /// Nothing is kept any more: other nodes are usable.
    pub(super) fn keep_nothing(&mut self) {
        self.kept.fill(None);
        self.machines.iter_mut().for_each(|machine| machine.kept = None);
    }

    /// What a request counts as: where costs are estimates, nothing takes more than the pool's largest node has.
    pub(crate) fn estimated(&self, pool: usize, demand: Demand) -> Demand {
        self.most.get(pool).map_or(demand, |most| demand.at_most(*most))
    }

    /// Has no usable node of the pool so much of a resource at all, be it idle? Without any usable node nothing is too large.
    pub(crate) fn is_too_large(&self, pool: usize, demand: Demand) -> bool {
        self.available && self.largest[pool].is_some_and(|largest| u64::from(demand.dominant()) > largest)
    }

    /// Which resources keep the pool's nodes from taking it.
    pub(crate) fn lacking(&self, pool: usize, demand: Demand) -> [bool; RESOURCES] {
        let mut lacking = [false; RESOURCES];
        for node in self.ready_of(pool) {
            let lacks = self.machine_of(node).lacks(demand);
            lacking.iter_mut().zip(lacks).for_each(|(all, one)| *all |= one);
        }
        lacking
    }

    /// What is left of each resource in the usable machines of a domain, or of all, as a share of what they have. A node of
    /// which more is taken than it has (it became smaller) has nothing left.
    pub(crate) fn left(&self, domain: Option<usize>) -> [f64; RESOURCES] {
        let (mut left, mut full) = ([0u64; RESOURCES], 0);
        for machine in &self.machines {
            let of = |node: &&NodeId| domain.is_none_or(|domain| self.domain(self.nodes[**node].pool) == domain);
            if !machine.nodes.iter().filter(of).any(|node| self.nodes[*node].usable()) {
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
    pub(crate) fn left_of(&self, node: NodeId) -> [f64; RESOURCES] {
        let machine = self.machine_of(node);
        machine.taken.map(|taken| match machine.full {
            0 => 1.0,
            full => full.saturating_sub(taken) as f64 / full as f64,
        })
    }

    /// What all usable machines of a domain have of a resource, in node-seconds; or all machines, if none is usable.
    pub(crate) fn whole(&self, domain: usize) -> f64 {
        let of = |node: &&NodeId| self.domain(self.nodes[**node].pool) == domain;
        let whole = |usable: bool| {
            let counts = |node: &NodeId| !usable || self.nodes[*node].usable();
            let members = self.machines.iter().filter(|machine| machine.nodes.iter().filter(of).any(counts));
            members.map(|machine| machine.full as f64 / 1e9).sum::<f64>()
        };
        let usable = whole(true);
        if usable > 0.0 { usable } else { whole(false) }
    }

    /// The node whose scarcest resource is least scarce afterwards; of equals the one with the fewest requests inside, then
    /// the one whose turn it is. Only nodes that have enough.
    pub(super) fn roomiest(&self, wanted: &Wanted) -> Option<NodeId> {
        let ready = self.lanes_of[wanted.pool].iter().flat_map(|lane| self.ready.items(lane.row()));
        let fitting = ready.filter(|(_, node)| self.machine_of(*node).holds(wanted.demand));
        least(fitting.map(|((load, turn), node)| {
            let machine = self.machine_of(*node);
            let after = machine.taken.iter().zip(wanted.demand.0).map(|(taken, more)| taken + u64::from(more));
            let scarcest = after.max().unwrap_or(0) as f64 / machine.full as f64;
            ((*node == wanted.avoid, scarcest, *load, *turn), *node)
        }))
    }
}
