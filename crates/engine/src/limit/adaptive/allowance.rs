//! Number of requests that a class may have in flight whatever the window, while its bucket has tokens.
//!
//! Source: our own, from Little's law (J. D. C. Little, 1961). The allowance of a class is the larger of two
//! numbers:
//!
//! - **Its part**: g × (service time alone) × 1.5. While requests of *all* classes take longer than alone, a
//!   guarantee needs more slots for the same throughput. The slowdown of the class that is slowed least then
//!   replaces the factor 1.5 if it is larger, up to 3. A class with a much higher slowdown has become
//!   expensive by itself. It is entitled to its capacity and not to its rate, so its part is not raised.
//! - **Its answers** within a fifth of the tightest limit. While requests leave as fast as they come, nothing
//!   piles up, however long each of them takes. A class with a slow dependency therefore continues as before.
//!   If nodes are overloaded, answers stop keeping up. The number in flight then stays at the number that
//!   ends within that share of the limit, and the other requests wait in front of the nodes, where claims are
//!   served in the right order.
//!
//! Where a class waits for something that the others do not use, both numbers can be too small: its requests
//! stay long, and few answers allow few requests. While no other class suffers, its allowance therefore grows
//! beyond them ([`Raise`]). A class that sends more than its guarantee does not count as suffering: its own surplus
//! slows it down, and the window bounds that.
//!
//! This differs from windows that adapt to response times (Quorum's, TCP Vegas', gradients): a longer time by
//! itself lowers nothing, because the second number is (answers a second) × (a time) and not a comparison
//! with a shortest time.

use super::reach::{LONGEST_PAUSE, PAUSE};

/// Part of a need that a class may always have in flight. At the knee all requests take half as long again.
const PART: f64 = 1.5;

/// Maximum factor for parts. Where all classes take three times as long as alone, more requests in flight
/// would make all of them slower still.
const MAX_SLOWDOWN: f64 = 3.0;

/// Slowdown from which a class counts as expensive, relative to the class that is slowed least. At lower
/// ratios the two may merely wait for different times at a shared resource.
pub(super) const EXPENSIVE: f64 = 2.0;

/// Part of the tightest limit within which the requests of an allowance should be answered. The 95th
/// percentile of exponential times is three means, and a part of the limit is for waiting before release.
/// With 0.3 the swarm misses slightly less, but the other class of Fig. 10 has a p95 of 31 ms instead of 28
/// ms. With 0.1 slow dependencies cost floors.
const ANSWERED: f64 = 0.2;

/// Slowdown up to which a class does not suffer. At the knee all requests stay half as long again, so a raise ends
/// before the nodes reach it. With 1.5 it moved the window of Table 3.
const UNHARMED: f64 = 1.25;

/// Growth of a raise with an answer that finds the allowance in use. So the allowance doubles within a time in flight.
/// With a quarter, a class with a slow dependency lost most of its floor for ten seconds of a surge.
const GROWTH: f64 = 1.0;

/// Part of a raise that is left after each update that finds another class slowed down. With updates every 20 ms it is
/// gone in a tenth of a second, and a single noisy mean does not take all of it.
const YIELD: f64 = 0.5;

/// Averaging time of a pace in seconds: the depth of the buckets.
const OVER: f64 = 1.0;

/// Requests a second, as a moving average: the arrivals of a class, or its answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Requests since the last update.
    count: u32,
    per_s: f64,
}

impl Pace {
    pub(super) const NONE: Pace = Pace { count: 0, per_s: 0.0 };

    #[inline]
    pub(super) fn add(&mut self) {
        self.count += 1;
    }

    /// Updates the average, `seconds` after the last update.
    pub(super) fn update(&mut self, seconds: f64) {
        let instant = f64::from(core::mem::take(&mut self.count)) / seconds.max(1e-9);
        self.per_s += (1.0 - (-seconds / OVER).exp()) * (instant - self.per_s);
    }

    /// Takes over the average of an earlier policy.
    pub(super) fn carry(&mut self, old: Pace) {
        self.per_s = old.per_s;
    }

    /// Takes over the average of another engine.
    pub(super) fn adopt(&mut self, per_s: f64) {
        // Requests may arrive here that nothing answers.
        self.per_s = self.per_s.max(per_s);
    }

    pub(super) fn per_s(self) -> f64 {
        self.per_s
    }
}

/// Returns the allowance of a class with this part and this pace of answers. `tightest` is the tightest limit
/// that has to be kept, in seconds, or infinite if there is none.
pub(super) fn allowance(part: f64, answers: Pace, tightest: f64) -> f64 {
    if tightest.is_finite() { part.max(ANSWERED * tightest * answers.per_s) } else { part }
}

/// The common factor for parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slowdown {
    /// Slowdown of the class that is slowed least, at least 1.
    min: f64,
}

impl Slowdown {
    pub(super) const NONE: Slowdown = Slowdown { min: 1.0 };

    pub(super) fn new(min: f64) -> Slowdown {
        Slowdown { min }
    }

    /// Returns the factor for classes that have not become expensive.
    pub(super) fn factor(self) -> f64 {
        self.min.min(MAX_SLOWDOWN)
    }

    /// Returns the part of a class that needs `need` slots for its guarantee and has this slowdown.
    pub(super) fn part(self, need: f64, slowdown: f64) -> f64 {
        let expensive = slowdown > EXPENSIVE * self.min;
        need * if expensive { PART } else { PART.max(self.factor()) }
    }
}

/// Slots of a class beyond its allowance, while the requests of no other class with a guarantee suffer.
///
/// They grow with the answers that find them used up, as a reach does but faster, and are halved at every update that
/// finds another class slowed down. Then they do not grow for a pause, which is longer each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    slots: f64,
    grows: bool,
    /// Seconds, and the time in seconds at which the present pause is over.
    pause: f64,
    paused: f64,
}

impl Raise {
    pub(super) const NONE: Raise = Raise { slots: 0.0, grows: false, pause: PAUSE.as_secs_f64(), paused: 0.0 };

    /// Updates it at `now`, in seconds on the engine's clock. `others` is the largest slowdown of another class, if
    /// there is one, and `max` the number of slots beyond which the class needs no more.
    pub(super) fn update(&mut self, now: f64, others: Option<f64>, max: f64) {
        let suffers = others.is_some_and(|slowdown| slowdown > UNHARMED);
        if suffers {
            if self.slots > 0.0 && now >= self.paused {
                self.paused = now + self.pause;
                self.pause = (2.0 * self.pause).min(LONGEST_PAUSE.as_secs_f64());
            }
            self.slots *= YIELD;
        }
        // Without another class nothing tells whether the requests wait for one another.
        self.grows = others.is_some() && !suffers && now >= self.paused;
        self.slots = self.slots.min(max);
    }

    /// Counts an answer that found the whole allowance in use. Returns the growth.
    pub(super) fn used_up(&mut self) -> f64 {
        let growth = if self.grows { GROWTH } else { 0.0 };
        self.slots += growth;
        growth
    }

    /// Takes the slots back, because nothing holds the class back any more. A pause goes on.
    pub(super) fn ends(&mut self) {
        (self.slots, self.grows) = (0.0, false);
    }

    pub(super) fn slots(self) -> f64 {
        self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_grows_while_no_other_class_suffers_and_pauses_for_longer_each_time() {
        let mut raise = Raise::NONE;
        let mut now = 0.0;
        let grow = |raise: &mut Raise, now: f64, others| {
            raise.update(now, others, 20.0);
            (0..400).for_each(|_| _ = raise.used_up());
            raise.update(now, others, 20.0);
            raise.slots()
        };
        assert_eq!(grow(&mut raise, now, None), 0.0, "nothing tells whether it harms");
        assert_eq!(grow(&mut raise, now, Some(1.2)), 20.0, "no more than it needs");
        for pause in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            raise.update(now, Some(1.3), 20.0);
            assert_eq!(raise.slots(), 10.0);
            (0..60).for_each(|_| raise.update(now, Some(1.6), 20.0));
            assert!(grow(&mut raise, now + 0.99 * pause, Some(1.0)) < 1e-9, "{pause}");
            now += pause;
            assert_eq!(grow(&mut raise, now, Some(1.0)), 20.0);
        }
    }

    /// Simulates a class with `per_s` answers a second for `seconds`.
    fn answering(answers: &mut Pace, per_s: u32, seconds: u32) {
        for _ in 0..50 * seconds {
            (0..per_s / 50).for_each(|_| answers.add());
            answers.update(0.020);
        }
    }

    #[test]
    fn what_is_answered_as_fast_as_it_comes_is_let_in() {
        let mut answers = Pace::NONE;
        answering(&mut answers, 1000, 10);
        // A limit of 3 s: 600 requests in flight are answered within 0.6 s.
        assert!((allowance(20.0, answers, 3.0) - 600.0).abs() < 1.0, "{answers:?}");
        // After a second without answers, two thirds of the allowance are gone.
        answering(&mut answers, 0, 1);
        assert!((allowance(20.0, answers, 3.0) - 600.0 * (-1.0f64).exp()).abs() < 1.0, "{answers:?}");
        answering(&mut answers, 0, 60);
        assert_eq!(allowance(20.0, answers, 3.0), 20.0, "its part is left");
        assert_eq!(allowance(20.0, answers, f64::INFINITY), 20.0, "no limit is in danger, and none gives room");
    }

    #[test]
    fn a_part_grows_while_all_are_slow_but_not_for_an_expensive_class() {
        assert_eq!(Slowdown::NONE.part(10.0, 1.0), 15.0);
        let all_are_slow = Slowdown::new(2.5);
        assert_eq!((all_are_slow.part(10.0, 2.5), all_are_slow.part(10.0, 4.9)), (25.0, 25.0));
        assert_eq!(all_are_slow.part(10.0, 5.1), 15.0, "twice as slow as the others: expensive");
        assert_eq!(Slowdown::new(100.0).part(10.0, 100.0), 30.0, "no more than three times");
    }
}
