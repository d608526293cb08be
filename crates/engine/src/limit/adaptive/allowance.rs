//! How many requests a class may have in flight whatever the window says, as long as its bucket has tokens.
//!
//! Source: our own, from Little's law (J. D. C. Little, 1961). The allowance of a class is the larger of two numbers:
//!
//! - **Its part**: g × (time alone) × 1.5. While requests of *all* classes take longer than alone, a guarantee needs
//!   more slots for the same throughput, so the part is stretched by the slowdown of the class that is slowed least.
//!   A class that is slowed much more than that has become expensive by itself. It is owed its capacity and not its
//!   rate, so it is not stretched.
//! - **What it answers** within a fifth of the tightest limit. As long as requests leave as fast as they come,
//!   nothing piles up, however long each of them takes: a class whose dependency has slowed down goes on as before.
//!   If nodes are overloaded the answers stop keeping up. Then the requests in flight stay as many as end within that
//!   share of the limit, and the others wait in front of the nodes, where claims are in the right order.
//!
//! It departs from windows that adapt to response times (Quorum's, TCP Vegas', gradients) in that a longer time by
//! itself lowers nothing: the second number is (answers a second) × (a time), not a comparison with a shortest time.

/// Part of a need that a class may have in flight in any case: at the knee all take half as long again.
const PART: f64 = 1.5;

/// Most that parts are stretched by. Where all classes take three times as long as alone, more in flight would make all
/// of them slower still.
const MOST_STRETCH: f64 = 3.0;

/// Slowdown, against that of the class slowed least, from which on a class counts as expensive. Below it the two may
/// merely wait differently long for what they share.
const EXPENSIVE: f64 = 2.0;

/// Share of the tightest limit in which the requests of an allowance are to be answered. Exponential times have three
/// means at the 95th percentile, and a part of the limit is for waiting before. With 0.3 the swarm misses slightly less,
/// but the other class of Fig. 10 has a p95 of 31 ms instead of 28; with 0.1 slow dependencies cost floors.
const ANSWERED: f64 = 0.2;

/// Seconds over which answers are averaged: the depth of the buckets.
const OVER: f64 = 1.0;

/// Answers of a class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Since the last look.
    answers: u32,
    per_s: f64,
}

impl Pace {
    pub(super) const NONE: Pace = Pace { answers: 0, per_s: 0.0 };

    #[inline]
    pub(super) fn answered(&mut self) {
        self.answers += 1;
    }

    /// A look, so long after the last one.
    pub(super) fn look(&mut self, seconds: f64) {
        let instant = f64::from(core::mem::take(&mut self.answers)) / seconds.max(1e-9);
        self.per_s += (1.0 - (-seconds / OVER).exp()) * (instant - self.per_s);
    }

    /// The allowance of a class with this part. `tightest` is the tightest limit that has to be kept, in seconds;
    /// infinite if there is none.
    pub(super) fn allowance(&self, part: f64, tightest: f64) -> f64 {
        if tightest.is_finite() { part.max(ANSWERED * tightest * self.per_s) } else { part }
    }
}

/// By how much parts are stretched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Slowdown of the class that is slowed least, at least 1.
    least: f64,
}

impl Stretch {
    pub(super) const NONE: Stretch = Stretch { least: 1.0 };

    pub(super) fn new(least: f64) -> Stretch {
        Stretch { least }
    }

    /// The factor for classes that have not become expensive.
    pub(super) fn factor(self) -> f64 {
        self.least.min(MOST_STRETCH)
    }

    /// The part of a class that needs so many slots for its guarantee and is slowed down so much.
    pub(super) fn part(self, need: f64, slowdown: f64) -> f64 {
        let expensive = slowdown > EXPENSIVE * self.least;
        need * if expensive { PART } else { PART.max(self.factor()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A class that answers so many a second, for so many seconds.
    fn answering(pace: &mut Pace, per_s: u32, seconds: u32) {
        for _ in 0..50 * seconds {
            (0..per_s / 50).for_each(|_| pace.answered());
            pace.look(0.020);
        }
    }

    #[test]
    fn what_is_answered_as_fast_as_it_comes_is_let_in() {
        let mut pace = Pace::default();
        answering(&mut pace, 1000, 10);
        // A limit of 3 s: 600 in flight are answered within 0.6 s.
        assert!((pace.allowance(20.0, 3.0) - 600.0).abs() < 1.0, "{pace:?}");
        // Nothing is answered for a second: two thirds of it are gone.
        answering(&mut pace, 0, 1);
        assert!((pace.allowance(20.0, 3.0) - 600.0 * (-1.0f64).exp()).abs() < 1.0, "{pace:?}");
        answering(&mut pace, 0, 60);
        assert_eq!(pace.allowance(20.0, 3.0), 20.0, "its part is left");
        assert_eq!(pace.allowance(20.0, f64::INFINITY), 20.0, "no limit is in danger, and none gives room");
    }

    #[test]
    fn a_part_is_stretched_while_all_are_slow_but_not_for_an_expensive_class() {
        assert_eq!(Stretch::NONE.part(10.0, 1.0), 15.0);
        let all_are_slow = Stretch::new(2.5);
        assert_eq!((all_are_slow.part(10.0, 2.5), all_are_slow.part(10.0, 4.9)), (25.0, 25.0));
        assert_eq!(all_are_slow.part(10.0, 5.1), 15.0, "twice as slow as the others: expensive");
        assert_eq!(Stretch::new(100.0).part(10.0, 100.0), 30.0, "no more than three times");
    }
}
