//! Finds the cost that has changed if the errors of some windows show a change.
//!
//! An error that comes from one cost is correlated with the requests of that route. The *score* of a cost is
//! therefore the sum over windows of error times requests, in deviations of the sum that noise alone would
//! give (Rao's score test). The test for any change uses clipped errors, so that a few odd windows do not
//! trigger it. The choice of the cost uses unclipped errors, because a large error no longer correlates with
//! any route's requests once it is clipped.

use crate::equations::CLIP;

/// Maximum weight of a suspicion. It decides among a dozen routes that errors cannot tell apart, and an error
/// that is four deviations larger overrides it.
const MAX_SUSPICION: f64 = 8.0;

/// The windows of a stretch. Errors are in deviations of the noise.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    /// Length of the stretch in seconds.
    pub(crate) seconds: f64,
    windows: f64,
    /// Sum of squared errors.
    squares: f64,
    costs: Vec<Along>,
    /// Per cost, the log likelihood that it changed, from other evidence.
    suspicion: Vec<f64>,
}

/// Sums for one cost.
#[derive(Clone, Copy, Debug, Default)]
struct Along {
    /// Sum of requests times clipped errors.
    clipped: f64,
    /// Sum of requests times unclipped errors.
    whole: f64,
    /// Sum of squared requests.
    requests: f64,
}

impl Along {
    fn score(self, sum: f64) -> f64 {
        if self.requests > 0.0 { sum / self.requests.sqrt() } else { 0.0 }
    }
}

impl Test {
    pub(crate) fn new(size: usize) -> Test {
        Test {
            seconds: 0.0,
            windows: 0.0,
            squares: 0.0,
            costs: vec![Along::default(); size],
            suspicion: vec![0.0; size],
        }
    }

    /// Adds a cost.
    pub(crate) fn push(&mut self) {
        self.costs.push(Along::default());
        self.suspicion.push(0.0);
    }

    pub(crate) fn clear(&mut self) {
        (self.seconds, self.windows, self.squares) = (0.0, 0.0, 0.0);
        self.costs.fill(Along::default());
        self.suspicion.fill(0.0);
    }

    /// Adds other evidence from a window of `seconds`: per cost, the log likelihood that it is the one that
    /// changed.
    pub(crate) fn suspect(&mut self, seconds: f64, suspicion: &[f64]) {
        self.suspicion.iter_mut().zip(suspicion).for_each(|(own, told)| *own += seconds * told);
    }

    /// Adds a window of `seconds` with `rates` requests a second and an error of `far`.
    pub(crate) fn add(&mut self, seconds: f64, rates: &[f64], far: f64) {
        self.seconds += seconds;
        self.windows += 1.0;
        self.squares += far * far;
        for (along, rate) in self.costs.iter_mut().zip(rates) {
            let requests = rate * seconds.sqrt();
            along.clipped += far.clamp(-CLIP, CLIP) * requests;
            along.whole += far * requests;
            along.requests += requests * requests;
        }
    }

    /// Returns the largest absolute score.
    pub(crate) fn score(&self) -> f64 {
        self.costs.iter().map(|along| along.score(along.clipped).abs()).fold(0.0, f64::max)
    }

    /// Returns the probability of each cost to be the one that changed, given that one has.
    pub(crate) fn likely(&self) -> Vec<f64> {
        let squared: Vec<f64> = self.costs.iter().map(|along| along.score(along.whole).powi(2)).collect();
        let best = squared.iter().copied().fold(0.0, f64::max);
        // The noise may have grown with the cost. It is at least the error that the best explanation leaves.
        let left = ((self.squares - best) / self.windows.max(1.0)).max(1.0);
        let max = self.suspicion.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let odds = squared.iter().zip(self.suspicion.iter().map(|told| (told - max).max(-MAX_SUSPICION)));
        let odds: Vec<f64> = odds.map(|(squared, told)| ((squared - best) / (2.0 * left) + told).exp()).collect();
        let sum: f64 = odds.iter().sum();
        odds.into_iter().map(|odds| odds / sum).collect()
    }
}
