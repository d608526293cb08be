//! The demand of one class at one gateway, from counts of arrivals: steady while the load is, quick when it moves.
//!
//! A mean over a fixed time is either noisy or late. This one runs over all intervals since the last change, up to
//! [`LONGEST`]. A change is a count that Poisson arrivals of the mean rate do not explain: the newest one, or the last
//! four together, which sees changes half as large. Source of the idea: the restart of a mean by a test for a change,
//! as in Gustafsson, *Adaptive Filtering and Change Detection* (2000), ch. 1. The test is plainer: two windows and 4 σ.

use core::time::Duration;

/// Intervals of a mean. At an interval of 100 ms it holds 3.2 s, and the noise of 80 arrivals is 2 %.
const LONGEST: u32 = 32;

/// Intervals of the second test.
const FEW: usize = 4;

/// Standard deviations that are a change. By chance one interval in 10,000 is one, which costs some noise and no more.
const CHANGE: f64 = 4.0;

/// Estimates a rate of arrivals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Arrivals of an interval, on average.
    mean: f64,
    intervals: u32,
    /// The last counts, the newest first.
    last: [f64; FEW],
}

impl Demand {
    /// Notes the arrivals of the interval that has ended.
    pub fn note(&mut self, arrivals: u64) {
        let newest = arrivals as f64;
        self.last.rotate_right(1);
        self.last[0] = newest;
        let few: f64 = self.last.iter().sum();
        if changed(newest, self.mean) {
            (self.mean, self.intervals) = (newest, 1);
        } else if changed(few, FEW as f64 * self.mean) {
            (self.mean, self.intervals) = (few / FEW as f64, FEW as u32);
        } else {
            self.intervals = (self.intervals + 1).min(LONGEST);
            self.mean += (newest - self.mean) / f64::from(self.intervals);
        }
    }

    /// Arrivals in millionths a second, if counts are of this `interval`.
    ///
    /// It is the mean without its standard error. Adding it met demands that just fit somewhat sooner, and left two
    /// percent of an overloaded floor unused.
    #[must_use]
    pub fn micro_per_s(&self, interval: Duration) -> u64 {
        (self.mean / interval.as_secs_f64().max(f64::MIN_POSITIVE) * 1e6) as u64
    }
}

fn changed(counted: f64, expected: f64) -> bool {
    (counted - expected).abs() > CHANGE * counted.max(expected).max(1.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn after(counts: &[u64]) -> u64 {
        let mut demand = Demand::default();
        counts.iter().for_each(|count| demand.note(*count));
        demand.micro_per_s(INTERVAL) / 1_000_000
    }

    #[test]
    fn steady_arrivals_are_averaged() {
        assert_eq!(after(&[]), 0);
        let counts: Vec<u64> = (0..64).map(|index| if index % 2 == 0 { 74 } else { 86 }).collect();
        assert!((795..=805).contains(&after(&counts)), "{}", after(&counts));
    }

    #[test]
    fn a_large_change_is_known_at_once_and_a_small_one_soon() {
        let mut counts = vec![80; 40];
        counts.push(0);
        assert_eq!(after(&counts), 0);
        let mut counts = vec![80; 40];
        counts.push(160);
        assert_eq!(after(&counts), 1_600);
        // A third more is within the noise of one interval.
        let mut counts = vec![80; 40];
        counts.push(107);
        assert!(after(&counts) < 830, "{}", after(&counts));
        counts.extend([107; 3]);
        assert!((1_000..=1_140).contains(&after(&counts)), "{}", after(&counts));
    }
}
