//! The profile of one class on one group of machines. It tells whether the time in flight rises with the
//! number in flight.
//!
//! Source: our own. A request that waits for others in flight takes longer the more there are. A request that
//! waits for a database, for a client or for a timer does not. Contention is therefore a slope: the
//! regression of ln(seconds in flight) on ln(requests on its machine at its release), over the latest
//! completions of the class. It needs no probe, because queues and machines are never equally long for long,
//! and no figure of the cluster.
//!
//! Contention raises times at most in proportion to the number in flight. Times that rise further have
//! another cause: requests that cost more, or a slower dependency. Earlier measurements then no longer apply,
//! and the profile restarts (a cumulative-sum test: Page 1954).

/// Minimum number of completions that the profile remembers. With as many, a slope of 1 over a factor of 1.5
/// differs from 0 by three standard errors of exponential times.
const COMPLETIONS: f64 = 200.0;

/// Seconds of completions that it remembers if these are more. A slow drift must not be forgotten while it
/// happens.
const SECONDS: f64 = 4.0;

/// Minimum number of completions for any evidence. The mean of 20 exponential logarithms is within 0.3.
const FIRST: f64 = 30.0;

/// Minimum variance of ln(requests on the machine) for a comparison: a standard deviation of a fifth.
const SPREAD: f64 = 0.04;

/// Number of standard errors by which a slope must differ. It is tested after every completion, and a chance
/// of one in twenty would come true within seconds.
const CERTAIN: f64 = 3.0;

/// Slope from which there is contention. At the corner of a sharp knee half of the range is flat.
const CONTENTION: f64 = 0.25;

/// Slope below which requests do not wait for one another.
const FREE: f64 = 0.5;

/// Minimum standard deviation assumed for ln(seconds). With times that hardly vary, trifles must not become
/// significant.
const MIN_SD: f64 = 0.5;

/// Sum of standardised residuals, each minus [`DRIFT`] and at most [`MAX`], at which times have changed.
/// Seven completions at 20 times the time reach it, or some thirty at 1.6 times. One in 20,000 excursions
/// reaches it by chance.
const CHANGED: f64 = 10.0;
const DRIFT: f64 = 0.5;

/// Sum from which a change may be in progress. It could cause a slope, so until it is decided a slope is not
/// used.
const DOUBT: f64 = 2.0;
const MAX: f64 = 2.0;

/// Weight of the latest gap between two completions in their mean.
const GAP: f64 = 0.02;

/// Evidence from a completion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Evidence {
    Nothing,
    /// Times have changed, and the number in flight does not explain it.
    Changed,
    /// Requests wait for one another from about `per_machine` on a machine.
    Contention {
        per_machine: f64,
    },
    /// Requests do not wait for one another.
    Free,
}

/// Weighted means, variances and covariance of x = ln(requests on the machine at the release) and y =
/// ln(seconds in flight).
#[derive(Clone, Copy, Debug)]
pub(super) struct Profile {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
    /// Cumulative sums of the test for a change.
    slower: f64,
    faster: f64,
    /// Mean seconds between completions, and the time of the latest one.
    gap: f64,
    at: f64,
}

impl Default for Profile {
    fn default() -> Profile {
        let zero = 0.0;
        Profile {
            count: zero,
            x: zero,
            y: zero,
            xx: zero,
            xy: zero,
            yy: zero,
            slower: zero,
            faster: zero,
            gap: 0.1,
            at: zero,
        }
    }
}

impl Profile {
    /// Learns from a successful answer at `now` (seconds on the engine's clock) after `seconds` in flight. `among`
    /// requests were on its machine when it was released, including itself. `left` are on it now.
    pub(super) fn completed(&mut self, now: f64, (among, left): (f64, f64), seconds: f64) -> Evidence {
        self.gap += GAP * ((now - self.at).clamp(0.0, 1.0) - self.gap);
        self.at = now;
        let (x, y) = (among.max(1.0).ln(), seconds.max(1e-6).ln());
        // Later arrivals have slowed it down too. The geometric mean stands for the number in the meantime.
        let meanwhile = f64::midpoint(x, left.max(1.0).ln());
        if self.has_changed(meanwhile, y) {
            self.forget();
            return Evidence::Changed;
        }
        let memory = COMPLETIONS.max(SECONDS / self.gap.max(1e-6));
        self.count = (self.count + 1.0).min(memory);
        let share = 1.0 / self.count;
        let (dx, dy) = (x - self.x, y - self.y);
        self.x += share * dx;
        self.y += share * dy;
        self.xx += share * (dx * (x - self.x) - self.xx);
        self.xy += share * (dx * (y - self.y) - self.xy);
        self.yy += share * (dy * (y - self.y) - self.yy);
        self.evidence()
    }

    /// Forgets all measurements.
    pub(super) fn forget(&mut self) {
        *self = Profile { gap: self.gap, at: self.at, ..Profile::default() };
    }

    /// Returns whether the time, together with earlier ones, is out of proportion.
    fn has_changed(&mut self, x: f64, y: f64) -> bool {
        if self.count < FIRST {
            return false;
        }
        let sd = self.yy.sqrt().max(MIN_SD);
        let more = x - self.x;
        let slower = (y - self.y - more.max(0.0)) / sd;
        let faster = (self.y + more.min(0.0) - y) / sd;
        self.slower = (self.slower + slower.min(MAX) - DRIFT).max(0.0);
        self.faster = (self.faster + faster.min(MAX) - DRIFT).max(0.0);
        self.slower > CHANGED || self.faster > CHANGED
    }

    fn evidence(&self) -> Evidence {
        if self.count < FIRST || self.xx < SPREAD {
            return Evidence::Nothing;
        }
        let slope = self.xy / self.xx;
        let rest = (self.yy - slope * self.xy).max(1e-6);
        let error = CERTAIN * (rest / (self.count * self.xx)).sqrt();
        if slope - error > CONTENTION && self.slower < DOUBT {
            // The estimate starts one standard deviation above the mean. It is the lower, the more the slope
            // attributes to waiting.
            let sd = self.xx.sqrt();
            let per_machine = (self.x + sd - 2.0 * slope.clamp(0.0, 1.0) * sd).exp();
            return Evidence::Contention { per_machine };
        }
        if slope + error < FREE { Evidence::Free } else { Evidence::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Returns an exponential time with this mean.
    fn draw(random: &mut Random, mean: f64) -> f64 {
        -mean * (1.0 - random.unit()).max(1e-12).ln()
    }

    /// Feeds `count` completions, a hundred a second, and returns the evidence of those that gave any.
    fn last(profile: &mut Profile, from: u32, count: u32, mut next: impl FnMut(u32) -> (u32, f64)) -> Vec<Evidence> {
        let of = |n: u32| {
            let (among, seconds) = next(n);
            profile.completed(f64::from(from + n) / 100.0, (among.into(), among.into()), seconds)
        };
        (0..count).map(of).filter(|evidence| *evidence != Evidence::Nothing).collect()
    }

    #[test]
    fn a_processor_that_is_shared_shows_contention_at_its_knee() {
        let mut random = Random::new(7);
        let mut profile = Profile::default();
        // Four CPUs, 10 ms, one to sixteen requests in flight.
        let seen = last(&mut profile, 0, 1000, |n| {
            let among = 1 + n % 16;
            (among, draw(&mut random, 0.010 * (f64::from(among) / 4.0).max(1.0)))
        });
        let Some(Evidence::Contention { per_machine }) = seen.last() else { panic!("{seen:?}") };
        assert!((2.0..8.0).contains(per_machine), "{per_machine}");
    }

    #[test]
    fn waiting_for_a_database_shows_none() {
        let mut random = Random::new(8);
        let mut profile = Profile::default();
        let seen = last(&mut profile, 0, 2000, |n| (1 + n % 50, draw(&mut random, 0.5)));
        assert!(seen.iter().all(|evidence| *evidence == Evidence::Free) && !seen.is_empty(), "{seen:?}");
    }

    #[test]
    fn a_dependency_that_slows_down_is_a_change_and_no_contention() {
        let mut random = Random::new(9);
        let mut profile = Profile::default();
        last(&mut profile, 0, 500, |n| (1 + n % 3, draw(&mut random, 0.025)));
        // By Little's law the number in flight follows, but requests that are released before that are
        // already slow.
        let seen = last(&mut profile, 500, 400, |n| (1 + (n / 10).min(60), draw(&mut random, 0.5)));
        // Requests at three different numbers in flight show no waiting until the change is certain.
        let other = seen.iter().position(|evidence| *evidence != Evidence::Free);
        assert!(other.is_some_and(|at| at < 10 && seen[at] == Evidence::Changed), "{seen:?}");
        assert!(!seen.iter().any(|evidence| matches!(evidence, Evidence::Contention { .. })), "{seen:?}");
    }

    #[test]
    fn what_was_shown_before_a_change_is_forgotten() {
        let mut random = Random::new(11);
        let mut profile = Profile::default();
        last(&mut profile, 0, 300, |n| (1 + n % 3, draw(&mut random, 0.025)));
        profile.forget();
        // The dependencies of another class and of this one are 20 times slower, and there are 20 times as
        // many in flight. Compared with earlier completions that would look like contention.
        let seen = last(&mut profile, 300, 400, |n| (30 + n % 30, draw(&mut random, 0.5)));
        assert!(!seen.iter().any(|evidence| matches!(evidence, Evidence::Contention { .. })), "{seen:?}");
    }

    #[test]
    fn chance_shows_nothing_for_hours() {
        let mut random = Random::new(10);
        let mut profile = Profile::default();
        let seen = last(&mut profile, 0, 1_000_000, |n| (1 + n % 3, draw(&mut random, 0.02)));
        let false_alarms = seen.iter().filter(|evidence| **evidence != Evidence::Free).count();
        assert!(false_alarms <= 20, "{false_alarms} in 10,000 s");
    }
}
