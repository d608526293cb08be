//! [`crate::LoadControl::WindowAdaptive`]: a window per group of machines that seeks the knee. See `swing`
//! for the rule.
//!
//! Each window has its own timer for its half cycles.

mod allowance;
mod cycle;
mod elasticity;
mod learned;
mod occupancy;
mod others;
mod probe;
mod profile;
mod reach;
mod round;

use core::time::Duration;

use cycle::{HalfCycle, Halves};
use occupancy::Occupancy;
use probe::Probe;
use profile::{Evidence, Profile};
use reach::Reach;

use super::window::REST;
use super::{Completion, LimitView, Slot, Window};
use crate::classify::Classes;
use crate::discipline::Adaptive as Figures;
use crate::dispatch::Nodes;
use crate::index::{Id, MachineGroupId, PartitionId, Table};
use crate::request::{ClassId, Contention, Moved, NodeId, Why};
use crate::scheduler::Standing;
use crate::time::Time;

/// Number of standard errors by which the elasticity of cycles must be below `found` to open a window, and for a step
/// of its search upwards. There are thousands of cycles, and a window opened by chance makes all requests wait.
const CERTAIN: f64 = 2.0;

/// Maximum number in flight on a group's machines, as a multiple of the window: the window itself, and as
/// many owed requests beyond it. With a smaller factor, a full machine would keep out requests that a
/// guarantee needs as soon as all requests take longer. A single machine that is slow or hangs must not
/// collect more.
const BEYOND: f64 = 2.0;

/// Part of a limit from which an unloaded service time makes the limit impossible to keep with any window.
const KEEPABLE: f64 = 0.9;

/// Measurements of a class in one group of machines and sub-queue.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    halves: Halves,
    profile: Profile,
    /// Era of the window that the profile belongs to.
    era: u64,
}

/// The class with the limit at the highest risk.
#[derive(Clone, Copy, Debug)]
struct LimitAtRisk {
    class: ClassId,
    compute: Duration,
    limit: Duration,
}

/// The room of one window.
#[derive(Clone, Copy, Debug)]
struct Room {
    window: usize,
    /// The window's size in a high half, and the number of its slots that surplus may block by the declared need.
    bound: f64,
    max_blocked: f64,
    /// Whether contention has been seen.
    contended: bool,
}

/// The windows' probes and reaches, and the bounds on surplus.
#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    figures: Figures,
    /// Indexed by window.
    probes: Vec<Probe>,
    reaches: Vec<Reach>,
    /// Number of windows that hold requests back.
    holding: usize,
    /// Indexed by the groups that contain nodes of the class's partition, and by sub-queue.
    shown: Table<ClassId, Vec<Shown>>,
    occupancy: Occupancy,
    sub_queues: usize,
    /// End of what is known of other engines.
    others_until: Time,
    /// Time at which the next half cycle ends, or the next update of active classes.
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
            probes: vec![Probe::new(now, figures); windows],
            reaches: vec![Reach::new(now); windows],
            holding: 0,
            shown: Table::filled(classes, Vec::new()),
            occupancy: Occupancy::new(now, windows, classes, nodes.partitions.len()),
            sub_queues,
            others_until: Time::NEVER,
            next: Time::NEVER,
        }
    }

    pub(super) fn open(&mut self, class: ClassId) {
        self.shown.put(class, Vec::new());
        self.occupancy.open(class);
    }

    /// Applies a new policy's figures. `known` holds the window's previous index and state, if it had any.
    pub(super) fn carry(&mut self, now: Time, window: usize, known: Option<Option<(&Adaptive, usize)>>) {
        match known {
            Some(None) => {}
            Some(Some((old, from))) => {
                self.probes[window] = old.probes[from].clone();
                self.reaches[window] = old.reaches[from].clone();
                self.occupancy.carry_window(&old.occupancy, from, window);
                self.others_until = old.others_until;
                self.probes[window].reconfigure(now, self.figures);
            }
            None => self.probes[window].reconfigure(now, self.figures),
        }
        self.holding += usize::from(self.probes[window].holding());
    }

    /// Takes over the estimates of classes that a new policy keeps.
    pub(super) fn carry_classes(&mut self, old: &Adaptive, kept: &[(ClassId, ClassId)]) {
        for (from, to) in kept {
            self.occupancy.carry(&old.occupancy, *from, *to);
        }
    }

    /// Divides a window's base by `parts` after windows were split. `parts` is below 1 if they were merged.
    pub(super) fn divide(&mut self, window: usize, parts: f64) {
        self.probes[window].divide(parts);
    }

    /// Records the number in flight before it changes.
    #[inline]
    pub(super) fn note(&mut self, now: Time, window: u32, in_flight: u32) {
        let probe = &mut self.probes[window as usize];
        let holding = probe.holding();
        probe.note(now, in_flight, holding);
    }

    #[inline]
    pub(super) fn hold(&mut self, now: Time, window: usize, in_flight: u32, holding: bool) {
        let probe = &mut self.probes[window];
        if probe.holding() != holding {
            probe.note(now, in_flight, holding);
            if holding {
                self.holding += 1;
            } else {
                self.holding -= 1;
            }
        }
    }

    /// Returns whether any window holds requests back.
    #[inline]
    pub(super) fn any_holds(&self) -> bool {
        self.holding > 0
    }

    #[inline]
    pub(super) fn holds(&self, window: usize) -> bool {
        self.probes[window].holding()
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

    /// Counts a request in flight. `full` says that its window had no room for surplus.
    #[inline]
    pub(super) fn enters(&mut self, now: Time, slot: &Slot, full: bool) {
        self.occupancy.enters(now, slot.window as usize, slot.class, full || slot.standing != Standing::Surplus);
    }

    #[inline]
    pub(super) fn leaves(&mut self, slot: &Slot) {
        self.occupancy.leaves(slot.window as usize, slot.class, slot.released);
    }

    pub(super) fn again(&mut self, now: Time, from: u32, slot: &Slot) {
        self.occupancy.again(now, (from as usize, slot.window as usize), slot.class, slot.released);
    }

    /// Returns the slots of a window that claimants need, and the slots that are blocked.
    pub(super) fn occupied(&self, window: usize) -> (f64, f64) {
        self.occupancy.occupied(window)
    }

    /// Returns the number of requests of a class that may be in flight whatever the window, if it is known.
    pub(super) fn allowance(&self, class: ClassId) -> Option<f64> {
        self.occupancy.allowance(class)
    }

    /// Returns whether a class has fewer requests in flight than its allowance. A class without a guarantee
    /// must have earned its share of the window.
    #[inline]
    pub(super) fn allows(&self, class: ClassId, window: usize) -> bool {
        self.occupancy.allows(class, window)
    }

    /// Returns whether a request of the class may be released with this standing into this window, which has
    /// room.
    #[inline]
    pub(super) fn admits(&self, class: ClassId, standing: Standing, window: usize) -> bool {
        self.occupancy.admits(class, standing, room(&self.probes, &self.reaches, window))
    }

    /// Learns from a successful answer to a request of the window.
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
        let shown = &mut shown[at];
        let (probe, reach) = (&mut self.probes[window as usize], &mut self.reaches[window as usize]);
        probe.completed(view.now, class, &mut shown.halves, holding);
        if probe.is_together() {
            probe.answers(view.now, view.classes.service_time(class).unwrap_or(holding));
        }
        if shown.era != probe.era {
            shown.era = probe.era;
            shown.profile.forget();
        }
        // The number of other engines is known for the whole group.
        let machines = f64::from(view.nodes.groups[view.nodes.group_of(node)].usable.max(1));
        let others = probe.others() / machines;
        let machine = (f64::from(among) + others, f64::from(view.nodes.on_machine(node)) + others);
        let evidence = shown.profile.completed(view.now.as_nanos() as f64 / 1e9, machine, holding);
        if evidence == Evidence::Changed {
            self.occupancy.changed(class);
            view.nodes.times_changed(view.nodes.group_of(node), class);
        }
        let at = window as usize;
        let window = &mut windows[at];
        // Only owed requests go beyond the window, so only classes with a guaranteed rate decide whether they
        // may.
        if view.classes.spec(class).guarantee.throughput.is_some() {
            match evidence {
                Evidence::Changed => {
                    // The profiles of the other classes are obsolete too. The number in flight follows the
                    // service times of this class, so their times would seem to follow the number.
                    probe.forget(view.now);
                    let explained = self.occupancy.is_explained(view.classes, class);
                    if reach.changed(view.now, explained, [window.size, window.owed()]) {
                        probe.tries();
                    }
                }
                Evidence::Contention { per_machine }
                    if reach.shows(true) == Some(true)
                        && reach.persists(view.now, [window.in_flight, window.owed(), window.size], || {
                            self.occupancy.renewal(view.now, view.nodes, view.nodes.group_of(node), class)
                        }) =>
                {
                    let from = probe.high();
                    let before = reach.contended(view.now);
                    match before {
                        Contention::Unseen => {
                            let in_flight = f64::from(window.in_flight);
                            let changed = reach.has_changed(view.now);
                            let shared = in_flight / self.occupancy.slowdown(view.classes, changed);
                            // It begins no lower than what claimants held when nothing waited for anything else:
                            // a service time alone may be obsolete. Windows of several sub-queues share that.
                            let held = self.occupancy.held_freely(at) / self.sub_queues as f64;
                            let all = f64::from(view.nodes.groups[view.nodes.group_of(node)].usable);
                            // The knee is that of all engines together.
                            let own = in_flight.max(1.0) / (in_flight.max(1.0) + probe.others());
                            probe.begin_at((per_machine * all * own).min(shared).max(held));
                        }
                        Contention::Trial => probe.reverts(),
                        Contention::Seen => {}
                    }
                    // Repeated evidence is no move of the window.
                    if before != Contention::Seen {
                        window.moved = Moved { at: view.now, from, to: probe.high(), why: Why::Contention };
                    }
                }
                Evidence::Free if reach.shows(false) == Some(false) => {
                    if reach.has_been_free(view.now) {
                        self.occupancy.seen_free(at, window.in_flight);
                    }
                    if reach.free(view.now, window.size) {
                        probe.begin();
                    }
                }
                _ => {}
            }
        }
        reach.completed(window.owed());
        window.reach = reach.size();
    }

    /// Counts a failure as a slow answer, because fast failures must not attract requests.
    pub(super) fn failed(&self, nodes: &mut Nodes, node: NodeId) {
        nodes.computed(node, self.figures.speed_longest, &self.figures);
    }

    pub(super) fn step(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        if self.others_until <= view.now {
            self.forget_others(view.now, windows);
        }
        self.look(view, windows);
        for window in 0..windows.len() {
            if self.probes[window].next <= view.now {
                self.probe(view, windows, window);
            }
        }
        self.plan();
    }

    /// Updates all active classes when it is due.
    fn look(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        if view.now < self.occupancy.next {
            return;
        }
        let Adaptive { probes, reaches, occupancy, .. } = self;
        occupancy.tick(view.now, view.classes, view.nodes, |window| room(probes, reaches, window));
        for (window, reach) in reaches.iter_mut().enumerate() {
            reach.bound(occupancy.owed_at_most(window));
            windows[window].reach = reach.size();
        }
        if let Some(class) = occupancy.misses() {
            let why = doubted(view.classes, class);
            for ((window, probe), reach) in windows.iter_mut().zip(probes).zip(reaches) {
                if reach.doubts(view.now) {
                    let slowdown = occupancy.slowdown(view.classes, reach.has_changed(view.now));
                    let from = probe.high();
                    probe.begin_at(f64::from(window.in_flight) / slowdown.max(2.0));
                    (window.size, window.reach) = (probe.size(), reach.size());
                    window.moved = Moved { at: view.now, from, to: probe.high(), why };
                }
            }
        }
        for group in view.nodes.groups.ids() {
            let mut windows_of = (group.row()..windows.len()).step_by(view.nodes.groups.len());
            if windows_of.any(|at| self.reaches[at].is_open() || self.occupancy.beyond(at) > 0.0) {
                self.spread(view, group);
            }
            // Machines have one bound for all their windows. Requests beyond it can be told apart only if
            // there is one window.
            if windows.len() == view.nodes.groups.len() {
                windows[group.row()].stuck = view.nodes.beyond_bounds(group);
            }
        }
    }

    /// Returns whether contention has been seen in a window, and since when.
    pub(super) fn contention(&self, window: usize) -> (Contention, Time) {
        self.reaches[window].contention()
    }

    fn plan(&mut self) {
        let probes = self.probes.iter().map(|probe| probe.next).min().unwrap_or(Time::NEVER);
        self.next = probes.min(self.occupancy.next).min(self.others_until);
    }

    /// Handles the end of a half cycle of a window.
    fn probe(&mut self, view: &mut LimitView<'_>, windows: &mut [Window], window: usize) {
        let (sub_queue, group) = place_of(view.nodes, window);
        let in_flight = windows[window].in_flight;
        let turnover = self.occupancy.turnover(view.now, view.nodes, group);
        let half = self.probes[window].half(view.now, in_flight, turnover);
        if half == HalfCycle::Unfinished {
            return;
        }
        let (at_risk, slowdown) = self.endangered(view, window);
        let work = self.work(view, window);
        let (probe, reach) = (&mut self.probes[window], &mut self.reaches[window]);
        let from = probe.high();
        if reach.is_open() {
            probe.proven(view.now, half);
        }
        probe.slowdown = slowdown.unwrap_or(probe.slowdown);
        let lesson = match half {
            HalfCycle::Cycle(cycle) if cycle.has_followed(probe.sizes()) => Some(probe.learn(work, cycle)),
            HalfCycle::Cycle(cycle) if at_risk.is_none() && !reach.is_open() => {
                probe.rises(cycle);
                None
            }
            _ => None,
        };
        let why = match at_risk {
            Some(LimitAtRisk { class, compute, limit })
                if !reach.is_open() && probe.helps(half) && probe.can_shrink() =>
            {
                probe.back_off(in_flight);
                Some(Why::Endangered { class, compute, limit })
            }
            _ => lesson.map(|lesson| probe.step(lesson)),
        };
        if let HalfCycle::Cycle(_) = half {
            let (elasticity, error) = probe.elasticity();
            if elasticity - error > self.figures.found {
                if reach.contended(view.now) == Contention::Trial {
                    probe.reverts();
                }
            } else if elasticity + CERTAIN * error < self.figures.found && reach.free(view.now, windows[window].size) {
                probe.begin();
            }
        }
        if sub_queue == 0 {
            view.nodes.learn(group, probe.figures());
        }
        let limits = probe.seen.iter().filter_map(|class| view.classes.spec(*class).guarantee.response_time);
        probe.passes(view.now, limits.map(|rt| rt.limit).min());
        probe.at_least(slots(view.nodes, view.classes, windows, group, sub_queue), view.nodes.groups[group].usable);
        probe.turn(view.now, half);
        let size = probe.size();
        windows[window].reach = reach.size();
        // The two halves of a cycle differ although the base stays. A move is therefore reported by the size
        // in the high half.
        let to = probe.high();
        if let Some(why) = why.or((to != from).then_some(Why::Answered)) {
            windows[window].moved = Moved { at: view.now, from, to, why };
        }
        windows[window].size = size;
        self.spread(view, group);
    }

    /// Returns a class's sums in a window.
    fn halves(&self, view: &LimitView<'_>, class: ClassId, window: usize) -> Option<&Halves> {
        let (sub_queue, group) = place_of(view.nodes, window);
        let at = view.nodes.place_in(view.classes[class].partition, group)?;
        self.shown[class].get(at as usize * self.sub_queues + sub_queue).map(|shown| &shown.halves)
    }

    /// Returns the work completed in the two halves of a cycle.
    fn work(&self, view: &LimitView<'_>, window: usize) -> [f64; 2] {
        let probe = &self.probes[window];
        let of = |class: &ClassId| self.halves(view, *class, window).map(|halves| probe.work(halves));
        probe.seen.iter().filter_map(of).fold([0.0; 2], |sum, work| [sum[0] + work[0], sum[1] + work[1]])
    }

    /// Returns the class of the cycle with the limit at the highest risk. Also returns the smallest slowdown
    /// of service times if two classes can be compared. A single slow class could be expensive or suffer from
    /// contention.
    fn endangered(&self, view: &mut LimitView<'_>, window: usize) -> (Option<LimitAtRisk>, Option<f64>) {
        let probe = &self.probes[window];
        let (mut worst, mut at_risk, mut slowdown, mut compared) = (0.0, None, f64::INFINITY, 0);
        for class in &probe.seen {
            let Some(certain) = self.halves(view, *class, window).map(|halves| probe.mean(halves)) else { continue };
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
            if part > worst && self.is_at_risk(value, certain.min(mean), unloaded, limit.as_secs_f64()) {
                worst = part;
                let compute = Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX);
                at_risk = Some(LimitAtRisk { class: *class, compute, limit });
            }
        }
        (at_risk, (compared > 1).then_some(slowdown.max(1.0)))
    }

    /// Returns whether a class's service time puts its limit at risk. `value` is the guaranteed statistic, `mean` and
    /// `unloaded` are means, all in seconds.
    fn is_at_risk(&self, value: f64, mean: f64, unloaded: f64, limit: f64) -> bool {
        let base = value * (unloaded / mean.max(1e-9)).min(1.0);
        value > base + self.figures.compute_share * (limit - base).max(0.0)
    }

    /// Returns the factor by which requests of a partition take longer in flight than alone, at least 1.
    pub(super) fn slowdown(&self, nodes: &Nodes, partition: PartitionId) -> f64 {
        let probes = nodes
            .groups_of(partition)
            .flat_map(|group| self.probes.iter().skip(group.row()).step_by(nodes.groups.len()));
        probes.map(|probe| probe.slowdown).fold(f64::INFINITY, f64::min).clamp(1.0, 1e6)
    }

    /// Bounds every machine of a group near its part of the maximum in flight: the windows, and as many owed
    /// requests beyond them, or the present need of the guarantees if that is more, and the slots by which
    /// allowances have grown.
    fn spread(&self, view: &mut LimitView<'_>, group: MachineGroupId) {
        let of_group = (group.row()..self.probes.len()).step_by(view.nodes.groups.len());
        let (mut high, mut reach) = (0u32, 0u32);
        let needed = guaranteed(view.nodes, view.classes, group) * self.occupancy.common_slowdown();
        // With several windows the allowances of classes do not count beyond them.
        let beyond = if self.sub_queues == 1 { self.occupancy.beyond(group.row()) } else { 0.0 };
        for window in of_group {
            high += self.probes[window].high();
            reach = reach.saturating_add(self.reaches[window].size());
        }
        let owed = ((BEYOND * f64::from(high)).max(needed) + beyond).min(1e9) as u32;
        view.nodes.spread(group, owed.max(reach), self.figures.node_share);
    }

    /// Adapts to a change of the machines. The guarantees then need a different number of slots from each
    /// group.
    pub(super) fn nodes_changed(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        for window in 0..windows.len() {
            let (sub_queue, group) = place_of(view.nodes, window);
            let slots = slots(view.nodes, view.classes, windows, group, sub_queue);
            let members = &view.nodes.groups[group];
            let probe = &mut self.probes[window];
            let from = probe.high();
            probe.needs(view.now, slots, members.usable, members.weight);
            self.reaches[window].machines(members.usable);
            windows[window].reach = self.reaches[window].size();
            let why = Why::Nodes { usable: members.usable, all: members.machines() };
            windows[window].moved = Moved { at: view.now, from, to: probe.high(), why };
            windows[window].size = probe.size();
        }
        for group in view.nodes.groups.ids() {
            self.spread(view, group);
        }
        self.plan();
    }
}

/// Returns the room that surplus may use in a window.
fn room(probes: &[Probe], reaches: &[Reach], window: usize) -> Room {
    Room {
        window,
        bound: probes[window].bound(),
        max_blocked: probes[window].max_blocked(),
        contended: !reaches[window].is_open(),
    }
}

/// Returns the reason for a doubt: a class misses its limit although no owed request is held back.
fn doubted(classes: &Classes, class: ClassId) -> Why {
    let compute = classes[class].expected.guaranteed().and_then(|value| Duration::try_from_secs_f64(value).ok());
    let limit = classes.spec(class).guarantee.response_time.map(|rt| rt.limit);
    Why::Doubted { class, compute: compute.unwrap_or_default(), limit: limit.unwrap_or_default() }
}

/// Returns the sub-queue and the group of machines of a window.
fn place_of(nodes: &Nodes, window: usize) -> (usize, MachineGroupId) {
    (window / nodes.groups.len(), MachineGroupId::of(window % nodes.groups.len()))
}

/// Returns the slots of a group that the guarantees need, as far as service times are known.
fn guaranteed(nodes: &Nodes, classes: &Classes, group: MachineGroupId) -> f64 {
    nodes.shares(group).map(|(partition, share)| classes.partition_slots[partition] * share).sum()
}

/// Returns the slots of a group and sub-queue that the guarantees need, as far as service times are known.
/// They are divided in proportion to the requests in flight. With none in flight every sub-queue gets an
/// equal part, and the windows find their sizes from there.
fn slots(nodes: &Nodes, classes: &Classes, windows: &[Window], group: MachineGroupId, sub_queue: usize) -> f64 {
    let slots = guaranteed(nodes, classes, group);
    let in_flight = |window: &Window| f64::from(window.in_flight) + 1.0;
    let all = || windows.iter().skip(group.row()).step_by(nodes.groups.len());
    slots * all().nth(sub_queue).map_or(1.0, |window| in_flight(window) / all().map(in_flight).sum::<f64>())
}
