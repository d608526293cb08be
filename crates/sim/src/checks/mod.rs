//! The checkers: invariants that must hold in every run, for every discipline.
//!
//! The checkers count the driver's events in an account of their own and compare it with the engine's
//! state:
//!
//! - `time`: instants never fall. The engine's timer lies ahead once the engine has no more actions. No
//!   request ends before its release or is released before its arrival.
//! - `ticket`: the engine's action on a request fits the request's position. No request is lost or released
//!   twice.
//! - `window`: after a release, the requests in flight at a group of nodes do not exceed its window, if it
//!   has one window. Owed requests may go as far as their reach and are bounded by their own number,
//!   because surplus that stays long must not keep them out. A class's allowance holds independently of the
//!   window. Surplus gets the rest of the window. Best effort may exceed a window that owed requests alone
//!   fill. Requests beyond the bounds of their machines, which hang, are not counted.
//! - `node`: no request goes to a node that is down, drained or ejected, or beyond the node's own bound.
//! - `counts`: the engine counts as many waiting and in-flight requests as the driver, in total, per group
//!   and per node.
//! - `resources`: no node is given more of a resource than it has, and the engine counts the same remainder
//!   as the driver, if load control manages resources.
//! - `work`: no request waits while a node of its pool (of its set there) and that node's window have room.
//!   If resources are managed, room means room for the largest request so far. Surplus may wait while slots
//!   are needed for owed requests, or blocked. Once contention has been seen, a claim beyond the class's
//!   allowance may wait as well. Beyond a full window claims go in the order of (in flight)/share, so the
//!   first may hold up the others.
//! - `guarantees`: the counts from which guarantees are judged equal those of the driver, class by class.
//! - `conservation`: every attempt of a client has ended in one way, or waits or is in flight at the end.
//! - `pages`: the requests of a page lie within its time, and it is complete if it and all its objects were
//!   served.
//!
//! Observed requests keep no window, no bound and no resources. A run with such requests checks neither these nor
//! `work`.
//!
//! The engine's snapshot costs more than a decision. It is therefore checked only now and then (every half
//! second, at every 256th release, after a failure, at every release that seems wrong) and not at every
//! step. A window that has shrunk in between becomes known at the next check.

mod resources;

use std::cell::LazyCell;
use std::collections::BTreeMap;

use weirgate_engine::{
    ClassSnapshot, Demand, MachineGroupSnapshot, NodeEvent, NodeId, NodeState, Policy, ServiceSet, Snapshot,
    SurplusSnapshot, Ticket, Time,
};

use crate::requests::{Place, Request};
use resources::Resources;
use weirgate_experiment::{Fate, Page, Record, Violation};

/// Maximum number of violations that are kept. The first ones show the cause.
const MAX_KEPT: usize = 100;

/// Number of releases between two checks of the engine. A check costs about ten decisions, so this interval
/// keeps the cost at a few percent.
const LOOK_EVERY: u32 = 256;

/// Needed or blocked slots up to this number are rounding errors.
const NOTHING: f64 = 1e-6;

/// Tolerance in tokens: a bucket counts as full a moment before its class gets its turn.
const HAIR: f64 = 1e-6;

/// Returns whether a class needs one more request in flight for its guarantee, by Little's law, or has not
/// used up its allowance. `None` if its service time is unknown.
fn needs(class: &ClassSnapshot) -> Option<bool> {
    let need = class.guarantee.throughput? * class.service_time?.as_secs_f64();
    // The engine counts in billionths of a slot and needs at least one.
    Some(f64::from(class.outstanding) < need.max(class.allowance.unwrap_or(0.0)).max(1e-9))
}

/// Returns the rank of a class's claims among those of other classes: requests in flight divided by its
/// share.
fn order(class: &ClassSnapshot) -> f64 {
    f64::from(class.outstanding) / class.share.max(1e-12)
}

/// Counts of one class's requests, as the driver saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) offered: u64,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) shed: u64,
    pub(crate) retried: u64,
    pub(crate) waiting: u32,
    pub(crate) in_flight: u32,
}

/// A node, as the driver reported it to the engine.
#[derive(Clone, Copy, Debug)]
struct Node {
    pool: usize,
    bound: u32,
    is_down: bool,
    is_drained: bool,
    is_ejected: bool,
    in_flight: u32,
    group: usize,
}

/// Nodes that share a window.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// The window and the engine's surplus figures at the last check.
    window: u32,
    surplus: Option<SurplusSnapshot>,
    in_flight: u32,
}

impl Group {
    /// Returns whether more requests are in flight than the bound for an owed or a surplus request allows,
    /// that request included.
    fn is_over(&self, owed: bool) -> bool {
        let Some(surplus) = self.surplus else { return self.in_flight > self.window };
        let counted = self.in_flight.saturating_sub(surplus.stuck);
        counted > self.window && !(owed && self.owed() <= self.window.max(surplus.reach.unwrap_or(0)))
    }

    /// Returns the number of owed requests in flight.
    fn owed(&self) -> u32 {
        let surplus = self.surplus.map_or(0, |surplus| surplus.stuck + surplus.outstanding);
        self.in_flight.saturating_sub(surplus)
    }

    /// Returns whether a waiting class may be kept out although there is room. An owed request may not,
    /// except for a claim beyond the class's allowance once contention has been seen. No request may be
    /// kept out if no slot is needed or blocked.
    fn may_keep(&self, class: &ClassSnapshot) -> bool {
        let Some(surplus) = self.surplus else { return false };
        let owed = class.guarantee.throughput.is_some() && class.tokens.is_some_and(|tokens| tokens >= 1.0);
        let within =
            surplus.reach.is_some() || class.allowance.is_none_or(|allowance| f64::from(class.outstanding) < allowance);
        let sure = class.tokens.is_some_and(|tokens| tokens > 1.0 + HAIR);
        let one_more = Group { in_flight: self.in_flight + 1, ..*self };
        !(owed && sure && needs(class) == Some(true))
            && (one_more.is_over(owed) || !(owed && sure && within) && surplus.needed + surplus.blocked > NOTHING)
    }
}

/// The account that the checkers keep.
pub(crate) struct Checks {
    pub(crate) violations: Vec<Violation>,
    /// Classes of the policy, then its templates.
    pub(crate) tallies: Vec<Tally>,
    /// Requests that were offered to earlier processes of the gateway, by the same index.
    pub(crate) earlier: Vec<u64>,
    /// Number of requests that went to the fallback of their class.
    pub(crate) fell_back: u64,
    classes: usize,
    /// Indices of the templates in `tallies`, by name.
    templates: BTreeMap<String, usize>,
    nodes: Vec<Node>,
    now: u64,
    waiting: u32,
    in_flight: u32,
    groups: Vec<Group>,
    releases: u32,
    /// The pool and set of services of each entry in `tallies`.
    services: Vec<(usize, ServiceSet)>,
    resources: Option<Resources>,
    /// Whether requests of some class may be observed only.
    pub(crate) observes: bool,
}

impl Checks {
    /// Creates an empty account. `others` are the policies that are loaded later.
    pub(crate) fn new<'p>(policy: &Policy, others: impl IntoIterator<Item = &'p Policy>) -> Checks {
        let observes = policy.observes() || others.into_iter().any(Policy::observes);
        let node = |index: usize| Node {
            pool: policy.nodes[index].pool,
            bound: policy.max_in_flight(index),
            is_down: false,
            is_drained: false,
            is_ejected: false,
            in_flight: 0,
            group: 0,
        };
        let specs = policy.all_classes();
        Checks {
            violations: Vec::new(),
            tallies: vec![Tally::default(); policy.classes.len() + policy.templates.len()],
            earlier: vec![0; policy.classes.len() + policy.templates.len()],
            fell_back: 0,
            classes: policy.classes.len(),
            templates: policy.templates.iter().map(|t| t.class.name.clone()).zip(policy.classes.len()..).collect(),
            nodes: (0..policy.nodes.len()).map(node).collect(),
            now: 0,
            waiting: 0,
            in_flight: 0,
            groups: vec![Group::default()],
            releases: 0,
            services: specs.map(|class| (class.pool, ServiceSet::of(class))).collect(),
            resources: Resources::of(policy).filter(|_| !observes),
            observes,
        }
    }

    pub(crate) fn note(&mut self, invariant: &'static str, what: String) {
        if self.violations.len() < MAX_KEPT {
            self.violations.push(Violation { at: self.now, invariant, what });
        }
    }

    /// Sets the present instant.
    pub(crate) fn time(&mut self, now: u64) {
        if now < self.now {
            return self.time_fell(now);
        }
        self.now = now;
    }

    #[cold]
    fn time_fell(&mut self, now: u64) {
        self.note("time", format!("{now} ns comes after {} ns", self.now));
    }

    /// The engine has no more actions and wants to be called at `next`. Returns false if `next` does not
    /// lie ahead, as the engine would then be called for ever.
    pub(crate) fn timer(&mut self, next: Option<Time>) -> bool {
        let ahead = next.is_none_or(|next| next.as_nanos() > self.now);
        if !ahead {
            self.timer_is_late(next.unwrap_or_default());
        }
        ahead
    }

    #[cold]
    fn timer_is_late(&mut self, next: Time) {
        self.note("time", format!("the engine's timer is at {} ns, not ahead", next.as_nanos()));
    }

    /// The engine names the waiting request with `ticket`. Returns false if the driver has no such request.
    pub(crate) fn ticket(&mut self, request: Option<&Request>, ticket: Ticket) -> bool {
        let known = request.is_some_and(|r| r.place == Place::Waiting && r.ticket == Some(ticket));
        if !known {
            let place = request.map(|r| r.place);
            self.note("ticket", format!("{ticket:?} is not of a waiting request; its place is {place:?}"));
        }
        known
    }

    /// An attempt of a client reaches the gateway.
    pub(crate) fn arrived(&mut self, class: usize) {
        self.tallies[class].offered += 1;
    }

    /// A request waits. `demand` is its cost by the page table.
    pub(crate) fn waits(&mut self, class: usize, demand: Option<Demand>) {
        if let Some(resources) = &mut self.resources {
            resources.waits(class, demand);
        }
        self.tallies[class].waiting += 1;
        self.waiting += 1;
    }

    /// A request leaves the queue.
    pub(crate) fn waits_no_more(&mut self, class: usize) {
        self.tallies[class].waiting -= 1;
        self.waiting -= 1;
    }

    /// A request, owed or surplus, gets a slot and goes to `node`. Returns true if the engine must be
    /// checked now, with [`Checks::look_at_release`].
    pub(crate) fn released(&mut self, class: usize, node: NodeId, demand: Option<Demand>, owed: bool) -> bool {
        self.takes(class, node, demand);
        self.tallies[class].in_flight += 1;
        self.in_flight += 1;
        self.releases = (self.releases + 1) % LOOK_EVERY;
        self.enters(node, owed) || self.releases == 0
    }

    /// A failed request moves from one node to another. Returns the same as [`Checks::released`].
    pub(crate) fn moved(&mut self, class: usize, from: NodeId, to: NodeId, demand: Option<Demand>, owed: bool) -> bool {
        self.tallies[class].retried += 1;
        self.gives_back(class, from, demand);
        self.takes(class, to, demand);
        self.exits(from);
        self.enters(to, owed)
    }

    fn takes(&mut self, class: usize, node: NodeId, demand: Option<Demand>) {
        let resources = self.resources.as_mut();
        if let Some(what) = resources.and_then(|resources| resources.enters(node, class, demand)) {
            self.note("resources", what);
        }
    }

    fn gives_back(&mut self, class: usize, node: NodeId, demand: Option<Demand>) {
        if let Some(resources) = &mut self.resources {
            resources.exits(node, class, demand);
        }
    }

    fn enters(&mut self, id: NodeId, owed: bool) -> bool {
        let Some(node) = self.nodes.get_mut(id.0 as usize) else {
            self.note("node", format!("{id:?} does not exist"));
            return false;
        };
        node.in_flight += 1;
        let node = *node;
        if node.is_down || node.is_drained {
            self.note("node", format!("{id:?} gets a request while it is down or drained: {node:?}"));
        }
        if node.in_flight > node.bound && !self.observes {
            self.note("node", format!("{id:?} has {} requests, its bound is {}", node.in_flight, node.bound));
        }
        let group = &mut self.groups[node.group];
        group.in_flight += 1;
        node.is_ejected || group.is_over(owed) && !self.observes
    }

    fn exits(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.0 as usize];
        node.in_flight -= 1;
        self.groups[node.group].in_flight -= 1;
    }

    /// A request gives its slot back.
    pub(crate) fn freed(&mut self, class: usize, node: NodeId, demand: Option<Demand>) {
        self.gives_back(class, node, demand);
        self.tallies[class].in_flight -= 1;
        self.in_flight -= 1;
        self.exits(node);
    }

    /// The engine received this event.
    pub(crate) fn told(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Up(id) => self.nodes[id.0 as usize].is_down = false,
            NodeEvent::Down(id) => self.nodes[id.0 as usize].is_down = true,
            NodeEvent::Draining(id) => self.nodes[id.0 as usize].is_drained = true,
            NodeEvent::Resumed(id) => self.nodes[id.0 as usize].is_drained = false,
            NodeEvent::Capacity(..) | NodeEvent::Load { .. } => {}
        }
    }

    /// Returns the events that tell an engine which nodes are down or drained.
    pub(crate) fn states(&self) -> Vec<NodeEvent> {
        let ids = (0u32..).map(NodeId).zip(&self.nodes);
        ids.flat_map(|(id, node)| {
            let down = node.is_down.then_some(NodeEvent::Down(id));
            down.into_iter().chain(node.is_drained.then_some(NodeEvent::Draining(id)))
        })
        .collect()
    }

    /// Checks the engine right after a request, owed or surplus, was released to `node`, before any other
    /// event. A request that had a slot in the group of node `from` may keep it there even if the window
    /// has shrunk. A request that a guarantee needs may be released into a full window: `classes` returns
    /// the counts, the request included.
    pub(crate) fn look_at_release(
        &mut self,
        spec: usize,
        (node, from): (NodeId, Option<NodeId>),
        owed: bool,
        snapshot: &Snapshot,
        classes: impl FnOnce() -> Vec<ClassSnapshot>,
    ) {
        self.look(snapshot);
        // A class without a guarantee may have earned the request, which the driver does not know.
        let exceeds = |class: &ClassSnapshot| {
            let before = ClassSnapshot { outstanding: class.outstanding.saturating_sub(1), ..class.clone() };
            let may = owed || class.guarantee.throughput.is_none();
            self.place_of(class) == Some(spec) && may && needs(&before) != Some(false)
        };
        let group_of = |id: NodeId| self.nodes.get(id.0 as usize).map(|node| node.group);
        let group = group_of(node).and_then(|group| self.groups.get(group)).copied().unwrap_or_default();
        let over = group.is_over(owed) && from.and_then(group_of) != group_of(node) && !self.observes;
        let may_exceed = group.surplus.is_some() && (owed || group.owed() >= group.window);
        if over && !(may_exceed && classes().iter().any(exceeds)) {
            let Group { window, surplus, in_flight } = group;
            let what =
                format!("a release (owed: {owed}) leaves {in_flight} in flight, the window is {window}, {surplus:?}");
            self.note("window", what);
        }
        if let Some(NodeState::Ejected { until }) = snapshot.nodes.get(node.0 as usize).map(|n| n.state) {
            self.note("node", format!("{node:?} gets a request while it is ejected until {} ns", until.as_nanos()));
        }
    }

    /// Checks the engine at any time.
    pub(crate) fn look(&mut self, snapshot: &Snapshot) {
        self.compare("all nodes", snapshot.outstanding, self.in_flight);
        self.compare("the queues", snapshot.waiting, self.waiting);
        let parts = windows_per_group(&snapshot.groups);
        let groups = snapshot.groups.len() / parts;
        // With one window per resource, this account does not know in which window a request counts.
        let whole = |group: usize| Group {
            window: if parts > 1 { u32::MAX } else { snapshot.groups[group].window.unwrap_or(u32::MAX) },
            surplus: snapshot.groups[group].surplus,
            in_flight: 0,
        };
        self.groups = (0..groups).map(whole).collect();
        for (index, seen) in snapshot.nodes.iter().enumerate() {
            let Some(node) = self.nodes.get_mut(index) else { continue };
            node.is_ejected = matches!(seen.state, NodeState::Ejected { .. });
            node.group = seen.group as usize;
            let in_flight = node.in_flight;
            if let Some(group) = self.groups.get_mut(node.group) {
                group.in_flight += in_flight;
            }
            self.compare(&seen.name, seen.outstanding, in_flight);
        }
        let counted = if self.observes { 0 } else { groups };
        for group in 0..counted {
            let in_flight = snapshot.groups.iter().skip(group).step_by(groups).map(|seen| seen.outstanding).sum();
            self.compare("a group", in_flight, self.groups[group].in_flight);
        }
        if let Some(what) = self.resources.as_ref().and_then(|resources| resources.differs(snapshot)) {
            self.note("resources", what);
        }
    }

    fn compare(&mut self, place: &str, engine: u32, driver: u32) {
        if engine != driver {
            self.note("counts", format!("in {place} the engine has {engine} requests, the driver {driver}"));
        }
    }

    /// Checks the engine when it has no more actions. Calls `classes` only if a class may be kept out.
    pub(crate) fn look_at_rest(&mut self, snapshot: &Snapshot, classes: impl FnOnce() -> Vec<ClassSnapshot>) {
        self.look(snapshot);
        let mut waiting: BTreeMap<(usize, ServiceSet), u32> = BTreeMap::new();
        for (service, tally) in self.services.iter().zip(&self.tallies) {
            *waiting.entry(*service).or_default() += tally.waiting;
        }
        // With one window per resource, one may be full and the others empty.
        if self.waiting == 0 || self.observes || windows_per_group(&snapshot.groups) > 1 {
            return;
        }
        let classes = LazyCell::new(classes);
        for (index, (node, seen)) in self.nodes.iter().zip(&snapshot.nodes).enumerate() {
            let group = self.groups.get(node.group).copied().unwrap_or_default();
            let one_more = Group { in_flight: group.in_flight + 1, ..group };
            let has_room = self.resources.as_ref().is_none_or(|resources| resources.has_room_for_any(index));
            // Owed requests find room wherever surplus does, and requests that a guarantee needs also in a
            // full window.
            let full = one_more.is_over(true);
            if !has_room || !seen.room || (full && group.surplus.is_none()) {
                continue;
            }
            // A node of a divided pool serves only its set.
            let serves =
                |(pool, set): &(usize, ServiceSet)| *pool == node.pool && seen.set.is_none_or(|its| its == *set);
            let mut kept: u32 = waiting.iter().filter(|(service, _)| serves(service)).map(|(_, n)| n).sum();
            if kept > 0 && group.surplus.is_some() {
                let of_node =
                    |class: &&ClassSnapshot| self.place_of(class).is_some_and(|place| serves(&self.services[place]));
                let of_node = classes.iter().filter(of_node).filter(|class| class.waiting > 0);
                // Beyond the window the claims go in their order, and the first of them holds up the
                // others.
                let claims = of_node.clone().filter(|class| {
                    class.guarantee.throughput.is_some() && class.tokens.is_some_and(|tokens| tokens >= 1.0 - HAIR)
                });
                let first = claims.clone().map(order).fold(f64::INFINITY, f64::min) * (1.0 + HAIR);
                let held_up = full && claims.clone().any(|class| order(class) <= first && group.may_keep(class));
                let in_turn = |class: &&ClassSnapshot| !full || (!held_up && order(class) <= first);
                kept = of_node.filter(in_turn).filter(|class| !group.may_keep(class)).map(|class| class.waiting).sum();
            }
            if kept > 0 {
                let Group { window, surplus, in_flight } = group;
                let (name, beside) = (&seen.name, surplus.map(|surplus| format!(", {surplus:?}")).unwrap_or_default());
                let what = format!(
                    "{kept} wait for {name} while {in_flight} are in flight in a window of \
                                    {window}{beside}"
                );
                return self.note("work", what);
            }
        }
    }

    /// Returns the index of an engine's class in `tallies`.
    pub(crate) fn place_of(&self, class: &ClassSnapshot) -> Option<usize> {
        let named = Some(class.class.0 as usize).filter(|index| *index < self.classes);
        named.or_else(|| self.templates.get(&class.name).copied())
    }

    /// At the end of the run, compares the engine's counts with those of the driver.
    pub(crate) fn guarantees(&mut self, policy: &Policy, engine: &[ClassSnapshot]) {
        let mut counted = vec![Tally::default(); self.tallies.len()];
        for class in engine {
            let Some(index) = self.place_of(class) else { continue };
            let sum = &mut counted[index];
            sum.offered += class.offered;
            sum.served += class.served;
            sum.failed += class.failed;
            sum.cancelled += class.cancelled;
            sum.shed += class.shed.iter().sum::<u64>();
            sum.retried += class.retried;
            sum.waiting += class.waiting;
            sum.in_flight += class.outstanding;
        }
        let names = policy.all_classes().map(|class| &class.name);
        for ((name, theirs), ours) in names.zip(counted).zip(self.tallies.clone()) {
            if theirs != ours {
                self.note("guarantees", format!("class {name}: the engine has {theirs:?}, the driver {ours:?}"));
            }
        }
    }

    /// At the end of the run, checks that every attempt of a client has one end.
    pub(crate) fn conservation(&mut self, records: &[Record]) {
        let cut = records.iter().filter(|record| record.fate == Fate::Cut).count();
        let here = self.waiting as usize + self.in_flight as usize;
        if cut != here {
            self.note("conservation", format!("{cut} attempts have no end, {here} wait or are in flight"));
        }
        let sum = |of: fn(&Tally) -> u64| self.tallies.iter().map(of).sum::<u64>();
        // A request that goes to a fallback has come twice.
        let came = sum(|tally| tally.offered) + self.earlier.iter().sum::<u64>();
        let offered = came.saturating_sub(self.fell_back);
        if offered != records.len() as u64 {
            self.note("conservation", format!("{offered} attempts came, {} were recorded", records.len()));
        }
        let disordered =
            |r: &&Record| r.ended < r.arrived || (r.released > 0 && !(r.arrived..=r.ended).contains(&r.released));
        if let Some(record) = records.iter().find(disordered) {
            self.note("time", format!("an attempt ends before it begins: {record:?}"));
        }
    }

    /// At the end of the run, checks every page against the attempts that belong to it.
    pub(crate) fn pages(&mut self, pages: &[Page], records: &[Record]) {
        let mut served = vec![0_u32; pages.len()];
        for record in records {
            let Some(index) = record.page.map(|index| index as usize) else { continue };
            let Some(page) = pages.get(index) else {
                return self.note("pages", format!("there is no page {index}: {record:?}"));
            };
            served[index] += u32::from(record.fate == Fate::Served);
            if record.arrived < page.arrived || record.ended > page.ended {
                return self.note("pages", format!("{record:?} is not within its page {page:?}"));
            }
        }
        let is_wrong = |(page, served): &(&Page, &u32)| {
            let is_complete = **served == page.objects + 1;
            is_complete != (page.fate == Fate::Served)
        };
        if let Some((page, served)) = pages.iter().zip(&served).find(is_wrong) {
            self.note("pages", format!("{served} requests of a page were served: {page:?}"));
        }
    }
}

/// Returns the number of windows of a group: one for each resource if the discipline keeps them apart, else
/// 1.
fn windows_per_group(windows: &[MachineGroupSnapshot]) -> usize {
    let first = windows.first().and_then(|window| window.resource.as_deref());
    let mut named: Vec<&str> = windows.iter().filter_map(|window| window.resource.as_deref()).collect();
    named.dedup();
    if first.is_some() { named.len().max(1) } else { 1 }
}

#[cfg(test)]
mod tests;
