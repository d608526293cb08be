//! What a request uses, from rounds of batches of requests: how much, how well that is known, and when that is enough.
//!
//! Source: Feng and Lin, Sec. 3.1 (request profiling). There a page is requested once. A counter of a server that does
//! other things too is noisy, and what others do on the machine comes and goes by seconds: batches that follow each
//! other agree, and are all wrong. So there are rounds, each with a batch for each number of requests at once, the
//! rounds of a page in two looks that lie minutes apart; what counts is the middle of the rounds, and how far they
//! differ.

use serde::{Deserialize, Serialize};

use crate::linear::{LEAST_FIT, Line, MOST_OFF, Point, line};
use crate::monitor::Used;

/// Standard error, relative to the use, that is good enough: what remains is small beside how a page's cost differs
/// from one user to the next.
const GOOD: f64 = 0.03;

/// Rounds before their spread says anything.
const FEWEST_ROUNDS: usize = 4;

/// Use of a request below which nothing is told from noise: 20 µs of CPU time, a block of a disk, the smallest answer.
const NOTHING: Used = [20e-6, 512.0, 64.0];

/// Standard error of the mean of the middle half, per median deviation and root of the rounds: for what is distributed
/// normally the deviation is 1.48 median deviations, and this mean's error is 1.1 times that of the mean of all.
const ERROR: f64 = 1.63;

/// A batch: so many requests by `at_once` clients used so much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Clients.
    pub at_once: u32,
    /// All their requests.
    pub requests: u32,
    /// By all of them.
    pub used: Used,
}

/// Rounds of batches of requests for one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    rounds: Vec<Vec<Batch>>,
}

impl Series {
    /// One more round. Batches without requests say nothing.
    pub fn add(&mut self, round: Vec<Batch>) {
        if round.iter().any(|batch| batch.requests > 0) {
            self.rounds.push(round);
        }
    }

    /// How many rounds there are.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Requests of all batches.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.rounds.iter().flatten().map(|batch| batch.requests).sum()
    }

    /// What a request uses: the middle of what it used in each round; 0 without rounds.
    #[must_use]
    pub fn used(&self) -> Used {
        [0, 1, 2].map(|at| middle(self.per_request(at, |_| true)))
    }

    /// The standard error of that. Infinite with one round.
    #[must_use]
    pub fn error(&self) -> Used {
        [0, 1, 2].map(|at| error(self.per_request(at, |_| true)))
    }

    /// The linear verification, of resources of which a request uses more than noise.
    #[must_use]
    pub fn lines(&self) -> [Option<Line>; 3] {
        let mut steps: Vec<u32> = self.rounds.iter().flatten().map(|batch| batch.at_once).collect();
        steps.sort_unstable();
        steps.dedup();
        let used = self.used();
        [0, 1, 2].map(|at| {
            let point = |step: &u32| {
                let rounds = self.per_request(at, |batch| batch.at_once == *step);
                // What was measured once is taken as it is.
                let error = Some(error(rounds.clone())).filter(|error| error.is_finite()).unwrap_or(0.0);
                Point { at_once: f64::from(*step), used: middle(rounds), error }
            };
            let points: Vec<Point> = steps.iter().map(point).collect();
            line(&points, used[at]).filter(|_| is_something(at, used[at]))
        })
    }

    /// Whether the use of the resources that matter is known well enough, and whether it is a proportion.
    #[must_use]
    pub fn is_enough(&self, matters: [bool; 3]) -> bool {
        let (used, error) = (self.used(), self.error());
        let known = |at: usize| error[at] <= GOOD * used[at].abs() || used[at].abs() + 2.0 * error[at] < NOTHING[at];
        let lines = self.lines();
        let linear = |at: usize| lines[at].is_none_or(|line| line.fit >= LEAST_FIT && line.off <= MOST_OFF);
        self.rounds.len() >= FEWEST_ROUNDS && (0..3).all(|at| !matters[at] || (known(at) && linear(at)))
    }

    /// Use per request of each round, of some of its batches.
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

/// The mean of the middle half: what a round had to bear that others had not does not count.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 4;
    let middle = values.get(cut..values.len() - cut).unwrap_or_default();
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

/// Its standard error.
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

/// Whether a request uses more of a resource than noise.
#[must_use]
pub fn is_something(resource: usize, used: f64) -> bool {
    NOTHING.get(resource).is_some_and(|nothing| used >= *nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of one batch each, of CPU time.
    fn series(batches: &[(u32, f64)]) -> Series {
        let mut series = Series::default();
        for (requests, cpu) in batches {
            series.add(vec![Batch { at_once: 1, requests: *requests, used: [*cpu, 0.0, 0.0] }]);
        }
        series
    }

    /// Rounds of four requests by 1, 2, 4 and 8 clients, each with its cost in milliseconds.
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
        // Each of them agrees with itself to a thousandth.
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
        // 101 values of a normal distribution with mean 10 and deviation 1: those that divide it into equal parts.
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
