//! Windows on machines that other engines send requests to as well.
//!
//! Source: our own (`docs/adr/0027-windows-by-all-in-flight.md`). Each engine seeks the knee with a window of its own,
//! and judges its cycles and profiles by the requests of *all* engines on the machines. A window that only counts its
//! own would take answers from the others when it grows, and would never see that nothing was gained.

use super::cycle::Others;
use super::{Adaptive, slots};
use crate::dispatch::Nodes;
use crate::index::Id;
use crate::index::MachineGroupId;
use crate::limit::{LimitView, Window};
use crate::others::{Beside, WindowUse};
use crate::request::Why;
use crate::time::Time;

impl Adaptive {
    /// Returns the use of each window, if there is one for each group. `waiting` is the number of all that wait, and of
    /// those of classes of which this engine keeps a part.
    pub(in crate::limit) fn uses(&self, windows: &[Window], nodes: &Nodes, waiting: [u32; 2]) -> Vec<WindowUse> {
        if windows.len() != nodes.groups.len() {
            return Vec::new();
        }
        let of = |(window, probe): (&Window, &super::Probe)| {
            let [waiting, claiming] = if probe.holding() { waiting } else { [0; 2] };
            WindowUse {
                base: probe.base,
                least: probe.min,
                in_flight: window.in_flight,
                owed: window.owed(),
                work: probe.answered[0],
                answers: probe.answered[1],
                waiting,
                claiming,
            }
        };
        windows.iter().zip(&self.probes).map(of).collect()
    }

    /// Takes over what is known of the other engines, by group and until `until`.
    pub(in crate::limit) fn beside(
        &mut self,
        view: &mut LimitView<'_>,
        windows: &mut [Window],
        until: Time,
        groups: &[Beside],
    ) {
        if windows.len() != view.nodes.groups.len() || groups.len() != windows.len() {
            return;
        }
        self.others_until = until;
        for (at, beside) in groups.iter().enumerate() {
            let Some(Beside { in_flight, work_per_s, answers_per_s, high, part, factor }) = beside.checked() else {
                continue;
            };
            let group = MachineGroupId::of(at);
            let slots = slots(view.nodes, view.classes, windows, group, 0);
            let (probe, window) = (&mut self.probes[at], &mut windows[at]);
            probe.beside(view.now, window.in_flight, Others { in_flight, work_per_s, answers_per_s });
            let from = probe.high();
            probe.joins((part * factor).min(1.0));
            probe.at_least(slots, view.nodes.groups[group].usable);
            probe.moves(factor);
            if probe.high() != from {
                window.set(view.now, probe.size(), Why::Adopted);
                window.moved.from = from;
                self.spread(view, group);
            }
            let turns = self.probes[at].turned(high);
            if turns {
                self.probe(view, windows, at);
            }
        }
        self.plan();
    }

    /// Goes on as if there were no other engines, with the windows of all: nobody says any more whether they use them.
    #[cold]
    pub(super) fn forget_others(&mut self, now: Time, windows: &[Window]) {
        self.others_until = Time::NEVER;
        for (probe, window) in self.probes.iter_mut().zip(windows) {
            probe.beside(now, window.in_flight, Others::default());
            probe.parts(now);
        }
    }
}
