//! What requests cost of one resource: least squares over windows, in recursive form, with costs that are not negative.
//!
//! A window says `use = Σ cost·requests + background`, all per second, with noise. Kept are the normal equations `G x =
//! m` (sums over windows of `a aᵀ` and `a y`), which fade with [`MEMORY`]; a window is added in O(n²), and the costs
//! follow by coordinate descent from where they were, each held between 0 and what its [`Prior`] bounds it by
//! (Hildreth, "A quadratic programming procedure", 1957, for one variable at a time; Lawson and Hanson, *Solving Least
//! Squares Problems*, 1974, Ch. 23, for the conditions of optimality that the tests check). No paper of ours has any of
//! it. What is not textbook:
//!
//! - **Weights.** A window of `T` seconds weighs what [`MEMORY`] leaves of `T` seconds, and its figures are per second.
//!   So a window that is cut in pieces with the same mix says exactly what the whole said.
//! - **Prior.** Each cost has a value and a deviation from before. It decides where windows say nothing, as with two
//!   routes that always come together: their sum is learned and the split stays that of the table, so nothing drifts.
//! - **Outliers.** A window that is further off than [`CLIP`] deviations counts only as much as one that is just that
//!   far off (Huber, "Robust estimation of a location parameter", 1964).
//! - **Change.** A long memory is exact and slow, a short one quick and noisy: with ten routes of random cost, one that
//!   forgets within 20 s is half the cost off. So the memory is long, and a test asks of each route whether recent
//!   errors go with its requests. If they do, only what was learned of *this* route's cost is given up, weighed by how
//!   likely it is the one that changed (`slowdown.rs` knows more of that where nodes are full); the other routes' costs
//!   stay known, and the new cost is found in some seconds. The evidence is given up by adding to the variance of the
//!   cost, which is a rank-one change of `G`.
//! - **Full nodes.** A node that is full uses all there is in every window, so what differs between windows is chance,
//!   and least squares of chance draws all costs towards each other and the rest into the background. Such a window is
//!   therefore one about the level ([`Equations::learn_level`]): its requests are taken to have the mix of those before
//!   it, nothing of it is background, and single costs are held where they are.

use crate::change::Test;
use crate::sums::{Sums, product};

/// How fast windows fade: after this many seconds one has 37 % of its weight. It bounds how exact a cost gets (some
/// hundreds of windows) and follows what changes slowly, as a filling cache does; what changes at once has its own
/// test.
pub(crate) const MEMORY: f64 = 300.0;

/// Most that a request may cost, in node-seconds: the most that the engine's demand holds.
pub(crate) const MOST: f64 = 4.29;

/// Deviations at which a window's say is bounded. Of normal errors one in 370 is further off.
pub(crate) const CLIP: f64 = 3.0;

/// Windows, less what was fitted to them, behind a noise that is believed. Ten give it within a quarter.
const BELIEVED: f64 = 10.0;

/// Noise that is assumed until then, in node-seconds in a second: agents and network are rarely worse than 5 %.
const ASSUMED: f64 = 0.05;

/// Least noise, in node-seconds in a second. Counters of the kernel advance in steps of 1 to 10 ms.
const LEAST: f64 = 0.001;

/// Least noise as a part of what was used. Requests of a route differ, and it is not known when they were worked on. A
/// node that is full shows none of that: it uses all there is, and requests wait.
const EXACT: f64 = 0.03;

/// Memory of the noise, in seconds: a noisy hour must not hide what happens in the next.
const NOISE_MEMORY: f64 = 60.0;

/// Windows are tested for change as a stretch of this many seconds: a change that moves errors by half a deviation
/// takes as many to show. What did not is taken for settled then.
const STRETCH: f64 = 20.0;

/// A stretch that is not clear goes on up to this many seconds. After a minute the table must be right again, so what
/// is most likely by then is acted upon.
const PATIENCE: f64 = 50.0;

/// Score from which on a stretch is not clear. Of sixty costs that did not change one in six stretches has such a one.
const SUSPECT: f64 = 3.0;

/// Score at which some cost has changed. As errors are clipped, one or two windows cannot reach it; noise alone does
/// once in weeks.
const CHANGED: f64 = 5.0;

/// A cost is given up for good as soon as it is this likely that it was this one, and not another whose requests come
/// along with its own.
const SURE: f64 = 0.995;

/// How unlikely a cost may be to have changed and still be doubted: less is nothing beside the noise.
const UNLIKELY: f64 = 1e-3;

/// How far a cost jumps, in times of what it was: page tables are wrong by a query without index or a lost cache, some
/// fivefold.
const JUMP: f64 = 4.0;

/// What a jump is measured by where a cost was next to nothing, in node-seconds.
const SMALL: f64 = 0.002;

/// How firmly a full node's window holds single costs where they are, beside what it says of all together. With ten
/// times as much a cost that changed is found too late, with a third of it chance moves costs that did not
/// (`tests/full_nodes.rs`).
const INERTIA: f64 = 0.03;

/// Least cost by which it is measured how firmly, in node-seconds: one that is nothing must be free to become
/// something.
const SLIGHT: f64 = 0.0002;

/// Most sweeps of coordinate descent a window. From where the last window left them one to five suffice; more are
/// needed only after a change.
const SWEEPS: usize = 40;

/// Change of a cost in a sweep below which it rests, in node-seconds. Where routes nearly always come together a
/// hundred such sweeps may follow each other; that is still a thousandth of the smallest cost worth knowing (0.1 %).
const CONVERGED: f64 = 1e-8;

/// What is known of a cost before any window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prior {
    /// In node-seconds.
    pub(crate) cost: f64,
    /// How far off that may be.
    pub(crate) deviation: f64,
    /// The most that it can be: [`MOST`] of a request, and anything of a factor.
    pub(crate) most: f64,
}

/// The costs of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Equations {
    /// What is settled …
    old: Sums,
    /// … and its costs.
    settled: Vec<f64>,
    /// The stretch that is tested for change.
    new: Sums,
    test: Test,
    prior: Vec<Prior>,
    cost: Vec<f64>,
    /// Both sums together, with what is doubted.
    all: Sums,
    /// Per cost how firmly windows of full nodes in this stretch hold it where it was settled.
    held: Vec<f64>,
    /// The end of the latest window, in seconds.
    at: f64,
    noise: Noise,
}

/// The variance of a window of one second. The error before a window is learned times the one after sums up to the
/// squared errors of the best fit, and their ratio to the windows that are not used up by the fit.
#[derive(Clone, Copy, Debug, Default)]
struct Noise {
    squares: f64,
    free: f64,
}

impl Noise {
    fn variance(self) -> f64 {
        if self.is_believed() { (self.squares / self.free).max(LEAST * LEAST) } else { ASSUMED * ASSUMED }
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

    /// The costs, in node-seconds a request.
    pub(crate) fn costs(&self) -> &[f64] {
        &self.cost
    }

    /// What the stretch that is tested for change is compared with.
    pub(crate) fn settled(&self) -> &[f64] {
        &self.settled
    }

    /// Per cost the logarithm of how likely it is the one that changed, if one has.
    pub(crate) fn suspect(&mut self, seconds: f64, suspicion: &[f64]) {
        self.test.suspect(seconds, suspicion);
    }

    /// Learns a window of a node that was full: it says what all requests took together, and of single costs that are
    /// `firm` no more than that they are what they were taken for.
    pub(crate) fn learn_level(&mut self, at: f64, seconds: f64, rates: &[f64], used: f64, firm: &[bool]) {
        for (place, rate) in rates.iter().enumerate().filter(|(place, _)| firm[*place]) {
            self.held[place] += INERTIA * seconds * used * rate / self.settled[place].max(SLIGHT);
        }
        self.learn(at, seconds, rates, used);
    }

    /// Learns a window that ended at `at` and lasted `seconds`: `rates` requests and `used` node-seconds a second.
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

    /// Lets everything fade to `at`; how long before the latest window `at` is.
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

    /// Finds the costs, without what was known of those that seem to have changed. Whether none does.
    fn judge(&mut self) -> bool {
        let score = if self.noise.is_believed() { self.test.score() } else { 0.0 };
        self.all.clone_from(&self.old);
        // Before anything is doubted: of a cost that changed this is forgotten as well.
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

    /// What was found is what the next stretch is compared with.
    fn settle(&mut self) {
        self.old.clone_from(&self.all);
        self.held.fill(0.0);
        self.settled.clone_from(&self.cost);
        self.new.clear();
        self.test.clear();
    }

    /// The weight of a cost's prior beside windows. A node that is full uses all there is in every window, and says so
    /// with hardly any noise, whatever was asked for: that must not pass for knowledge of the background.
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
                let next = (self.cost[place] + pull / steep).clamp(0.0, self.prior[place].most);
                moved = moved.max((next - self.cost[place]).abs());
                self.cost[place] = next;
            }
            if moved < CONVERGED {
                break;
            }
        }
    }

    /// One more cost.
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

    /// Makes a place that of another route: what was learned there is gone, its part in what others know as well.
    pub(crate) fn reset(&mut self, place: usize, prior: Prior) {
        self.settle();
        self.old.remove(place, &self.settled);
        self.all.clone_from(&self.old);
        self.prior[place] = prior;
        self.cost[place] = prior.cost;
        self.settled[place] = prior.cost;
    }

    /// All costs are so many times what they were, as what they are measured in is another.
    pub(crate) fn scale(&mut self, factor: f64) {
        let sums = [&mut self.old, &mut self.new, &mut self.all];
        sums.into_iter().flat_map(|sums| &mut sums.moment).for_each(|sum| *sum *= factor);
        self.settled.iter_mut().chain(&mut self.cost).for_each(|cost| *cost *= factor);
        self.noise.squares *= factor * factor;
    }

    /// Another table: the prior changes and what was learned stays.
    pub(crate) fn set_prior(&mut self, place: usize, prior: Prior) {
        self.prior[place] = prior;
    }

    /// The standard error of each cost, in node-seconds. It takes O(n³).
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
        // A unit vector solved for: its squared length is the place on the inverse's diagonal.
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
