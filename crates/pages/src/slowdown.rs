//! Finds the route with a changed cost from the service times of requests.
//!
//! A full node uses its whole capacity whatever its requests cost, so its use does not tell which requests
//! became more expensive. Their service times do. If the requests in flight share a resource evenly (as
//! threads share CPUs), it slows each of them by the same factor. A service time is then the sum over
//! resources of cost times slowdown (Kleinrock, "Time-shared systems: a theoretical treatment", 1967, for one
//! resource). If one cost alone changed, the use tells by how much. For each route, the module tests how well
//! service times are explained if this route changed, with the slowdowns that then fit best.
//!
//! Service times include parts that are not counted, such as servers that work in turn or waits for a
//! database. Only the difference from the route's *usual* ratio to the fitted time therefore counts. The
//! suspicion of a route is bounded by the gain of the best explanation over no change at all, so an effect
//! that lengthens all service times alike makes no route suspect.

use crate::learner::RESOURCES;

/// Relative error of a service time against the fit that remains with any number of requests.
const SCATTER: f64 = 0.05;

/// Time constant of a route's usual factor, in seconds. It is long, so that a change stands out against it.
const USUAL: f64 = 60.0;

/// Number of deviations at which the influence of a service time is bounded. A single odd one must not
/// decide.
const CLIP: f64 = 5.0;

/// Minimum slowdown of a full resource. With only a few requests the resource would sometimes be idle.
const MIN: f64 = 5.0;

/// Maximum factor by which a route's cost is assumed to rise or fall.
const MAX_FACTOR: f64 = 20.0;

/// Sweeps of coordinate descent over at most three slowdowns.
const SWEEPS: usize = 30;

/// Service times of a route's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceInterval {
    /// Index of the route's costs.
    pub(crate) place: usize,
    pub(crate) requests: f64,
    /// Mean service time in seconds.
    pub(crate) seconds: f64,
    /// Costs of one request, in node-seconds.
    pub(crate) costs: [f64; RESOURCES],
}

/// The service times of a window.
#[derive(Clone, Debug)]
pub(crate) struct ServiceIntervals {
    /// Utilisation of each resource, from 0 to 1. It is 0 if unknown.
    pub(crate) utilisation: [f64; RESOURCES],
    /// Utilisation from which a resource counts as full.
    pub(crate) full: f64,
    /// Routes that are learned separately.
    pub(crate) routes: Vec<ServiceInterval>,
}

/// Usual ratio of a route's service time to the fitted one, as a logarithm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usual(Vec<f64>);

impl Usual {
    /// Resets the ratio of an index that is given to another route.
    pub(crate) fn reset(&mut self, place: usize) {
        self.0.resize(self.0.len().max(place + 1), 0.0);
        self.0[place] = 0.0;
    }

    /// Learns from a window of `seconds`.
    pub(crate) fn watch(&mut self, seconds: f64, intervals: &ServiceIntervals) {
        let follow = -(-seconds / USUAL).exp_m1();
        let slowdowns = fit(&intervals.routes, intervals, &self.0);
        for interval in &intervals.routes {
            let fitted =
                (1.0 - row(interval, intervals, &self.0).error(&slowdowns)).clamp(1.0 / MAX_FACTOR, MAX_FACTOR);
            self.0[interval.place] -= follow * fitted.ln();
        }
    }

    /// Returns the log likelihood, at most 0, that each cost of `resource` is the one that changed. The use
    /// per second differs by `missing` from the use expected for `rates`, and `costs` were right before.
    pub(crate) fn suspicion(
        &self,
        intervals: &ServiceIntervals,
        resource: usize,
        rates: &[f64],
        costs: &[f64],
        missing: f64,
    ) -> Vec<f64> {
        let mut routes = intervals.routes.clone();
        routes.iter_mut().for_each(|interval| interval.costs[resource] = costs[interval.place]);
        let off = |routes: &[ServiceInterval]| {
            let slowdowns = fit(routes, intervals, &self.0);
            let off = routes.iter().map(|interval| row(interval, intervals, &self.0)).map(|row| row.off(&slowdowns));
            off.sum::<f64>() / 2.0
        };
        let unchanged = off(&routes);
        let mut told = vec![-unchanged; costs.len()];
        for at in 0..routes.len() {
            let (place, before) = (routes[at].place, routes[at].costs[resource]);
            let taken = rates[place] * before;
            if taken > 0.0 {
                routes[at].costs[resource] *= (1.0 + missing / taken).clamp(1.0 / MAX_FACTOR, MAX_FACTOR);
                told[place] = -off(&routes);
                routes[at].costs[resource] = before;
            }
        }
        let best = told.iter().copied().fold(-unchanged, f64::max);
        told.iter_mut().for_each(|told| *told = told.max(-unchanged) - best);
        told
    }
}

/// A service time as an equation: cost times slowdown, summed over the full resources, equals the remaining
/// time.
struct Row {
    weight: f64,
    full: [f64; RESOURCES],
    left: f64,
}

impl Row {
    /// Returns the unexplained part of the service time, relative to it.
    fn error(&self, slowdowns: &[f64; RESOURCES]) -> f64 {
        self.left - self.full.iter().zip(slowdowns).map(|(cost, slowdown)| cost * slowdown).sum::<f64>()
    }

    /// Returns the squared error in deviations, bounded.
    fn off(&self, slowdowns: &[f64; RESOURCES]) -> f64 {
        (self.weight * self.error(slowdowns).powi(2)).min(CLIP * CLIP)
    }
}

/// Returns the equation of a service time. A resource that is not full has the slowdown of processor sharing.
fn row(interval: &ServiceInterval, intervals: &ServiceIntervals, usual: &[f64]) -> Row {
    let in_flight = interval.seconds * (-usual[interval.place]).exp();
    let mut row = Row { weight: 0.0, full: [0.0; RESOURCES], left: 1.0 };
    row.weight = 1.0 / (SCATTER * SCATTER + 1.0 / interval.requests.max(f64::MIN_POSITIVE));
    for (resource, used) in intervals.utilisation.into_iter().enumerate() {
        let part = interval.costs[resource] / in_flight;
        if used >= intervals.full {
            row.full[resource] = part;
        } else {
            row.left -= part / (1.0 - used);
        }
    }
    row
}

/// Returns the slowdowns of full resources that explain the service times best.
fn fit(routes: &[ServiceInterval], intervals: &ServiceIntervals, usual: &[f64]) -> [f64; RESOURCES] {
    let mut gram = [[0.0; RESOURCES]; RESOURCES];
    let mut moment = [0.0; RESOURCES];
    for row in routes.iter().map(|interval| row(interval, intervals, usual)) {
        for k in 0..RESOURCES {
            let weighted = row.weight * row.full[k];
            (0..RESOURCES).for_each(|l| gram[k][l] += weighted * row.full[l]);
            moment[k] += weighted * row.left;
        }
    }
    let mut slowdowns = [MIN; RESOURCES];
    for _ in 0..SWEEPS {
        for k in (0..RESOURCES).filter(|k| gram[*k][*k] > 0.0) {
            let others: f64 = (0..RESOURCES).filter(|l| *l != k).map(|l| gram[k][l] * slowdowns[l]).sum();
            slowdowns[k] = f64::max((moment[k] - others) / gram[k][k], MIN);
        }
    }
    slowdowns
}
