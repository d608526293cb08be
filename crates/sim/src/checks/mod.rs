//! The checkers: what must hold in every run, whatever the discipline.
//!
//! They keep books of their own from what the driver does and compare them with what the engine says:
//!
//! | invariant | holds |
//! |---|---|
//! | `time` | instants never fall; the engine's timer lies ahead once it has nothing more to do; no request ends before it was released or is released before it came |
//! | `ticket` | what the engine says about a request fits where the request is: none is lost or released twice |
//! | `window` | a release leaves no more inside a group of nodes than its window has places, if it has one window. What is owed may go as far as its reach, and is bounded by itself: surplus that stays long must not keep it out. A class's allowance holds beside that. Surplus has what is left of the window. Requests beyond the bounds of their machines, which hang, are not counted |
//! | `node` | no request goes to a node that is down, drained or ejected, or beyond the node's own bound |
//! | `books` | the engine counts as many waiting and inside, in all, per group and per node, as the driver has |
//! | `resources` | no node is given more than it has of a resource, and the engine counts what is left as the driver does, where load control manages resources |
//! | `work` | nothing waits while a node of its pool (of its set there) and that node's window have room; where resources are managed, room for any request there was. What is not owed may wait while slots are needed for what is, or blocked; and once contention has been seen, a claim beyond the class's allowance as well. Beyond a full window claims go in the order of (in flight)/share, so the first may hold up the others |
//! | `guarantees` | the counts from which guarantees are judged are those of the driver, class by class |
//! | `conservation` | every attempt of a client has ended in one way, or waits or is inside at the end |
//! | `pages` | the requests of a page lie within its time, and it is complete if it was served and all its objects |
//!
//! The engine's snapshot costs more than a decision, so it is looked at now and then (every half second,
//! at every 256th release, after a failure, whenever a release seems wrong) and not at every step: a
//! window that has shrunk in between is known at the next look.

mod resources;

use std::cell::LazyCell;
use std::collections::BTreeMap;

use weirgate_engine::{
    ClassSnapshot, Demand, GroupSnapshot, NodeEvent, NodeId, NodeState, Policy, ServiceSet, Snapshot, SurplusSnapshot,
    Ticket, Time,
};

use crate::requests::{Place, Request};
use resources::Resources;
use weirgate_experiment::{Fate, Page, Record, Violation};

/// Most violations that are kept: the first ones tell the cause.
const MOST_KEPT: usize = 100;

/// Releases between two looks at the engine. A look costs about ten decisions; this makes that a few
/// percent.
const LOOK_EVERY: u32 = 256;

/// Slots, needed or blocked, that are nothing but rounding.
const NOTHING: f64 = 1e-6;

/// Of a token: a bucket counts as whole a moment before its class has its turn.
const HAIR: f64 = 1e-6;

/// Does a class need one more request in flight for its guarantee, by Little's law, or is that within its allowance?
/// `None` if its service time is unknown.
fn needs(class: &ClassSnapshot) -> Option<bool> {
    let need = class.guarantee.throughput? * class.service_time?.as_secs_f64();
    // The engine counts in billionths of a slot, one at least.
    Some(f64::from(class.outstanding) < need.max(class.allowance.unwrap_or(0.0)).max(1e-9))
}

/// Place of a class's claims among those of others: requests in flight over its share.
fn order(class: &ClassSnapshot) -> f64 {
    f64::from(class.outstanding) / class.share.max(1e-12)
}

/// What a class got, as the driver saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) offered: u64,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) shed: u64,
    pub(crate) retried: u64,
    pub(crate) waiting: u32,
    pub(crate) inside: u32,
}

/// A node, as the driver told the engine.
#[derive(Clone, Copy, Debug)]
struct Node {
    pool: usize,
    bound: u32,
    is_down: bool,
    is_drained: bool,
    is_ejected: bool,
    inside: u32,
    group: usize,
}

/// Nodes that share a window.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Places, when the engine was last looked at, and what it said of surplus.
    window: u32,
    surplus: Option<SurplusSnapshot>,
    inside: u32,
}

impl Group {
    /// Is there more inside than a request may find, itself included, that is owed or surplus?
    fn is_over(&self, owed: bool) -> bool {
        let Some(surplus) = self.surplus else { return self.inside > self.window };
        let counted = self.inside.saturating_sub(surplus.stuck);
        let of_owed = counted.saturating_sub(surplus.outstanding);
        counted > self.window && !(owed && of_owed <= self.window.max(surplus.reach.unwrap_or(0)))
    }

    /// May a waiting class be kept out although there is room? What is owed may not, except for a claim beyond the
    /// class's allowance once contention has been seen. Nor may anything be, where nothing is needed or blocked.
    fn may_keep(&self, class: &ClassSnapshot) -> bool {
        let Some(surplus) = self.surplus else { return false };
        let owed = class.guarantee.throughput.is_some() && class.tokens.is_some_and(|tokens| tokens >= 1.0);
        let within =
            surplus.reach.is_some() || class.allowance.is_none_or(|allowance| f64::from(class.outstanding) < allowance);
        let sure = class.tokens.is_some_and(|tokens| tokens > 1.0 + HAIR);
        let one_more = Group { inside: self.inside + 1, ..*self };
        !(owed && sure && needs(class) == Some(true))
            && (one_more.is_over(owed) || !(owed && sure && within) && surplus.needed + surplus.blocked > NOTHING)
    }
}

/// The books.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) violations: Vec<Violation>,
    /// Classes of the policy, then its templates.
    pub(crate) tallies: Vec<Tally>,
    classes: usize,
    /// Places in `tallies` by the templates' names.
    templates: BTreeMap<String, usize>,
    nodes: Vec<Node>,
    now: u64,
    waiting: u32,
    inside: u32,
    groups: Vec<Group>,
    releases: u32,
    /// Per place in `tallies` its pool and set of services.
    services: Vec<(usize, ServiceSet)>,
    resources: Option<Resources>,
}

impl Checks {
    /// Empty books.
    pub(crate) fn new(policy: &Policy) -> Checks {
        let node = |index: usize| Node {
            pool: policy.nodes[index].pool,
            bound: policy.most_inside(index),
            is_down: false,
            is_drained: false,
            is_ejected: false,
            inside: 0,
            group: 0,
        };
        let specs = policy.classes.iter().chain(policy.templates.iter().map(|t| &t.class));
        Checks {
            violations: Vec::new(),
            tallies: vec![Tally::default(); policy.classes.len() + policy.templates.len()],
            classes: policy.classes.len(),
            templates: policy.templates.iter().map(|t| t.class.name.clone()).zip(policy.classes.len()..).collect(),
            nodes: (0..policy.nodes.len()).map(node).collect(),
            now: 0,
            waiting: 0,
            inside: 0,
            groups: vec![Group::default()],
            releases: 0,
            services: specs.map(|class| (class.pool, ServiceSet::of(class))).collect(),
            resources: Resources::of(policy),
        }
    }

    /// Something does not hold.
    pub(crate) fn note(&mut self, invariant: &'static str, what: String) {
        if self.violations.len() < MOST_KEPT {
            self.violations.push(Violation { at: self.now, invariant, what });
        }
    }

    /// The present is `now`.
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

    /// The engine has nothing more to do and wants to be called at `next`. False if that is no later than
    /// now, so that it would be called for ever.
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

    /// The engine speaks of the waiting request under `ticket`. False if the driver knows none.
    pub(crate) fn ticket(&mut self, request: Option<&Request>, ticket: Ticket) -> bool {
        let known = request.is_some_and(|r| r.place == Place::Waiting && r.ticket == Some(ticket));
        if !known {
            let place = request.map(|r| r.place);
            self.note("ticket", format!("{ticket:?} is not of a waiting request; its place is {place:?}"));
        }
        known
    }

    /// An attempt of a client at the door.
    pub(crate) fn arrived(&mut self, class: usize) {
        self.tallies[class].offered += 1;
    }

    /// It waits; `demand` is what the page table says of it.
    pub(crate) fn waits(&mut self, class: usize, demand: Option<Demand>) {
        if let Some(resources) = &mut self.resources {
            resources.waits(class, demand);
        }
        self.tallies[class].waiting += 1;
        self.waiting += 1;
    }

    /// It waits no more.
    pub(crate) fn waits_no_more(&mut self, class: usize) {
        self.tallies[class].waiting -= 1;
        self.waiting -= 1;
    }

    /// A request, owed or surplus, gets a slot and goes to `node`. True if the engine must be looked at now, with
    /// [`Checks::look_at_release`].
    pub(crate) fn released(&mut self, class: usize, node: NodeId, demand: Option<Demand>, owed: bool) -> bool {
        self.takes(class, node, demand);
        self.tallies[class].inside += 1;
        self.inside += 1;
        self.releases = (self.releases + 1) % LOOK_EVERY;
        self.enters(node, owed) || self.releases == 0
    }

    /// A failed request goes from one node to another. True as for [`Checks::released`].
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
        node.inside += 1;
        let node = *node;
        if node.is_down || node.is_drained {
            self.note("node", format!("{id:?} gets a request while it is down or drained: {node:?}"));
        }
        if node.inside > node.bound {
            self.note("node", format!("{id:?} has {} requests, its bound is {}", node.inside, node.bound));
        }
        let group = &mut self.groups[node.group];
        group.inside += 1;
        node.is_ejected || group.is_over(owed)
    }

    fn exits(&mut self, id: NodeId) {
        let node = &mut self.nodes[id.0 as usize];
        node.inside -= 1;
        self.groups[node.group].inside -= 1;
    }

    /// A request gives its slot back.
    pub(crate) fn freed(&mut self, class: usize, node: NodeId, demand: Option<Demand>) {
        self.gives_back(class, node, demand);
        self.tallies[class].inside -= 1;
        self.inside -= 1;
        self.exits(node);
    }

    /// The engine was told this.
    pub(crate) fn told(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Up(id) => self.nodes[id.0 as usize].is_down = false,
            NodeEvent::Down(id) => self.nodes[id.0 as usize].is_down = true,
            NodeEvent::Draining(id) => self.nodes[id.0 as usize].is_drained = true,
            NodeEvent::Resumed(id) => self.nodes[id.0 as usize].is_drained = false,
            NodeEvent::Capacity(..) | NodeEvent::Load { .. } => {}
        }
    }

    /// A look right after a request, owed or surplus, was released to `node`, before anything else happens. One that
    /// had a slot in the group of node `from` before may keep it there though the window has shrunk.
    /// What a guarantee needs may be released into a full window: `classes` says what they have, the request included.
    pub(crate) fn look_at_release(
        &mut self,
        spec: usize,
        (node, from): (NodeId, Option<NodeId>),
        owed: bool,
        snapshot: &Snapshot,
        classes: impl FnOnce() -> Vec<ClassSnapshot>,
    ) {
        self.look(snapshot);
        let needed = |class: &ClassSnapshot| {
            let before = ClassSnapshot { outstanding: class.outstanding.saturating_sub(1), ..class.clone() };
            self.place_of(class) == Some(spec) && needs(&before) != Some(false)
        };
        let group_of = |id: NodeId| self.nodes.get(id.0 as usize).map(|node| node.group);
        let group = group_of(node).and_then(|group| self.groups.get(group)).copied().unwrap_or_default();
        let over = group.is_over(owed) && from.and_then(group_of) != group_of(node);
        if over && !(owed && group.surplus.is_some() && classes().iter().any(needed)) {
            let Group { window, surplus, inside } = group;
            let what = format!("a release (owed: {owed}) leaves {inside} inside, the window is {window}, {surplus:?}");
            self.note("window", what);
        }
        if let Some(NodeState::Ejected { until }) = snapshot.nodes.get(node.0 as usize).map(|n| n.state) {
            self.note("node", format!("{node:?} gets a request while it is ejected until {} ns", until.as_nanos()));
        }
    }

    /// A look at any time.
    pub(crate) fn look(&mut self, snapshot: &Snapshot) {
        self.compare("all nodes", snapshot.outstanding, self.inside);
        self.compare("the queues", snapshot.waiting, self.waiting);
        let parts = windows_per_group(&snapshot.groups);
        let groups = snapshot.groups.len() / parts;
        // Of a window for each resource these books do not know in which one a request counts.
        let whole = |group: usize| Group {
            window: if parts > 1 { u32::MAX } else { snapshot.groups[group].window.unwrap_or(u32::MAX) },
            surplus: snapshot.groups[group].surplus,
            inside: 0,
        };
        self.groups = (0..groups).map(whole).collect();
        for (index, seen) in snapshot.nodes.iter().enumerate() {
            let Some(node) = self.nodes.get_mut(index) else { continue };
            node.is_ejected = matches!(seen.state, NodeState::Ejected { .. });
            node.group = seen.group as usize;
            let inside = node.inside;
            if let Some(group) = self.groups.get_mut(node.group) {
                group.inside += inside;
            }
            self.compare(&seen.name, seen.outstanding, inside);
        }
        for group in 0..groups {
            let inside = snapshot.groups.iter().skip(group).step_by(groups).map(|seen| seen.outstanding).sum();
            self.compare("a group", inside, self.groups[group].inside);
        }
        if let Some(what) = self.resources.as_ref().and_then(|resources| resources.differs(snapshot)) {
            self.note("resources", what);
        }
    }

    fn compare(&mut self, place: &str, engine: u32, driver: u32) {
        if engine != driver {
            self.note("books", format!("in {place} the engine has {engine} requests, the driver {driver}"));
        }
    }

    /// A look when the engine has nothing more to do. Its classes are asked for only if one of them may be kept out.
    pub(crate) fn look_at_rest(&mut self, snapshot: &Snapshot, classes: impl FnOnce() -> Vec<ClassSnapshot>) {
        self.look(snapshot);
        let mut waiting: BTreeMap<(usize, ServiceSet), u32> = BTreeMap::new();
        for (service, tally) in self.services.iter().zip(&self.tallies) {
            *waiting.entry(*service).or_default() += tally.waiting;
        }
        // Of a window for each resource one may be full and the others empty.
        if self.waiting == 0 || windows_per_group(&snapshot.groups) > 1 {
            return;
        }
        let classes = LazyCell::new(classes);
        for (index, (node, seen)) in self.nodes.iter().zip(&snapshot.nodes).enumerate() {
            let group = self.groups.get(node.group).copied().unwrap_or_default();
            let one_more = Group { inside: group.inside + 1, ..group };
            let has_room = self.resources.as_ref().is_none_or(|resources| resources.has_room_for_any(index));
            // What is owed finds room wherever surplus does, and what a guarantee needs also in a full window.
            let full = one_more.is_over(true);
            if !has_room || !seen.room || (full && group.surplus.is_none()) {
                continue;
            }
            // A node of a divided pool serves its set alone.
            let serves =
                |(pool, set): &(usize, ServiceSet)| *pool == node.pool && seen.set.is_none_or(|its| its == *set);
            let mut kept: u32 = waiting.iter().filter(|(service, _)| serves(service)).map(|(_, n)| n).sum();
            if kept > 0 && group.surplus.is_some() {
                let of_node =
                    |class: &&ClassSnapshot| self.place_of(class).is_some_and(|place| serves(&self.services[place]));
                let of_node = classes.iter().filter(of_node).filter(|class| class.waiting > 0);
                // Beyond the window the claims go in their order: the first of them holds up the others.
                let claims = of_node.clone().filter(|class| {
                    class.guarantee.throughput.is_some() && class.tokens.is_some_and(|tokens| tokens >= 1.0 - HAIR)
                });
                let first = claims.clone().map(order).fold(f64::INFINITY, f64::min) * (1.0 + HAIR);
                let held_up = full && claims.clone().any(|class| order(class) <= first && group.may_keep(class));
                let in_turn = |class: &&ClassSnapshot| !full || (!held_up && order(class) <= first);
                kept = of_node.filter(in_turn).filter(|class| !group.may_keep(class)).map(|class| class.waiting).sum();
            }
            if kept > 0 {
                let Group { window, surplus, inside } = group;
                let (name, beside) = (&seen.name, surplus.map(|surplus| format!(", {surplus:?}")).unwrap_or_default());
                let what = format!("{kept} wait for {name} while {inside} are inside a window of {window}{beside}");
                return self.note("work", what);
            }
        }
    }

    /// The place of an engine's class in `tallies`.
    fn place_of(&self, class: &ClassSnapshot) -> Option<usize> {
        let named = Some(class.class.0 as usize).filter(|index| *index < self.classes);
        named.or_else(|| self.templates.get(&class.name).copied())
    }

    /// The end of the run: what the engine counted against what was seen.
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
            sum.inside += class.outstanding;
        }
        let names = policy.classes.iter().chain(policy.templates.iter().map(|t| &t.class)).map(|class| &class.name);
        for ((name, theirs), ours) in names.zip(counted).zip(self.tallies.clone()) {
            if theirs != ours {
                self.note("guarantees", format!("class {name}: the engine has {theirs:?}, the driver {ours:?}"));
            }
        }
    }

    /// The end of the run: every attempt of a client.
    pub(crate) fn conservation(&mut self, records: &[Record]) {
        let cut = records.iter().filter(|record| record.fate == Fate::Cut).count();
        let here = self.waiting as usize + self.inside as usize;
        if cut != here {
            self.note("conservation", format!("{cut} attempts have no end, {here} wait or are inside"));
        }
        let sum = |of: fn(&Tally) -> u64| self.tallies.iter().map(of).sum::<u64>();
        let offered = sum(|tally| tally.offered);
        if offered != records.len() as u64 {
            self.note("conservation", format!("{offered} attempts came, {} were recorded", records.len()));
        }
        let disordered =
            |r: &&Record| r.ended < r.arrived || (r.released > 0 && !(r.arrived..=r.ended).contains(&r.released));
        if let Some(record) = records.iter().find(disordered) {
            self.note("time", format!("an attempt ends before it begins: {record:?}"));
        }
    }

    /// The end of the run: every page against the attempts that belong to it.
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

/// How many windows a group has: one for each resource, where the discipline keeps them apart.
fn windows_per_group(windows: &[GroupSnapshot]) -> usize {
    let first = windows.first().and_then(|window| window.resource.as_deref());
    let mut named: Vec<&str> = windows.iter().filter_map(|window| window.resource.as_deref()).collect();
    named.dedup();
    if first.is_some() { named.len().max(1) } else { 1 }
}

#[cfg(test)]
mod tests;
