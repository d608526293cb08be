//! Exchange of learned state with another engine: each method gives and takes its own part.
//!
//! Source: our own, see [`crate::learned`]. A window that was taken over is at most [`AT_MOST`] times as large as the
//! same window at a cold start, whatever the other engine says.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{Limit, LimitView, Method};
use crate::dispatch::Nodes;
use crate::learned::{Answered, LearnedSize, LearnedTimes, LearnedWindow, within};
use crate::policy::Policy;
use crate::request::{ClassId, Why};
use crate::time::Time;

/// Largest size of a window that is taken over, as a multiple of its size at a cold start. The guarantees of a policy
/// seldom need less than a sixteenth of its nodes. A window that was larger grows again by half in each cycle.
pub(super) const AT_MOST: f64 = 16.0;

impl Limit {
    /// Returns what was learned about the windows with an answer.
    pub(crate) fn learned(&self, now: Time, policy: &Policy, nodes: &Nodes) -> Vec<LearnedWindow> {
        let of = |window: usize| {
            let age = self.windows[window].answered.age(now)?;
            let size = match &self.method {
                Method::Linear(_) => LearnedSize::Linear { size: self.windows[window].size },
                Method::Aimd(method) => method.learned(),
                Method::Gradient(method) => method.learned(),
                Method::Adaptive(method) => LearnedSize::Knee(method.learned(window)),
                Method::Fixed(_) | Method::Slots | Method::Resources(_) => return None,
            };
            let (pools, resource) = self.named(window, policy, nodes);
            let pools = pools.into_iter().map(str::to_owned).collect();
            Some(LearnedWindow { pools, resource: resource.map(str::to_owned), age, size })
        };
        (0..self.windows.len()).filter_map(of).collect()
    }

    /// Returns the names of a window: its pools, and its resource if there is a window for each.
    fn named<'a>(&self, window: usize, policy: &'a Policy, nodes: &Nodes) -> (BTreeSet<&'a str>, Option<&'a str>) {
        let (sub_queue, group) = self.place_of(window);
        let pool = |partition: &_| policy.pools[nodes.partitions.pools[*partition]].name.as_str();
        let resource = (self.windows.len() > self.groups).then(|| policy.resources.get(sub_queue)).flatten();
        (nodes.groups[group].partitions.iter().map(pool).collect(), resource.map(String::as_str))
    }

    /// Returns the records that are taken over, with their windows. `age` is added to the age of each of them.
    pub(crate) fn yielding<'a>(
        &self,
        now: Time,
        known: &'a [LearnedWindow],
        age: Duration,
        (policy, nodes): (&Policy, &Nodes),
    ) -> Vec<(usize, &'a LearnedWindow)> {
        let of = |window: usize| {
            let (pools, resource) = self.named(window, policy, nodes);
            let same = |known: &&LearnedWindow| {
                known.resource.as_deref() == resource
                    && known.pools.len() == pools.len()
                    && known.pools.iter().all(|pool| pools.contains(pool.as_str()))
            };
            let known = known.iter().find(same)?;
            let answered = Answered::before(now, known.age.saturating_add(age));
            let fits = matches!(
                (&self.method, known.size),
                (Method::Linear(_), LearnedSize::Linear { .. })
                    | (Method::Aimd(_), LearnedSize::Aimd { .. })
                    | (Method::Gradient(_), LearnedSize::Gradient { .. })
                    | (Method::Adaptive(_), LearnedSize::Knee(_))
            );
            (fits && self.windows[window].answered.yields(answered, now)).then_some((window, known))
        };
        (0..self.windows.len()).filter_map(of).collect()
    }

    /// Takes over a record for a window.
    pub(crate) fn adopt(&mut self, view: &mut LimitView<'_>, window: usize, known: &LearnedWindow, age: Duration) {
        self.windows[window].answered = Answered::before(view.now, known.age.saturating_add(age));
        let size = match (&mut self.method, known.size) {
            (Method::Linear(method), LearnedSize::Linear { size }) => method.adopt(size),
            (Method::Aimd(method), LearnedSize::Aimd { limit }) => method.adopt(limit),
            (Method::Gradient(method), LearnedSize::Gradient { limit, long }) => method.adopt(limit, long),
            (Method::Adaptive(method), LearnedSize::Knee(knee)) => method.adopt(view, &mut self.windows, window, &knee),
            _ => return,
        };
        self.windows[window].set(view.now, size, Why::Adopted);
    }

    /// Returns the times of a class, if the method learns them.
    pub(crate) fn learned_times(&self, class: ClassId) -> Option<LearnedTimes> {
        match &self.method {
            Method::Adaptive(method) => method.learned_times(class),
            _ => None,
        }
    }

    /// Takes over the times of a class.
    pub(crate) fn adopt_times(&mut self, class: ClassId, times: LearnedTimes) {
        if let Method::Adaptive(method) = &mut self.method {
            method.adopt_times(class, times);
        }
    }
}

/// Returns a limit that can be taken over, between `min` and `max`, for a window that begins with `first`.
pub(super) fn bounded(limit: f64, first: u32, (min, max): (u32, u32)) -> Option<f64> {
    let most = (AT_MOST * f64::from(first)).min(f64::from(max));
    within(limit, f64::from(min), most.max(f64::from(min)))
}
