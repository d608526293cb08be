//! Load control: the window of in_flight requests.
//!
//! Source: Quorum Sec. 3.1. More requests inside mean longer compute times once they outnumber the
//! resources; so the number inside is the handle on compute time. Every 500 ms the window takes one
//! step: up while the class with the most restrictive response time computes within half of its limit,
//! down otherwise. Half the limit is left for waiting in the queue.
//!
//! What the paper leaves open and how it is read here:
//! - *most restrictive* is the smallest limit; of several classes with that limit and traffic the one
//!   expected to compute longest;
//! - *compute time* is the guaranteed statistic of it over the period, so that like is compared with like;
//! - a class without completions keeps its last figure, decayed as in stage *admit*;
//! - the window grows only if it held a request back since the last step: while it does not, compute times
//!   say nothing about it. [`Grow::Always`] grows through any calm (4 a second at δ = 2) and lets in the surge
//!   that ends it;
//! - there is one window for the whole engine.
//!
//! Both are argued in `docs/adr/0006-two-readings-of-quorum.md`.
//!
//! An adaptive window ([`super::adaptive`]) stands for one group of nodes: those that serve the same
//! classes.

use core::time::Duration;

use super::adaptive::Swing;
use crate::discipline::{Grow, LoadControl};
use crate::request::{ClassId, Moved, Why};
use crate::time::Time;

/// The window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    method: LoadControl,
    /// Requests that may be inside; `u32::MAX` is no limit.
    pub(crate) size: u32,
    /// Requests inside.
    pub(crate) in_flight: u32,
    /// Did it hold a request back since the last step?
    pub(crate) held_back: bool,
    pub(crate) moved: Moved,
    /// The state of an adaptive window.
    pub(crate) swing: Option<Box<Swing>>,
}

impl Window {
    pub(crate) fn new(now: Time, method: LoadControl) -> Window {
        let size = match method {
            LoadControl::Fixed { window } => window.unwrap_or(u32::MAX),
            // The nodes have bounds of their own.
            LoadControl::Slots { .. } | LoadControl::ResourceAvailability(_) => u32::MAX,
            LoadControl::WindowLinear { first, .. } => first,
            LoadControl::WindowAdaptive(_) => 1,
        };
        let moved = Moved { at: now, from: size, to: size, why: Why::First };
        let swing = match method {
            LoadControl::WindowAdaptive(figures) => Some(Box::new(Swing::new(now, figures))),
            _ => None,
        };
        Window { method, size, in_flight: 0, held_back: false, moved, swing }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < self.size
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        (self.size != u32::MAX).then_some(self.size)
    }

    /// A new policy: a linear window keeps its size as far as the new bounds allow.
    pub(crate) fn reconfigure(&mut self, now: Time, method: LoadControl) {
        let fresh = Window::new(now, method);
        let kept = match (self.method, method) {
            (LoadControl::WindowLinear { .. }, LoadControl::WindowLinear { least, most, .. }) => {
                self.size.clamp(least, most)
            }
            _ => fresh.size,
        };
        match (&mut self.swing, method) {
            (Some(swing), LoadControl::WindowAdaptive(figures)) => swing.reconfigure(now, figures),
            (swing, _) => *swing = fresh.swing,
        }
        self.method = method;
        self.set(now, kept, Why::Reconfigured);
    }

    /// The set of usable nodes changed: a fixed window keeps its size per node.
    pub(crate) fn nodes_changed(&mut self, now: Time, usable: u32, all: u32) {
        if let LoadControl::Fixed { window: Some(window) } = self.method
            && all > 0
        {
            let share = (u64::from(window) * u64::from(usable) / u64::from(all)).max(1) as u32;
            self.set(now, share, Why::Nodes { usable, all });
        }
    }

    /// One more or one less inside.
    pub(crate) fn count(&mut self, now: Time, enters: bool) {
        if let Some(swing) = &mut self.swing {
            let holding = swing.holding();
            swing.note(now, self.in_flight, holding);
        }
        if enters {
            self.in_flight += 1;
        } else {
            self.in_flight -= 1;
        }
    }

    /// Does it hold a request back?
    pub(crate) fn holds(&self) -> bool {
        self.swing.as_ref().is_some_and(|swing| swing.holding())
    }

    /// Does it hold a request back from now on?
    pub(crate) fn hold(&mut self, now: Time, holding: bool) {
        self.held_back |= holding;
        if let Some(swing) = &mut self.swing
            && swing.holding() != holding
        {
            swing.note(now, self.in_flight, holding);
        }
    }

    /// One step of control. `tightest` is the most restrictive class, its compute time and its limit.
    pub(crate) fn step(&mut self, now: Time, tightest: Tightest) {
        let LoadControl::WindowLinear { delta, least, most, grow, .. } = self.method else { return };
        let full = core::mem::take(&mut self.held_back);
        let (up, why) = match tightest {
            Tightest::NoLimit => (true, Why::NoLimit),
            Tightest::Class { class, compute, limit } if compute * 2 < limit => {
                (true, Why::BelowHalf { class, compute, limit })
            }
            Tightest::Class { class, compute, limit } => (false, Why::AboveHalf { class, compute, limit }),
        };
        let (size, why) = match (up, grow) {
            (true, Grow::WhileFull) if !full => (self.size, Why::NotFull),
            (true, _) => (self.size.saturating_add(delta).min(most), why),
            (false, _) => (self.size.saturating_sub(delta).max(least), why),
        };
        self.set(now, size, why);
    }

    pub(crate) fn set(&mut self, now: Time, size: u32, why: Why) {
        self.moved = Moved { at: now, from: self.size, to: size, why };
        self.size = size;
    }
}

/// The class that steers the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tightest {
    /// No class has a limit.
    NoLimit,
    /// This one.
    Class { class: ClassId, compute: Duration, limit: Duration },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(grow: Grow) -> Window {
        Window::new(Time::ZERO, LoadControl::WindowLinear { delta: 2, first: 10, least: 1, most: 15, grow })
    }

    fn computing(ms: u64) -> Tightest {
        Tightest::Class { class: ClassId(0), compute: Duration::from_millis(ms), limit: Duration::from_millis(400) }
    }

    #[test]
    fn steps_up_below_half_the_limit_and_down_from_half_on() {
        let mut window = linear(Grow::Always);
        let sizes: Vec<u32> = [199, 199, 199, 199, 200, 201, 500, 500, 500, 500, 500, 500, 500]
            .map(|ms| {
                window.step(Time::ZERO, computing(ms));
                window.size
            })
            .to_vec();
        assert_eq!(sizes, [12, 14, 15, 15, 13, 11, 9, 7, 5, 3, 1, 1, 1]);
        assert!(matches!(window.moved.why, Why::AboveHalf { .. }));
    }

    #[test]
    fn grows_only_while_full() {
        let mut window = linear(Grow::WhileFull);
        window.step(Time::ZERO, computing(10));
        assert_eq!((window.size, window.moved.why), (10, Why::NotFull));
        window.held_back = true;
        window.step(Time::ZERO, computing(10));
        assert_eq!(window.size, 12);
        window.step(Time::ZERO, computing(10));
        assert_eq!(window.size, 12);
        window.step(Time::ZERO, computing(300));
        assert_eq!(window.size, 10);
    }

    #[test]
    fn a_fixed_window_follows_the_usable_nodes() {
        let mut window = Window::new(Time::ZERO, LoadControl::Fixed { window: Some(40) });
        window.nodes_changed(Time::ZERO, 3, 4);
        assert_eq!(window.size, 30);
        window.nodes_changed(Time::ZERO, 0, 4);
        assert_eq!(window.size, 1);
        window.nodes_changed(Time::ZERO, 4, 4);
        assert_eq!(window.size, 40);
        let mut unlimited = Window::new(Time::ZERO, LoadControl::Fixed { window: None });
        unlimited.nodes_changed(Time::ZERO, 1, 4);
        assert_eq!(unlimited.limit(), None);
    }
}
