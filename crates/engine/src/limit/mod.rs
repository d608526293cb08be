//! Load control: how many requests may be in flight.
//!
//! What counts as in flight is the same for every method: one [`Window`] per group of machines, or under methods that
//! seek a size per resource one per group and sub-queue. A method is one file that owns what it learns, by window and
//! by class, and sets the windows' sizes. It may also refuse a particular class's release ([`Limit::admits`]).

mod adaptive;
mod aimd;
mod fixed;
mod gradient;
mod linear;
mod resources;
#[cfg(test)]
mod tests;
mod view;
mod window;

pub(crate) use resources::Resources;
pub(crate) use view::LimitView;
pub(crate) use window::Window;

use std::collections::BTreeSet;

use crate::classify::Classes;
use crate::demand::Demand;
use crate::discipline::{Availability, LoadControl};
use crate::dispatch::Nodes;
use crate::index::{GroupId, Id};
use crate::policy::{Guarantee, Policy};
use crate::request::{ClassId, Contention, NodeId, Why};
use crate::scheduler::{Scheduler, Standing};
use crate::snapshot::SurplusSnapshot;
use crate::time::Time;

use adaptive::Adaptive;
use aimd::Aimd;
use fixed::Fixed;
use gradient::Gradient;
use linear::Linear;

/// A good answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) class: ClassId,
    pub(crate) sub_queue: usize,
    pub(crate) window: u32,
    /// Its node, or [`NodeId::NONE`] once the policy no longer names that.
    pub(crate) node: NodeId,
    /// It was tried more than once.
    pub(crate) retried: bool,
    /// Requests on its machine at its release, itself included.
    pub(crate) among: u32,
    /// Seconds in flight: from its release to its last byte.
    pub(crate) holding: f64,
    /// Was it later than its class's limit, from its arrival? `None` without a limit.
    pub(crate) late: Option<bool>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) class: ClassId,
    pub(crate) standing: Standing,
    pub(crate) window: u32,
    /// Its node, or [`NodeId::NONE`] once the policy no longer names that.
    pub(crate) node: NodeId,
    /// Its cost, as far as it is managed.
    pub(crate) demand: Demand,
    pub(crate) released: Time,
}

/// The windows, and the method that moves them.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    /// Those of a sub-queue together, in the order of groups.
    windows: Vec<Window>,
    groups: usize,
    method: Method,
}

/// What a method keeps.
#[derive(Clone, Debug)]
enum Method {
    Fixed(Fixed),
    Linear(Linear),
    Adaptive(Box<Adaptive>),
    /// The nodes have bounds of their own: [`Policy::most_inside`].
    Slots,
    Resources(Box<Resources>),
    Gradient(Gradient),
    Aimd(Aimd),
}

impl LoadControl {
    /// Have machines that serve the same pools a window of their own?
    pub(crate) fn divides_machines(&self) -> bool {
        matches!(self, LoadControl::WindowAdaptive(_))
    }

    /// Does it tell apart what requests cost, where that is known?
    pub(crate) fn looks_at_costs(&self) -> bool {
        matches!(self, LoadControl::WindowAdaptive(_) | LoadControl::ResourceAvailability(_))
    }

    /// Does it seek a window for each resource?
    fn divides_resources(&self) -> bool {
        matches!(self, LoadControl::WindowAdaptive(_))
    }

    /// The figures by which it bounds what nodes have of resources, if it does.
    pub(crate) fn availability(&self) -> Option<Availability> {
        match self {
            LoadControl::ResourceAvailability(figures) => Some(*figures),
            _ => None,
        }
    }

    /// Requests in flight on a node of so many CPUs, if it bounds them.
    pub(crate) fn slots(&self, cpus: f64) -> Option<u32> {
        match self {
            LoadControl::Slots { per_cpu } => Some((per_cpu * cpus).round().clamp(1.0, 1e9) as u32),
            _ => None,
        }
    }

    /// The first size of a window; [`u32::MAX`] is no limit.
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

/// Windows per group.
fn windows_of_group(policy: &Policy) -> usize {
    if policy.discipline.load_control.divides_resources() { policy.sub_queues() } else { 1 }
}

impl Limit {
    pub(crate) fn new(now: Time, policy: &Policy, nodes: &Nodes, classes: usize) -> Limit {
        let control = policy.discipline.load_control;
        let count = nodes.groups.len() * windows_of_group(policy);
        let method = match control {
            LoadControl::Fixed { window } => Method::Fixed(Fixed { window }),
            LoadControl::WindowLinear { delta, least, most, grow, .. } => {
                Method::Linear(Linear::new(now, policy, classes, delta, (least, most), grow))
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

    /// The first sizes are in force: nothing has moved yet.
    pub(crate) fn begin(&mut self) {
        for window in &mut self.windows {
            window.moved.from = window.size;
            window.moved.why = Why::First;
        }
    }

    /// Takes over from `old`, which belongs to the policy and nodes before: a group keeps its windows if it serves the
    /// same pools. A sub-queue's windows are those of its resource, if that is still there. Of one window for
    /// everything each sub-queue has a part, and the other way round.
    pub(crate) fn carry(
        &mut self,
        now: Time,
        old: &Limit,
        (before, were): (&Policy, &Nodes),
        (policy, nodes): (&Policy, &Nodes),
    ) {
        let names = |policy: &Policy, nodes: &Nodes, pools: &[usize]| -> BTreeSet<String> {
            pools.iter().map(|pool| policy.pools[nodes.sections.pools[*pool]].name.clone()).collect()
        };
        let known: Vec<BTreeSet<String>> = were.groups.iter().map(|g| names(before, were, &g.pools)).collect();
        let one = known.len() == 1 && nodes.groups.len() == 1;
        let (had, have) = (windows_of_group(before), windows_of_group(policy));
        for index in 0..self.windows.len() {
            let (sub_queue, group) = self.place_of(index);
            let from = match (had, have) {
                (1, _) | (_, 1) => Some(0),
                _ => before.resources.iter().position(|old| Some(old) == policy.resources.get(sub_queue)),
            };
            let pools = names(policy, nodes, &nodes.groups[group].pools);
            let at = known.iter().position(|old| one || *old == pools);
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

    /// Nothing is in flight; what is will be counted again. The method before may have let what is owed go beyond the
    /// window: this one says anew whether it does, once it knows the nodes.
    pub(crate) fn clear(&mut self) {
        for window in &mut self.windows {
            (window.in_flight, window.surplus, window.stuck, window.reach) = (0, 0, 0, 0);
        }
    }

    /// A request is in flight under a new policy.
    pub(crate) fn recount(&mut self, slot: &Slot, nodes: &Nodes) {
        self.windows[slot.window as usize].in_flight += 1;
        match &mut self.method {
            Method::Resources(method) if slot.node != NodeId::NONE => method.take(nodes, slot.node, slot.demand, true),
            Method::Adaptive(method) => {
                self.windows[slot.window as usize].surplus += u32::from(slot.standing == Standing::Surplus);
                method.enters(slot.released, slot);
            }
            _ => {}
        }
    }

    /// Takes over what is known of the classes that a new policy keeps.
    pub(crate) fn carry_classes(&mut self, old: &Limit, kept: &[(ClassId, ClassId)]) {
        if let (Method::Adaptive(method), Method::Adaptive(old)) = (&mut self.method, &old.method) {
            method.carry_classes(old, kept);
        }
    }

    /// A class that nothing is known of yet.
    pub(crate) fn open(&mut self, class: ClassId) {
        match &mut self.method {
            Method::Linear(method) => method.open(class),
            Method::Adaptive(method) => method.open(class),
            _ => {}
        }
    }

    /// All windows: those of the first sub-queue in the order of groups, and so on.
    pub(crate) fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// What bounds surplus in a window, if the method tells it apart.
    pub(crate) fn surplus(&self, window: usize) -> Option<SurplusSnapshot> {
        let Method::Adaptive(method) = &self.method else { return None };
        let Window { reach, surplus, stuck, .. } = self.windows[window];
        let (needed, blocked) = method.occupied(window);
        Some(SurplusSnapshot { reach: (reach > 0).then_some(reach), outstanding: surplus, stuck, needed, blocked })
    }

    /// Requests of a class that may be in flight whatever the window says, if the method bounds what is owed.
    pub(crate) fn allowance(&self, class: ClassId) -> Option<f64> {
        match &self.method {
            Method::Adaptive(method) => method.allowance(class),
            _ => None,
        }
    }

    /// The windows that requests of a sub-queue are counted in, one per group.
    #[inline]
    pub(crate) fn windows_of(&self, sub_queue: usize) -> &[Window] {
        &self.windows[self.first(sub_queue)..][..self.groups]
    }

    #[inline]
    fn first(&self, sub_queue: usize) -> usize {
        if self.windows.len() == self.groups { 0 } else { sub_queue * self.groups }
    }

    /// The window that requests of a sub-queue are counted in while they are in flight in a group.
    #[inline]
    pub(crate) fn window_of(&self, sub_queue: usize, group: GroupId) -> u32 {
        self.first(sub_queue) as u32 + group.0
    }

    /// Sub-queue and group of a window.
    #[inline]
    fn place_of(&self, window: usize) -> (usize, GroupId) {
        (window / self.groups, GroupId::of(window % self.groups))
    }

    /// The group of a window.
    #[inline]
    pub(crate) fn group_of(&self, window: u32) -> GroupId {
        self.place_of(window as usize).1
    }

    /// Is there room for a request of this pool and sub-queue? `kept` is a group in which it has a slot already.
    #[inline]
    pub(crate) fn room(
        &self,
        nodes: &Nodes,
        (pool, sub_queue): (usize, usize),
        standing: Standing,
        kept: Option<GroupId>,
    ) -> bool {
        nodes.has_room(pool, self.windows_of(sub_queue), standing, kept)
    }

    /// May a request of this class be released in this standing, if there is room? The place for methods that hold back
    /// a particular class, or its surplus alone.
    #[inline]
    pub(crate) fn admits(
        &self,
        nodes: &Nodes,
        (pool, sub_queue): (usize, usize),
        class: ClassId,
        standing: Standing,
    ) -> bool {
        let Method::Adaptive(method) = &self.method else { return true };
        nodes.groups_of(pool).any(|group| {
            let window = self.window_of(sub_queue, group) as usize;
            self.windows[window].has_room(standing) && method.admits(class, standing, window)
        })
    }

    /// The standing in which a request of the class looks for room: what its guarantee needs finds some beyond windows
    /// that have none.
    #[inline]
    pub(crate) fn standing(
        &self,
        (classes, nodes): (&Classes, &Nodes),
        (pool, sub_queue): (usize, usize),
        class: ClassId,
        standing: Standing,
    ) -> Standing {
        let beyond = standing == Standing::Owed
            && self.needs(classes, nodes, class)
            && !self.room(nodes, (pool, sub_queue), standing, None);
        if beyond { Standing::Needed } else { standing }
    }

    /// Has the class less in flight than its guarantee needs, or than its allowance? Then what is owed to it finds room
    /// whatever the window says.
    #[inline]
    pub(crate) fn needs(&self, classes: &Classes, nodes: &Nodes, class: ClassId) -> bool {
        // Of windows per resource it is not known how the need divides.
        let Method::Adaptive(method) = &self.method else { return false };
        self.windows.len() == self.groups
            && (classes[class].lacks_need()
                || nodes.groups_of(classes[class].pool).any(|group| method.allows(class, group.row())))
    }

    /// Is everything that is owed released at once, as long as nodes have room?
    pub(crate) fn is_open(&self, nodes: &Nodes, pool: usize, sub_queue: usize) -> bool {
        nodes.groups_of(pool).any(|group| self.windows[self.window_of(sub_queue, group) as usize].reach > 0)
    }

    /// What is left of the nodes' resources, where that bounds what is in flight.
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

    /// Cost that a request of a pool counts with.
    #[inline]
    pub(crate) fn cost(&self, pool: usize, demand: Demand) -> Demand {
        self.resources().map_or(demand, |resources| resources.estimated(pool, demand))
    }

    /// A class has asked for something.
    #[inline]
    pub(crate) fn offered(&mut self, now: Time, class: ClassId, guarantee: Guarantee) {
        match &mut self.method {
            Method::Linear(method) => method.see(now, class, guarantee.response_time),
            Method::Adaptive(method) => method.offered(now, class, guarantee.throughput.is_some()),
            _ => {}
        }
    }

    /// A class has requests, waiting or in flight, under a new policy.
    pub(crate) fn resumes(&mut self, now: Time, class: ClassId, guarantee: Guarantee) {
        if let Method::Adaptive(method) = &mut self.method {
            method.resumes(now, class, guarantee.throughput.is_some());
        }
    }

    /// A request is in flight from now on.
    #[inline]
    pub(crate) fn enters(&mut self, now: Time, slot: &Slot, nodes: &Nodes) {
        if let Method::Resources(method) = &mut self.method {
            method.take(nodes, slot.node, slot.demand, true);
        }
        self.count(now, slot, true);
        if let Method::Adaptive(method) = &mut self.method {
            method.enters(now, slot);
        }
    }

    /// A request is no longer in flight.
    #[inline]
    pub(crate) fn leaves(&mut self, now: Time, slot: &Slot, nodes: &Nodes) {
        self.lets_go(nodes, slot.node, slot.demand);
        self.count(now, slot, false);
        if let Method::Adaptive(method) = &mut self.method {
            method.leaves(slot);
        }
    }

    /// A request has left its node and keeps its slot.
    #[inline]
    pub(crate) fn lets_go(&mut self, nodes: &Nodes, node: NodeId, demand: Demand) {
        if let Method::Resources(method) = &mut self.method
            && node != NodeId::NONE
        {
            method.take(nodes, node, demand, false);
        }
    }

    /// A request with a slot in window `from` goes to another node, and counts in the window that `slot` names.
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

    /// A request was answered well.
    #[inline]
    pub(crate) fn completed(&mut self, view: &mut LimitView<'_>, completion: &Completion) {
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

    /// A request in flight failed on a node.
    pub(crate) fn failed(&mut self, now: Time, window: u32, nodes: &mut Nodes, node: NodeId) {
        match &mut self.method {
            Method::Aimd(method) => method.failed(now, &mut self.windows[window as usize]),
            Method::Adaptive(method) if node != NodeId::NONE => method.failed(nodes, node),
            _ => {}
        }
    }

    /// Windows learn whether they hold anything back: a full one does if a request waits that could go there.
    /// It also does if it only turns requests aside to a group that holds others back.
    pub(crate) fn held_back(&mut self, now: Time, waiting: bool, nodes: &Nodes, scheduler: &Scheduler) {
        let groups = &nodes.groups;
        let (mut window, mut sub_queue) = (0, 0);
        while window < self.windows.len() {
            for members in groups {
                let full = waiting && !self.windows[window].has_room(Standing::Surplus);
                self.hold(now, window, full && members.pools.iter().any(|pool| scheduler.any(*pool, sub_queue)));
                window += 1;
            }
            sub_queue += 1;
        }
        if !waiting || groups.len() == 1 {
            return;
        }
        for first in (0..self.windows.len()).step_by(self.groups) {
            for (group, members) in groups.pairs() {
                let window = first + group.row();
                if self.windows[window].has_room(Standing::Surplus) || self.holds(window) {
                    continue;
                }
                let mut beside = members.pools.iter().flat_map(|pool| nodes.groups_of(*pool));
                if beside.any(|other| self.holds(first + other.row())) {
                    self.hold(now, window, true);
                }
            }
        }
    }

    #[inline]
    fn hold(&mut self, now: Time, window: usize, holding: bool) {
        let state = &mut self.windows[window];
        state.held_back |= holding;
        if let Method::Adaptive(method) = &mut self.method {
            method.hold(now, window, state.in_flight, holding);
        }
    }

    #[inline]
    fn holds(&self, window: usize) -> bool {
        match &self.method {
            Method::Adaptive(method) => method.holds(window),
            _ => false,
        }
    }

    /// When the next step is due, or [`Time::NEVER`] if none ever is.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        match &self.method {
            Method::Linear(method) => method.next,
            Method::Adaptive(method) => method.next,
            _ => Time::NEVER,
        }
    }

    /// One step of control, when it is due.
    pub(crate) fn step(&mut self, view: &mut LimitView<'_>) {
        match &mut self.method {
            Method::Linear(method) => method.step(view, &mut self.windows),
            Method::Adaptive(method) => method.step(view, &mut self.windows),
            _ => {}
        }
    }

    /// The set of usable nodes is another.
    pub(crate) fn nodes_changed(&mut self, view: &mut LimitView<'_>) {
        match &mut self.method {
            Method::Fixed(method) => method.nodes_changed(view, &mut self.windows),
            Method::Adaptive(method) => method.nodes_changed(view, &mut self.windows),
            Method::Resources(method) => method.measure(view.nodes),
            Method::Linear(_) | Method::Slots | Method::Gradient(_) | Method::Aimd(_) => {}
        }
    }

    /// Whether contention has been seen in a window, and since when. `None` if the method does not look for it.
    pub(crate) fn contention(&self, window: usize) -> Option<(Contention, Time)> {
        match &self.method {
            Method::Adaptive(method) => Some(method.contention(window)),
            _ => None,
        }
    }

    /// By how much requests of a pool take longer in flight than alone; 1 to a million.
    pub(crate) fn slowdown(&self, nodes: &Nodes, pool: usize) -> f64 {
        match &self.method {
            Method::Adaptive(method) => method.slowdown(nodes, pool),
            // Unknown: whatever a class takes longer may be contention.
            _ => 1e6,
        }
    }
}
