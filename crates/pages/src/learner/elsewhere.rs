//! Costs that another learner has learned, for this one to begin with: after a restart, a hand-over or the failure of
//! the process.
//!
//! Source: our own (`docs/adr/0024-learned-state-outlives-the-process.md`). A cost that comes from elsewhere takes the
//! place of the table's: learning starts from it, with the same uncertainty, so that own requests correct a wrong one
//! within seconds. A route takes over only what is more recent than its own last requests, and only while it has none.
//! So two gateways may follow each other, and the one with traffic keeps its costs.

use super::{Learner, MAX, Prior, RESOURCES};

/// Time without a request of its own after which a route takes over a cost that was learned elsewhere, in seconds: the
/// same as for the engine's classes.
const QUIET: f64 = 5.0;

/// The cost of a route as one learner has learned it, for another one to begin with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// Cost of one request. `None` for resources of which no window told anything.
    pub cost: [Option<f64>; RESOURCES],
    /// When its last requests were served, in seconds since the beginning that [`crate::Window::until`] has. It may be
    /// negative.
    pub at: f64,
}

impl Learner {
    /// Returns what is known of a route beyond the table, if anything is.
    pub fn learned(&self, route: usize) -> Option<Learned> {
        let known = self.routes.get(route)?;
        let at = if known.windows > 0 { known.busy.1 } else { known.elsewhere?.at };
        let cost = self.cost(route)?;
        let told = |resource: usize| self.windows[resource] > 0 || known.start(resource).is_some();
        let cost = std::array::from_fn(|resource| told(resource).then_some(cost[resource]));
        Some(Learned { cost, at })
    }

    /// Begins anew with what was learned elsewhere about a route, if that is more recent than what is known here, and
    /// the route had no request for `QUIET` before `now`. Returns whether it does. Costs that cannot be are ignored.
    pub fn begin_with(&mut self, number: usize, learned: Learned, now: f64) -> bool {
        let Some(route) = self.routes.get_mut(number) else { return false };
        let possible = learned.cost.iter().flatten().all(|cost| (0.0..=MAX).contains(cost));
        let known = match (route.windows, route.elsewhere) {
            (0, None) => f64::NEG_INFINITY,
            (0, Some(known)) => known.at,
            _ if now - route.busy.1 < QUIET => return false,
            _ => route.busy.1,
        };
        // A time that is no number is not later either.
        if !(possible && learned.at > known && learned.cost.iter().any(Option::is_some)) {
            return false;
        }
        (route.elsewhere, route.requests, route.windows) = (Some(learned), 0.0, 0);
        if let Some(place) = route.place {
            let priors: [Prior; RESOURCES] = std::array::from_fn(|resource| route.prior(resource));
            self.resources.iter_mut().zip(priors).for_each(|(equations, prior)| equations.reset(place, prior));
            self.usual.reset(place);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cpu, mix, second};
    use super::*;

    #[test]
    fn a_route_begins_with_what_is_more_recent_while_it_has_no_requests() {
        let table = [Some([0.01, 0.02, 0.0]), None];
        let [mut active, mut standby] = [(); 2].map(|()| Learner::new(table));
        for at in 0..100 {
            active.learn(&second(f64::from(at), &[mix(at as usize, 0, 30.0), mix(at as usize, 1, 5.0)], &[0.03, 0.2]));
        }
        let learned = [0, 1].map(|route| active.learned(route).expect("it had requests"));
        assert!(standby.learned(0).is_none() && standby.learned(7).is_none());
        for (route, known) in learned.into_iter().enumerate() {
            assert!(standby.begin_with(route, known, 100.0) && !standby.begin_with(route, known, 100.0), "{known:?}");
            assert_eq!(cpu(&standby, route), cpu(&active, route));
            let passed_on = standby.learned(route).expect("a third one can follow it");
            assert_eq!((passed_on.cost[0], passed_on.at), (known.cost[0], known.at));
        }
        // Nothing was told of the disk: the table's cost stays, and that of a route without one is unknown.
        assert_eq!((learned[0].cost[1], learned[1].cost[1]), (Some(0.02), None));

        // It corrects what it was given by its own requests, and keeps it while they come.
        for at in 100..200 {
            standby.learn(&second(f64::from(at), &[mix(at as usize, 0, 30.0), mix(at as usize, 1, 5.0)], &[0.06, 0.2]));
        }
        assert!((cpu(&standby, 0) / 0.06 - 1.0).abs() < 0.1, "{}", cpu(&standby, 0));
        let later = Learned { cost: [Some(0.04), None, None], at: 203.0 };
        assert!(!standby.begin_with(0, later, 203.5), "its own requests came four seconds ago");
        assert!(!standby.begin_with(0, Learned { at: 198.0, ..later }, 300.0), "it knows something more recent");
        assert!(standby.begin_with(0, later, 205.0));
        assert_eq!((cpu(&standby, 0), standby.cost(0).expect("known")[1]), (0.04, 0.02));
    }

    #[test]
    fn costs_that_cannot_be_are_not_taken_over() {
        let mut learner = Learner::new([Some([0.01, 0.0, 0.0])]);
        for odd in [f64::NAN, -0.1, f64::INFINITY, 5.0] {
            assert!(!learner.begin_with(0, Learned { cost: [Some(odd), None, None], at: 1.0 }, 2.0), "{odd}");
        }
        let sound = Learned { cost: [Some(0.5), None, None], at: 1.0 };
        assert!(!learner.begin_with(0, Learned { at: f64::NAN, ..sound }, 2.0));
        assert!(!learner.begin_with(0, Learned { cost: [None; RESOURCES], ..sound }, 2.0));
        assert!(!learner.begin_with(1, sound, 2.0), "there is no such route");
        assert_eq!(cpu(&learner, 0), 0.01);
        assert!(learner.begin_with(0, sound, 2.0));
        // A new capacity changes what was learned elsewhere as it changes all costs.
        learner.rescale(0, Some(0.5));
        assert_eq!(cpu(&learner, 0), 0.25);
        learner.rescale(0, None);
        assert_eq!(cpu(&learner, 0), 0.01);
    }
}
