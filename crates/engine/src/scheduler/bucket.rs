//! Token buckets: has a class had its guaranteed rate?
//!
//! A class's bucket fills at its guaranteed rate and holds what a burst of a second brings. A release takes a
//! token. A class with a whole token has a claim and goes before every class without one,
//! whatever the others ask for; a class without one shares what is left. Releases beyond the guarantee take
//! tokens too, down to a bounded debt, so that surplus a moment ago counts against a claim now.
//!
//! Source: our own; rates first and slots second is the order in which Quorum's Sec. 2 states the promise.
//! Tokens are requests, as agreed: a class whose requests become dearer keeps its claim, and its part of the
//! slots bounds what it can do with it (see `tokens`). Whether a class is dear is a guess: one that computes is
//! slowed down by a crowd more than one that waits for a database, and must not lose its claim for that. Only where
//! claims are ranked ([`crate::Infeasible`]) does a release of a dear class take as many tokens as agreed
//! requests would fit into it; or a valuable class that runs wild would take everything.

use core::time::Duration;

use crate::time::Time;

/// Depth of a bucket in seconds of its rate: the burst for which a floor is promised.
const BURST: f64 = 1.0;

/// One class's bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    tokens: f64,
    at: Time,
}

impl Bucket {
    pub(crate) fn new(now: Time) -> Bucket {
        // Full: cut down to its depth at the first look.
        Bucket { tokens: f64::INFINITY, at: now }
    }

    /// Tokens now, at `rate` a second.
    pub(crate) fn level(&mut self, now: Time, rate: f64) -> f64 {
        let depth = (BURST * rate).max(1.0);
        self.tokens = (self.tokens + now.since(self.at).as_secs_f64() * rate).min(depth);
        self.at = now;
        // A hair of slack: what was to be whole at an instant is, in spite of rounding.
        if (self.tokens - 1.0).abs() < 1e-6 { 1.0 } else { self.tokens }
    }

    /// Takes `tokens`, down to a debt of at most `debt` seconds of the rate.
    pub(crate) fn take(&mut self, now: Time, rate: f64, tokens: f64, debt: f64) {
        let level = self.level(now, rate);
        self.tokens = (level - tokens).max(-debt * rate);
    }

    /// When the bucket will hold a whole token; `level` is what it holds at `now`.
    pub(crate) fn whole_at(now: Time, level: f64, rate: f64) -> Time {
        let wait = Duration::try_from_secs_f64(((1.0 - level) / rate).max(0.0)).unwrap_or(Duration::MAX);
        // One more nanosecond: rounding must not leave it a hair short.
        now + wait + Duration::from_nanos(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Time = Time::from_millis;

    #[test]
    fn holds_a_second_of_the_rate_and_a_bounded_debt() {
        let mut bucket = Bucket::new(AT(0));
        assert_eq!(bucket.level(AT(0), 100.0), 100.0);
        for _ in 0..500 {
            bucket.take(AT(0), 100.0, 1.0, 0.2);
        }
        assert_eq!(bucket.level(AT(0), 100.0), -20.0);
        assert_eq!(bucket.level(AT(210), 100.0), 1.0);
        assert_eq!(bucket.level(AT(9000), 100.0), 100.0);
    }

    #[test]
    fn a_slow_class_can_have_a_whole_token() {
        for (rate, whole_after) in [(0.1, 10_000), (1.0, 1_000)] {
            let mut bucket = Bucket::new(AT(0));
            assert_eq!(bucket.level(AT(0), rate), 1.0);
            bucket.take(AT(0), rate, 1.0, 0.0);
            let level = bucket.level(AT(0), rate);
            assert_eq!(level, 0.0);
            let at = Bucket::whole_at(AT(0), level, rate);
            assert_eq!(at.as_nanos(), whole_after * 1_000_000 + 1);
            assert!(bucket.level(at, rate) >= 1.0);
        }
    }
}
