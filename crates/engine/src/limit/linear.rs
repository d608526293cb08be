//! [`crate::LoadControl::WindowLinear`]: Quorum's window, which moves one step up or down on a timer.
//!
//! Source: Quorum Sec. 3.1. More requests in flight mean longer compute times once they outnumber the
//! resources, so the number in flight controls the compute time. Every 500 ms the window takes one step: up
//! while the compute time of the class with the most restrictive response time is within half of its limit,
//! down otherwise. Half of the limit is left for waiting in the queue.
//!
//! The paper leaves some points open. They are read here as follows:
//! - *Most restrictive* is the smallest limit. Of several classes with that limit and traffic, it is the one
//!   with the longest expected compute time, even if all of its traffic is being dropped. If only classes
//!   with completions counted, the window would grow while the class that needs it small is shut out, and the
//!   two would alternate for ever. Classes report their first event of a period, so that a step looks only at
//!   those with traffic and not at a hundred thousand tenants.
//! - *Compute time* is its guaranteed statistic over the period, so that like is compared with like.
//! - A class without completions keeps its last figure, decayed as in stage *admit*.
//! - The window grows only if it held a request back since the last step. Otherwise compute times say nothing
//!   about it. [`Grow::Always`] grows through any quiet period (by 4 a second at δ = 2) and admits the surge
//!   that ends it.
//! - There is one window for the whole engine.
//!
//! `docs/adr/0006-two-readings-of-quorum.md` gives the reasons for the second and the fourth reading.

use core::time::Duration;

use super::learned::AT_MOST;
use super::{LimitView, Window};
use crate::discipline::Grow;
use crate::expected::PERIOD;
use crate::index::Table;
use crate::policy::{Policy, ResponseTime};
use crate::request::{ClassId, Why};
use crate::time::Time;

/// The step, and the classes that steer it.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    delta: u32,
    first: u32,
    min: u32,
    max: u32,
    grow: Grow,
    /// The smallest limit of the policy.
    limit: Option<Duration>,
    /// Classes with that limit and traffic in this period.
    seen: Vec<ClassId>,
    /// Period of each class's latest arrival or completion, plus one.
    periods: Table<ClassId, u64>,
    /// The class that steered the last step.
    last: Option<ClassId>,
    /// Time of the next step.
    pub(super) next: Time,
}

/// The class that steers the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tightest {
    /// No class has a limit.
    NoLimit,
    /// The class with the tightest limit.
    Class { class: ClassId, compute: Duration, limit: Duration },
}

/// Returns the end of the period that contains `now`.
fn after(now: Time) -> Time {
    Time::from_nanos((now.as_nanos() / PERIOD + 1) * PERIOD)
}

impl Linear {
    pub(super) fn new(
        now: Time,
        policy: &Policy,
        classes: usize,
        delta: u32,
        (first, min, max): (u32, u32, u32),
        grow: Grow,
    ) -> Linear {
        let specs = policy.all_classes();
        let limits = specs.filter_map(|class| class.guarantee.response_time);
        let limit = limits.map(|rt| rt.limit).min();
        let (seen, periods, last, next) = (Vec::new(), Table::filled(classes, 0), None, after(now));
        Linear { delta, first, min, max, grow, limit, seen, periods, last, next }
    }

    pub(super) fn open(&mut self, class: ClassId) {
        self.periods.put(class, 0);
    }

    /// Returns the number of classes seen in this period.
    #[cfg(test)]
    pub(super) fn seen(&self) -> usize {
        self.seen.len()
    }

    /// Returns the nearest size that the policy allows.
    pub(super) fn within(&self, size: u32) -> u32 {
        size.clamp(self.min, self.max)
    }

    /// Returns the nearest size to that of another engine that the policy allows.
    pub(super) fn adopt(&self, size: u32) -> u32 {
        let most = u32::try_from(u64::from(self.first) * AT_MOST as u64).unwrap_or(u32::MAX);
        self.within(size.min(most))
    }

    /// Records an arrival or completion of a class.
    pub(super) fn see(&mut self, now: Time, class: ClassId, limit: Option<ResponseTime>) {
        let period = now.as_nanos() / PERIOD + 1;
        if self.periods[class] != period && limit.is_some_and(|rt| Some(rt.limit) == self.limit) {
            self.periods[class] = period;
            self.seen.push(class);
        }
    }

    pub(super) fn step(&mut self, view: &mut LimitView<'_>, windows: &mut [Window]) {
        let tightest = self.tightest(view);
        for window in windows {
            self.turn(view.now, window, tightest);
        }
        self.next = after(view.now);
    }

    fn turn(&self, now: Time, window: &mut Window, tightest: Tightest) {
        let full = core::mem::take(&mut window.held_back);
        let (up, why) = match tightest {
            Tightest::NoLimit => (true, Why::NoLimit),
            Tightest::Class { class, compute, limit } if compute * 2 < limit => {
                (true, Why::BelowHalf { class, compute, limit })
            }
            Tightest::Class { class, compute, limit } => (false, Why::AboveHalf { class, compute, limit }),
        };
        let (size, why) = match (up, self.grow) {
            (true, Grow::WhileFull) if !full => (window.size, Why::NotFull),
            (true, _) => (window.size.saturating_add(self.delta).min(self.max), why),
            (false, _) => (window.size.saturating_sub(self.delta).max(self.min), why),
        };
        window.set(now, size, why);
    }

    fn tightest(&mut self, view: &mut LimitView<'_>) -> Tightest {
        let Some(limit) = self.limit else { return Tightest::NoLimit };
        let mut compute = |class: ClassId| {
            view.classes.roll(view.now, class);
            view.classes[class].expected.guaranteed().unwrap_or(0.0)
        };
        let mut slowest = None;
        for class in self.seen.drain(..) {
            let seconds = compute(class);
            if slowest.is_none_or(|(_, max)| seconds > max) {
                slowest = Some((class, seconds));
            }
        }
        if slowest.is_none() {
            slowest = self.last.map(|class| (class, compute(class)));
        }
        let (class, seconds) = slowest.unwrap_or_else(|| {
            let specs = &view.classes.specs;
            let first = specs.iter().position(|s| s.guarantee.response_time.is_some_and(|rt| rt.limit == limit));
            (ClassId(first.unwrap_or(0) as u32), 0.0)
        });
        self.last = Some(class);
        let compute = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4);
        Tightest::Class { class, compute, limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(grow: Grow) -> (Linear, Window) {
        let linear = Linear {
            delta: 2,
            first: 4,
            min: 1,
            max: 15,
            grow,
            limit: None,
            seen: Vec::new(),
            periods: Table::new(),
            last: None,
            next: Time::ZERO,
        };
        (linear, Window::new(Time::ZERO, 10))
    }

    fn computing(ms: u64) -> Tightest {
        Tightest::Class { class: ClassId(0), compute: Duration::from_millis(ms), limit: Duration::from_millis(400) }
    }

    #[test]
    fn steps_up_below_half_the_limit_and_down_from_half_on() {
        let (linear, mut window) = linear(Grow::Always);
        let sizes: Vec<u32> = [199, 199, 199, 199, 200, 201, 500, 500, 500, 500, 500, 500, 500]
            .map(|ms| {
                linear.turn(Time::ZERO, &mut window, computing(ms));
                window.size
            })
            .to_vec();
        assert_eq!(sizes, [12, 14, 15, 15, 13, 11, 9, 7, 5, 3, 1, 1, 1]);
        assert!(matches!(window.moved.why, Why::AboveHalf { .. }));
    }

    #[test]
    fn grows_only_while_full() {
        let (linear, mut window) = linear(Grow::WhileFull);
        linear.turn(Time::ZERO, &mut window, computing(10));
        assert_eq!((window.size, window.moved.why), (10, Why::NotFull));
        window.held_back = true;
        linear.turn(Time::ZERO, &mut window, computing(10));
        assert_eq!(window.size, 12);
        linear.turn(Time::ZERO, &mut window, computing(10));
        assert_eq!(window.size, 12);
        linear.turn(Time::ZERO, &mut window, computing(300));
        assert_eq!(window.size, 10);
    }
}
