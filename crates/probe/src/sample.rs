//! What a request uses, from batches of requests: the mean, how well it is known, and when that is enough.
//!
//! Source: Feng and Lin, Sec. 3.1 (request profiling). There a page is requested once. A counter of a server that does
//! other things too is noisy, so a page is requested until its mean use is known to a few percent.

use serde::{Deserialize, Serialize};

use crate::monitor::Used;

/// Standard error of the mean, relative to it, that is good enough: what remains is small beside how a page's cost
/// differs from one user to the next.
const GOOD: f64 = 0.03;

/// Batches before their spread says anything.
const FEWEST_BATCHES: usize = 4;

/// Use of a request below which nothing is told from noise: 20 µs of CPU time, a block of a disk, the smallest answer.
const NOTHING: Used = [20e-6, 512.0, 64.0];

/// Batches of requests for one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Requests and their use, per batch.
    batches: Vec<(u32, Used)>,
}

impl Series {
    /// One more batch: so many requests used so much.
    pub fn add(&mut self, requests: u32, used: Used) {
        if requests > 0 {
            self.batches.push((requests, used));
        }
    }

    /// Requests of all batches.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.batches.iter().map(|(requests, _)| requests).sum()
    }

    /// What a request uses on average; 0 without requests.
    #[must_use]
    pub fn mean(&self) -> Used {
        let requests = f64::from(self.requests().max(1));
        [0, 1, 2].map(|at| self.batches.iter().map(|(_, used)| used[at]).sum::<f64>() / requests)
    }

    /// The standard error of the mean, per resource, from the spread of the batches. Infinite with one batch.
    #[must_use]
    pub fn error(&self) -> Used {
        let (mean, count) = (self.mean(), self.batches.len() as f64);
        let all = f64::from(self.requests().max(1));
        [0, 1, 2].map(|at| {
            if self.batches.len() < 2 {
                return f64::INFINITY;
            }
            // The ratio estimator: how far each batch is from what its requests should have used.
            let squares =
                self.batches.iter().map(|(requests, used)| (used[at] - mean[at] * f64::from(*requests)).powi(2));
            (squares.sum::<f64>() * count / (count - 1.0)).sqrt() / all
        })
    }

    /// Whether the mean of every resource that matters is known well enough.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        let (mean, error) = (self.mean(), self.error());
        let known = |at: usize| error[at] <= GOOD * mean[at].abs() || mean[at].abs() + 2.0 * error[at] < NOTHING[at];
        self.batches.len() >= FEWEST_BATCHES && (0..3).all(known)
    }
}

/// Whether a request uses more of a resource than noise.
#[must_use]
pub fn is_something(resource: usize, mean: f64) -> bool {
    NOTHING.get(resource).is_some_and(|nothing| mean >= *nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(batches: &[(u32, f64)]) -> Series {
        let mut series = Series::default();
        batches.iter().for_each(|(requests, cpu)| series.add(*requests, [*cpu, 0.0, 0.0]));
        series
    }

    #[test]
    fn the_mean_is_that_of_requests_not_of_batches() {
        let series = series(&[(1, 0.02), (9, 0.08)]);
        assert_eq!((series.requests(), series.mean()[0]), (10, 0.01));
    }

    #[test]
    fn equal_batches_are_enough_and_unequal_ones_are_not() {
        assert!(series(&[(4, 0.04); 4]).is_enough());
        assert!(!series(&[(4, 0.04); 3]).is_enough(), "three may agree by chance");
        assert!(!series(&[(4, 0.03), (4, 0.05), (4, 0.03), (4, 0.05)]).is_enough());
        let many: Vec<(u32, f64)> = (0..200).map(|n| (4, if n % 2 == 0 { 0.03 } else { 0.05 })).collect();
        assert!(series(&many).is_enough(), "the mean of many is known");
    }

    #[test]
    fn the_standard_error_is_that_of_the_textbook() {
        // Single requests of 1 and 3: mean 2, deviation √2 with n - 1, error √2 / √2 = 1.
        let series = series(&[(1, 1.0), (1, 3.0)]);
        assert!((series.error()[0] - 1.0).abs() < 1e-12, "{:?}", series.error());
        assert_eq!(Series::default().mean(), [0.0; 3]);
        assert_eq!(Series::default().error(), [f64::INFINITY; 3]);
    }

    #[test]
    fn noise_around_nothing_is_known_to_be_nothing() {
        assert!(series(&[(4, 1e-6), (4, -2e-6), (4, 1e-6), (4, 0.0)]).is_enough());
        assert!(!is_something(0, -1.0) && !is_something(0, 19e-6) && is_something(1, 4096.0) && !is_something(3, 1.0));
    }
}
