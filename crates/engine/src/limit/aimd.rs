//! [`crate::LoadControl::Aimd`]: additive increase, multiplicative decrease.
//!
//! Source: Chiu and Jain, *Analysis of the Increase and Decrease Algorithms for Congestion Avoidance* (1989),
//! in the form of Netflix' concurrency-limits, `AIMDLimit` (<https://github.com/Netflix/concurrency-limits>,
//! version 0.5). Every answer adds one to the limit while at least half of it is used. A failure, or an
//! answer after the time limit, multiplies the limit by 0.9. It is a well-known baseline without guaranteed
//! rates.
//!
//! Departures: for a class with a response-time limit, an answer counts as late by that limit, from arrival
//! to last byte. For other classes the library's time limit holds, from release to last byte.

use super::learned::bounded;
use super::{Completion, Window};
use crate::discipline::Aimd as Figures;
use crate::learned::LearnedSize;
use crate::request::Why;
use crate::time::Time;

/// The limit of all windows. Methods that do not distinguish classes have only one.
#[derive(Clone, Debug)]
pub(super) struct Aimd {
    figures: Figures,
    limit: f64,
}

impl Aimd {
    pub(super) fn new(figures: Figures) -> Aimd {
        Aimd { figures, limit: f64::from(figures.first) }
    }

    pub(super) fn completed(&mut self, now: Time, completion: &Completion, window: &mut Window) {
        let late = completion.late.unwrap_or(completion.holding > self.figures.timeout.as_secs_f64());
        self.step(now, late, window);
    }

    pub(super) fn failed(&mut self, now: Time, window: &mut Window) {
        self.step(now, true, window);
    }

    pub(super) fn learned(&self) -> LearnedSize {
        LearnedSize::Aimd { limit: self.limit }
    }

    /// Takes over a limit, and returns the size.
    pub(super) fn adopt(&mut self, limit: f64) -> u32 {
        let Figures { first, min, max, .. } = self.figures;
        self.limit = bounded(limit, first, (min, max)).unwrap_or(self.limit);
        self.limit as u32
    }

    fn step(&mut self, now: Time, late: bool, window: &mut Window) {
        let Figures { back_off, min, max, .. } = self.figures;
        let (limit, why) = match late {
            true => (self.limit * back_off, Why::Late),
            false if f64::from(window.in_flight) * 2.0 >= self.limit => (self.limit + 1.0, Why::InTime),
            false => return,
        };
        self.limit = limit.clamp(f64::from(min), f64::from(max));
        window.set(now, self.limit as u32, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_adds_one_while_half_full_and_takes_a_tenth_for_a_late_answer() {
        let mut aimd = Aimd::new(Figures { first: 40, min: 10, max: 100, ..Figures::default() });
        let mut window = Window::new(Time::ZERO, 40);
        window.in_flight = 19;
        aimd.step(Time::ZERO, false, &mut window);
        assert_eq!(window.size, 40);
        window.in_flight = 20;
        aimd.step(Time::ZERO, false, &mut window);
        assert_eq!((window.size, window.moved.why), (41, Why::InTime));
        aimd.step(Time::ZERO, true, &mut window);
        assert!((aimd.limit - 36.9).abs() < 1e-9, "{aimd:?}");
        assert_eq!((window.size, window.moved.why), (36, Why::Late));
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut aimd = Aimd::new(Figures { first: 40, min: 10, max: 42, ..Figures::default() });
        let mut window = Window::new(Time::ZERO, 40);
        window.in_flight = 100;
        (0..5).for_each(|_| aimd.step(Time::ZERO, false, &mut window));
        assert_eq!(window.size, 42);
        (0..50).for_each(|_| aimd.step(Time::ZERO, true, &mut window));
        assert_eq!(window.size, 10);
    }
}
