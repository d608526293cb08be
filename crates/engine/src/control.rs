//! *control*: what happens on a timer, and who steers the window.
//!
//! Source: Quorum Sec. 3.1: every 500 ms the window takes a step according to the class with the most
//! restrictive response time. Of several with the same limit it is the one with the longest expected
//! compute time among those with traffic in the period, also if all of that is being dropped: steered by
//! those that complete something, the window would grow while the class that needs it small is shut
//! out, and the two would take turns for ever. Classes report their first event of a period, so that a
//! step looks at those with traffic and not at a hundred thousand tenants.

use core::time::Duration;

use crate::admit::PERIOD;
use crate::engine::Engine;
use crate::policy::{Policy, ResponseTime};
use crate::release::Tightest;
use crate::request::ClassId;
use crate::time::Time;

/// The classes with the smallest limit.
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    /// The smallest limit of the policy.
    limit: Option<Duration>,
    /// Classes with that limit and traffic in this period.
    seen: Vec<u32>,
    /// The class that steered last.
    last: Option<u32>,
    /// When the next step is due.
    pub(crate) next: Time,
}

impl Steering {
    pub(crate) fn new(now: Time, policy: &Policy) -> Steering {
        let specs = policy.classes.iter().chain(policy.templates.iter().map(|t| &t.class));
        let limit = specs.filter_map(|class| class.guarantee.response_time).map(|rt| rt.limit).min();
        Steering { limit, seen: Vec::new(), last: None, next: after(now) }
    }

    /// An arrival or completion of a class; `last` is the period of its latest one.
    pub(crate) fn see(&mut self, now: Time, class: u32, last: &mut u64, limit: Option<ResponseTime>) {
        let period = now.as_nanos() / PERIOD + 1;
        if *last != period && limit.is_some_and(|rt| Some(rt.limit) == self.limit) {
            *last = period;
            self.seen.push(class);
        }
    }
}

/// The end of the period that `now` lies in.
fn after(now: Time) -> Time {
    Time::from_nanos((now.as_nanos() / PERIOD + 1) * PERIOD)
}

impl Engine {
    /// Runs what is due at `now`.
    pub(crate) fn control(&mut self, now: Time) {
        if self.nodes.readmit(now) {
            self.nodes_changed(now);
        }
        if self.window.steps() && self.steering.next <= now {
            let tightest = self.tightest(now);
            self.window.step(now, tightest);
            self.steering.next = after(now);
        }
    }

    fn tightest(&mut self, now: Time) -> Tightest {
        let Some(limit) = self.steering.limit else { return Tightest::NoLimit };
        let admit = self.policy.discipline.admit;
        let mut compute = |class: u32| {
            let state = &mut self.classes.all[class as usize];
            state.expected.roll(now, state.outstanding > 0, admit);
            state.expected.seconds().unwrap_or(0.0)
        };
        let mut slowest = None;
        for class in self.steering.seen.drain(..) {
            let seconds = compute(class);
            if slowest.is_none_or(|(_, most)| seconds > most) {
                slowest = Some((class, seconds));
            }
        }
        if slowest.is_none() {
            slowest = self.steering.last.map(|class| (class, compute(class)));
        }
        let (class, seconds) = slowest.unwrap_or_else(|| {
            let specs = &self.classes.specs;
            let first = specs.iter().position(|s| s.guarantee.response_time.is_some_and(|rt| rt.limit == limit));
            (first.unwrap_or(0) as u32, 0.0)
        });
        self.steering.last = Some(class);
        let compute = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4);
        Tightest::Class { class: ClassId(class), compute, limit }
    }

    /// The set of usable nodes is another.
    pub(crate) fn nodes_changed(&mut self, now: Time) {
        let (usable, all) = (self.nodes.all_usable(), self.nodes.nodes.len() as u32);
        self.window.nodes_changed(now, usable, all);
    }
}
