//! Whether guarantees were held.
//!
//! *Floor held*: served ≥ 0.99 · min(arrivals, what a token bucket of the guaranteed rate and a burst
//! of one second lets pass) · min(1, agreed / actual mean cost). A class is owed its rate only for what
//! it asks for, and a class that is dearer than agreed is owed its capacity: 900 requests a second at
//! 8 ms are 180 at 40 ms. *Ceiling held*: the guaranteed statistic over the served requests is at most
//! the limit. The first part of a phase is judged apart, as nothing adapts at once.

use std::time::Duration;

use super::plan::{Guarantee, Statistic};
use super::report::{Report, Tally};

/// Share of what is owed that must be served: one in a hundred may be lost to the grain of counting.
const ENOUGH: f64 = 0.99;

/// The verdict over one class in one part of one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Index of the class.
    pub class: usize,
    /// Index of the phase.
    pub phase: usize,
    /// Is it the part in which the phase settles.
    pub settling: bool,
    /// On the throughput, if any is guaranteed.
    pub floor: Option<Floor>,
    /// On the response time, if any is guaranteed.
    pub ceiling: Option<Ceiling>,
}

/// A verdict on throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Requests that had to be served.
    pub owed: f64,
    /// Requests that were.
    pub served: u64,
    /// Served ≥ owed.
    pub held: bool,
}

/// A verdict on response time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// What is limited.
    pub statistic: Statistic,
    /// The limit.
    pub limit: Duration,
    /// What was measured; `None` if nothing was served.
    pub measured: Option<Duration>,
    /// Nothing measured lies above the limit.
    pub held: bool,
}

impl Verdict {
    /// Every part that was promised was held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.floor.is_none_or(|f| f.held) && self.ceiling.is_none_or(|c| c.held)
    }

    /// Judges a set of requests against a guarantee. `None` if there is nothing to judge: no guarantee,
    /// or no requests.
    #[must_use]
    pub fn of(tally: &Tally, guarantee: &Guarantee) -> Option<(Option<Floor>, Option<Ceiling>)> {
        // What was cut off by the end of the run was neither served nor refused.
        let asked = tally.arrivals - tally.cut;
        if asked == 0 || (guarantee.throughput.is_none() && guarantee.response_time.is_none()) {
            return None;
        }
        let floor = guarantee.throughput.map(|_| {
            let mean = tally.demand.as_secs_f64() / tally.arrivals as f64;
            let dear = guarantee.cost.map_or(1.0, |agreed| (agreed.as_secs_f64() / mean).min(1.0));
            let owed = ENOUGH * tally.within_rate.min(asked) as f64 * dear;
            Floor { owed, served: tally.served, held: tally.served as f64 >= owed }
        });
        let ceiling = guarantee.response_time.map(|(statistic, limit)| {
            let measured = tally.response_time(statistic);
            Ceiling { statistic, limit, measured, held: measured.is_none_or(|m| m <= limit) }
        });
        Some((floor, ceiling))
    }
}

impl Report {
    /// The verdicts over every class with a guarantee, in every part of every phase in which it sent.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for (class, of) in self.classes.iter().enumerate() {
            for (phase, parts) in of.phases.iter().enumerate() {
                for (settling, tally) in [(true, &parts.settling), (false, &parts.settled)] {
                    if let Some((floor, ceiling)) = Verdict::of(tally, &of.guarantee) {
                        verdicts.push(Verdict { class, phase, settling, floor, ceiling });
                    }
                }
            }
        }
        verdicts
    }

    /// Every guarantee was held in the settled part of every phase.
    #[must_use]
    pub fn all_held(&self) -> bool {
        self.verdicts().iter().all(|v| v.settling || v.held())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(arrivals: u64, within_rate: u64, served: u64, each: Duration) -> Tally {
        Tally { arrivals, within_rate, served, demand: each * arrivals as u32, ..Tally::default() }
    }

    fn guarantee() -> Guarantee {
        Guarantee {
            throughput: Some(900.0),
            response_time: Some((Statistic::Percentile(95.0), Duration::from_millis(400))),
            cost: Some(Duration::from_millis(8)),
        }
    }

    fn floor(tally: &Tally) -> Floor {
        Verdict::of(tally, &guarantee()).unwrap().0.unwrap()
    }

    #[test]
    fn a_floor_is_owed_for_what_was_asked_within_the_rate() {
        let ms = Duration::from_millis;
        assert!(floor(&tally(10_000, 9000, 8910, ms(8))).held);
        assert!(!floor(&tally(10_000, 9000, 8909, ms(8))).held);
        assert!(floor(&tally(100, 100, 99, ms(8))).held);
        assert!(!floor(&tally(100, 100, 98, ms(8))).held);
    }

    #[test]
    fn a_dear_class_is_owed_its_capacity_and_a_cheap_one_its_rate() {
        let ms = Duration::from_millis;
        let dear = floor(&tally(9000, 9000, 1782, ms(40)));
        assert!((dear.owed - 1782.0).abs() < 1e-6 && dear.held, "{dear:?}");
        assert!((floor(&tally(9000, 9000, 0, ms(4))).owed - 8910.0).abs() < 1e-6);
    }

    #[test]
    fn requests_cut_off_by_the_end_are_not_owed() {
        let cut = Tally { cut: 50, ..tally(100, 100, 50, Duration::from_millis(8)) };
        assert!(floor(&cut).held);
        assert_eq!(Verdict::of(&Tally { cut: 5, ..tally(5, 5, 0, Duration::ZERO) }, &guarantee()), None);
        assert_eq!(Verdict::of(&tally(5, 5, 5, Duration::ZERO), &Guarantee::default()), None);
    }

    #[test]
    fn a_ceiling_is_a_statistic_of_what_was_served() {
        let mut tally = tally(100, 100, 100, Duration::from_millis(8));
        for i in 0..100 {
            tally.response.record(if i < 95 { 300_000 } else { 2_000_000 }).unwrap();
        }
        let of = |statistic| {
            let guarantee = Guarantee { response_time: Some((statistic, Duration::from_millis(350))), ..guarantee() };
            Verdict::of(&tally, &guarantee).unwrap().1.unwrap()
        };
        assert!(of(Statistic::Percentile(95.0)).held);
        assert!(!of(Statistic::Percentile(96.0)).held);
        let mean = of(Statistic::Average);
        assert!(!mean.held && mean.measured.unwrap().abs_diff(Duration::from_millis(385)) < Duration::from_millis(1));
    }
}
