//! Token buckets that measure whether a class has received its guaranteed rate.
//!
//! A class's bucket fills at its guaranteed rate and holds a burst of one second. A release takes a token. A
//! class with a whole token has a claim and goes before every class without one, whatever the others send. A
//! class without a claim shares the surplus. Releases beyond the guarantee take tokens too, down to a
//! bounded debt, so that recent surplus counts against a claim now. The debt is at most a second of the rate as well:
//! what is owed in each second does not depend on what was released long before.
//!
//! Source: our own design. Quorum's Sec. 2 states its promise in the same order, rates first and slots
//! second. Tokens are requests, as declared. If a class's requests become more expensive, the class keeps
//! its claim, and its share of the slots bounds its use of the claim (see `tokens`). Whether a class is
//! expensive is only an estimate: contention slows down a class that computes more than one that waits for a
//! database, and it must not lose its claim for that. The cost counts only where claims are ranked
//! ([`crate::Infeasible`]). There a release of an expensive class takes as many tokens as requests of the
//! declared cost would fit into it. Otherwise a valuable class with runaway costs would take everything.

use core::time::Duration;

use crate::time::Time;

/// Depth of a bucket in seconds of its rate: the burst for which a floor is guaranteed. It is the maximum debt, too.
const BURST: f64 = 1.0;

/// The bucket of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    tokens: f64,
    at: Time,
}

impl Bucket {
    pub(crate) fn new(now: Time) -> Bucket {
        // Full: reduced to its depth at the first use.
        Bucket { tokens: f64::INFINITY, at: now }
    }

    /// Maximum number of tokens.
    fn depth(rate: f64) -> f64 {
        (BURST * rate).max(1.0)
    }

    /// Whether it was full when it was last looked at.
    pub(crate) fn is_full(&self, rate: f64) -> bool {
        self.tokens >= Bucket::depth(rate)
    }

    /// Number of tokens now, at `rate` tokens per second.
    pub(crate) fn level(&mut self, now: Time, rate: f64) -> f64 {
        // A request asks several times at one instant.
        let new = if now > self.at { now.since(self.at).as_secs_f64() * rate } else { 0.0 };
        self.tokens = (self.tokens + new).min(Bucket::depth(rate));
        self.at = now;
        // The tolerance absorbs rounding: a token that is due to be whole at an instant is whole then.
        if (self.tokens - 1.0).abs() < 1e-6 { 1.0 } else { self.tokens }
    }

    /// The rate changes from the first to the second one. Tokens until now come at the old one, and at most the depth
    /// of the new one is kept.
    pub(crate) fn rate_changes(&mut self, now: Time, (from, to): (f64, f64)) {
        self.level(now, from);
        self.level(now, to);
    }

    /// Takes `tokens`, down to a debt of at most `debt` seconds of the rate, and of one second.
    pub(crate) fn take(&mut self, now: Time, rate: f64, tokens: f64, debt: f64) {
        let level = self.level(now, rate);
        self.tokens = (level - tokens).max(-debt.min(BURST) * rate);
    }

    /// The time at which the bucket will hold a whole token. `level` is its content at `now`.
    pub(crate) fn whole_at(now: Time, level: f64, rate: f64) -> Time {
        let wait = Duration::try_from_secs_f64(((1.0 - level) / rate).max(0.0)).unwrap_or(Duration::MAX);
        // One more nanosecond, so that rounding cannot leave the token incomplete.
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
        for _ in 0..500 {
            bucket.take(AT(9000), 100.0, 1.0, 10.0);
        }
        assert_eq!(bucket.level(AT(9000), 100.0), -100.0, "one second, however long the limit");
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
