//! Capacity of a server: the largest use of each resource per second that can be achieved.
//!
//! Source: Feng and Lin, Sec. 3.1 (server profiling): many concurrent requests that use a resource the most,
//! until it is saturated. The paper multiplies the number of requests in flight by their cost. Here the
//! agent's counters show the use per second directly, which also works if requests in flight wait for each
//! other. The sufficient concurrency is not known in advance, so it doubles until the use no longer grows.
//!
//! Use that no longer grows does not prove saturation. Another resource may be the bottleneck, or the prober
//! itself, which has one thread. Then the measurement is only a lower bound. Pages also use some resources
//! incidentally, for example the disk for an access log. Such use says nothing about capacity. For a resource
//! that no page was chosen to saturate, the agent's own figure is used.

use serde::{Deserialize, Serialize};

use crate::monitor::Used;

/// Concurrency of each step. Four requests keep two CPUs and a disk busy. A probe should not try to saturate
/// a resource that 64 requests do not saturate.
const STEPS: [u32; 5] = [4, 8, 16, 32, 64];

/// Growth factor between steps up to which the use counts as constant: the difference between two
/// measurements of a second.
const GROWTH: f64 = 1.05;

/// Fraction of its capacity from which another resource counts as the bottleneck of a page.
const FULL: f64 = 0.93;

/// Number of CPUs used by the prober from which it counts as the bottleneck. Its one thread is then almost
/// never idle. Other work of the machine takes the rest of that CPU.
const OURS: f64 = 0.9;

/// Fraction of the agent's figure below which a measured capacity needs an explanation. The gap is larger
/// than the difference between two measurements.
const SHORT: f64 = 0.95;

/// Maximum use by one page, with the use of all resources at that time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// The page.
    pub target: String,
    /// The resource that the page was chosen to saturate.
    pub resource: usize,
    /// Use per second.
    pub rate: Used,
    /// Number of concurrent requests.
    pub concurrency: u32,
    /// Number of CPUs that the prober used at that time.
    pub own: f64,
}

/// Capacity of a server for one resource, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Amount per second, in the agent's unit.
    pub amount: f64,
    /// Whether no other bottleneck was found. Otherwise the capacity may be larger.
    pub is_reached: bool,
    /// Whether it is the agent's figure and was not measured.
    pub is_told: bool,
    /// The agent's figure, if it is much larger than the measurement.
    pub missed: Option<f64>,
}

impl Capacity {
    /// Whether another measurement may find a larger capacity.
    pub fn is_doubtful(&self) -> bool {
        !self.is_reached || self.is_told || self.missed.is_some()
    }
}

/// Sequence of concurrencies to try.
#[derive(Clone, Debug)]
pub struct Ramp {
    peak: Peak,
    max: u32,
    step: usize,
    grows: bool,
}

impl Ramp {
    /// Starts to saturate a resource with a page, with at most `max` concurrent requests.
    pub fn new(target: &str, resource: usize, max: u32) -> Ramp {
        let peak = Peak { target: target.to_owned(), resource, rate: [0.0; 3], concurrency: 0, own: 0.0 };
        Ramp { peak, max, step: 0, grows: true }
    }

    /// Returns the concurrency of the next step, or `None` if the use no longer grows or the maximum is
    /// reached.
    pub fn next(&self) -> Option<u32> {
        let next = STEPS.get(self.step).copied()?.min(self.max);
        (self.grows && next > 0 && next > self.peak_step()).then_some(next)
    }

    fn peak_step(&self) -> u32 {
        self.step.checked_sub(1).and_then(|before| STEPS.get(before)).map_or(0, |before| (*before).min(self.max))
    }

    /// Adds the result of a step: the use per second, and the number of CPUs used by the prober itself.
    pub fn add(&mut self, rate: Used, own: f64) {
        let (now, before) = (rate[self.peak.resource], self.peak.rate[self.peak.resource]);
        self.grows = now > before * GROWTH;
        if now > before {
            self.peak.concurrency = self.next_step();
            (self.peak.rate, self.peak.own) = (rate, own);
        }
        self.step += 1;
    }

    fn next_step(&self) -> u32 {
        STEPS.get(self.step).copied().unwrap_or(self.max).min(self.max)
    }

    /// Returns the peak.
    #[must_use]
    pub fn peak(self) -> Peak {
        self.peak
    }
}

/// Computes the capacities from peaks. `told` has the agent's figures. They are used for a resource that no
/// page was chosen to saturate, or if every page had another bottleneck.
pub fn capacities(peaks: &[Peak], told: [Option<f64>; 3]) -> [Option<Capacity>; 3] {
    let max = [0, 1, 2].map(|at| match peaks.iter().any(|peak| peak.resource == at) {
        true => peaks.iter().map(|peak| peak.rate[at]).fold(0.0, f64::max),
        false => 0.0,
    });
    let is_full = |peak: &Peak, at: usize| max[at] > 0.0 && peak.rate[at] >= FULL * max[at];
    [0, 1, 2].map(|at| {
        let told = told[at];
        let says = told.map(|amount| Capacity { amount, is_reached: true, is_told: true, missed: None });
        let amount = max[at];
        if amount <= 0.0 {
            return says;
        }
        let alone = |peak: &Peak| peak.own < OURS && (0..3).all(|other| other == at || !is_full(peak, other));
        let is_reached = peaks.iter().any(|peak| is_full(peak, at) && alone(peak));
        let missed = told.filter(|told| amount < SHORT * told);
        let measured = Capacity { amount, is_reached, is_told: false, missed };
        says.filter(|says| !is_reached && says.amount > amount).or(Some(measured))
    })
}

/// Returns the page with which to saturate a resource. Without known capacities it is the one of `pages`
/// (with the use per request) that uses the most. With them it is the one that uses the most in relation to
/// its use of other resources.
pub fn heaviest<'a>(
    pages: &[(&'a str, Used)],
    resource: usize,
    known: Option<&[Option<Capacity>; 3]>,
) -> Option<&'a str> {
    let weight = |used: &Used| match known {
        None => used[resource],
        Some(known) => {
            let share = |at: usize| known[at].map_or(0.0, |capacity| used[at] / capacity.amount);
            let others = (0..3).filter(|at| *at != resource).map(share).fold(1e-9, f64::max);
            share(resource) / others
        }
    };
    let used = pages.iter().filter(|(_, used)| crate::sample::is_something(resource, used[resource]));
    used.max_by(|a, b| weight(&a.1).total_cmp(&weight(&b.1))).map(|(target, _)| *target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(rate: Used) -> Peak {
        // It is chosen to saturate the resource that it uses most, in the units of these tests.
        let resource = if rate[1] > 1e5 {
            1
        } else if rate[2] > 1e5 {
            2
        } else {
            0
        };
        Peak { target: "/".to_owned(), resource, rate, concurrency: 4, own: 0.1 }
    }

    #[test]
    fn requests_at_once_double_until_nothing_grows() {
        let mut ramp = Ramp::new("/a", 0, 64);
        let mut steps = Vec::new();
        for rate in [1.0, 1.6, 1.62, 9.0] {
            let Some(step) = ramp.next() else { break };
            steps.push(step);
            ramp.add([rate, 0.0, 0.0], 0.1);
        }
        assert_eq!(steps, [4, 8, 16]);
        let peak = ramp.peak();
        assert_eq!((peak.rate[0], peak.concurrency), (1.62, 16), "the largest counts, also if it is hardly larger");
    }

    #[test]
    fn requests_at_once_are_bounded() {
        let mut ramp = Ramp::new("/a", 1, 10);
        let mut steps = Vec::new();
        while let Some(step) = ramp.next() {
            steps.push(step);
            ramp.add([0.0, f64::from(step), 0.0], 0.1);
        }
        assert_eq!(steps, [4, 8, 10]);
        let mut worse = Ramp::new("/a", 1, 64);
        worse.add([0.0, 5.0, 0.0], 0.1);
        worse.add([0.0, 3.0, 0.0], 0.1);
        assert_eq!((worse.next(), worse.peak().rate[1]), (None, 5.0), "a step that failed does no harm");
    }

    #[test]
    fn a_resource_is_reached_unless_another_was_full() {
        let peaks = [peak([0.5, 0.0, 100.0]), peak([0.49, 2e6, 10.0]), peak([0.1, 0.0, 1e6])];
        let [cpu, disk, bandwidth] = capacities(&peaks, [Some(2.0), None, None]).map(|some| some.expect("used"));
        assert_eq!(
            (cpu.amount, cpu.is_reached, cpu.is_told),
            (0.5, true, false),
            "a quota that the agent does not see"
        );
        assert_eq!((disk.amount, disk.is_reached), (2e6, false), "the CPU was full");
        assert_eq!((bandwidth.amount, bandwidth.is_reached), (1e6, true));
        let told = capacities(&peaks, [None, Some(9e6), None])[1].expect("told");
        assert!(told.is_told && told.amount == 9e6);
        assert_eq!(
            capacities(&[], [Some(2.0), None, None]).map(|some| some.map(|c| c.amount)),
            [Some(2.0), None, None]
        );
    }

    #[test]
    fn any_peak_at_which_nothing_else_was_full_will_do() {
        // The page that uses the disk achieves slightly more CPU use than the one that computes.
        let peaks = [peak([0.5, 0.0, 100.0]), peak([0.51, 2e6, 10.0]), peak([0.1, 0.0, 1e6])];
        let [cpu, disk, _] = capacities(&peaks, [Some(2.0), None, None]).map(|some| some.expect("used"));
        assert_eq!((cpu.amount, cpu.is_reached, cpu.is_told), (0.51, true, false));
        assert!(!disk.is_reached, "the CPU was full");
    }

    #[test]
    fn what_is_used_by_the_way_is_no_capacity() {
        // An access log: 24 kB/s with the page that computes.
        let peaks = [peak([0.5, 24e3, 9e3]), peak([0.1, 3e3, 5e6])];
        let [cpu, disk, bandwidth] = capacities(&peaks, [Some(0.5), None, None]);
        assert!(cpu.is_some_and(|cpu| cpu.is_reached && !cpu.is_told), "the disk does not hold it up");
        assert_eq!(disk, None);
        assert!(bandwidth.is_some_and(|bandwidth| bandwidth.is_reached));
        let told = capacities(&peaks, [None, Some(9e6), None])[1].expect("told");
        assert!(told.is_told && told.amount == 9e6);
    }

    #[test]
    fn where_the_prober_is_the_limit_nothing_is_reached() {
        // Files from a server with 16 CPUs.
        let mut files = peak([0.6, 0.0, 125.0]);
        files.own = 0.97;
        let cpu = capacities(&[files.clone()], [Some(16.0), None, None])[0].expect("told");
        assert!(cpu.is_told && cpu.amount == 16.0, "{cpu:?}");
        let unsaid = capacities(&[files.clone()], [None; 3])[0].expect("measured");
        assert!(!unsaid.is_reached && unsaid.amount == 0.6);
        // Eight workers wait for a database. The prober cannot detect it, but people can.
        files.own = 0.2;
        let cpu = capacities(&[files.clone()], [Some(16.0), None, None])[0].expect("measured");
        assert!(cpu.is_reached && cpu.missed == Some(16.0) && cpu.is_doubtful(), "{cpu:?}");
        let mut again = files.clone();
        again.rate[0] = 15.5;
        let cpu = capacities(&[files, again], [Some(16.0), None, None])[0].expect("measured");
        assert!(cpu.amount == 15.5 && cpu.missed.is_none() && !cpu.is_doubtful(), "{cpu:?}");
    }

    #[test]
    fn the_heaviest_page_is_the_most_one_sided_once_that_is_known() {
        let pages = [("/both", [0.1, 600e3, 0.0]), ("/disk", [0.001, 500e3, 0.0]), ("/cpu", [0.05, 0.0, 100.0])];
        assert_eq!(heaviest(&pages, 0, None), Some("/both"));
        assert_eq!(heaviest(&pages, 1, None), Some("/both"));
        let capacity = |amount| Some(Capacity { amount, is_reached: true, is_told: false, missed: None });
        let known = [capacity(1.0), capacity(10e6), None];
        assert_eq!(heaviest(&pages, 1, Some(&known)), Some("/disk"));
        assert_eq!(heaviest(&pages, 0, Some(&known)), Some("/cpu"));
        assert_eq!(heaviest(&[("/x", [0.0; 3])], 1, None), None);
    }
}
