//! Stage *dispatch*: the choice of a node of the pool, and the set of nodes that may be chosen.
//!
//! The methods are in `choice`, `round_robin` and `lard`.
//!
//! Nodes of one machine (members of several pools, for example) share it, so the number of requests in
//! flight on the machine counts. Machines that serve the same partitions, and so the same classes, form a
//! *machine group*. Load control has a window for each group, or one window for all. The nodes of a partition
//! in one group form an [`Overlap`]. A request may be sent if its partition overlaps a group with room.
//!
//! Under adaptive load control machines also get a *learned* weight: see `speed`. The number of their workers is
//! found, and bounds the requests in flight on them: see `workers`.
//!
//! The nodes of a pool may be divided among sets of services. Each set then has its own partition of the
//! nodes: see `partitions`, `division` and `resize` (the time of a division). A pool that is not divided is
//! one partition.
//!
//! A node that appears while others serve begins with a part of its weight: see `slow_start`.
//!
//! A node is chosen only while it is up, not draining, not ejected (see `ejection`) and below its own bound.

mod choice;
mod division;
mod ejection;
mod lard;
mod least_loaded;
mod locality_keys;
mod order;
mod partitions;
mod passing;
mod resize;
mod slow_start;
mod speed;
mod workers;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::admission::LoadSource;
use crate::heap::Heaps;
use crate::index::{Id, MachineGroupId, MachineId, OverlapId, PartitionId, Table};
use crate::limit::Window;
use crate::policy::{Content, Dispatch, Ejection, Policy};
use crate::request::{ClassId, NodeId};
use crate::scheduler::Standing;
use crate::snapshot::{LocalitySnapshot, NodeState};
use crate::time::Time;

pub(crate) use choice::{Wanted, min};
pub use lard::Lard;
pub(crate) use partitions::Partitions;
pub use partitions::ServiceSet;
pub use resize::Resize;

use lard::Locality;
use least_loaded::Rotation;
use order::Rank;
use resize::{DividedPool, Load};
use slow_start::SlowStart;
use speed::Settled;
use workers::{Figures, Workers};

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct NodeInfo {
    /// Index into [`Policy::pools`].
    pub(crate) pool: usize,
    /// Its whole pool, or the partition that it currently belongs to.
    pub(crate) partition: PartitionId,
    /// Index into [`Nodes::machines`].
    pub(crate) machine: MachineId,
    /// Index into [`Nodes::overlaps`].
    pub(crate) overlap: OverlapId,
    /// Smaller than configured during a slow start, like `max_outstanding`.
    pub(crate) weight: f64,
    pub(crate) capacity: Option<f64>,
    pub(crate) max_outstanding: u32,
    settings: Settings,
    slow_start: Option<SlowStart>,
    /// Requests in flight that count for its bounds.
    pub(crate) in_flight: u32,
    /// Further ones that have passed, beyond all bounds.
    pub(crate) passing: u32,
    /// All requests in flight, by content.
    pub(crate) in_flight_by_content: [u32; 2],
    pub(crate) served: u64,
    pub(crate) failed: u64,
    /// Latest counts of its collector: requests for static and for dynamic content.
    pub(crate) reported: Option<[u32; 2]>,
    up: bool,
    draining: bool,
    ejected_until: Option<Time>,
    ejections: u32,
    /// Whether another engine has ejected it, and whether it was ejected for no other reason.
    ejected_elsewhere: bool,
    is_ejected_on_hint: bool,
    failures: u32,
    /// Moving average of its failures, as a share of its answers.
    errors: f64,
    successes: u32,
    /// Virtual time of its next turn under [`Dispatch::WeightedRoundRobin`].
    turn: f64,
    /// Whether it has been usable since its partition was chosen.
    placed: bool,
}

/// Weight of a node, and its maximum number of requests in flight, without a slow start.
#[derive(Clone, Copy, Debug)]
struct Settings {
    weight: f64,
    max_outstanding: u32,
}

impl NodeInfo {
    /// Its CPUs: its capacity, or its configured weight if no capacity is known.
    pub(crate) fn cpus(&self) -> f64 {
        self.capacity.unwrap_or(self.settings.weight)
    }

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

/// A machine: nodes that share its processors.
#[derive(Clone, Debug)]
struct Machine {
    group: MachineGroupId,
    nodes: Vec<NodeId>,
    /// Its size relative to other machines: the weight of its largest node.
    weight: f64,
    in_flight: u32,
    passing: u32,
    /// Maximum number of requests in flight. Load control may set it.
    max: u32,
    /// Learned weight, relative to the configured one.
    learned: f64,
    /// Mean compute time on it, relative to the classes' means.
    ratio: f64,
    /// Sum and number of such ratios since the latest update of the weights.
    ratios: (f64, u32),
    /// Its requests in flight, and the number of its workers.
    workers: Workers,
}

impl Machine {
    /// Requests in flight on it beyond its bound.
    fn beyond(&self) -> u32 {
        self.in_flight.saturating_sub(self.max)
    }

    fn usable(&self, nodes: &Table<NodeId, NodeInfo>) -> bool {
        self.nodes.iter().any(|n| nodes[*n].usable())
    }
}

/// The nodes of one partition in one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlap {
    pub(crate) partition: PartitionId,
    pub(crate) group: MachineGroupId,
    /// Its number among the overlaps of its partition.
    pub(crate) place: u32,
    /// Total weight of its usable nodes.
    weight: f64,
}

/// Machines that serve the same partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct MachineGroup {
    pub(crate) partitions: Vec<PartitionId>,
    overlaps: Vec<OverlapId>,
    machines: Vec<MachineId>,
    /// Weight and number of its usable machines.
    pub(crate) weight: f64,
    pub(crate) usable: u32,
    /// Requests in flight on its machines beyond their bounds.
    beyond: u32,
    /// The spreads that leave the bounds of its machines as they are.
    settled: Settled,
}

impl MachineGroup {
    /// Number of its machines, usable or not.
    pub(crate) fn machines(&self) -> u32 {
        self.machines.len() as u32
    }
}

/// All nodes of all pools.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    pub(crate) nodes: Table<NodeId, NodeInfo>,
    machines: Table<MachineId, Machine>,
    pub(crate) overlaps: Table<OverlapId, Overlap>,
    overlaps_of: Table<PartitionId, Vec<OverlapId>>,
    /// Machine groups, at least one.
    pub(crate) groups: Table<MachineGroupId, MachineGroup>,
    methods: Table<PartitionId, Dispatch>,
    /// Indexed by pool.
    ejection: Vec<Ejection>,
    /// Indexed by pool. Zero without slow start.
    slow_start: Vec<Duration>,
    /// Time of the next step of a slow start, or [`Time::NEVER`].
    next_step: Time,
    /// Nodes that can take a request now, per overlap, best first.
    ready: Heaps<Rank, NodeId>,
    /// Number of usable nodes per partition, with or without room.
    usable: Table<PartitionId, u32>,
    /// Virtual time of the last turn per partition, for [`Dispatch::WeightedRoundRobin`].
    round: Table<PartitionId, f64>,
    /// State of [`Dispatch::LeastLoaded`], per partition.
    rotations: Table<PartitionId, Rotation>,
    /// State of [`Dispatch::Lard`], per partition.
    localities: Table<PartitionId, Option<Locality>>,
    turns: u64,
    /// Time at which the next ejected node returns, or [`Time::NEVER`].
    next_return: Time,
    pub(crate) partitions: Partitions,
    /// The pools that are divided.
    pub(crate) divided_pools: Vec<DividedPool>,
    /// Load of the usable nodes, per partition.
    loads: Table<PartitionId, Load>,
    /// Weight of a dynamic request in the load, and whether collectors report the counts.
    omega: f64,
    reported: bool,
    /// The weight of all nodes, if they have the same.
    even: Option<f64>,
    /// Whether the workers of machines are found. With a page table, its resources limit what is in flight.
    finds_workers: bool,
    /// The usual answers of each class.
    usual: Table<ClassId, Option<Figures>>,
}

impl Nodes {
    pub(crate) fn new(policy: &Policy) -> Nodes {
        let partitions = Partitions::new(policy);
        let mut nodes: Table<NodeId, NodeInfo> = policy
            .nodes
            .iter()
            .enumerate()
            .map(|(index, n)| NodeInfo {
                pool: n.pool,
                partition: partitions.first_of(n.pool),
                machine: MachineId(0),
                overlap: OverlapId(0),
                weight: n.weight,
                capacity: n.capacity,
                max_outstanding: policy.max_in_flight(index),
                settings: Settings { weight: n.weight, max_outstanding: policy.max_in_flight(index) },
                slow_start: None,
                in_flight: 0,
                passing: 0,
                in_flight_by_content: [0; 2],
                served: 0,
                failed: 0,
                reported: None,
                up: true,
                draining: false,
                ejected_until: None,
                ejections: 0,
                ejected_elsewhere: false,
                is_ejected_on_hint: false,
                failures: 0,
                errors: 0.0,
                successes: 0,
                turn: 1.0 / n.weight,
                placed: false,
            })
            .collect();
        let machines = machines(policy, &mut nodes);
        let figures = policy.server_load();
        let mut all = Nodes {
            ready: Heaps::new(0, nodes.len()),
            usable: Table::filled(partitions.len(), 0),
            methods: partitions.pools.iter().map(|pool| resize::within(policy.pools[*pool].dispatch)).collect(),
            ejection: policy.pools.iter().map(|p| p.ejection).collect(),
            slow_start: Nodes::slow_starts(policy),
            next_step: Time::NEVER,
            overlaps: Table::new(),
            overlaps_of: Table::filled(partitions.len(), Vec::new()),
            groups: Table::new(),
            machines,
            nodes,
            round: Table::filled(partitions.len(), 0.0),
            rotations: Table::filled(partitions.len(), Rotation::default()),
            localities: partitions.pools.iter().map(|pool| Locality::of(policy, *pool)).collect(),
            turns: 0,
            next_return: Time::NEVER,
            divided_pools: DividedPool::all(policy, &partitions),
            loads: Table::filled(partitions.len(), Load::default()),
            omega: figures.omega,
            even: policy.nodes.first().map(|n| n.weight).filter(|w| policy.nodes.iter().all(|n| n.weight == *w)),
            reported: figures.source != LoadSource::Live,
            partitions,
            finds_workers: policy.discipline.load_control.divides_machines() && policy.resources.is_empty(),
            usual: Table::new(),
        };
        all.group(policy.discipline.load_control.divides_machines());
        all.refresh();
        all.rebalance();
        all
    }

    /// Divides the machines into groups, or puts all of them into one.
    fn group(&mut self, divide: bool) {
        let mut numbers: BTreeMap<BTreeSet<PartitionId>, MachineGroupId> = BTreeMap::new();
        for index in self.machines.ids() {
            let partitions: BTreeSet<PartitionId> = match divide {
                true => self.machines[index].nodes.iter().map(|n| self.nodes[*n].partition).collect(),
                false => self.partitions.ids().collect(),
            };
            let next = MachineGroupId::of(self.groups.len());
            let group = *numbers.entry(partitions.clone()).or_insert(next);
            if group == next {
                self.groups
                    .push(MachineGroup { partitions: partitions.into_iter().collect(), ..MachineGroup::default() });
            }
            self.groups[group].machines.push(index);
            self.machines[index].group = group;
        }
        if self.groups.is_empty() {
            self.groups.push(MachineGroup { partitions: self.partitions.ids().collect(), ..MachineGroup::default() });
        }
        for index in self.nodes.ids() {
            let (partition, group) = (self.nodes[index].partition, self.machines[self.nodes[index].machine].group);
            let known =
                self.overlaps_of[partition].iter().copied().find(|overlap| self.overlaps[*overlap].group == group);
            let overlap = known.unwrap_or_else(|| {
                let overlap = self.overlaps.push(Overlap {
                    partition,
                    group,
                    place: self.overlaps_of[partition].len() as u32,
                    weight: 0.0,
                });
                self.overlaps_of[partition].push(overlap);
                self.groups[group].overlaps.push(overlap);
                overlap
            });
            self.nodes[index].overlap = overlap;
        }
        // A partition may have no node at first. Divided pools have one window, and so one group.
        for partition in self.partitions.ids() {
            if self.partitions.sets[partition].is_some() && self.overlaps_of[partition].is_empty() {
                let overlap =
                    self.overlaps.push(Overlap { partition, group: MachineGroupId(0), place: 0, weight: 0.0 });
                self.overlaps_of[partition].push(overlap);
                self.groups[MachineGroupId(0)].overlaps.push(overlap);
            }
        }
        self.ready = Heaps::new(self.overlaps.len(), self.nodes.len());
    }

    /// Takes over the state of node `from` of `old` for node `to`.
    pub(crate) fn inherit(&mut self, to: NodeId, old: &Nodes, from: NodeId) {
        let (node, known) = (&mut self.nodes[to], &old.nodes[from]);
        // Rounds start again for all nodes. A node that kept its turn would wait until the others have
        // caught up.
        let NodeInfo { pool, partition, machine, overlap, settings, turn, placed, .. } = *node;
        let capacity = node.capacity.or(known.capacity);
        let own = NodeInfo { pool, partition, machine, overlap, settings, turn, placed, ..known.clone() };
        *node = NodeInfo { capacity, ..own };
        let machine = &mut self.machines[machine];
        machine.in_flight += known.in_flight;
        machine.passing += known.passing;
        machine.ratio = old.machines[known.machine].ratio;
        machine.learned = old.machines[known.machine].learned;
        machine.workers.inherit(&old.machines[known.machine].workers, machine.in_flight);
        let (group, machine) = (machine.group, self.nodes[to].machine);
        self.groups[group].settled = Settled::NEVER;
        self.place_all(machine);
    }

    /// Recomputes all state that follows from the nodes' states, after [`Nodes::inherit`] of the nodes `kept`.
    pub(crate) fn inherited(&mut self, now: Time, kept: &[NodeId]) {
        self.begin_slow_starts(now, kept);
        self.refresh();
    }

    /// Takes over the targets of pool `from` of `old` for pool `to`, if both map targets.
    pub(crate) fn inherit_localities(&mut self, to: usize, old: &Nodes, from: usize, node_of: &Table<NodeId, NodeId>) {
        let (to, from) = (self.partitions.first_of(to), old.partitions.first_of(from));
        if let (Some(locality), Some(known)) = (&mut self.localities[to], &old.localities[from]) {
            locality.inherit(known, node_of);
        }
    }

    /// Statistics of the pools that map targets.
    pub(crate) fn localities(&self, policy: &Policy) -> Vec<LocalitySnapshot> {
        let all = self.localities.iter().zip(&self.partitions.pools);
        all.filter_map(|(known, pool)| Some(known.as_ref()?.snapshot(&policy.pools[*pool].name))).collect()
    }

    /// Recomputes all state that follows from the nodes' states.
    fn refresh(&mut self) {
        self.usable.fill(0);
        self.next_return = self.nodes.iter().filter_map(|n| n.ejected_until).min().unwrap_or(Time::NEVER);
        for overlap in &mut self.overlaps {
            overlap.weight = 0.0;
        }
        for index in self.nodes.ids() {
            let node = &self.nodes[index];
            if node.usable() {
                self.usable[node.partition] += 1;
                self.overlaps[node.overlap].weight += node.weight;
            }
            self.place(index);
        }
        self.weigh_partitions();
        for group in &mut self.groups {
            (group.weight, group.usable, group.beyond) = (0.0, 0, 0);
            for machine in group.machines.iter().map(|m| &self.machines[*m]) {
                group.beyond += machine.beyond();
                if machine.usable(&self.nodes) {
                    group.weight += machine.weight;
                    group.usable += 1;
                }
            }
        }
    }

    /// Whether the partition can take a request now. `kept` is a group in which the request already has a slot.
    pub(crate) fn has_room(
        &self,
        partition: PartitionId,
        windows: &[Window],
        standing: Standing,
        kept: Option<MachineGroupId>,
    ) -> bool {
        self.overlaps_of[partition].iter().any(|overlap| self.is_open(*overlap, windows, standing, kept))
    }

    /// Whether this node can take a request now, ignoring windows.
    pub(crate) fn can_take(&self, node: NodeId) -> bool {
        self.ready.contains(node)
    }

    /// Whether the overlap can take a request.
    #[inline]
    fn is_open(
        &self,
        overlap: OverlapId,
        windows: &[Window],
        standing: Standing,
        kept: Option<MachineGroupId>,
    ) -> bool {
        let group = self.overlaps[overlap].group;
        (kept == Some(group) || windows[group.row()].has_room(standing)) && !self.ready.items(overlap.row()).is_empty()
    }

    /// The overlaps of the partition that can take a request.
    fn open<'a>(
        &'a self,
        partition: PartitionId,
        windows: &'a [Window],
        standing: Standing,
        kept: Option<MachineGroupId>,
    ) -> impl Iterator<Item = OverlapId> + Clone + 'a {
        self.overlaps_of[partition]
            .iter()
            .copied()
            .filter(move |overlap| self.is_open(*overlap, windows, standing, kept))
    }

    /// The group of a node's machine.
    pub(crate) fn group_of(&self, node: NodeId) -> MachineGroupId {
        self.machines[self.nodes[node].machine].group
    }

    /// The groups in which a partition has nodes.
    pub(crate) fn groups_of(&self, partition: PartitionId) -> impl Iterator<Item = MachineGroupId> + '_ {
        self.overlaps_of[partition].iter().map(|overlap| self.overlaps[*overlap].group)
    }

    /// The number of a group among those in which a partition has nodes.
    pub(crate) fn place_in(&self, partition: PartitionId, group: MachineGroupId) -> Option<u32> {
        let overlaps = self.overlaps_of[partition].iter().map(|overlap| &self.overlaps[*overlap]);
        overlaps.filter(|overlap| overlap.group == group).map(|overlap| overlap.place).next()
    }

    /// Every partition of the group, with the share of the partition's weight that lies in the group.
    pub(crate) fn shares(&self, group: MachineGroupId) -> impl Iterator<Item = (PartitionId, f64)> + '_ {
        self.groups[group].overlaps.iter().map(|overlap| {
            let overlap = &self.overlaps[*overlap];
            let whole: f64 = self.overlaps_of[overlap.partition].iter().map(|l| self.overlaps[*l].weight).sum();
            (overlap.partition, if whole > 0.0 { overlap.weight / whole } else { 0.0 })
        })
    }

    /// Nodes of the partition that are neither down nor draining nor ejected.
    pub(crate) fn usable(&self, partition: PartitionId) -> u32 {
        self.usable[partition]
    }

    /// Nodes of the partition that can take requests now, ignoring windows, each with its rank.
    pub(crate) fn ready_keys(&self, partition: PartitionId) -> impl Iterator<Item = &(Rank, NodeId)> + '_ {
        self.overlaps_of[partition].iter().flat_map(|overlap| self.ready.items(overlap.row()))
    }

    /// Nodes of the partition that can take requests now, ignoring windows.
    pub(crate) fn ready_of(&self, partition: PartitionId) -> impl Iterator<Item = NodeId> + '_ {
        self.ready_keys(partition).map(|(_, node)| *node)
    }

    /// Whether the partition has a node that can take requests now.
    pub(crate) fn is_ready(&self, partition: PartitionId) -> bool {
        self.ready_of(partition).next().is_some()
    }

    /// All machines.
    pub(crate) fn machine_ids(&self) -> impl Iterator<Item = MachineId> + use<> {
        self.machines.ids()
    }

    /// The nodes of a machine.
    pub(crate) fn nodes_of(&self, machine: MachineId) -> &[NodeId] {
        &self.machines[machine].nodes
    }

    /// Configured size of a machine relative to others.
    pub(crate) fn machine_weight(&self, machine: MachineId) -> f64 {
        self.machines[machine].nodes.iter().map(|node| self.nodes[*node].settings.weight).fold(0.0, f64::max)
    }

    /// The number of a node's group among those in which its partition has nodes.
    pub(crate) fn place_of(&self, node: NodeId) -> usize {
        self.overlaps[self.nodes[node].overlap].place as usize
    }

    /// Usable nodes of all pools together.
    pub(crate) fn all_usable(&self) -> u32 {
        self.usable.iter().sum()
    }

    /// Counts the end of a request on a node.
    pub(crate) fn leaves(&mut self, node: NodeId, content: Content) {
        if node != NodeId::NONE {
            self.count(node, content, false);
        }
    }

    /// Counts the start or the end of a request on a node.
    fn count(&mut self, index: NodeId, content: Content, enters: bool) {
        self.count_content(index, content, enters);
        let node = &mut self.nodes[index];
        let machine = &mut self.machines[node.machine];
        let before = machine.beyond();
        if enters {
            node.in_flight += 1;
            machine.in_flight += 1;
        } else {
            node.in_flight -= 1;
            machine.in_flight -= 1;
        }
        let beyond = &mut self.groups[machine.group].beyond;
        *beyond = *beyond - before + machine.beyond();
        let machine = node.machine;
        self.place_all(machine);
    }
}

/// Builds the machines of a policy and sets the machine of each node.
fn machines(policy: &Policy, nodes: &mut Table<NodeId, NodeInfo>) -> Table<MachineId, Machine> {
    let mut machines: Table<MachineId, Machine> = Table::new();
    let mut numbers: BTreeMap<&str, MachineId> = BTreeMap::new();
    for (index, node) in (0..).map(NodeId).zip(&policy.nodes) {
        let number = *numbers.entry(&node.machine).or_insert_with(|| {
            machines.push(Machine {
                group: MachineGroupId(0),
                nodes: Vec::new(),
                weight: 0.0,
                in_flight: 0,
                passing: 0,
                max: u32::MAX,
                learned: 1.0,
                ratio: 1.0,
                ratios: (0.0, 0),
                workers: Workers::default(),
            })
        });
        machines[number].nodes.push(index);
        machines[number].weight = machines[number].weight.max(node.weight);
        nodes[index].machine = number;
    }
    machines
}
