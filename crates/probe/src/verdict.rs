//! Cost of a page, derived from its measurements: its validity, its confidence, and its description for
//! people.

use weirgate_wire::RESOURCE_NAMES;

use crate::capacity::Capacity;
use crate::fold::Route;
use crate::frontier::route;
use crate::linear::{Line, MAX_OFF, MIN_FIT};
use crate::monitor::Used;
use crate::state::Profile;
use crate::table::{amount, percent};

/// Minimum share of a resource, relative to the page's largest share, for which the linear verification
/// matters. A smaller share may be noise, and its failure says nothing against the page.
const MATTERS: f64 = 0.2;

/// Minimum share, relative to the page's largest share, of a resource that must be measured well.
const WORTH_KNOWING: f64 = 0.04;

/// Use per request of a page, in the agent's units, from its profile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cost<'a> {
    pub(crate) target: &'a str,
    pub(crate) used: Used,
    /// Standard error of `used`.
    pub(crate) error: Used,
    pub(crate) lines: [Option<Line>; 3],
    pub(crate) requests: u32,
}

impl<'a> Cost<'a> {
    pub(crate) fn of(profile: &'a Profile) -> Cost<'a> {
        let series = &profile.series;
        Cost {
            target: &profile.target,
            used: series.used(),
            error: series.error(),
            lines: series.lines(),
            requests: series.requests(),
        }
    }

    /// Whether its use of some resource is proportional to the requests. Other pages are not used to saturate
    /// a resource.
    pub(crate) fn is_sound(&self) -> bool {
        self.lines.iter().flatten().any(|line| line.fit >= MIN_FIT)
    }

    fn shares(&self, capacity: &[Option<Capacity>; 3]) -> [f64; 3] {
        [0, 1, 2].map(|at| match (capacity[at], self.lines[at]) {
            (Some(capacity), Some(_)) => self.used[at].max(0.0) / capacity.amount,
            _ => 0.0,
        })
    }

    /// Returns the resources for which the use must be measured well.
    pub(crate) fn worth_knowing(&self, capacity: &[Option<Capacity>; 3]) -> [bool; 3] {
        let shares = self.shares(capacity);
        let largest = shares.into_iter().fold(0.0, f64::max);
        shares.map(|share| share > 0.0 && share >= WORTH_KNOWING * largest)
    }

    /// Returns the route of the page, if its measurements are valid.
    ///
    /// # Errors
    /// The reason why they are not valid.
    pub(crate) fn judged(&self, capacity: &[Option<Capacity>; 3]) -> Result<Route, String> {
        let share = self.shares(capacity);
        let largest = share.into_iter().fold(0.0, f64::max);
        if largest <= 0.0 {
            return Err("costs too little to be measured".to_owned());
        }
        let mut confidence = 1.0f64;
        for (at, line) in self.lines.iter().enumerate() {
            let Some(line) = line.filter(|_| share[at] >= MATTERS * largest) else { continue };
            let what = format!("its use of {} ({} a request)", RESOURCE_NAMES[at], percent(share[at]));
            if line.fit < MIN_FIT {
                return Err(format!(
                    "{what} does not grow with the number of requests (fit {:.2}, at least {MIN_FIT} is required)",
                    line.fit
                ));
            }
            if line.off > MAX_OFF {
                return Err(format!(
                    "{what} depends on the number of requests at once (off by {}, at most {} is accepted)",
                    percent(line.off),
                    percent(MAX_OFF)
                ));
            }
            // Two standard errors: one cost in twenty deviates by more.
            let known = 1.0 - 2.0 * self.error[at] / self.used[at];
            let known = if known.is_finite() { known.max(0.0) } else { 1.0 };
            confidence = confidence.min(line.fit).min(1.0 - line.off).min(known);
        }
        let route = route(self.target).ok_or("no route could name it")?;
        Ok(Route::of(&route, share, confidence, self.requests))
    }

    /// Returns a line for people.
    pub(crate) fn told(&self) -> String {
        let resources = (0..3).filter_map(|at| {
            let line = self.lines[at]?;
            let (used, slope) = (use_of(at, self.used[at]), use_of(at, line.slope));
            let about = 100.0 * self.error[at] / self.used[at];
            let about = if about.is_finite() { format!(" ± {about:.1} %") } else { String::new() };
            Some(format!("{} {used}{about} (slope {slope}, fit {:.3})", RESOURCE_NAMES[at], line.fit))
        });
        format!("{}: {}, {} requests", self.target, resources.collect::<Vec<_>>().join(", "), self.requests)
    }
}

/// Formats a use in a unit for people: CPU time in milliseconds, or bytes.
pub(crate) fn use_of(resource: usize, used: f64) -> String {
    if resource == 0 { format!("{:.2} ms", used * 1e3) } else { amount(resource, used) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(amount: f64) -> Option<Capacity> {
        Some(Capacity { amount, is_reached: true, is_told: false, missed: None })
    }

    fn page(used: Used, fits: [Option<f64>; 3]) -> Cost<'static> {
        let lines = [0, 1, 2].map(|at| fits[at].map(|fit| Line { slope: used[at], fit, off: 0.0 }));
        Cost { target: "/a?b=1", used, error: [0.0; 3], requests: 90, lines }
    }

    #[test]
    fn a_cost_is_a_share_of_the_capacity() {
        let all = [capacity(0.5), capacity(20e6), None];
        let route = page([0.01, 600e3, 300.0], [Some(0.99), Some(0.97), Some(1.0)]).judged(&all).expect("sound");
        assert_eq!((route.share, route.confidence, route.tendency()), ([0.02, 0.03, 0.0], 0.97, 1));
    }

    #[test]
    fn nonsense_is_refused_where_it_matters() {
        let all = [capacity(0.5), capacity(20e6), capacity(1e6)];
        let why = page([0.01, 0.0, 300.0], [Some(0.62), None, Some(1.0)]).judged(&all).expect_err("no proportion");
        assert!(why.contains("use of cpu (2% a request) does not grow") && why.contains("fit 0.62"), "{why}");
        let noise = page([0.01, 3e3, 300.0], [Some(0.99), Some(-5.0), Some(1.0)]);
        assert_eq!(noise.judged(&all).expect("the disk does not matter").confidence, 0.99);
        for nothing in [page([0.0; 3], [None; 3]), page([-1.0, -1.0, -1.0], [Some(1.0); 3])] {
            assert!(nothing.judged(&all).expect_err("nothing").contains("too little"));
        }
        let mut bent = page([0.01, 0.0, 0.0], [Some(0.97), None, None]);
        bent.lines[0] = bent.lines[0].map(|line| Line { off: 0.45, ..line });
        let why = bent.judged(&all).expect_err("no proportion");
        assert!(why.contains("depends on the number") && why.contains("off by 45%, at most 25%"), "{why}");
    }

    #[test]
    fn what_is_not_known_well_is_not_sure() {
        let all = [capacity(0.5), capacity(20e6), None];
        let mut page = page([0.01, 600e3, 0.0], [Some(1.0), Some(0.99), None]);
        page.error = [0.001, 6e3, f64::INFINITY];
        let route = page.judged(&all).expect("sound");
        assert!((route.confidence - 0.8).abs() < 1e-9, "{route:?}");
        assert_eq!(page.worth_knowing(&all), [true, true, false]);
        page.used[0] = 0.0004;
        assert_eq!(page.worth_knowing(&all), [false, true, false]);
        page.error = [f64::INFINITY; 3];
        assert_eq!(page.judged(&all).expect("sound").confidence, 0.99, "one round: the fit alone");
    }

    #[test]
    fn a_line_for_people_has_slope_and_fit() {
        let mut page = page([0.0123, 0.0, 2048.0], [Some(0.987), None, Some(1.0)]);
        page.error = [0.000_246, f64::INFINITY, f64::INFINITY];
        assert_eq!(
            page.told(),
            "/a?b=1: cpu 12.30 ms ± 2.0 % (slope 12.30 ms, fit 0.987), bandwidth 2KiB (slope 2KiB, fit 1.000), 90 requests"
        );
    }
}
