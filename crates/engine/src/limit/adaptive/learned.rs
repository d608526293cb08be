//! Exchange of learned state with another engine: the knee of a window, and the times of a class.
//!
//! Source: our own, see [`crate::learned`].

use super::cycle::HalfCycle;
use super::probe::Probe;
use super::{Adaptive, LimitView, Window, place_of, slots};
use crate::learned::{LearnedKnee, LearnedTimes, within};
use crate::limit::learned::AT_MOST;
use crate::request::{ClassId, Contention};
use crate::time::Time;

impl Adaptive {
    /// Returns what was learned about a window. A trial counts as contention, at the base before it.
    pub(in crate::limit) fn learned(&self, window: usize) -> LearnedKnee {
        let (probe, reach) = (&self.probes[window], &self.reaches[window]);
        let contended = reach.contention().0 != Contention::Unseen;
        LearnedKnee {
            base: if reach.contention().0 == Contention::Trial { probe.base.min(probe.before) } else { probe.base },
            weight: probe.weight,
            slowdown: probe.slowdown,
            contended,
            reach: if contended { 0.0 } else { f64::from(reach.size()) },
        }
    }

    /// Takes over the knee of a window, and returns the window's size. The search begins again from there.
    pub(in crate::limit) fn adopt(
        &mut self,
        view: &mut LimitView<'_>,
        windows: &mut [Window],
        window: usize,
        knee: &LearnedKnee,
    ) -> u32 {
        let (sub_queue, group) = place_of(view.nodes, window);
        let cold = slots(view.nodes, view.classes, windows, group, sub_queue);
        let machines = view.nodes.groups[group].usable;
        self.probes[window].adopt(view.now, knee, cold);
        self.reaches[window].adopt(view.now, knee, machines);
        windows[window].reach = self.reaches[window].size();
        if sub_queue == 0 {
            view.nodes.learn(group, &self.figures);
        }
        self.spread(view, group);
        self.plan();
        self.probes[window].size()
    }

    pub(in crate::limit) fn learned_times(&self, class: ClassId) -> Option<LearnedTimes> {
        self.occupancy.learned_times(class)
    }

    pub(in crate::limit) fn adopt_times(&mut self, class: ClassId, times: LearnedTimes) {
        self.occupancy.adopt_times(class, times);
    }
}

impl Probe {
    /// Takes over the knee that another engine has found, for the machines that are usable here. `cold` is the base of
    /// a cold start, and bounds it.
    fn adopt(&mut self, now: Time, knee: &LearnedKnee, cold: f64) {
        let scale = within(self.weight / knee.weight, 0.0, AT_MOST).unwrap_or(1.0);
        let most = AT_MOST * cold.max(self.min);
        let Some(base) = within(knee.base * scale, self.min, most) else { return };
        self.begin_at(base);
        self.before = f64::INFINITY;
        self.slowdown = within(knee.slowdown, 1.0, 1e6).unwrap_or(1.0);
        self.turn(now, HalfCycle::Free);
    }
}
