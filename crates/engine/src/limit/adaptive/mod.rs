//! [`crate::LoadControl::WindowAdaptive`]: a window per group of machines that seeks the knee; see `swing` for the rule.
//!
//! Windows have their own times, one half cycle after the other.

mod allowance;
mod occupancy;
mod profile;
mod reach;
mod swing;

use core::time::Duration;

use super::{Completion, LimitView, Slot, Window};
use crate::classify::Classes;
use crate::discipline::Adaptive as Figures;
use crate::dispatch::Nodes;
use crate::index::{GroupId, Id, Table};
use crate::request::{ClassId, Contention, Moved, NodeId, Why};
use crate::scheduler::Standing;
use crate::time::Time;

use occupancy::{Occupancy, Room};
use profile::{Evidence, Profile};
use reach::Reach;
use swing::{Danger, Half, Halves, Swing, Work};

/// Standard errors by which the elasticity of cycles must be below `found` to open a window: there are thousands of
/// cycles, and an opening by chance makes all of them wait.
const CERTAIN: f64 = 2.0;

/// What may be in flight on a group's machines, in windows: the window itself, and as much that is owed beyond it. With
/// less, a machine that is full keeps out what a guarantee needs as soon as all requests take longer. A single machine
/// that is slow or hangs must not collect more.
const BEYOND: f64 = 2.0;

/// Share of a limit that a class may take unloaded: from there on no window can keep it.
const KEEPABLE: f64 = 0.9;

/// What a class showed in one group of machines and sub-queue.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    halves: Halves,
    profile: Profile,
}

/// The windows' swings and reaches, and what surplus leaves.
#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    figures: Figures,
    /// By window.
    swings: Vec<Swing>,
    reaches: Vec<Reach>,
    /// By the groups that the class's pool has nodes in and by sub-queue.
    shown: Table<ClassId, Vec<Shown>>,
    occupancy: Occupancy,
    sub_queues: usize,
    /// When the first of the swings ends its half cycle, or active classes are looked at.
    pub(super) next: Time,
}

impl Adaptive {
    pub(super) fn new(
        now: Time,
        figures: Figures,
        nodes: &Nodes,
        windows: usize,
        classes: usize,
        sub_queues: usize,
    ) -> Adaptive {
        Adaptive {
            figures,
            swings: vec![Swing::new(now, figures); windows],
            reaches: vec![Reach::new(now); windows],
            shown: Table::filled(classes, Vec::new()),
            occupancy: Occupancy::new(now, windows, classes, nodes.sections.len()),
            sub_queues,
            next: Time::NEVER,
        }
    }

    pub(super) fn open(&mut self, class: ClassId) {
        self.shown.put(class, Vec::new());
        self.occupancy.open(class);
    }

    /// New figures. `known` is the window's place before, if it had one, and what was known of it.
    pub(super) fn carry(&mut self, now: Time, window: usize, known: Option<Option<(&Adaptive, usize)>>) {
        match known {
            Some(None) => {}
            Some(Some((old, from))) => {
                self.swings[window] = old.swings[from].clone();
                self.reaches[window] = old.reaches[from].clone();
                self.swings[window].reconfigure(now, self.figures);
            }
            None => self.swings[window].reconfigure(now, self.figures),
        }
    }

    /// Takes over what is known of classes that a new policy keeps.
    pub(super) fn carry_classes(&mut self, old: &Adaptive, kept: &[(ClassId, ClassId)]) {
        for (from, to) in kept {
            self.occupancy.carry(&old.occupancy, *from, *to);
        }
    }

    /// A window is one of so many now that was one, or one of what were more (the parts, as a factor).
    pub(super) fn divide(&mut self, window: usize, parts: f64) {
        self.swings[window].divide(parts);
    }

    /// The number in flight is about to change.
    #[inline]
    pub(super) fn note(&mut self, now: Time, window: u32, in_flight: u32) {
        let swing = &mut self.swings[window as usize];
        let holding = swing.holding();
        swing.note(now, in_flight, holding);
    }

    #[inline]
    pub(super) fn hold(&mut self, now: Time, window: usize, in_flight: u32, holding: bool) {
        let swing = &mut self.swings[window];
        if swing.holding() != holding {
            swing.note(now, in_flight, holding);
        }
    }

    #[inline]
    pub(super) fn holds(&self, window: usize) -> bool {
        self.swings[window].holding()
    }

    #[inline]
    pub(super) fn offered(&mut self, now: Time, class: ClassId, claims: bool) {
        self.occupancy.offered(now, class, claims);
        self.next = self.next.min(self.occupancy.next);
    }

    pub(super) fn resumes(&mut self, now: Time, class: ClassId, claims: bool) {
        self.occupancy.resumes(now, class, claims);
        self.next = self.next.min(self.occupancy.next);
    }

    #[inline]
    pub(super) fn enters(&mut self, now: Time, slot: &Slot) {
        self.occupancy.enters(now, slot.window as usize, slot.class, slot.standing);
    }

    #[inline]
    pub(super) fn leaves(&mut self, slot: &Slot) {
        self.occupancy.leaves(slot.window as usize, slot.class, slot.released);
    }

    pub(super) fn again(&mut self, now: Time, from: u32, slot: &Slot) {
        self.occupancy.again(now, (from as usize, slot.window as usize), slot.class, slot.released);
    }

    /// Slots of a window that claimants need, and that are blocked.
    pub(super) fn occupied(&self, window: usize) -> (f64, f64) {
        self.occupancy.occupied(window)
    }

    /// Requests of a class that may be in flight whatever the window says, if that is known.
    pub(super) fn allowance(&self, class: ClassId) -> Option<f64> {
        self.occupancy.allowance(class)
    }

    /// Has a class less in flight than that? A class without a guarantee has earned its share of the window.
    #[inline]
    pub(super) fn allows(&self, class: ClassId, window: usize) -> bool {
        self.occupancy.allows(class, window)
    }

    /// May a request of the class be released in this standing into this window, which has room?
    #[inline]
    pub(super) fn admits(&self, class: ClassId, standing: Standing, window: usize) -> bool {
        self.occupancy.admits(class, standing, room(&self.swings, &self.reaches, window))
    }

    /// A good answer for the window that the request was in.
    pub(super) fn completed(&mut self, view: &mut LimitView<'_>, windows: &mut [Window], completion: &Completion) {
        let Completion { class, sub_queue, window, node, retried, among, holding, .. } = *completion;
        if node == NodeId::NONE || retried {
            return;
        }
        if let Some(mean) = view.classes[class].expected.seconds().filter(|mean| *mean > 0.0) {
            view.nodes.computed(node, holding / mean, &self.figures);
        }
        self.occupancy.completed(class, holding);
        let at = view.nodes.place_of(node) * self.sub_queues + sub_queue;
        let shown = &mut self.shown[class];
        if shown.len() <= at {
            shown.resize_with(at + 1, Default::default);
        }
        let (swing, reach) = (&mut self.swings[window as usize], &mut self.reaches[window as usize]);
        swing.completed(view.now, class, &mut shown[at].halves, holding);
        let machine = (among, view.nodes.on_machine(node));
        let evidence = shown[at].profile.completed(view.now.as_nanos() as f64 / 1e9, machine, holding);
        if evidence == Evidence::Changed {
            self.occupancy.changed(class);
        }
        let window = &mut windows[window as usize];
        // Only what is owed goes beyond the window, so only its classes say whether it may.
        if view.classes.spec(class).guarantee.throughput.is_some() {
            match evidence {
                Evidence::Changed => {
                    swing.forget(view.now);
                    if reach.changed(view.now, [window.size, window.owed()]) {
                        swing.tries();
                    }
                    // What the others showed is of another time as well: as the number in flight follows the times of
                    // this one, theirs would seem to follow the number.
                    let group = view.nodes.group_of(node);
                    for other in self.occupancy.active() {
                        let place = view.nodes.place_in(view.classes[*other].pool, group);
                        let at = place.map(|place| place as usize * self.sub_queues + sub_queue);
                        if let Some(shown) = at.and_then(|at| self.shown[*other].get_mut(at)) {
                            shown.profile.forget();
                        }
                    }
                }
                Evidence::Contention { per_machine } if reach.shows(true) == Some(true) => {
                    let machines = f64::from(view.nodes.groups[view.nodes.group_of(node)].usable);
                    let from = swing.high();
                    let before = reach.contended(view.now);
                    match before {
                        Contention::Unseen => {
                            let in_flight = f64::from(window.in_flight);
                            let shared = in_flight / self.occupancy.slowdown(view.classes);
                            swing.begin_at((per_machine * machines).min(shared));
                        }
                        Contention::Trial => swing.reverts(),
                        Contention::Seen => {}
                    }
                    // What is known already is no move.
                    if before != Contention::Seen {
                        window.moved = Moved { at: view.now, from, to: swing.high(), why: Why::Contention };
                    }
                }
                Evidence::Free if reach.shows(false) == Some(false) && reach.free(view.now, window.size) => {
                    swing.begin();
                }
                _ => {}
            }
        }
        reach.completed(window.owed());
        window.reach = reach.size();
    }

    /// A failure counts as a slow answer: fast ones must not attract requests.
    pub(super) fn failed(&self, nodes: &mut Nodes, node: NodeId) {
        nodes.computed(node, self.figures.speed_longest, &self.figures);
    }

    pub(super) fn step(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        self.look(view, windows);
        for window in 0..windows.len() {
            if self.swings[window].next <= view.now {
                self.swing(view, windows, window);
            }
        }
        self.plan();
    }

    /// Looks at all active classes, if it is time.
    fn look(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        if view.now < self.occupancy.next {
            return;
        }
        let Adaptive { swings, reaches, occupancy, .. } = self;
        occupancy.tick(view.now, view.classes, view.nodes, |window| room(swings, reaches, window));
        for (window, reach) in reaches.iter_mut().enumerate() {
            reach.bound(occupancy.owed_at_most(window));
            windows[window].reach = reach.size();
        }
        if let Some(class) = occupancy.misses() {
            let slowdown = occupancy.slowdown(view.classes);
            let why = doubted(view.classes, class);
            for ((window, swing), reach) in windows.iter_mut().zip(swings).zip(reaches) {
                if reach.doubts(view.now) {
                    let from = swing.high();
                    swing.begin_at(f64::from(window.in_flight) / slowdown.max(2.0));
                    (window.size, window.reach) = (swing.size(), reach.size());
                    window.moved = Moved { at: view.now, from, to: swing.high(), why };
                }
            }
        }
        for group in view.nodes.groups.ids() {
            if self.reaches.iter().skip(group.row()).step_by(view.nodes.groups.len()).any(Reach::is_open) {
                self.spread(view, group);
            }
            // Machines have one bound for all their windows: what is beyond it is told apart where there is one.
            if windows.len() == view.nodes.groups.len() {
                windows[group.row()].stuck = view.nodes.beyond_bounds(group);
            }
        }
    }

    /// Whether contention has been seen in a window, and since when.
    pub(super) fn contention(&self, window: usize) -> (Contention, Time) {
        self.reaches[window].contention()
    }

    fn plan(&mut self) {
        let swings = self.swings.iter().map(|swing| swing.next).min().unwrap_or(Time::NEVER);
        self.next = swings.min(self.occupancy.next);
    }

    /// The end of a half cycle of a window.
    fn swing(&mut self, view: &mut LimitView<'_>, windows: &mut [Window], window: usize) {
        let (sub_queue, group) = place_of(view.nodes, window);
        let in_flight = windows[window].in_flight;
        let half = self.swings[window].half(view.now, in_flight);
        if half == Half::Unfinished {
            return;
        }
        let (danger, slowdown) = self.endangered(view, window);
        let work = self.work(view, window);
        let (swing, reach) = (&mut self.swings[window], &mut self.reaches[window]);
        let from = swing.high();
        if reach.is_open() {
            swing.proven(view.now, half);
        }
        swing.slowdown = slowdown.unwrap_or(swing.slowdown);
        let why = match (danger, half) {
            (Some(Danger { class, compute, limit }), _) if !reach.is_open() && swing.helps() && swing.can_shrink() => {
                swing.back_off(in_flight);
                Some(Why::Endangered { class, compute, limit })
            }
            (_, Half::Cycle(cycle)) if swing.has_swung(cycle) => Some(swing.step(work, cycle)),
            _ => None,
        };
        if let Half::Cycle(_) = half {
            let (elasticity, error) = swing.elasticity();
            if elasticity - error > self.figures.found {
                if reach.contended(view.now) == Contention::Trial {
                    swing.reverts();
                }
            } else if elasticity + CERTAIN * error < self.figures.found && reach.free(view.now, windows[window].size) {
                swing.begin();
            }
        }
        if sub_queue == 0 {
            view.nodes.learn(group, swing.figures());
        }
        swing.at_least(slots(view.nodes, view.classes, windows, group, sub_queue), view.nodes.groups[group].usable);
        swing.turn(view.now, half);
        let size = swing.size();
        windows[window].reach = reach.size();
        // Two halves of a swing differ though the window stays, so it is told by its height.
        let to = swing.high();
        if let Some(why) = why.or((to != from).then_some(Why::Answered)) {
            windows[window].moved = Moved { at: view.now, from, to, why };
        }
        windows[window].size = size;
        self.spread(view, group);
    }

    /// A class's sums in a window.
    fn halves(&self, view: &LimitView<'_>, class: ClassId, window: usize) -> Option<&Halves> {
        let (sub_queue, group) = place_of(view.nodes, window);
        let at = view.nodes.place_in(view.classes[class].pool, group)?;
        self.shown[class].get(at as usize * self.sub_queues + sub_queue).map(|shown| &shown.halves)
    }

    /// Work completed in the two halves of a cycle.
    fn work(&self, view: &LimitView<'_>, window: usize) -> [Work; 2] {
        let swing = &self.swings[window];
        let of = |class: &ClassId| self.halves(view, *class, window).map(|halves| swing.work(halves));
        swing.seen.iter().filter_map(of).fold([Work::default(); 2], |sum, work| [sum[0] + work[0], sum[1] + work[1]])
    }

    /// The class of the cycle whose limit is most in danger, and the least slowdown of compute times if there are
    /// two classes to compare: of one alone it is unknown whether it is expensive or in a crowd.
    fn endangered(&self, view: &mut LimitView<'_>, window: usize) -> (Option<Danger>, Option<f64>) {
        let swing = &self.swings[window];
        let (mut worst, mut danger, mut slowdown, mut compared) = (0.0, None, f64::INFINITY, 0);
        for class in &swing.seen {
            let Some(certain) = self.halves(view, *class, window).map(|halves| swing.mean(halves)) else { continue };
            let limit = view.classes.spec(*class).guarantee.response_time;
            let Some(unloaded) = view.classes.service_time(*class) else { continue };
            view.classes.roll(view.now, *class);
            let expected = &view.classes[*class].expected;
            let (Some(mean), Some(value)) = (expected.seconds(), expected.guaranteed()) else { continue };
            slowdown = f64::min(slowdown, mean / unloaded);
            compared += 1;
            let Some(limit) = limit.map(|rt| rt.limit) else { continue };
            if certain.min(unloaded) > KEEPABLE * limit.as_secs_f64() {
                continue;
            }
            let part = value / limit.as_secs_f64();
            if part > worst && swing.endangered(value, certain.min(mean), unloaded, limit.as_secs_f64()) {
                worst = part;
                let compute = Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX);
                danger = Some(Danger { class: *class, compute, limit });
            }
        }
        (danger, (compared > 1).then_some(slowdown.max(1.0)))
    }

    /// By how much requests of a pool take longer in flight than alone; at least 1.
    pub(super) fn slowdown(&self, nodes: &Nodes, pool: usize) -> f64 {
        let swings =
            nodes.groups_of(pool).flat_map(|group| self.swings.iter().skip(group.row()).step_by(nodes.groups.len()));
        swings.map(|swing| swing.slowdown).fold(f64::INFINITY, f64::min).clamp(1.0, 1e6)
    }

    /// No machine of a group gets much more than its part of what may be in flight: the windows, and as much again that
    /// is owed beyond them, or what the guarantees need now.
    fn spread(&self, view: &mut LimitView<'_>, group: GroupId) {
        let of_group = (group.row()..self.swings.len()).step_by(view.nodes.groups.len());
        let (mut high, mut reach) = (0u32, 0u32);
        let needed = guaranteed(view.nodes, view.classes, group) * self.occupancy.stretch();
        for window in of_group {
            high += self.swings[window].high();
            reach = reach.saturating_add(self.reaches[window].size());
        }
        let owed = (BEYOND * f64::from(high)).max(needed).min(1e9) as u32;
        view.nodes.spread(group, owed.max(reach), self.figures.node_share);
    }

    /// The machines are others: the guarantees need another number of slots of them.
    pub(super) fn nodes_changed(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        for window in 0..windows.len() {
            let (sub_queue, group) = place_of(view.nodes, window);
            let slots = slots(view.nodes, view.classes, windows, group, sub_queue);
            let members = &view.nodes.groups[group];
            let swing = &mut self.swings[window];
            let from = swing.high();
            swing.needs(view.now, slots, members.usable, members.weight);
            self.reaches[window].machines(members.usable);
            windows[window].reach = self.reaches[window].size();
            let why = Why::Nodes { usable: members.usable, all: members.machines() };
            windows[window].moved = Moved { at: view.now, from, to: swing.high(), why };
            windows[window].size = swing.size();
        }
        for group in view.nodes.groups.ids() {
            self.spread(view, group);
        }
        self.plan();
    }
}

/// What surplus may use of a window.
fn room(swings: &[Swing], reaches: &[Reach], window: usize) -> Room {
    Room {
        window,
        bound: swings[window].bound(),
        blockable: swings[window].blockable(),
        contended: !reaches[window].is_open(),
    }
}

/// A class misses its limit although nothing that is owed is held back.
fn doubted(classes: &Classes, class: ClassId) -> Why {
    let compute = classes[class].expected.guaranteed().and_then(|value| Duration::try_from_secs_f64(value).ok());
    let limit = classes.spec(class).guarantee.response_time.map(|rt| rt.limit);
    Why::Doubted { class, compute: compute.unwrap_or_default(), limit: limit.unwrap_or_default() }
}

/// The sub-queue and the group of machines that a window is for.
fn place_of(nodes: &Nodes, window: usize) -> (usize, GroupId) {
    (window / nodes.groups.len(), GroupId::of(window % nodes.groups.len()))
}

/// Slots that the guarantees need of a group, as far as service times are known.
fn guaranteed(nodes: &Nodes, classes: &Classes, group: GroupId) -> f64 {
    nodes.shares(group).map(|(pool, share)| classes.pool_slots[pool] * share).sum()
}

/// Slots that the guarantees need of a group in a sub-queue, as far as service times are known. How they divide is said
/// by what is in flight; with nothing in flight every sub-queue has an equal part, and the windows find their sizes
/// from there.
fn slots(nodes: &Nodes, classes: &Classes, windows: &[Window], group: GroupId, sub_queue: usize) -> f64 {
    let slots = guaranteed(nodes, classes, group);
    let in_flight = |window: &Window| f64::from(window.in_flight) + 1.0;
    let all = || windows.iter().skip(group.row()).step_by(nodes.groups.len());
    slots * all().nth(sub_queue).map_or(1.0, |window| in_flight(window) / all().map(in_flight).sum::<f64>())
}
