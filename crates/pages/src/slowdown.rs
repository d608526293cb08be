//! Which route's cost has changed, by how long requests stay.
//!
//! A node that is full uses all there is, whatever its requests cost, so how much was used does not tell which of them
//! got dearer. How long they stay does: where what is inside shares a resource evenly (as threads share CPUs), each
//! request is slowed by the same factor there, so a stay is the sum over resources of cost times slowdown (Kleinrock,
//! "Time-shared systems: a theoretical treatment", 1967, for one resource). If one cost alone changed, how much was
//! used says by how much. So for each route it is tried how well stays are explained if it was this one, with the
//! slowdowns that then fit best.
//!
//! Stays have parts that are not counted: servers that work in turn, waiting for a database. So what counts is how much
//! longer than *usual* a route stays beside what is fitted. And no route is suspected more than stays are better
//! explained by the best one than by no change at all: what lengthens all stays alike suspects nobody.

use crate::learner::RESOURCES;

/// How far off a stay is from what is fitted, as a part of it, with any number of requests.
const SCATTER: f64 = 0.05;

/// How fast a route's usual factor follows, in seconds: well behind a change, which is to be seen against it.
const USUAL: f64 = 60.0;

/// Deviations at which a stay's say is bounded: one that is odd must not decide.
const CLIP: f64 = 5.0;

/// Least slowdown of a full resource: were no more than a few requests at it, it would be idle now and then.
const LEAST: f64 = 5.0;

/// How many times dearer or cheaper a route is taken to be at most.
const MOST_FACTOR: f64 = 20.0;

/// Sweeps of coordinate descent over at most three slowdowns.
const SWEEPS: usize = 30;

/// How long requests of a route stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    /// Where its costs stand.
    pub(crate) place: usize,
    /// Requests.
    pub(crate) requests: f64,
    /// How long each was inside, in seconds.
    pub(crate) seconds: f64,
    /// What each takes, in node-seconds.
    pub(crate) costs: [f64; RESOURCES],
}

/// The stays of a window.
#[derive(Clone, Debug)]
pub(crate) struct Stays {
    /// Part of each resource that was used; 0 is also not known.
    pub(crate) utilisation: [f64; RESOURCES],
    /// From which part on it is full.
    pub(crate) full: f64,
    /// Routes that are learned apart.
    pub(crate) routes: Vec<Stay>,
}

/// How much longer than is fitted routes usually stay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usual(Vec<f64>);

impl Usual {
    /// Another route has the place.
    pub(crate) fn reset(&mut self, place: usize) {
        self.0.resize(self.0.len().max(place + 1), 0.0);
        self.0[place] = 0.0;
    }

    /// One more window, of `seconds`.
    pub(crate) fn watch(&mut self, seconds: f64, stays: &Stays) {
        let follow = -(-seconds / USUAL).exp_m1();
        let slowdowns = fit(&stays.routes, stays, &self.0);
        for stay in &stays.routes {
            let fitted = (1.0 - row(stay, stays, &self.0).error(&slowdowns)).clamp(1.0 / MOST_FACTOR, MOST_FACTOR);
            self.0[stay.place] -= follow * fitted.ln();
        }
    }

    /// Per place the logarithm of how likely it is that its cost of `resource` is what changed, at most 0, if so much
    /// is `missing` in what was used a second beside what was expected of `rates`, and `costs` were right before.
    pub(crate) fn suspicion(
        &self,
        stays: &Stays,
        resource: usize,
        rates: &[f64],
        costs: &[f64],
        missing: f64,
    ) -> Vec<f64> {
        let mut routes = stays.routes.clone();
        routes.iter_mut().for_each(|stay| stay.costs[resource] = costs[stay.place]);
        let off = |routes: &[Stay]| {
            let slowdowns = fit(routes, stays, &self.0);
            let off = routes.iter().map(|stay| row(stay, stays, &self.0)).map(|row| row.off(&slowdowns));
            off.sum::<f64>() / 2.0
        };
        let unchanged = off(&routes);
        let mut told = vec![-unchanged; costs.len()];
        for at in 0..routes.len() {
            let (place, before) = (routes[at].place, routes[at].costs[resource]);
            let taken = rates[place] * before;
            if taken > 0.0 {
                routes[at].costs[resource] *= (1.0 + missing / taken).clamp(1.0 / MOST_FACTOR, MOST_FACTOR);
                told[place] = -off(&routes);
                routes[at].costs[resource] = before;
            }
        }
        let best = told.iter().copied().fold(-unchanged, f64::max);
        told.iter_mut().for_each(|told| *told = told.max(-unchanged) - best);
        told
    }
}

/// A stay as an equation: cost times slowdown of the full resources make up what is left of it.
struct Row {
    weight: f64,
    full: [f64; RESOURCES],
    left: f64,
}

impl Row {
    /// What is left of the stay, as a part of it.
    fn error(&self, slowdowns: &[f64; RESOURCES]) -> f64 {
        self.left - self.full.iter().zip(slowdowns).map(|(cost, slowdown)| cost * slowdown).sum::<f64>()
    }

    /// The same squared, in deviations.
    fn off(&self, slowdowns: &[f64; RESOURCES]) -> f64 {
        (self.weight * self.error(slowdowns).powi(2)).min(CLIP * CLIP)
    }
}

/// The slowdown of a resource that is not full is that of processor sharing.
fn row(stay: &Stay, stays: &Stays, usual: &[f64]) -> Row {
    let inside = stay.seconds * (-usual[stay.place]).exp();
    let mut row = Row { weight: 0.0, full: [0.0; RESOURCES], left: 1.0 };
    row.weight = 1.0 / (SCATTER * SCATTER + 1.0 / stay.requests.max(f64::MIN_POSITIVE));
    for (resource, used) in stays.utilisation.into_iter().enumerate() {
        let part = stay.costs[resource] / inside;
        if used >= stays.full {
            row.full[resource] = part;
        } else {
            row.left -= part / (1.0 - used);
        }
    }
    row
}

/// The slowdowns of full resources that explain stays best.
fn fit(routes: &[Stay], stays: &Stays, usual: &[f64]) -> [f64; RESOURCES] {
    let mut gram = [[0.0; RESOURCES]; RESOURCES];
    let mut moment = [0.0; RESOURCES];
    for row in routes.iter().map(|stay| row(stay, stays, usual)) {
        for k in 0..RESOURCES {
            let weighted = row.weight * row.full[k];
            (0..RESOURCES).for_each(|l| gram[k][l] += weighted * row.full[l]);
            moment[k] += weighted * row.left;
        }
    }
    let mut slowdowns = [LEAST; RESOURCES];
    for _ in 0..SWEEPS {
        for k in (0..RESOURCES).filter(|k| gram[*k][*k] > 0.0) {
            let others: f64 = (0..RESOURCES).filter(|l| *l != k).map(|l| gram[k][l] * slowdowns[l]).sum();
            slowdowns[k] = f64::max((moment[k] - others) / gram[k][k], LEAST);
        }
    }
    slowdowns
}
