//! Load control: the number of requests that may be in flight.
//!
//! All methods count requests in flight in the same way. There is one [`Window`] per group of machines, or one per
//! group and sub-queue under methods that seek a size per resource. A method is one file. It owns its estimates, by
//! window and by class, and sets the windows' sizes. It may also refuse to release a particular class
//! ([`Limit::admits`]).

mod adaptive;
mod aimd;
mod fixed;
mod gradient;
mod held_back;
mod learned;
mod linear;
mod resources;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use resources::Resources;
pub(crate) use window::Window;

use std::collections::{BTreeMap, BTreeSet};

use adaptive::Adaptive;
use aimd::Aimd;
use fixed::Fixed;
use gradient::Gradient;
use linear::Linear;

use crate::classify::Classes;
use crate::demand::Demand;
use crate::discipline::{Availability, LoadControl};
use crate::dispatch::Nodes;
use crate::index::{Id, MachineGroupId, PartitionId};
use crate::learned::Answered;
use crate::others::{Beside, WindowUse};
use crate::policy::{Guarantee, Policy};
use crate::request::{ClassId, Contention, NodeId, Why};
use crate::scheduler::Standing;
use crate::snapshot::SurplusSnapshot;
use crate::time::Time;

/// The state that load control sees. Reading estimates brings them up to date, and nodes get learned speeds and bounds.
pub(crate) struct LimitView<'a> {
    pub(crate) now: Time,
    pub(crate) classes: &'a mut Classes,
    pub(crate) nodes: &'a mut Nodes,
}

/// A successful answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) class: ClassId,
    pub(crate) sub_queue: usize,
    pub(crate) window: u32,
    /// Its node, or [`NodeId::NONE`] if the policy no longer has it.
    pub(crate) node: NodeId,
    /// Whether it was tried more than once.
    pub(crate) retried: bool,
    /// Number of requests on its machine at its release, including itself.
    pub(crate) among: u32,
    /// Seconds in flight, from its release to its last byte.
    pub(crate) holding: f64,
    /// Whether it was later than its class's limit, from its arrival. `None` without a limit.
    pub(crate) late: Option<bool>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) class: ClassId,
    pub(crate) standing: Standing,
    pub(crate) window: u32,
    /// Its node, or [`NodeId::NONE`] if the policy no longer has it.
    pub(crate) node: NodeId,
    /// Its cost, as far as it is managed.
    pub(crate) demand: Demand,
    pub(crate) released: Time,
}

/// The windows, and the method that sets their sizes.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    /// Ordered by sub-queue, then by group.
    windows: Vec<Window>,
    groups: usize,
    method: Method,
}

/// State of a method.
#[derive(Clone, Debug)]
enum Method {
    Fixed(Fixed),
    Linear(Linear),
    Adaptive(Box<Adaptive>),
    /// The nodes have bounds of their own: [`Policy::max_in_flight`].
    Slots,
    Resources(Box<Resources>),
    Gradient(Gradient),
    Aimd(Aimd),
}

impl LoadControl {
    /// Returns whether machines that serve the same partitions have a window of their own.
    pub(crate) fn divides_machines(&self) -> bool {
        matches!(self, LoadControl::WindowAdaptive(_))
    }

    /// Returns whether it uses the costs of requests where they are known.
    pub(crate) fn looks_at_costs(&self) -> bool {
        matches!(self, LoadControl::WindowAdaptive(_) | LoadControl::ResourceAvailability(_))
    }

    /// Returns whether it seeks a window for each resource.
    fn divides_resources(&self) -> bool {
        matches!(self, LoadControl::WindowAdaptive(_))
    }

    /// Returns the figures by which it bounds the use of nodes' resources, if it does.
    pub(crate) fn availability(&self) -> Option<Availability> {
        match self {
            LoadControl::ResourceAvailability(figures) => Some(*figures),
            _ => None,
        }
    }

    /// Returns the maximum number of requests in flight on a node with `cpus` CPUs, if it bounds them.
    pub(crate) fn slots(&self, cpus: f64) -> Option<u32> {
        match self {
            LoadControl::Slots { per_cpu } => Some((per_cpu * cpus).round().clamp(1.0, 1e9) as u32),
            _ => None,
        }
    }

    /// Returns the initial size of a window. [`u32::MAX`] is no limit.
    fn first_size(&self) -> u32 {
        match *self {
            LoadControl::Fixed { window } => window.unwrap_or(u32::MAX),
            LoadControl::Slots { .. } | LoadControl::ResourceAvailability(_) => u32::MAX,
            LoadControl::WindowLinear { first, .. } => first,
            LoadControl::WindowAdaptive(_) => 1,
            LoadControl::Gradient(figures) => figures.first,
            LoadControl::Aimd(figures) => figures.first,
        }
    }
}

/// Returns the number of windows per group.
fn windows_of_group(policy: &Policy) -> usize {
    if policy.discipline.load_control.divides_resources() { policy.sub_queues() } else { 1 }
}

impl Limit {
    pub(crate) fn new(now: Time, policy: &Policy, nodes: &Nodes, classes: usize) -> Limit {
        let control = policy.discipline.load_control;
        let count = nodes.groups.len() * windows_of_group(policy);
        let method = match control {
            LoadControl::Fixed { window } => Method::Fixed(Fixed { window }),
            LoadControl::WindowLinear { delta, first, min, max, grow, .. } => {
                Method::Linear(Linear::new(now, policy, classes, delta, (first, min, max), grow))
            }
            LoadControl::WindowAdaptive(figures) => {
                Method::Adaptive(Box::new(Adaptive::new(now, figures, nodes, count, classes, policy.sub_queues())))
            }
            LoadControl::Slots { .. } => Method::Slots,
            LoadControl::Gradient(figures) => Method::Gradient(Gradient::new(now, figures)),
            LoadControl::Aimd(figures) => Method::Aimd(Aimd::new(figures)),
            LoadControl::ResourceAvailability(figures) => {
                Method::Resources(Box::new(Resources::new(policy, figures, nodes)))
            }
        };
        Limit { windows: vec![Window::new(now, control.first_size()); count], groups: nodes.groups.len(), method }
    }

    /// Marks the initial sizes as the start, so that no window has moved yet.
    pub(crate) fn begin(&mut self) {
        for window in &mut self.windows {
            window.moved.from = window.size;
            window.moved.why = Why::First;
        }
    }

    /// Takes over the state of `old`, which belongs to the previous policy and nodes. A group keeps its windows if it
    /// serves the same pools. A sub-queue gets the windows of its resource, if that still exists. If there was one
    /// window for everything, each sub-queue gets a part of it, and the other way round.
    pub(crate) fn carry(
        &mut self,
        now: Time,
        old: &Limit,
        (before, were): (&Policy, &Nodes),
        (policy, nodes): (&Policy, &Nodes),
    ) {
        let names = |policy: &Policy, nodes: &Nodes, partitions: &[PartitionId]| -> BTreeSet<String> {
            partitions.iter().map(|partition| policy.pools[nodes.partitions.pools[*partition]].name.clone()).collect()
        };
        let known: Vec<BTreeSet<String>> = were.groups.iter().map(|g| names(before, were, &g.partitions)).collect();
        let one = known.len() == 1 && nodes.groups.len() == 1;
        let mut place: BTreeMap<&BTreeSet<String>, usize> = BTreeMap::new();
        for (group, pools) in known.iter().enumerate() {
            place.entry(pools).or_insert(group);
        }
        let (had, have) = (windows_of_group(before), windows_of_group(policy));
        for index in 0..self.windows.len() {
            let (sub_queue, group) = self.place_of(index);
            let from = match (had, have) {
                (1, _) | (_, 1) => Some(0),
                _ => before.resources.iter().position(|old| Some(old) == policy.resources.get(sub_queue)),
            };
            let pools = names(policy, nodes, &nodes.groups[group].partitions);
            let at = if one { Some(0) } else { place.get(&pools).copied() };
            let from = from.zip(at).map(|(sub_queue, group)| sub_queue * known.len() + group);
            let from = from.filter(|from| *from < old.windows.len());
            let first = self.windows[index].size;
            if let Some(from) = from {
                self.windows[index] = old.windows[from].clone();
            }
            let size = match (&self.method, &old.method) {
                (Method::Linear(method), Method::Linear(_)) => method.within(self.windows[index].size),
                _ => first,
            };
            if let Method::Adaptive(method) = &mut self.method {
                let known = from.map(|from| match &old.method {
                    Method::Adaptive(old) => Some((&**old, from)),
                    _ => None,
                });
                method.carry(now, index, known);
                if had == 1 || have == 1 {
                    method.divide(index, have as f64 / had as f64);
                }
            }
            self.windows[index].set(now, size, Why::Reconfigured);
        }
    }

    /// Resets the counts. Requests in flight are counted again afterwards. The previous method may have released owed
    /// requests beyond the window. The present one sets the reach again once it knows the nodes.
    pub(crate) fn clear(&mut self) {
        for window in &mut self.windows {
            (window.in_flight, window.surplus, window.stuck, window.reach) = (0, 0, 0, 0);
        }
    }

    /// Counts a request that is in flight under a new policy.
    pub(crate) fn recount(&mut self, slot: &Slot, nodes: &Nodes) {
        self.windows[slot.window as usize].in_flight += 1;
        match &mut self.method {
            Method::Resources(method) if slot.node != NodeId::NONE => method.take(nodes, slot.node, slot.demand, true),
            Method::Adaptive(method) => {
                self.windows[slot.window as usize].surplus += u32::from(slot.standing == Standing::Surplus);
                method.enters(slot.released, slot, false);
            }
            _ => {}
        }
    }

    /// Takes over the estimates of the classes that a new policy keeps.
    pub(crate) fn carry_classes(&mut self, old: &Limit, kept: &[(ClassId, ClassId)]) {
        if let (Method::Adaptive(method), Method::Adaptive(old)) = (&mut self.method, &old.method) {
            method.carry_classes(old, kept);
        }
    }

    /// Adds a class without any estimates.
    pub(crate) fn open(&mut self, class: ClassId) {
        match &mut self.method {
            Method::Linear(method) => method.open(class),
            Method::Adaptive(method) => method.open(class),
            _ => {}
        }
    }

    /// Returns all windows, ordered by sub-queue, then by group.
    pub(crate) fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Returns the bounds on surplus in a window, if the method tells surplus apart.
    pub(crate) fn surplus(&self, window: usize) -> Option<SurplusSnapshot> {
        let Method::Adaptive(method) = &self.method else { return None };
        let Window { reach, surplus, stuck, .. } = self.windows[window];
        let (needed, blocked) = method.occupied(window);
        Some(SurplusSnapshot { reach: (reach > 0).then_some(reach), outstanding: surplus, stuck, needed, blocked })
    }

    /// Returns the number of a class's requests that may be in flight whatever the window, if owed requests are
    /// bounded.
    pub(crate) fn allowance(&self, class: ClassId) -> Option<f64> {
        match &self.method {
            Method::Adaptive(method) => method.allowance(class),
            _ => None,
        }
    }

    /// Returns the windows in which requests of a sub-queue are counted, one per group.
    #[inline]
    pub(crate) fn windows_of(&self, sub_queue: usize) -> &[Window] {
        &self.windows[self.first(sub_queue)..][..self.groups]
    }

    #[inline]
    fn first(&self, sub_queue: usize) -> usize {
        if self.windows.len() == self.groups { 0 } else { sub_queue * self.groups }
    }

    /// Returns the window that counts requests of a sub-queue in flight in a group.
    #[inline]
    pub(crate) fn window_of(&self, sub_queue: usize, group: MachineGroupId) -> u32 {
        self.first(sub_queue) as u32 + group.0
    }

    /// Returns the sub-queue and group of a window.
    #[inline]
    fn place_of(&self, window: usize) -> (usize, MachineGroupId) {
        (window / self.groups, MachineGroupId::of(window % self.groups))
    }

    /// Returns the group of a window.
    #[inline]
    pub(crate) fn group_of(&self, window: u32) -> MachineGroupId {
        self.place_of(window as usize).1
    }

    /// Returns whether there is room for a request of this partition and sub-queue. `kept` is a group where it has a
    /// slot.
    #[inline]
    pub(crate) fn room(
        &self,
        nodes: &Nodes,
        (partition, sub_queue): (PartitionId, usize),
        standing: Standing,
        kept: Option<MachineGroupId>,
    ) -> bool {
        nodes.has_room(partition, self.windows_of(sub_queue), standing, kept)
    }

    /// Returns whether a request of this class may be released with this standing if there is room. Methods that hold
    /// back a particular class, or only its surplus, do so here.
    #[inline]
    pub(crate) fn admits(
        &self,
        nodes: &Nodes,
        (partition, sub_queue): (PartitionId, usize),
        class: ClassId,
        standing: Standing,
    ) -> bool {
        let Method::Adaptive(method) = &self.method else { return true };
        nodes.groups_of(partition).any(|group| {
            let window = self.window_of(sub_queue, group) as usize;
            self.windows[window].has_room(standing) && method.admits(class, standing, window)
        })
    }

    /// Returns the standing to find room with. Requests that may exceed full windows find room beyond them.
    #[inline]
    pub(crate) fn standing(
        &self,
        (classes, nodes): (&Classes, &Nodes),
        (partition, sub_queue): (PartitionId, usize),
        class: ClassId,
        standing: Standing,
    ) -> Standing {
        let beyond = self.may_exceed(classes, nodes, class, standing)
            && !self.room(nodes, (partition, sub_queue), standing, None);
        if beyond { Standing::Needed } else { standing }
    }

    /// Returns whether the next request of the class finds room whatever the window. An owed one does if the class has
    /// fewer requests in flight than its guarantee needs or its allowance permits. Best effort does if it has earned a
    /// request, and either has a token, or owed requests alone fill the window and surplus has less than its rest.
    #[inline]
    pub(crate) fn may_exceed(&self, classes: &Classes, nodes: &Nodes, class: ClassId, standing: Standing) -> bool {
        // With windows per resource, it is unknown how the need divides among them.
        let Method::Adaptive(method) = &self.method else { return false };
        if self.windows.len() != self.groups {
            return false;
        }
        let mut groups = nodes.groups_of(classes[class].partition).map(Id::row);
        match (standing, classes.spec(class).guarantee.throughput) {
            (Standing::Surplus, Some(_)) => false,
            (Standing::Surplus, None) => {
                groups.any(|group| self.windows[group].keeps_rest_out() && method.allows(class, group))
            }
            _ => classes[class].lacks_need() || groups.any(|group| method.allows(class, group)),
        }
    }

    /// Returns the counters of the nodes' resources, if they bound the number in flight.
    #[inline]
    pub(crate) fn resources(&self) -> Option<&Resources> {
        match &self.method {
            Method::Resources(method) => Some(method),
            _ => None,
        }
    }

    pub(crate) fn resources_mut(&mut self) -> Option<&mut Resources> {
        match &mut self.method {
            Method::Resources(method) => Some(method),
            _ => None,
        }
    }

    /// Returns the cost with which a request of a partition counts.
    #[inline]
    pub(crate) fn cost(&self, partition: PartitionId, demand: Demand) -> Demand {
        self.resources().map_or(demand, |resources| resources.estimated(partition, demand))
    }

    /// Records an arrival of a class.
    #[inline]
    pub(crate) fn offered(&mut self, now: Time, class: ClassId, guarantee: Guarantee) {
        match &mut self.method {
            Method::Linear(method) => method.see(now, class, guarantee.response_time),
            Method::Adaptive(method) => method.offered(now, class, guarantee.throughput.is_some()),
            _ => {}
        }
    }

    /// Records that a class has requests, waiting or in flight, under a new policy.
    pub(crate) fn resumes(&mut self, now: Time, class: ClassId, guarantee: Guarantee) {
        if let Method::Adaptive(method) = &mut self.method {
            method.resumes(now, class, guarantee.throughput.is_some());
        }
    }

    /// Counts a request that is released.
    #[inline]
    pub(crate) fn enters(&mut self, now: Time, slot: &Slot, nodes: &Nodes) {
        if let Method::Resources(method) = &mut self.method {
            method.take(nodes, slot.node, slot.demand, true);
        }
        let full = !self.windows[slot.window as usize].has_room(Standing::Surplus);
        self.count(now, slot, true);
        if let Method::Adaptive(method) = &mut self.method {
            method.enters(now, slot, full);
        }
    }

    /// Counts a request that has ended.
    #[inline]
    pub(crate) fn leaves(&mut self, now: Time, slot: &Slot, nodes: &Nodes) {
        self.lets_go(nodes, slot.node, slot.demand);
        self.count(now, slot, false);
        if let Method::Adaptive(method) = &mut self.method {
            method.leaves(slot);
        }
    }

    /// Returns the resources of a request that has left its node but keeps its slot.
    #[inline]
    pub(crate) fn lets_go(&mut self, nodes: &Nodes, node: NodeId, demand: Demand) {
        if let Method::Resources(method) = &mut self.method
            && node != NodeId::NONE
        {
            method.take(nodes, node, demand, false);
        }
    }

    /// Moves a request with a slot in window `from` to another node. It then counts in the window that `slot` names.
    pub(crate) fn moves(&mut self, now: Time, from: u32, slot: &Slot, nodes: &Nodes) {
        if let Method::Resources(method) = &mut self.method {
            method.take(nodes, slot.node, slot.demand, true);
        }
        if let Method::Adaptive(method) = &mut self.method {
            method.again(now, from, slot);
        }
        if from != slot.window {
            self.count(now, &Slot { window: from, ..*slot }, false);
            self.count(now, slot, true);
        }
    }

    #[inline]
    fn count(&mut self, now: Time, slot: &Slot, enters: bool) {
        let state = &mut self.windows[slot.window as usize];
        let mut surplus = 0;
        if let Method::Adaptive(method) = &mut self.method {
            method.note(now, slot.window, state.in_flight);
            surplus = u32::from(slot.standing == Standing::Surplus);
        }
        if enters {
            state.in_flight += 1;
            state.surplus += surplus;
        } else {
            state.in_flight -= 1;
            state.surplus -= surplus;
        }
    }

    /// Learns from a successful answer.
    #[inline]
    pub(crate) fn completed(&mut self, view: &mut LimitView<'_>, completion: &Completion) {
        self.windows[completion.window as usize].answered = Answered::at(view.now);
        match &mut self.method {
            Method::Linear(method) => {
                let limit = view.classes.spec(completion.class).guarantee.response_time;
                method.see(view.now, completion.class, limit);
            }
            Method::Adaptive(method) => method.completed(view, &mut self.windows, completion),
            Method::Gradient(method) => {
                method.completed(view.now, completion, &mut self.windows[completion.window as usize]);
            }
            Method::Aimd(method) => {
                method.completed(view.now, completion, &mut self.windows[completion.window as usize]);
            }
            _ => {}
        }
    }

    /// Learns from the failure of a request in flight on a node.
    pub(crate) fn failed(&mut self, now: Time, window: u32, nodes: &mut Nodes, node: NodeId) {
        match &mut self.method {
            Method::Aimd(method) => method.failed(now, &mut self.windows[window as usize]),
            Method::Adaptive(method) if node != NodeId::NONE => method.failed(nodes, node),
            _ => {}
        }
    }

    /// Returns the time of the next step, or [`Time::NEVER`] if the method takes none.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        match &self.method {
            Method::Linear(method) => method.next,
            Method::Adaptive(method) => method.next,
            _ => Time::NEVER,
        }
    }

    /// Takes a control step when it is due.
    pub(crate) fn step(&mut self, view: &mut LimitView<'_>) {
        match &mut self.method {
            Method::Linear(method) => method.step(view, &mut self.windows),
            Method::Adaptive(method) => method.step(view, &mut self.windows),
            _ => {}
        }
    }

    /// Returns the use of the windows by group, if the method shares them with other engines.
    pub(crate) fn uses(&self, nodes: &Nodes, waiting: [u32; 2]) -> Vec<WindowUse> {
        match &self.method {
            Method::Adaptive(method) => method.uses(&self.windows, nodes, waiting),
            _ => Vec::new(),
        }
    }

    /// Takes over what is known of other engines at the same machines.
    pub(crate) fn beside(&mut self, view: &mut LimitView<'_>, until: Time, groups: &[Beside]) {
        if let Method::Adaptive(method) = &mut self.method {
            method.beside(view, &mut self.windows, until, groups);
        }
    }

    /// Adapts to a change of the usable nodes.
    pub(crate) fn nodes_changed(&mut self, view: &mut LimitView<'_>) {
        match &mut self.method {
            Method::Fixed(method) => method.nodes_changed(view, &mut self.windows),
            Method::Adaptive(method) => method.nodes_changed(view, &mut self.windows),
            Method::Resources(method) => method.measure(view.nodes),
            Method::Linear(_) | Method::Slots | Method::Gradient(_) | Method::Aimd(_) => {}
        }
    }

    /// Returns whether contention has been seen in a window and since when, or `None` if the method ignores it.
    pub(crate) fn contention(&self, window: usize) -> Option<(Contention, Time)> {
        match &self.method {
            Method::Adaptive(method) => Some(method.contention(window)),
            _ => None,
        }
    }

    /// Returns the factor by which requests of a partition take longer in flight than alone, from 1 to a million.
    pub(crate) fn slowdown(&self, nodes: &Nodes, partition: PartitionId) -> f64 {
        match &self.method {
            Method::Adaptive(method) => method.slowdown(nodes, partition),
            // Unknown: any extra time of a class may be contention.
            _ => 1e6,
        }
    }
}
