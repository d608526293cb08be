//! Costs in a learned page table over the course of a run, sampled once per second.
//!
//! The simulator reads its own learner, the lab the gateway's `/snapshot`. Both record their readings here
//! by the pattern of the route, because routes may be found during the run.

use std::time::Duration;

/// Number of resources with a cost, in the order of the page table: CPU, disk, bandwidth.
pub const RESOURCES: usize = 3;

/// Nanoseconds from one sample to the next: the default interval at which agents are polled.
const STEP: u64 = 1_000_000_000;

/// Maximum number of samples. More samples than a figure has pixels would show nothing more. Longer runs
/// are sampled less often.
const MAX_SAMPLES: u64 = 600;

/// Maximum number of routes recorded, which is also the number of routes that are learned separately. The
/// others share one figure.
const MAX_ROUTES: usize = 64;

/// Learned cost of a route at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostEstimate {
    /// Nanoseconds from the start of the run.
    pub at: u64,
    /// Cost of a request for each resource, as a fraction of the capacity that a node of weight 1 has in a second.
    pub cost: [f64; RESOURCES],
    /// Standard error of each cost, or `None` where nothing was learned yet.
    pub error: [Option<f64>; RESOURCES],
}

/// Learned costs of a route over time.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteCosts {
    /// Its path and parameters, as in the page table.
    pub pattern: String,
    /// Samples in order of time, from the moment at which the route was known.
    pub over_time: Vec<CostEstimate>,
}

/// Recorder of learned costs during a run.
#[derive(Clone, Debug)]
pub struct LearnedCosts {
    step: u64,
    /// Nanoseconds at which the next sample is due.
    next: u64,
    routes: Vec<RouteCosts>,
}

impl LearnedCosts {
    /// A recorder for a run of this length.
    pub fn new(length: Duration) -> LearnedCosts {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        LearnedCosts { step: STEP * length.div_ceil(STEP * MAX_SAMPLES).max(1), next: 0, routes: Vec::new() }
    }

    /// Returns whether a sample is due at `at`, in nanoseconds. If so, the next one is due a step later.
    pub fn is_due(&mut self, at: u64) -> bool {
        let due = at >= self.next;
        if due {
            self.next = (at / self.step + 1) * self.step;
        }
        due
    }

    /// Records a sample of one route. Routes beyond the first 64 are left out.
    pub fn note(&mut self, pattern: &str, estimate: CostEstimate) {
        if let Some(route) = self.routes.iter_mut().find(|route| route.pattern == pattern) {
            route.over_time.push(estimate);
        } else if self.routes.len() < MAX_ROUTES {
            self.routes.push(RouteCosts { pattern: pattern.to_owned(), over_time: vec![estimate] });
        }
    }

    /// All recorded samples.
    #[must_use]
    pub fn into_routes(self) -> Vec<RouteCosts> {
        self.routes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = STEP / 2;

    #[test]
    fn a_sample_is_due_every_second_and_more_seldom_in_long_runs() {
        let due = |length, times: &[u64]| {
            let mut learned_costs = LearnedCosts::new(Duration::from_secs(length));
            times.iter().map(|at| learned_costs.is_due(*at)).collect::<Vec<bool>>()
        };
        // The third sample comes a little late, as in the lab. The next one is due at its regular time.
        let times = [0, HALF, 2 * HALF + 3, 3 * HALF, 4 * HALF];
        assert_eq!(due(600, &times), [true, false, true, false, true]);
        assert_eq!(due(601, &times), [true, false, false, false, true]);
    }

    #[test]
    fn routes_are_noted_by_their_patterns_and_bounded() {
        let mut learned_costs = LearnedCosts::new(Duration::from_secs(10));
        let estimate = |at| CostEstimate { at, cost: [0.5; RESOURCES], error: [None; RESOURCES] };
        for at in 0..2 {
            (0..100).for_each(|route| learned_costs.note(&format!("/{route}"), estimate(at)));
        }
        let routes = learned_costs.into_routes();
        assert_eq!((routes.len(), routes[63].pattern.as_str()), (MAX_ROUTES, "/63"));
        assert!(routes.iter().all(|route| route.over_time == [estimate(0), estimate(1)]));
    }
}
