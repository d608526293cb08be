//! The checkers: what must hold in every run, whatever the discipline.
//!
//! They keep books of their own from what the driver does and compare them with what the engine says:
//!
//! | invariant | holds |
//! |---|---|
//! | `time` | instants never fall; the engine's timer lies ahead once it has nothing more to do; no request ends before it was released or is released before it came |
//! | `ticket` | what the engine says about a request fits where the request is: none is lost or released twice |
//! | `window` | a release leaves no more inside than the window has places |
//! | `node` | no request goes to a node that is down, drained or ejected, or beyond the node's own bound |
//! | `books` | the engine counts as many waiting and inside, in all and per node, as the driver has |
//! | `work` | nothing waits while the window and every pool have room |
//! | `guarantees` | the counts from which guarantees are judged are those of the driver, class by class |
//! | `conservation` | every attempt of a client has ended in one way, or waits or is inside at the end |
//!
//! The engine's snapshot costs more than a decision, so it is looked at now and then (every half second,
//! at every 256th release, after a failure, whenever a release seems wrong) and not at every step: a
//! window that has shrunk in between is known at the next look. Where classes are bound to different
//! machines there are several windows, of which only the sum is known: one of them may have shrunk below
//! what is inside it while another has room. Then `window` is not asked, and `work` no more than that
//! something be inside.

use std::collections::BTreeMap;

use weirgate_engine::{ClassSnapshot, NodeEvent, NodeId, NodeState, Policy, Snapshot, Ticket, Time};

use crate::requests::{Place, Request};
use crate::run::{Fate, Record, Violation};

/// Most violations that are kept: the first ones tell the cause.
const MOST_KEPT: usize = 100;

/// Releases between two looks at the engine. A look costs about ten decisions; this makes that a few
/// percent.
const LOOK_EVERY: u32 = 256;

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
}

/// The books.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) violations: Vec<Violation>,
    /// Classes of the policy, then its templates.
    pub(crate) tallies: Vec<Tally>,
    classes: usize,
    nodes: Vec<Node>,
    now: u64,
    waiting: u32,
    inside: u32,
    /// Places, when the engine was last looked at.
    window: u32,
    releases: u32,
    /// Pools that classes use.
    pools: Vec<usize>,
    one_group: bool,
}

impl Checks {
    /// Empty books.
    pub(crate) fn new(policy: &Policy) -> Checks {
        let node = |n: &weirgate_engine::Node| Node {
            pool: n.pool,
            bound: n.max_outstanding.unwrap_or(u32::MAX),
            is_down: false,
            is_drained: false,
            is_ejected: false,
            inside: 0,
        };
        let specs = policy.classes.iter().chain(policy.templates.iter().map(|t| &t.class));
        let mut pools: Vec<usize> = specs.map(|class| class.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        let machines = |pool: usize| {
            let mut names: Vec<&str> =
                policy.nodes.iter().filter(|n| n.pool == pool).map(|n| n.machine.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let one_group = pools.windows(2).all(|pair| machines(pair[0]) == machines(pair[1]));
        Checks {
            violations: Vec::new(),
            tallies: vec![Tally::default(); policy.classes.len() + policy.templates.len()],
            classes: policy.classes.len(),
            nodes: policy.nodes.iter().map(node).collect(),
            now: 0,
            waiting: 0,
            inside: 0,
            window: 0,
            releases: 0,
            pools,
            one_group,
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
            self.note("time", format!("{now} ns comes after {} ns", self.now));
        }
        self.now = self.now.max(now);
    }

    /// The engine has nothing more to do and wants to be called at `next`. False if that is no later than
    /// now, so that it would be called for ever.
    pub(crate) fn timer(&mut self, next: Option<Time>) -> bool {
        let ahead = next.is_none_or(|next| next.as_nanos() > self.now);
        if !ahead {
            self.note(
                "time",
                format!("the engine's timer is at {} ns, not ahead", next.unwrap_or_default().as_nanos()),
            );
        }
        ahead
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

    /// It waits.
    pub(crate) fn waits(&mut self, class: usize) {
        self.tallies[class].waiting += 1;
        self.waiting += 1;
    }

    /// It waits no more.
    pub(crate) fn waits_no_more(&mut self, class: usize) {
        self.tallies[class].waiting -= 1;
        self.waiting -= 1;
    }

    /// A request gets a slot and goes to `node`. True if the engine must be looked at now, with
    /// [`Checks::look_at_release`].
    pub(crate) fn released(&mut self, class: usize, node: NodeId) -> bool {
        self.tallies[class].inside += 1;
        self.inside += 1;
        self.releases = (self.releases + 1) % LOOK_EVERY;
        self.enters(node) || self.inside > self.window && self.one_group || self.releases == 0
    }

    /// A failed request keeps its slot and goes from one node to another. True as for
    /// [`Checks::released`].
    pub(crate) fn moved(&mut self, class: usize, from: NodeId, to: NodeId) -> bool {
        self.tallies[class].retried += 1;
        self.nodes[from.0 as usize].inside -= 1;
        self.enters(to)
    }

    fn enters(&mut self, id: NodeId) -> bool {
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
        node.is_ejected
    }

    /// A request gives its slot back.
    pub(crate) fn freed(&mut self, class: usize, node: NodeId) {
        self.tallies[class].inside -= 1;
        self.inside -= 1;
        self.nodes[node.0 as usize].inside -= 1;
    }

    /// The engine was told this.
    pub(crate) fn told(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Up(id) => self.nodes[id.0 as usize].is_down = false,
            NodeEvent::Down(id) => self.nodes[id.0 as usize].is_down = true,
            NodeEvent::Draining(id) => self.nodes[id.0 as usize].is_drained = true,
            NodeEvent::Resumed(id) => self.nodes[id.0 as usize].is_drained = false,
            NodeEvent::Capacity(..) => {}
        }
    }

    /// A look right after a release to `node`, before anything else happens.
    pub(crate) fn look_at_release(&mut self, node: NodeId, snapshot: &Snapshot) {
        let window = snapshot.window.unwrap_or(u32::MAX);
        if self.inside > window && self.one_group {
            self.note("window", format!("a release leaves {} inside, the window is {window}", self.inside));
        }
        if let Some(NodeState::Ejected { until }) = snapshot.nodes.get(node.0 as usize).map(|n| n.state) {
            self.note("node", format!("{node:?} gets a request while it is ejected until {} ns", until.as_nanos()));
        }
        self.look(snapshot);
    }

    /// A look at any time.
    pub(crate) fn look(&mut self, snapshot: &Snapshot) {
        self.window = snapshot.window.unwrap_or(u32::MAX);
        if (snapshot.waiting, snapshot.outstanding) != (self.waiting, self.inside) {
            self.note(
                "books",
                format!(
                    "the engine counts {} waiting and {} inside, the driver has {} and {}",
                    snapshot.waiting, snapshot.outstanding, self.waiting, self.inside
                ),
            );
        }
        for (index, seen) in snapshot.nodes.iter().enumerate() {
            let Some(node) = self.nodes.get_mut(index) else { continue };
            node.is_ejected = matches!(seen.state, NodeState::Ejected { .. });
            if seen.outstanding != node.inside {
                let what = format!(
                    "the engine counts {} inside {}, the driver has {}",
                    seen.outstanding, seen.name, node.inside
                );
                self.note("books", what);
            }
        }
    }

    /// A look when the engine has nothing more to do.
    pub(crate) fn look_at_rest(&mut self, snapshot: &Snapshot) {
        self.look(snapshot);
        let has_room = |(node, seen): (&Node, &weirgate_engine::NodeSnapshot)| {
            seen.state == NodeState::Up && node.inside < node.bound
        };
        let pool_has_room =
            |pool: usize| self.nodes.iter().zip(&snapshot.nodes).filter(|(node, _)| node.pool == pool).any(has_room);
        let idle = if self.one_group { self.inside < self.window } else { self.inside == 0 };
        if self.waiting > 0 && idle && self.pools.iter().all(|pool| pool_has_room(*pool)) {
            let (waiting, inside, window) = (self.waiting, self.inside, self.window);
            self.note("work", format!("{waiting} wait while {inside} are inside a window of {window}"));
        }
    }

    /// The end of the run: what the engine counted against what was seen.
    pub(crate) fn guarantees(&mut self, policy: &Policy, engine: &[ClassSnapshot]) {
        let templates: BTreeMap<&str, usize> =
            policy.templates.iter().map(|t| t.class.name.as_str()).zip(self.classes..).collect();
        let mut counted = vec![Tally::default(); self.tallies.len()];
        for class in engine {
            let named = Some(class.class.0 as usize).filter(|index| *index < self.classes);
            let Some(index) = named.or_else(|| templates.get(class.name.as_str()).copied()) else { continue };
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
}

#[cfg(test)]
mod tests;
