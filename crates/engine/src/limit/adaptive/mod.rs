//! [`crate::LoadControl::WindowAdaptive`]: a window per group of machines that seeks the knee; see `swing` for the rule.
//!
//! Windows have their own times, one half cycle after the other.

mod swing;

use core::time::Duration;

use super::{Completion, LimitView, Window};
use crate::classify::Classes;
use crate::discipline::Adaptive as Figures;
use crate::dispatch::Nodes;
use crate::index::{GroupId, Id, Table};
use crate::request::{ClassId, NodeId, Why};
use crate::time::Time;

use swing::{Danger, Half, Halves, Swing, Work};

/// The swings of all windows.
#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    figures: Figures,
    /// By window.
    swings: Vec<Swing>,
    /// What each class computed, by the groups that its pool has nodes in and by sub-queue.
    halves: Table<ClassId, Vec<Halves>>,
    sub_queues: usize,
    /// When the first of them ends its half cycle.
    pub(super) next: Time,
}

impl Adaptive {
    pub(super) fn new(now: Time, figures: Figures, windows: usize, classes: usize, sub_queues: usize) -> Adaptive {
        let swings = vec![Swing::new(now, figures); windows];
        Adaptive { figures, swings, halves: Table::filled(classes, Vec::new()), sub_queues, next: Time::NEVER }
    }

    pub(super) fn open(&mut self, class: ClassId) {
        self.halves.put(class, Vec::new());
    }

    /// New figures. `known` is the window's swing before, if it had a window, and a swing.
    pub(super) fn carry(&mut self, now: Time, window: usize, known: Option<Option<(&Adaptive, usize)>>) {
        match known {
            Some(None) => {}
            Some(Some((old, from))) => {
                self.swings[window] = old.swings[from].clone();
                self.swings[window].reconfigure(now, self.figures);
            }
            None => self.swings[window].reconfigure(now, self.figures),
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

    /// A compute time for the window that the request was in.
    pub(super) fn completed(&mut self, view: &mut LimitView<'_>, completion: &Completion) {
        let Completion { class, sub_queue, window, node, retried, holding } = *completion;
        if node == NodeId::NONE || retried {
            return;
        }
        if let Some(mean) = view.classes[class].expected.seconds().filter(|mean| *mean > 0.0) {
            view.nodes.computed(node, holding / mean, &self.figures);
        }
        let at = view.nodes.place_of(node) * self.sub_queues + sub_queue;
        let halves = &mut self.halves[class];
        if halves.len() <= at {
            halves.resize_with(at + 1, Default::default);
        }
        self.swings[window as usize].completed(view.now, class, &mut halves[at], holding);
    }

    pub(super) fn step(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        for window in 0..windows.len() {
            if self.swings[window].next <= view.now {
                self.swing(view, windows, window);
            }
        }
        self.plan();
    }

    fn plan(&mut self) {
        if let Some(next) = self.swings.iter().map(|swing| swing.next).min() {
            self.next = next;
        }
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
        let swing = &mut self.swings[window];
        swing.slowdown = slowdown.unwrap_or(swing.slowdown);
        let why = match (danger, half) {
            (Some(Danger { class, compute, limit }), _) if swing.helps() => {
                swing.back_off(in_flight);
                Some(Why::Endangered { class, compute, limit })
            }
            (_, Half::Cycle(cycle)) => Some(swing.step(work, cycle)),
            _ => None,
        };
        if sub_queue == 0 {
            view.nodes.learn(group, swing.figures());
        }
        swing.at_least(slots(view.nodes, view.classes, windows, group, sub_queue), view.nodes.groups[group].usable);
        swing.turn(view.now, half);
        let size = swing.size();
        match why {
            Some(why) => windows[window].set(view.now, size, why),
            None => windows[window].size = size,
        }
        self.spread(view, group);
    }

    /// A class's sums in a window.
    fn halves(&self, view: &LimitView<'_>, class: ClassId, window: usize) -> Option<&Halves> {
        let (sub_queue, group) = place_of(view.nodes, window);
        let at = view.nodes.place_in(view.classes[class].pool, group)?;
        self.halves[class].get(at as usize * self.sub_queues + sub_queue)
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

    /// No machine of a group gets much more than its part of the windows.
    fn spread(&self, view: &mut LimitView<'_>, group: GroupId) {
        let swings = self.swings.iter().skip(group.row()).step_by(view.nodes.groups.len());
        let high: u32 = swings.map(Swing::high).sum();
        view.nodes.spread(group, high, self.figures.node_share);
    }

    /// The machines are others: the guarantees need another number of slots of them.
    pub(super) fn nodes_changed(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        for window in 0..windows.len() {
            let (sub_queue, group) = place_of(view.nodes, window);
            let slots = slots(view.nodes, view.classes, windows, group, sub_queue);
            let members = &view.nodes.groups[group];
            let swing = &mut self.swings[window];
            swing.needs(view.now, slots, members.usable, members.weight);
            let why = Why::Nodes { usable: members.usable, all: members.machines() };
            windows[window].set(view.now, swing.size(), why);
        }
        for group in view.nodes.groups.ids() {
            self.spread(view, group);
        }
        self.plan();
    }
}

/// The sub-queue and the group of machines that a window is for.
fn place_of(nodes: &Nodes, window: usize) -> (usize, GroupId) {
    (window / nodes.groups.len(), GroupId::of(window % nodes.groups.len()))
}

/// Slots that the guarantees need of a group in a sub-queue, as far as service times are known. How they divide is said
/// by what is in flight; with nothing in flight every sub-queue has an equal part, and the windows find their sizes from
/// there.
fn slots(nodes: &Nodes, classes: &Classes, windows: &[Window], group: GroupId, sub_queue: usize) -> f64 {
    let slots: f64 = nodes.shares(group).map(|(pool, share)| classes.pool_slots[pool] * share).sum();
    let in_flight = |window: &Window| f64::from(window.in_flight) + 1.0;
    let all = || windows.iter().skip(group.row()).step_by(nodes.groups.len());
    slots * all().nth(sub_queue).map_or(1.0, |window| in_flight(window) / all().map(in_flight).sum::<f64>())
}
