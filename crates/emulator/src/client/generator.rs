//! When requests of a class are due, and what they say. The time is passed in.

use std::time::Duration;

use super::plan::{Arrivals, Plan};
use super::text::{Text, digits};
use crate::clock::{SECOND, nanos};
use crate::random::{Distribution, Random};

/// Draws the requests of one class. Instants are nanoseconds since the start of the run. The clients'
/// loop uses it with sockets; a simulation may use it without.
#[derive(Debug)]
pub struct Generator {
    random: Random,
    stretches: Vec<Stretch>,
    settle: u64,
    phase: usize,
    next: Option<u64>,
    /// Tokens of the guaranteed rate; `None` without one.
    bucket: Option<Bucket>,
}

#[derive(Debug)]
struct Stretch {
    from: u64,
    to: u64,
    /// Nanoseconds between two requests; infinite if there are none.
    gap: f64,
    arrivals: Arrivals,
    demand: Distribution,
    head: Text,
}

#[derive(Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at: u64,
}

/// A request that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Due {
    /// Its intended instant.
    pub at: u64,
    /// Its phase.
    pub phase: usize,
    /// It lies in the first part of the phase.
    pub settling: bool,
    /// It fits into the guaranteed rate.
    pub within_rate: bool,
    /// Its demand.
    pub demand: Duration,
}

/// What is filled into a request head: its id, its demand in microseconds.
const MARKS: [&str; 2] = ["{id}", "{us}"];

impl Generator {
    /// The generator of class number `class` of a valid plan.
    ///
    /// # Panics
    /// The plan has no such class, or is not valid.
    #[must_use]
    pub fn new(plan: &Plan, class: usize) -> Generator {
        let of = &plan.classes[class];
        let mut from = 0;
        let stretches = plan.phases.iter().map(|phase| {
            let load = &phase.loads[class];
            let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", of.method, load.path, of.host);
            for (name, value) in &of.headers {
                text += &format!("{name}: {value}\r\n");
            }
            text += "\r\n";
            let to = from + nanos(phase.length);
            let gap = SECOND as f64 / load.rate;
            let (arrivals, demand) = (load.arrivals, load.demand);
            let stretch = Stretch { from, to, gap, arrivals, demand, head: Text::cut(&text, &MARKS) };
            from = to;
            stretch
        });
        let stretches = stretches.collect();
        let rate = of.guarantee.throughput;
        let mut generator = Generator {
            // Classes draw independently, and one more class does not change the draws of the others.
            random: Random::new(plan.seed ^ (class as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            stretches,
            settle: nanos(plan.settle),
            phase: 0,
            next: None,
            bucket: rate.map(|rate| Bucket { rate, tokens: rate.max(1.0), at: 0 }),
        };
        generator.draw(0, true);
        generator
    }

    /// When the next request is due; `None` after the last one.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.next
    }

    /// Takes the next request and draws the instant of the one after it.
    pub fn take(&mut self) -> Option<Due> {
        let at = self.next?;
        let phase = self.phase;
        let stretch = &self.stretches[phase];
        let settling = at - stretch.from < self.settle;
        let demand = stretch.demand.draw(&mut self.random);
        let within_rate = self.bucket.as_mut().is_none_or(|bucket| bucket.take(at));
        self.draw(at, false);
        Some(Due { at, phase, settling, within_rate, demand })
    }

    /// Appends the head of a request.
    pub(super) fn write(&self, phase: usize, demand: Duration, id: u64, out: &mut Vec<u8>) {
        let micros = demand.as_micros() as u64;
        self.stretches[phase].head.write(out, |mark, out| digits([id, micros][mark], out));
    }

    /// Draws the next instant after `at`; `fresh` at the start of a stretch.
    fn draw(&mut self, mut at: u64, mut fresh: bool) {
        while let Some(stretch) = self.stretches.get(self.phase) {
            let factor = match stretch.arrivals {
                Arrivals::Poisson => self.random.exponential(),
                // A random start keeps classes of equal rates apart.
                Arrivals::Even if fresh => self.random.unit(),
                Arrivals::Even => 1.0,
            };
            // A gap without end saturates.
            let next = at.saturating_add((stretch.gap * factor.max(f64::MIN_POSITIVE)) as u64);
            if next < stretch.to {
                self.next = Some(next);
                return;
            }
            at = stretch.to;
            fresh = true;
            self.phase += 1;
        }
        self.next = None;
    }
}

impl Bucket {
    fn take(&mut self, at: u64) -> bool {
        let grown = self.tokens + (at - self.at) as f64 / SECOND as f64 * self.rate;
        // A burst of one second.
        self.tokens = grown.min(self.rate.max(1.0));
        self.at = at;
        let fits = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(fits));
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClassPlan, Load, Phase};

    fn plan(loads: Vec<(u64, Load)>) -> Plan {
        let mut class = ClassPlan::new("a", ([127, 0, 0, 1], 1).into(), "a.test");
        class.guarantee.throughput = Some(100.0);
        let phase = |(seconds, load)| Phase::new("p", Duration::from_secs(seconds), vec![load]);
        Plan::new(vec![class], loads.into_iter().map(phase).collect())
    }

    fn all(plan: &Plan) -> Vec<Due> {
        let mut generator = Generator::new(plan, 0);
        std::iter::from_fn(|| generator.take()).collect()
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_spread_in_each_phase() {
        let load = |rate| Load::poisson(rate, Distribution::ZERO, "/");
        let due = all(&plan(vec![(100, load(200.0)), (10, load(0.0)), (100, load(1000.0))]));
        let count = |p| due.iter().filter(|d| d.phase == p).count() as f64;
        assert!((count(0) / 20_000.0 - 1.0).abs() < 0.03, "{}", count(0));
        assert_eq!(count(1) as u64, 0);
        assert!((count(2) / 100_000.0 - 1.0).abs() < 0.01, "{}", count(2));
        let gaps: Vec<f64> = due[..10_000].windows(2).map(|w| (w[1].at - w[0].at) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance / mean.powi(2) - 1.0).abs() < 0.1);
        assert!(due.windows(2).all(|w| w[0].at <= w[1].at));
        assert!(due.iter().filter(|d| d.phase == 2).all(|d| d.at >= 110 * SECOND));
    }

    #[test]
    fn even_arrivals_are_even() {
        let due = all(&plan(vec![(2, Load::even(50.0, Distribution::ZERO, "/"))]));
        assert_eq!(due.len(), 100);
        assert!(due.windows(2).all(|w| w[1].at - w[0].at == 20_000_000));
    }

    #[test]
    fn the_bucket_lets_the_rate_and_one_second_of_burst_pass() {
        let load = |rate| Load::even(rate, Distribution::ZERO, "/");
        let due = all(&plan(vec![(10, load(400.0)), (10, load(50.0))]));
        let within = |p| due.iter().filter(|d| d.phase == p && d.within_rate).count() as i64;
        assert!((within(0) - 1100).abs() <= 1, "{}", within(0));
        assert_eq!(within(1), 500);
    }

    #[test]
    fn the_first_part_of_a_phase_settles() {
        let mut plan = plan(vec![(10, Load::even(10.0, Distribution::ZERO, "/"))]);
        plan.settle = Duration::from_secs(4);
        assert_eq!(all(&plan).iter().filter(|d| d.settling).count(), 40);
    }

    #[test]
    fn requests_say_their_number_and_demand() {
        let plan = plan(vec![(1, Load::even(1.0, Distribution::ZERO, "/x?demand={us}us&n={id}"))]);
        let mut out = Vec::new();
        Generator::new(&plan, 0).write(0, Duration::from_millis(8), 7, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "GET /x?demand=8000us&n=7 HTTP/1.1\r\nHost: a.test\r\nX-Request-Id: 7\r\n\r\n");
    }

    #[test]
    fn a_seed_names_the_load() {
        let mut plan = plan(vec![(1, Load::poisson(50.0, Distribution::ZERO, "/"))]);
        let first = all(&plan);
        assert_eq!(first, all(&plan));
        plan.seed = 2;
        assert_ne!(first, all(&plan));
    }
}
