//! The demand of one class at one gateway, from counts of arrivals: steady while the load is, quick when it moves.
//!
//! A mean over a fixed time is either noisy or late. This one runs over all intervals since the last change, up to
//! [`LONGEST`]. A change is there if the newest intervals and those before them can hardly have the same Poisson rate.
//! Windows of different lengths are compared, so a large change is found in the interval in which it happens, and a
//! small one as soon as enough has arrived to tell it from chance.
//!
//! Until then the tokens of the gateway's bucket tell more than a mean: a share that is a little too small empties it.
//! A bucket that runs dry adds to the demand at once, whatever the mean is.
//!
//! Source: the generalized likelihood ratio test for a change of a mean, Basseville and Nikiforov, *Detection of Abrupt
//! Changes* (1993), Sec. 2.4.3, for Poisson counts of which neither rate is known. Departures: only some lengths of
//! windows are compared, and the bucket counts as well.

use core::time::Duration;

/// Intervals of a mean. At an interval of 25 ms it holds 3.2 s, and the noise of 80 arrivals a second is 6 %.
const LONGEST: usize = 128;

/// Lengths of the windows that are compared with the time before them, in intervals. Changes that need a longer one are
/// within the noise of the mean.
const WINDOWS: [usize; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48];

/// Logarithm of the likelihood ratio that is a change. Eleven windows are compared in each interval, so a smaller
/// value finds changes in chance and costs more floor error than it saves (`crates/sim/examples/site`).
const CHANGE: f64 = 8.0;

/// A bucket with less than this part of its depth runs dry.
const DRY: f64 = 0.1;

/// Time in which a bucket that runs dry is to have that part again, in seconds. With [`DRY`], demand is more than the
/// mean by at most half of the share. More of it moves shares to and fro, and each move loses them for some
/// milliseconds.
const REFILL: f64 = 0.2;

/// Estimates a rate of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Sums of all arrivals at the ends of the last intervals, as a ring. They wrap.
    sums: [u32; LONGEST + 1],
    /// Index of the newest one.
    newest: usize,
    /// Intervals since the last change.
    intervals: usize,
    /// Tokens in the bucket: a second of the share at most, as in the engine.
    tokens: f64,
    /// Tokens that are missing in a bucket that runs dry.
    missing: f64,
}

impl Default for Demand {
    fn default() -> Demand {
        Demand { sums: [0; LONGEST + 1], newest: 0, intervals: 0, tokens: 0.0, missing: 0.0 }
    }
}

impl Demand {
    /// Notes the arrivals of an `interval` that has ended. `share` is the gateway's share in it, in millionths of a
    /// request a second.
    pub fn note(&mut self, arrivals: u64, share: u64, interval: Duration) {
        let sum = self.sums[self.newest].wrapping_add(u32::try_from(arrivals).unwrap_or(u32::MAX));
        self.newest = (self.newest + 1) % self.sums.len();
        self.sums[self.newest] = sum;
        self.intervals = (self.intervals + 1).min(LONGEST);
        let all = self.last(self.intervals);
        let tests = WINDOWS.iter().filter(|window| **window < self.intervals);
        let tests = tests.map(|window| (*window, self.ratio(*window, all)));
        if let Some((window, ratio)) = tests.max_by(|a, b| a.1.total_cmp(&b.1))
            && ratio > CHANGE
        {
            self.intervals = window;
        }
        let rate = share as f64 / 1e6;
        let depth = rate.max(1.0);
        self.tokens = (self.tokens + rate * interval.as_secs_f64() - arrivals as f64).clamp(0.0, depth);
        self.missing = (DRY * depth - self.tokens).max(0.0);
    }

    /// Arrivals of the last intervals.
    fn last(&self, intervals: usize) -> f64 {
        let before = (self.newest + self.sums.len() - intervals) % self.sums.len();
        f64::from(self.sums[self.newest].wrapping_sub(self.sums[before]))
    }

    /// Logarithm of the likelihood ratio of two rates, before and in the last `window` intervals, against one.
    fn ratio(&self, window: usize, all: f64) -> f64 {
        let new = self.last(window);
        let expected = all * window as f64 / self.intervals as f64;
        let gain = |counted: f64, expected: f64| if counted > 0.0 { counted * (counted / expected).ln() } else { 0.0 };
        gain(new, expected) + gain(all - new, all - expected)
    }

    /// Demand in millionths of a request a second, if counts are of this `interval`.
    ///
    /// The mean counts without its standard error. Adding it met demands that just fit somewhat sooner, and left two
    /// percent of an overloaded floor unused.
    pub fn micro_per_s(&self, interval: Duration) -> u64 {
        let mean = self.last(self.intervals) / self.intervals.max(1) as f64;
        let rate = mean / interval.as_secs_f64().max(f64::MIN_POSITIVE) + self.missing / REFILL;
        (rate * 1e6) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(25);

    /// A share that covers everything.
    const AMPLE: u64 = 10_000_000_000;

    fn after(counts: &[u64]) -> u64 {
        let mut demand = Demand::default();
        counts.iter().for_each(|count| demand.note(*count, AMPLE, INTERVAL));
        demand.micro_per_s(INTERVAL) / 1_000_000
    }

    #[test]
    fn steady_arrivals_are_averaged() {
        assert_eq!(Demand::default().micro_per_s(INTERVAL), 0);
        let counts: Vec<u64> = (0..256).map(|index| if index % 2 == 0 { 17 } else { 23 }).collect();
        assert!((795..=805).contains(&after(&counts)), "{}", after(&counts));
    }

    #[test]
    fn a_large_change_is_known_at_once_and_a_small_one_soon() {
        let with = |before: u64, new: &[u64]| after(&[&[before; 160][..], new].concat());
        assert_eq!(with(20, &[0]), 0);
        assert_eq!(with(20, &[50]), 2_000);
        // A third more is within the noise of one interval.
        assert!(with(20, &[27]) < 830);
        assert!(with(20, &[27; 24]) > 1_040);
    }

    #[test]
    fn a_few_arrivals_after_none_are_a_demand() {
        // One request at a gateway that had none is no rate yet. A second one at once is.
        assert!(after(&[&[0; 160][..], &[1]].concat()) < 1);
        assert!(after(&[&[0; 160][..], &[1, 1]].concat()) >= 40);
        // And ten a second that stay away are gone within a second and a half.
        let ten: Vec<u64> = (0..160).map(|index| u64::from(index % 4 == 0)).collect();
        assert_eq!(after(&[&ten[..], &[0; 60]].concat()), 0);
    }

    /// 19 a second with a share of 13: within the noise of the mean for a long time.
    #[test]
    fn a_bucket_that_runs_dry_asks_for_more_at_once() {
        let mut demand = Demand::default();
        let counts = |index: u64, per_second: u64| (index + 1) * per_second / 40 - index * per_second / 40;
        (0..160).for_each(|index| demand.note(counts(index, 10), 13_000_000, INTERVAL));
        assert_eq!(demand.micro_per_s(INTERVAL) / 1_000_000, 10);
        let told: Vec<u64> = (0..100)
            .map(|index| {
                demand.note(counts(index, 19), 13_000_000, INTERVAL);
                demand.micro_per_s(INTERVAL) / 1_000_000
            })
            .collect();
        let dry = told.iter().position(|demand| *demand > 14);
        assert!(dry.is_some_and(|index| (50..95).contains(&index)), "a bucket lasts for two seconds: {told:?}");
    }

    #[test]
    fn no_count_is_too_large() {
        let mut demand = Demand::default();
        (0..200).for_each(|_| demand.note(u64::MAX, 0, INTERVAL));
        assert!(demand.micro_per_s(INTERVAL) > 0);
    }
}
