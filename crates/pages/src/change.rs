//! Which cost has changed, if the errors of some windows say that one has.
//!
//! An error that comes from one cost goes with the requests of that route. So the *score* of a cost is the sum over
//! windows of error times requests, in deviations of what noise alone would make of it (Rao's score test). Whether
//! there was a change at all is asked of errors that are clipped, so that a few odd windows do not make one; which cost
//! it was, of the errors as they are, because a large one that is clipped no longer goes with anybody's requests.

use crate::equations::CLIP;

/// Most that suspicion weighs: it decides among a dozen routes that errors do not tell apart, and is decided over by an
/// error four deviations further off.
const MOST_SUSPICION: f64 = 8.0;

/// The windows of a stretch. Errors are in deviations of the noise.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    /// How long the stretch is.
    pub(crate) seconds: f64,
    windows: f64,
    /// Errors squared.
    squares: f64,
    costs: Vec<Along>,
    /// Per cost the logarithm of how likely it is by what else is known.
    suspicion: Vec<f64>,
}

/// Sums along one cost.
#[derive(Clone, Copy, Debug, Default)]
struct Along {
    /// Requests times clipped errors.
    clipped: f64,
    /// Requests times errors.
    whole: f64,
    /// Requests squared.
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

    /// One more cost.
    pub(crate) fn push(&mut self) {
        self.costs.push(Along::default());
        self.suspicion.push(0.0);
    }

    pub(crate) fn clear(&mut self) {
        (self.seconds, self.windows, self.squares) = (0.0, 0.0, 0.0);
        self.costs.fill(Along::default());
        self.suspicion.fill(0.0);
    }

    /// Per cost the logarithm of how likely it is the one that changed, by what else a window of `seconds` says.
    pub(crate) fn suspect(&mut self, seconds: f64, suspicion: &[f64]) {
        self.suspicion.iter_mut().zip(suspicion).for_each(|(own, told)| *own += seconds * told);
    }

    /// One more window of `seconds`, with `rates` requests a second, that was `far` off.
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

    /// The largest score, whatever its sign.
    pub(crate) fn score(&self) -> f64 {
        self.costs.iter().map(|along| along.score(along.clipped).abs()).fold(0.0, f64::max)
    }

    /// How likely each cost is the one that changed, if one has.
    pub(crate) fn likely(&self) -> Vec<f64> {
        let squared: Vec<f64> = self.costs.iter().map(|along| along.score(along.whole).powi(2)).collect();
        let best = squared.iter().copied().fold(0.0, f64::max);
        // The noise may have grown with the cost: it is at least what the best explanation leaves.
        let left = ((self.squares - best) / self.windows.max(1.0)).max(1.0);
        let most = self.suspicion.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let odds = squared.iter().zip(self.suspicion.iter().map(|told| (told - most).max(-MOST_SUSPICION)));
        let odds: Vec<f64> = odds.map(|(squared, told)| ((squared - best) / (2.0 * left) + told).exp()).collect();
        let sum: f64 = odds.iter().sum();
        odds.into_iter().map(|odds| odds / sum).collect()
    }
}
