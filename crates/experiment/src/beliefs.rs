//! What a learned page table took for true while a run went on, a sample a second.
//!
//! The simulator reads its own learner, the lab the gateway's `/snapshot`: both note what they find here, by the
//! route's pattern, as routes may be found while the run goes on.

use std::time::Duration;

/// What of a resource a request was taken to cost, in the order of the page table: CPU, disk, bandwidth.
pub const RESOURCES: usize = 3;

/// Seconds from one sample to the next: as often as agents are asked by default.
const STEP: u64 = 1_000_000_000;

/// More samples than a figure has pixels show nothing more; longer runs are sampled more seldom.
const MOST_SAMPLES: u64 = 600;

/// Most routes that are noted: as many as are learned apart. The others share one figure.
const MOST_ROUTES: usize = 64;

/// What was believed of a route at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// Nanoseconds from the start of the run.
    pub at: u64,
    /// What a request takes of each resource, as a share of what a node of weight 1 has in a second.
    pub cost: [f64; RESOURCES],
    /// The standard error of each; `None` where nothing was learned yet.
    pub error: [Option<f64>; RESOURCES],
}

/// What was believed of a route over time.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteBeliefs {
    /// Its path and parameters, as the page table has them.
    pub pattern: String,
    /// In order of time; from when on the route was known.
    pub over_time: Vec<Belief>,
}

/// What is noted while a run goes on.
#[derive(Clone, Debug)]
pub struct Beliefs {
    step: u64,
    /// When the next sample is due.
    next: u64,
    routes: Vec<RouteBeliefs>,
}

impl Beliefs {
    /// Of a run of this length.
    #[must_use]
    pub fn new(length: Duration) -> Beliefs {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Beliefs { step: STEP * length.div_ceil(STEP * MOST_SAMPLES).max(1), next: 0, routes: Vec::new() }
    }

    /// Is a sample due at `at`, in nanoseconds? If so the next one is a step later.
    pub fn is_due(&mut self, at: u64) -> bool {
        let due = at >= self.next;
        if due {
            self.next = (at / self.step + 1) * self.step;
        }
        due
    }

    /// A sample of one route. Routes beyond the 64 that were noted first are left out.
    pub fn note(&mut self, pattern: &str, belief: Belief) {
        if let Some(route) = self.routes.iter_mut().find(|route| route.pattern == pattern) {
            route.over_time.push(belief);
        } else if self.routes.len() < MOST_ROUTES {
            self.routes.push(RouteBeliefs { pattern: pattern.to_owned(), over_time: vec![belief] });
        }
    }

    /// Everything that was noted.
    #[must_use]
    pub fn into_routes(self) -> Vec<RouteBeliefs> {
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
            let mut beliefs = Beliefs::new(Duration::from_secs(length));
            times.iter().map(|at| beliefs.is_due(*at)).collect::<Vec<bool>>()
        };
        // The third comes a little late, as in the lab, and the next is due when it would have been.
        let times = [0, HALF, 2 * HALF + 3, 3 * HALF, 4 * HALF];
        assert_eq!(due(600, &times), [true, false, true, false, true]);
        assert_eq!(due(601, &times), [true, false, false, false, true]);
    }

    #[test]
    fn routes_are_noted_by_their_patterns_and_bounded() {
        let mut beliefs = Beliefs::new(Duration::from_secs(10));
        let belief = |at| Belief { at, cost: [0.5; RESOURCES], error: [None; RESOURCES] };
        for at in 0..2 {
            (0..100).for_each(|route| beliefs.note(&format!("/{route}"), belief(at)));
        }
        let routes = beliefs.into_routes();
        assert_eq!((routes.len(), routes[63].pattern.as_str()), (MOST_ROUTES, "/63"));
        assert!(routes.iter().all(|route| route.over_time == [belief(0), belief(1)]));
    }
}
