//! The costs of requests on one resource: recursive least squares over windows, with costs that are not
//! negative.
//!
//! A window says `use = Σ cost·requests + background`, all per second, with noise. The module keeps the
//! normal equations `G x = m` (sums over windows of `a aᵀ` and `a y`), which fade with [`MEMORY`]. A window
//! is added in O(n²). The costs then follow by coordinate descent from their previous values, each between 0
//! and the bound of its [`Prior`] (Hildreth, "A quadratic programming procedure", 1957, for one variable at a
//! time, and Lawson and Hanson, *Solving Least Squares Problems*, 1974, Ch. 23, for the optimality conditions
//! that the tests check). None of this is in the papers that Weirgate implements. The following parts are not
//! textbook material:
//!
//! - **Weights.** A window of `T` seconds has the weight of `T` seconds after [`MEMORY`], and its figures are
//!   per second. A window that is cut into pieces with the same mix therefore gives exactly the same result
//!   as the whole.
//! - **Prior.** Each cost has an initial value and deviation. They decide where windows give no information,
//!   for example for two routes that always come together. Their sum is learned and the split stays that of
//!   the table, so nothing drifts.
//! - **Outliers.** A window with an error above [`CLIP`] deviations counts only as much as one with exactly
//!   that error (Huber, "Robust estimation of a location parameter", 1964).
//! - **Change.** A long memory is exact and slow, and a short memory is quick and noisy: with ten routes of
//!   random cost, a memory of 20 s has errors of half the cost. The memory is therefore long, and a test
//!   checks for each route whether recent errors correlate with its requests. If they do, only the knowledge
//!   of *this* route's cost is given up, in proportion to the probability that it changed (`slowdown.rs` adds
//!   evidence where nodes are full). The other routes' costs stay known, and the new cost is found within
//!   seconds. Evidence is given up by adding to the variance of the cost, which is a rank-one change of `G`.
//! - **Full nodes.** A full node uses its whole capacity in every window, so windows differ by chance alone.
//!   Least squares on chance draws all costs towards each other and the rest into the background. Such a
//!   window is therefore treated as information about the level ([`Equations::learn_level`]): its requests
//!   are assumed to have the mix of earlier windows, no use counts as background, and single costs are held
//!   at their values.

use crate::change::Test;
use crate::sums::{Sums, product};

/// Time constant with which windows fade: after this many seconds a window has 37 % of its weight. It bounds
/// the precision of a cost (some hundreds of windows) and follows slow changes, such as a cache that fills.
/// Sudden changes have a test of their own.
pub(crate) const MEMORY: f64 = 300.0;

/// Maximum cost of a request, in node-seconds: the largest demand that the engine can represent.
pub(crate) const MAX: f64 = 4.29;

/// Number of deviations at which a window's influence is bounded. One in 370 normal errors is larger.
pub(crate) const CLIP: f64 = 3.0;

/// Number of windows, minus the fitted parameters, from which the noise estimate is used. Ten give it within
/// a quarter.
const BELIEVED: f64 = 10.0;

/// Noise assumed until then, in node-seconds per second. Agents and network are rarely worse than 5 %.
const ASSUMED: f64 = 0.05;

/// Minimum noise, in node-seconds per second. Counters of the kernel advance in steps of 1 to 10 ms.
const MIN: f64 = 0.001;

/// Minimum noise as a part of the use. Requests of a route differ, and the time at which they were processed
/// is unknown. A full node shows no such noise, because it uses its whole capacity and requests wait.
const EXACT: f64 = 0.03;

/// Time constant of the noise estimate, in seconds. A noisy hour must not hide events in the next.
const NOISE_MEMORY: f64 = 60.0;

/// Length in seconds of a stretch that is tested for change. A change that moves errors by half a deviation
/// takes this long to show. If no change shows by then, the stretch is settled.
const STRETCH: f64 = 20.0;

/// Maximum length in seconds of a stretch that is not clear. The table must be right again after a minute, so
/// the most likely explanation is used by then.
const PATIENCE: f64 = 50.0;

/// Score from which a stretch is not clear. With sixty unchanged costs, one stretch in six reaches it.
const SUSPECT: f64 = 3.0;

/// Score at which some cost has changed. Because errors are clipped, one or two windows cannot reach it.
/// Noise alone reaches it once in weeks.
const CHANGED: f64 = 5.0;

/// Probability from which a change is attributed to a cost for good, and not to another one with requests
/// that come at the same time.
const SURE: f64 = 0.995;

/// Probability of a change below which a cost is not doubted. The effect would be smaller than the noise.
const UNLIKELY: f64 = 1e-3;

/// Assumed size of a jump, as a multiple of the old cost. Page tables are wrong by a missing index or a lost
/// cache, sometimes fivefold.
const JUMP: f64 = 4.0;

/// Base for the size of a jump where a cost was almost zero, in node-seconds.
const SMALL: f64 = 0.002;

/// Strength with which a window of a full node holds single costs at their values, relative to its
/// information about all costs together. With ten times as much, a changed cost is found too late. With a
/// third of it, chance moves costs that did not change (`tests/full_nodes.rs`).
const INERTIA: f64 = 0.03;

/// Minimum cost for computing this strength, in node-seconds. A cost of zero must be free to grow.
const SLIGHT: f64 = 0.0002;

/// Maximum sweeps of coordinate descent per window. From the result of the last window one to five suffice.
/// Only a change needs more.
const SWEEPS: usize = 40;

/// Change of a cost in a sweep below which the descent stops, in node-seconds. Where routes nearly always
/// come together, a hundred such sweeps may follow each other. That is still a thousandth of the smallest
/// relevant cost (0.1 %).
const CONVERGED: f64 = 1e-8;

/// Knowledge about a cost before any window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prior {
    /// Expected cost in node-seconds.
    pub(crate) cost: f64,
    /// Standard deviation of that value.
    pub(crate) deviation: f64,
    /// Upper bound: [`MAX`] for a request's cost, unbounded for a factor.
    pub(crate) max: f64,
}

/// The costs of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Equations {
    /// Settled windows.
    old: Sums,
    /// Costs that were settled.
    settled: Vec<f64>,
    /// The stretch that is tested for change.
    new: Sums,
    test: Test,
    prior: Vec<Prior>,
    cost: Vec<f64>,
    /// Both sums together, reduced by the doubts.
    all: Sums,
    /// Per cost, how strongly windows of full nodes in this stretch hold it at its settled value.
    held: Vec<f64>,
    /// The end of the latest window, in seconds.
    at: f64,
    noise: Noise,
}

/// The variance of a window of one second. The product of the errors before and after a window is learned
/// sums to the squared errors of the best fit. The ratio of those errors gives the number of windows that the
/// fit does not use up.
#[derive(Clone, Copy, Debug, Default)]
struct Noise {
    squares: f64,
    free: f64,
}

impl Noise {
    fn variance(self) -> f64 {
        if self.is_believed() { (self.squares / self.free).max(MIN * MIN) } else { ASSUMED * ASSUMED }
    }

    fn is_believed(self) -> bool {
        self.free >= BELIEVED
    }

    fn fade(&mut self, kept: f64) {
        self.free *= kept;
        self.squares *= kept;
    }
}

impl Equations {
    pub(crate) fn new(prior: Vec<Prior>) -> Equations {
        let size = prior.len();
        let cost: Vec<f64> = prior.iter().map(|prior| prior.cost).collect();
        Equations {
            old: Sums::new(size),
            settled: cost.clone(),
            new: Sums::new(size),
            test: Test::new(size),
            prior,
            cost,
            all: Sums::new(size),
            held: vec![0.0; size],
            at: f64::NEG_INFINITY,
            noise: Noise::default(),
        }
    }

    /// Returns the costs, in node-seconds per request.
    pub(crate) fn costs(&self) -> &[f64] {
        &self.cost
    }

    /// Returns the settled costs, with which the stretch under test is compared.
    pub(crate) fn settled(&self) -> &[f64] {
        &self.settled
    }

    /// Adds other evidence: per cost, the log likelihood that it is the one that changed, if one has.
    pub(crate) fn suspect(&mut self, seconds: f64, suspicion: &[f64]) {
        self.test.suspect(seconds, suspicion);
    }

    /// Learns a window of a full node. It tells the total cost of all requests, and holds the single costs
    /// that are `firm` at their settled values.
    pub(crate) fn learn_level(&mut self, at: f64, seconds: f64, rates: &[f64], used: f64, firm: &[bool]) {
        for (place, rate) in rates.iter().enumerate().filter(|(place, _)| firm[*place]) {
            self.held[place] += INERTIA * seconds * used * rate / self.settled[place].max(SLIGHT);
        }
        self.learn(at, seconds, rates, used);
    }

    /// Learns a window that ended at `at` and lasted `seconds`, with `rates` requests and `used` node-seconds
    /// per second.
    pub(crate) fn learn(&mut self, at: f64, seconds: f64, rates: &[f64], used: f64) {
        let age = self.fade_to(at);
        let weight = MEMORY * -(-seconds / MEMORY).exp_m1() * (-age / MEMORY).exp();
        let variance = self.noise.variance().max((EXACT * used * seconds).powi(2) / seconds);
        let deviation = (variance / seconds).sqrt();
        let error = used - product(rates, &self.cost);
        let far = error / deviation;
        let clipped = if self.noise.is_believed() { far.clamp(-CLIP, CLIP) } else { far };
        let trust = if far == 0.0 { 1.0 } else { clipped / far };
        self.new.add(weight * trust, rates, used);
        self.test.add(seconds, rates, (used - product(rates, &self.settled)) / deviation);
        let clear = self.judge();
        let free = if error == 0.0 { 1.0 } else { ((used - product(rates, &self.cost)) / error).clamp(0.0, 1.0) };
        if clear || !self.noise.is_believed() {
            self.noise.free += free;
            self.noise.squares += clipped * clipped * variance * free;
        }
    }

    /// Fades all sums to `at`. Returns by how much `at` is before the end of the latest window.
    fn fade_to(&mut self, at: f64) -> f64 {
        let passed = at - self.at;
        if passed <= 0.0 {
            return -passed;
        }
        self.at = at;
        if passed.is_finite() {
            let kept = (-passed / MEMORY).exp();
            self.old.fade(kept);
            self.new.fade(kept);
            self.noise.fade((-passed / NOISE_MEMORY).exp());
        }
        0.0
    }

    /// Solves for the costs, without the old knowledge of costs that seem to have changed. Returns whether
    /// none has.
    fn judge(&mut self) -> bool {
        let score = if self.noise.is_believed() { self.test.score() } else { 0.0 };
        self.all.clone_from(&self.old);
        // This comes before the doubts, because a changed cost must also forget its hold.
        let size = self.cost.len();
        for (place, held) in self.held.iter().enumerate() {
            self.all.gram[place * size + place] += held;
            self.all.moment[place] += held * self.settled[place];
        }
        let mut sure = false;
        if score >= CHANGED {
            let likely = self.test.likely();
            sure = likely.iter().any(|likely| *likely > SURE);
            for (place, likely) in likely.into_iter().enumerate().filter(|(_, likely)| *likely > UNLIKELY) {
                let jump = JUMP * self.settled[place].max(self.prior[place].cost).max(SMALL);
                self.all.doubt(place, likely * jump * jump / self.noise.variance(), &self.settled);
            }
        }
        self.all.join(&self.new);
        self.solve();
        let clear = score < SUSPECT;
        if sure || self.test.seconds >= if clear { STRETCH } else { PATIENCE } {
            self.settle();
        }
        clear
    }

    /// Makes the present costs the reference for the next stretch.
    fn settle(&mut self) {
        self.old.clone_from(&self.all);
        self.held.fill(0.0);
        self.settled.clone_from(&self.cost);
        self.new.clear();
        self.test.clear();
    }

    /// Returns the weight of a cost's prior relative to windows. A full node uses its whole capacity in every
    /// window whatever was requested, so its noise is almost zero. This must not count as knowledge of the
    /// background.
    fn hold(&self, place: usize) -> f64 {
        self.noise.variance().max(ASSUMED * ASSUMED) / self.prior[place].deviation.powi(2)
    }

    fn solve(&mut self) {
        let size = self.cost.len();
        for _ in 0..SWEEPS {
            let mut moved = 0.0f64;
            for place in 0..size {
                let hold = self.hold(place);
                let steep = self.all.gram[place * size + place] + hold;
                let pull = self.all.slope(place, &self.cost) + hold * (self.prior[place].cost - self.cost[place]);
                let next = (self.cost[place] + pull / steep).clamp(0.0, self.prior[place].max);
                moved = moved.max((next - self.cost[place]).abs());
                self.cost[place] = next;
            }
            if moved < CONVERGED {
                break;
            }
        }
    }

    /// Adds a cost.
    pub(crate) fn push(&mut self, prior: Prior) {
        self.settle();
        self.old.push();
        self.new.push();
        self.all.push();
        self.test.push();
        self.cost.push(prior.cost);
        self.held.push(0.0);
        self.settled.push(prior.cost);
        self.prior.push(prior);
    }

    /// Assigns an index to another route: removes the knowledge about the old route, and its part in the
    /// knowledge about others.
    pub(crate) fn reset(&mut self, place: usize, prior: Prior) {
        self.settle();
        self.old.remove(place, &self.settled);
        self.all.clone_from(&self.old);
        self.prior[place] = prior;
        self.cost[place] = prior.cost;
        self.settled[place] = prior.cost;
    }

    /// Multiplies all costs by `factor` after a change of their unit.
    pub(crate) fn scale(&mut self, factor: f64) {
        let sums = [&mut self.old, &mut self.new, &mut self.all];
        sums.into_iter().flat_map(|sums| &mut sums.moment).for_each(|sum| *sum *= factor);
        self.settled.iter_mut().chain(&mut self.cost).for_each(|cost| *cost *= factor);
        self.noise.squares *= factor * factor;
    }

    /// Sets the prior of a cost after a change of the table. The learned cost stays.
    pub(crate) fn set_prior(&mut self, place: usize, prior: Prior) {
        self.prior[place] = prior;
    }

    /// Returns the standard error of each cost, in node-seconds. It takes O(n³).
    pub(crate) fn deviations(&self) -> Vec<f64> {
        let size = self.cost.len();
        let variance = self.noise.variance();
        let mut lower = self.all.gram.clone();
        for place in 0..size {
            lower[place * size + place] += self.hold(place);
        }
        // Cholesky's factor, in place.
        for row in 0..size {
            for column in 0..=row {
                let known: f64 = (0..column).map(|k| lower[row * size + k] * lower[column * size + k]).sum();
                let rest = lower[row * size + column] - known;
                lower[row * size + column] = if row == column {
                    rest.max(f64::MIN_POSITIVE).sqrt()
                } else {
                    rest / lower[column * size + column]
                };
            }
        }
        // Solves for a unit vector. Its squared length is the entry on the inverse's diagonal.
        let diagonal = |unit: usize| {
            let mut solved = vec![0.0; size];
            for row in unit..size {
                let known: f64 = (unit..row).map(|k| lower[row * size + k] * solved[k]).sum();
                solved[row] = (f64::from(u8::from(row == unit)) - known) / lower[row * size + row];
            }
            solved.iter().map(|part| part * part).sum::<f64>()
        };
        (0..size).map(|place| (variance * diagonal(place)).sqrt()).collect()
    }
}

#[cfg(test)]
mod tests;
