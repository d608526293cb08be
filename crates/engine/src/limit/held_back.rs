//! Windows that hold requests back.

use super::{Limit, Method};
use crate::dispatch::Nodes;
use crate::index::Id;
use crate::scheduler::{Scheduler, Standing};
use crate::time::Time;

impl Limit {
    /// Updates whether windows hold requests back. A full window does if a request waits that could use it. It also
    /// does if it only diverts requests to a group that holds others back.
    pub(crate) fn held_back(&mut self, now: Time, waiting: bool, nodes: &Nodes, scheduler: &Scheduler) {
        let holds = match &self.method {
            Method::Adaptive(method) => method.any_holds(),
            _ => false,
        };
        if !waiting && !holds {
            return;
        }
        let groups = &nodes.groups;
        let (mut window, mut sub_queue) = (0, 0);
        while window < self.windows.len() {
            for members in groups {
                let full = waiting && !self.windows[window].has_room(Standing::Surplus);
                let held = full && members.partitions.iter().any(|partition| scheduler.any(*partition, sub_queue));
                self.hold(now, window, held);
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
                let mut beside = members.partitions.iter().flat_map(|partition| nodes.groups_of(*partition));
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
}
