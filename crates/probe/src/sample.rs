//! Resource use of a request, computed from rounds of batches: the value, its accuracy, and whether that is
//! enough.
//!
//! Source: Feng and Lin, Sec. 3.1 (request profiling). There a page is requested once. The counters of a
//! server that does other work too are noisy, and other load on the machine comes and goes within seconds.
//! Consecutive batches would agree and all be wrong. So there are rounds, each with one batch at each
//! concurrency. The rounds of a page are split into two looks that are minutes apart. The result is the mean
//! of the middle half of the rounds, with their spread.

use serde::{Deserialize, Serialize};

use crate::linear::{Line, MAX_OFF, MIN_FIT, Point, line};
use crate::monitor::Used;

/// Sufficient standard error, relative to the use. The remaining error is small compared with the variation
/// of a page's cost between users.
const GOOD: f64 = 0.03;

/// Minimum number of rounds for a meaningful spread.
const FEWEST_ROUNDS: usize = 4;

/// Use per request below which it cannot be told from noise: 20 µs of CPU time, a block of a disk, the
/// smallest response.
const NOTHING: Used = [20e-6, 512.0, 64.0];

/// Factor from the median deviation, divided by the square root of the number of rounds, to the standard
/// error of the mean of the middle half. For a normal distribution the standard deviation is 1.48 median
/// deviations, and the error of this mean is 1.1 times that of the mean of all values.
const ERROR: f64 = 1.63;

/// A batch: `requests` requests by `at_once` clients, and their use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Number of clients.
    pub at_once: u32,
    /// Total number of requests.
    pub requests: u32,
    /// Total use.
    pub used: Used,
}

/// Rounds of batches of requests for one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    rounds: Vec<Vec<Batch>>,
}

impl Series {
    /// Adds a round. A round without requests is ignored.
    pub fn add(&mut self, round: Vec<Batch>) {
        if round.iter().any(|batch| batch.requests > 0) {
            self.rounds.push(round);
        }
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Returns the number of requests in all batches.
    pub fn requests(&self) -> u32 {
        self.rounds.iter().flatten().map(|batch| batch.requests).sum()
    }

    /// Returns the use per request: the mean of the middle half over the rounds, or 0 without rounds.
    pub fn used(&self) -> Used {
        [0, 1, 2].map(|at| middle(self.per_request(at, |_| true)))
    }

    /// Returns the standard error of that use. It is infinite with one round.
    pub fn error(&self) -> Used {
        [0, 1, 2].map(|at| error(self.per_request(at, |_| true)))
    }

    /// Returns the linear verification for each resource with a use above noise.
    pub fn lines(&self) -> [Option<Line>; 3] {
        let mut steps: Vec<u32> = self.rounds.iter().flatten().map(|batch| batch.at_once).collect();
        steps.sort_unstable();
        steps.dedup();
        let used = self.used();
        [0, 1, 2].map(|at| {
            let point = |step: &u32| {
                let rounds = self.per_request(at, |batch| batch.at_once == *step);
                // The value of a single measurement is used as it is.
                let error = Some(error(rounds.clone())).filter(|error| error.is_finite()).unwrap_or(0.0);
                Point { at_once: f64::from(*step), used: middle(rounds), error }
            };
            let points: Vec<Point> = steps.iter().map(point).collect();
            line(&points, used[at]).filter(|_| is_something(at, used[at]))
        })
    }

    /// Returns whether the use of the relevant resources is known well enough and is proportional.
    pub fn is_enough(&self, matters: [bool; 3]) -> bool {
        let (used, error) = (self.used(), self.error());
        let known = |at: usize| error[at] <= GOOD * used[at].abs() || used[at].abs() + 2.0 * error[at] < NOTHING[at];
        let lines = self.lines();
        let linear = |at: usize| lines[at].is_none_or(|line| line.fit >= MIN_FIT && line.off <= MAX_OFF);
        self.rounds.len() >= FEWEST_ROUNDS && (0..3).all(|at| !matters[at] || (known(at) && linear(at)))
    }

    /// Returns the use per request of each round, over some of its batches.
    fn per_request(&self, resource: usize, of: impl Fn(&Batch) -> bool) -> Vec<f64> {
        let rounds = self.rounds.iter().filter_map(|round| {
            let batches = round.iter().filter(|batch| of(batch));
            let sum = |(requests, used): (f64, f64), batch: &Batch| {
                (requests + f64::from(batch.requests), used + batch.used[resource])
            };
            let (requests, used) = batches.fold((0.0, 0.0), sum);
            (requests > 0.0).then(|| used / requests)
        });
        rounds.collect()
    }
}

/// Returns the mean of the middle half. Disturbances of single rounds are ignored.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 4;
    let middle = values.get(cut..values.len() - cut).unwrap_or_default();
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

/// Returns the standard error of that mean.
fn error(values: Vec<f64>) -> f64 {
    if values.len() < 2 {
        return f64::INFINITY;
    }
    let (count, centre) = (values.len() as f64, median(values.clone()));
    let deviation = median(values.into_iter().map(|value| (value - centre).abs()).collect());
    ERROR * deviation / count.sqrt()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    values.get(low).zip(values.get(high)).map_or(0.0, |(low, high)| (low + high) / 2.0)
}

/// Returns whether a request uses more of a resource than noise.
pub fn is_something(resource: usize, used: f64) -> bool {
    NOTHING.get(resource).is_some_and(|nothing| used >= *nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds rounds with one batch each, of CPU time.
    fn series(batches: &[(u32, f64)]) -> Series {
        let mut series = Series::default();
        for (requests, cpu) in batches {
            series.add(vec![Batch { at_once: 1, requests: *requests, used: [*cpu, 0.0, 0.0] }]);
        }
        series
    }

    /// Builds rounds of eight requests by 1, 2, 4 and 8 clients, each with its cost in milliseconds.
    fn rounds(costs: &[[f64; 4]]) -> Series {
        let mut series = Series::default();
        for round in costs {
            let batch =
                |(power, cost): (u32, &f64)| Batch { at_once: 1 << power, requests: 8, used: [8e-3 * cost, 0.0, 0.0] };
            series.add((0..).zip(round).map(batch).collect());
        }
        series
    }

    const ALL: [bool; 3] = [true; 3];

    #[test]
    fn equal_rounds_are_enough_and_unequal_ones_are_not() {
        assert!(series(&[(4, 0.04); 4]).is_enough(ALL));
        assert!(!series(&[(4, 0.04); 3]).is_enough(ALL), "three may agree by chance");
        let unequal = series(&[(4, 0.03), (4, 0.05), (4, 0.03), (4, 0.05)]);
        assert!(!unequal.is_enough(ALL) && unequal.is_enough([false, true, true]));
        let many: Vec<(u32, f64)> = (0..400).map(|n| (4, 0.03 + 5e-5 * f64::from(n))).collect();
        assert!(series(&many).is_enough(ALL), "the mean of many is known");
    }

    #[test]
    fn a_round_that_bore_somebody_elses_work_does_not_count() {
        let mut costs = vec![[1.0; 4]; 7];
        costs[2] = [1.0, 3.0, 1.0, 1.0];
        let series = rounds(&costs);
        assert!((series.used()[0] - 1e-3).abs() < 1e-12, "{:?}", series.used());
        assert!(series.lines()[0].is_some_and(|line| line.fit > 0.999 && line.off < 1e-9), "{:?}", series.lines());
    }

    #[test]
    fn two_looks_that_differ_are_not_known_well() {
        // The rounds of each look agree to a thousandth.
        let look = |cost: f64| [[cost; 4], [cost * 1.001; 4], [cost * 0.999; 4], [cost; 4]];
        let both = rounds(&[look(1.0), look(1.3)].concat());
        assert!(rounds(&look(1.0)).is_enough(ALL) && !both.is_enough(ALL));
        assert!((0.05..0.15).contains(&(both.error()[0] / both.used()[0])), "{:?}", both.error());
    }

    #[test]
    fn what_is_no_proportion_is_looked_at_longer() {
        assert!(rounds(&[[1.0, 1.05, 1.1, 1.1]; 4]).is_enough(ALL));
        assert!(!rounds(&[[1.0, 1.3, 1.6, 2.0]; 4]).is_enough(ALL));
    }

    #[test]
    fn the_error_is_that_of_the_textbook() {
        // 101 values of a normal distribution with mean 10 and standard deviation 1: its quantiles at equal
        // intervals.
        let quantile = |p: f64| 10.0 + (p / (1.0 - p)).ln() / 1.702;
        let values: Vec<f64> = (1..=101).map(|n| quantile(f64::from(n) / 102.0)).collect();
        let (mean, error) = (middle(values.clone()), error(values));
        assert!((mean - 10.0).abs() < 1e-9, "{mean}");
        assert!((error * 101f64.sqrt() - 1.1).abs() < 0.1, "{error}");
        assert_eq!((Series::default().used(), Series::default().error()), ([0.0; 3], [f64::INFINITY; 3]));
        assert_eq!(series(&[(2, 0.5)]).error(), [f64::INFINITY; 3]);
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    }

    #[test]
    fn noise_around_nothing_is_known_to_be_nothing() {
        assert!(series(&[(4, 1e-6), (4, -2e-6), (4, 1e-6), (4, 0.0)]).is_enough(ALL));
        assert!(!is_something(0, -1.0) && !is_something(0, 19e-6) && is_something(1, 4096.0) && !is_something(3, 1.0));
        let mut none = Series::default();
        none.add(vec![Batch { at_once: 1, requests: 0, used: [1.0; 3] }]);
        assert_eq!((none.rounds(), none.requests()), (0, 0));
    }
}
