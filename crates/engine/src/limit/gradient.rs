//! [`crate::LoadControl::Gradient`]: the window follows the ratio of long-term to short-term response times.
//!
//! Source: Netflix, *concurrency-limits*, `Gradient2Limit` inside `WindowedLimit`
//! (<https://github.com/Netflix/concurrency-limits>, version 0.5). A long-term exponential average of
//! response times stands for the unloaded time. The gradient `tolerance × long / short`, between 0.5 and 1,
//! scales the limit, and an allowance for a queue is added. The result is smoothed. It is a well-known
//! baseline without classes and guarantees.
//!
//! Departures: the allowance is the square root of the limit, as in the library's `Gradient` and Envoy's
//! gradient controller, because the constant 4 is too small for large limits and too large for small ones.
//! Response times are those behind the gateway, from release to last byte.

use super::learned::bounded;
use super::{Completion, Window};
use crate::discipline::Gradient as Figures;
use crate::learned::{LearnedSize, within};
use crate::request::Why;
use crate::time::Time;

/// Number of samples that the long-term average remembers: the library's 600.
const LONG: f64 = 600.0;
/// Number of first samples for which the average is the plain mean: the library's 10.
const WARM_UP: u32 = 10;
/// Ratio of long to short beyond which the long-term average is stale and decays by a twentieth per step, as
/// published.
const STALE: f64 = 2.0;
const DECAY: f64 = 0.95;
/// Smallest factor of the limit in a step, as published.
const STEEPEST: f64 = 0.5;
/// Minimum answers and minimum time per step: the library's 10 and one second.
const SAMPLES: u32 = 10;
const EVERY: core::time::Duration = core::time::Duration::from_secs(1);

/// The limit of all windows. Methods that do not distinguish classes have only one.
#[derive(Clone, Debug)]
pub(super) struct Gradient {
    figures: Figures,
    limit: f64,
    /// Long-term response time in seconds, and the number of samples in it while it warms up.
    long: f64,
    samples: u32,
    /// Sum and number of response times since the last step, and the maximum number of requests in flight.
    sum: f64,
    count: u32,
    max: u32,
    next: Time,
}

impl Gradient {
    pub(super) fn new(now: Time, figures: Figures) -> Gradient {
        Gradient {
            figures,
            limit: f64::from(figures.first),
            long: 0.0,
            samples: 0,
            sum: 0.0,
            count: 0,
            max: 0,
            next: now + EVERY,
        }
    }

    pub(super) fn completed(&mut self, now: Time, completion: &Completion, window: &mut Window) {
        self.sum += completion.holding;
        self.count += 1;
        self.max = self.max.max(window.in_flight);
        if now < self.next || self.count < SAMPLES {
            return;
        }
        let (short, max) = (self.sum / f64::from(self.count), self.max);
        (self.sum, self.count, self.max, self.next) = (0.0, 0, 0, now + EVERY);
        let why = match self.step(short, max) {
            Some(gradient) => Why::Gradient { gradient },
            None => Why::NotFull,
        };
        window.set(now, self.limit as u32, why);
    }

    pub(super) fn learned(&self) -> LearnedSize {
        LearnedSize::Gradient { limit: self.limit, long: self.long }
    }

    /// Takes over a limit and a long-term response time, and returns the size. The average is warm if it is a time.
    pub(super) fn adopt(&mut self, limit: f64, long: f64) -> u32 {
        let Figures { first, min, max, .. } = self.figures;
        self.limit = bounded(limit, first, (min, max)).unwrap_or(self.limit);
        if let Some(long) = within(long, 1e-6, 1e6).filter(|_| long > 0.0) {
            (self.long, self.samples) = (long, WARM_UP);
        }
        self.limit as u32
    }

    /// Takes a step after response times of `short` seconds with at most `max` requests in flight. Returns
    /// the gradient, or `None` if the window was not even half full.
    fn step(&mut self, short: f64, max: u32) -> Option<f64> {
        if self.samples < WARM_UP {
            self.samples += 1;
            self.long += (short - self.long) / f64::from(self.samples);
        } else {
            self.long += (short - self.long) * 2.0 / (LONG + 1.0);
        }
        if self.long > STALE * short {
            self.long *= DECAY;
        }
        if f64::from(max) < self.limit / 2.0 {
            return None;
        }
        let Figures { tolerance, smoothing, min, max, .. } = self.figures;
        let gradient = (tolerance * self.long / short.max(1e-9)).clamp(STEEPEST, 1.0);
        let sought = self.limit * gradient + self.limit.sqrt();
        let limit = self.limit * (1.0 - smoothing) + sought * smoothing;
        self.limit = limit.clamp(f64::from(min), f64::from(max));
        Some(gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient() -> Gradient {
        Gradient::new(Time::ZERO, Figures { first: 100, ..Figures::default() })
    }

    /// Published rule: with equal long and short times the gradient is 1, and the limit grows by the smoothed
    /// allowance.
    #[test]
    fn it_grows_by_the_allowance_while_nothing_queues() {
        let mut limit = gradient();
        assert_eq!(limit.step(0.010, 100), Some(1.0));
        assert!((limit.limit - (100.0 + 0.2 * 10.0)).abs() < 1e-9, "{limit:?}");
    }

    /// The gradient is tolerance × long / short, and never below one half.
    #[test]
    fn it_shrinks_as_times_grow_and_at_most_halves() {
        let mut limit = gradient();
        for _ in 0..20 {
            limit.step(0.010, 0);
        }
        let found = limit.step(0.020, 100).expect("it is full");
        let long = 0.010 + 0.010 * 2.0 / 601.0;
        assert!((found - 1.5 * long / 0.020).abs() < 1e-9, "{found}");
        assert_eq!(limit.step(1.0, 100), Some(0.5));
    }

    #[test]
    fn it_stands_while_the_window_is_not_half_full() {
        let mut limit = gradient();
        assert_eq!(limit.step(0.010, 49), None);
        assert_eq!(limit.limit, 100.0);
    }

    /// A long-term time more than twice the short one decays by a twentieth per step.
    #[test]
    fn a_stale_long_term_time_decays() {
        let mut limit = gradient();
        for _ in 0..10 {
            limit.step(0.100, 0);
        }
        limit.step(0.010, 0);
        let long = 0.100 - 0.090 * 2.0 / 601.0;
        assert!((limit.long - 0.95 * long).abs() < 1e-9, "{limit:?}");
    }
}
