//! Comparison of a learned page table with the actual costs: the learned cost of each route over time, its
//! error at the end of each phase, and the time until it was right again after a cost had changed.
//!
//! Source: none of the papers, which learn no costs. These are the criteria for a table: a cost counts as
//! found when it is within [`BAND`] of the actual cost.

use serde::{Deserialize, Serialize, Serializer};
use weirgate_experiment::{CostEstimate, Experiment, RouteCosts, Run};
use weirgate_wire::RESOURCE_NAMES;

use super::actual_costs::ActualCosts;
use super::verdict::{rounded, rounded_option};

/// Maximum error of a cost that counts as found, as a fraction of the actual cost. Schedulers share by sums
/// over many requests, in which a fifth of one route is little. With a narrower band, learning within a
/// minute would be a matter of luck.
pub const BAND: f64 = 0.2;

/// Costs below this one get the same band as this one. It is a fraction of a node's second: a tenth of a
/// percent is the smallest cost that a scheduler needs to know.
const WORTH: f64 = 0.001;

/// Seconds by which a sample may follow the end of a phase and still count for it. The samples of the lab
/// are late by some milliseconds, a fraction of the time until any request of the next phase is learned.
const LATE: f64 = 0.1;

/// Costs in a learned page table over one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedTable {
    /// Every route that had requests and was learned separately from others, the busiest first.
    pub routes: Vec<LearnedRoute>,
}

/// Learned costs of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRoute {
    /// Its path and parameters.
    pub pattern: String,
    /// Number of requests released.
    pub requests: u64,
    /// Instant of each sample, in seconds from the start of the run.
    #[serde(serialize_with = "thousandths")]
    pub at_s: Vec<f64>,
    /// Costs for CPU, disk and bandwidth.
    pub resources: Vec<LearnedCost>,
}

/// Cost of a route's requests for one resource. All costs are fractions of the capacity that a node of
/// weight 1 has in a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedCost {
    /// Name of the resource.
    pub resource: String,
    /// Actual cost: seconds and cost, joined by straight lines. Two points at one instant are a jump. A
    /// point without a cost begins an interval without requests, or with an unknown cost.
    #[serde(serialize_with = "points")]
    #[serde(alias = "truth")]
    pub actual: Vec<(f64, Option<f64>)>,
    /// Learned cost of each sample.
    #[serde(serialize_with = "costs")]
    pub cost: Vec<f64>,
    /// Standard error of each sample. `None` while nothing was learned.
    #[serde(serialize_with = "options")]
    pub error: Vec<Option<f64>>,
    /// Result at the end of each phase of the experiment.
    pub phases: Vec<PhaseCost>,
    /// Every change of the actual cost by more than the band. Includes the start of the run if the table
    /// was wrong then.
    pub changes: Vec<CostChange>,
}

/// Cost at the end of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseCost {
    /// Actual cost at the end.
    #[serde(serialize_with = "option")]
    #[serde(alias = "truth")]
    pub actual: Option<f64>,
    /// Learned cost.
    #[serde(serialize_with = "option")]
    pub cost: Option<f64>,
    /// Standard error of the learned cost.
    #[serde(serialize_with = "option")]
    pub error: Option<f64>,
}

/// A change of the actual cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostChange {
    /// Instant at which the change was complete, in seconds from the start of the run. 0 is the start.
    #[serde(serialize_with = "rounded")]
    pub at_s: f64,
    /// Seconds from then on until the learned cost stays within the band up to the next change. `None` if
    /// it does not.
    #[serde(serialize_with = "rounded_option")]
    pub within_s: Option<f64>,
}

impl PhaseCost {
    /// Error of the learned cost, as a fraction of the actual cost.
    pub fn off(&self) -> Option<f64> {
        self.actual.filter(|actual| *actual > 0.0).zip(self.cost).map(|(actual, cost)| cost / actual - 1.0)
    }

    /// Whether the cost was found. `None` without an actual or a learned cost.
    pub fn found(&self) -> Option<bool> {
        self.actual.zip(self.cost).map(|(actual, cost)| within(cost, actual))
    }
}

impl LearnedCost {
    /// Largest actual cost at the end of a phase, or 0 without one.
    pub fn max(&self) -> f64 {
        self.phases.iter().filter_map(|phase| phase.actual).fold(0.0, f64::max)
    }
}

/// Whether a cost is within the band of the actual cost.
fn within(cost: f64, actual: f64) -> bool {
    (cost - actual).abs() <= BAND * actual.max(WORTH)
}

/// Learned costs in `run`. `None` without a learned table.
pub(super) fn table(experiment: &Experiment, run: &Run) -> Option<LearnedTable> {
    if run.learned_costs.is_empty() {
        return None;
    }
    let actuals = ActualCosts::of(experiment, run, run.learned_costs.iter().map(|route| route.pattern.as_str()));
    let asked_for = run.learned_costs.iter().zip(actuals).filter(|(_, actual)| actual.requests > 0);
    let mut routes: Vec<LearnedRoute> =
        asked_for.map(|(route, actual)| self::route(experiment, route, &actual)).collect();
    routes.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.pattern.cmp(&b.pattern)));
    Some(LearnedTable { routes })
}

fn seconds(estimate: &CostEstimate) -> f64 {
    estimate.at as f64 / 1e9
}

fn route(experiment: &Experiment, route: &RouteCosts, actual: &ActualCosts) -> LearnedRoute {
    let resource = |(resource, name): (usize, &&str)| {
        let phase = |index: usize| {
            let end = experiment.phases[index].until.as_secs_f64();
            let last = route.over_time.iter().rev().find(|estimate| seconds(estimate) <= end + LATE);
            PhaseCost {
                actual: actual.before(end).map(|cost| cost[resource]),
                cost: last.map(|estimate| estimate.cost[resource]),
                error: last.and_then(|estimate| estimate.error[resource]),
            }
        };
        LearnedCost {
            resource: (*name).to_owned(),
            actual: actual.line(resource),
            cost: route.over_time.iter().map(|estimate| estimate.cost[resource]).collect(),
            error: route.over_time.iter().map(|estimate| estimate.error[resource]).collect(),
            phases: (0..experiment.phases.len()).map(phase).collect(),
            changes: changes(&route.over_time, actual, resource),
        }
    };
    LearnedRoute {
        pattern: route.pattern.clone(),
        requests: actual.requests,
        at_s: route.over_time.iter().map(seconds).collect(),
        resources: RESOURCE_NAMES.iter().enumerate().map(resource).collect(),
    }
}

/// Changes of the actual cost by more than the band, with the time until the learned cost followed.
fn changes(learned_costs: &[CostEstimate], actual: &ActualCosts, resource: usize) -> Vec<CostChange> {
    let is_found = |estimate: &CostEstimate| {
        // Without an actual cost no learned cost is wrong.
        actual.at(seconds(estimate)).is_none_or(|cost| within(estimate.cost[resource], cost[resource]))
    };
    let mut times: Vec<f64> = Vec::new();
    let mut before = None;
    for stretch in actual.stretches() {
        let Some(cost) = stretch.flat(resource) else { continue };
        let changed = match before {
            None => learned_costs
                .iter()
                .find(|estimate| seconds(estimate) >= stretch.from)
                .is_some_and(|first| !is_found(first)),
            Some(before) => !within(cost, before),
        };
        if changed {
            times.push(stretch.from);
        }
        before = Some(cost);
    }
    let change = |(number, at): (usize, &f64)| {
        let until = times.get(number + 1).copied().unwrap_or(f64::INFINITY);
        let meanwhile: Vec<&CostEstimate> =
            learned_costs.iter().filter(|estimate| (*at..until).contains(&seconds(estimate))).collect();
        let missed = meanwhile.iter().rposition(|estimate| !is_found(estimate));
        let settled = meanwhile.get(missed.map_or(0, |last| last + 1));
        CostChange { at_s: *at, within_s: settled.map(|estimate| seconds(estimate) - at) }
    };
    times.iter().enumerate().map(change).collect()
}

/// Costs are rounded to a ten-thousandth of a percent. The smallest that matter are a tenth of a percent.
fn millionth(cost: f64) -> f64 {
    (cost * 1e6).round() / 1e6
}

fn costs<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|cost| millionth(*cost)))
}

fn options<S: Serializer>(values: &[Option<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|cost| cost.map(millionth)))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(millionth).serialize(serializer)
}

fn points<S: Serializer>(values: &[(f64, Option<f64>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|(at, cost)| (at, cost.map(millionth))))
}

fn thousandths<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|at| (at * 1e3).round() / 1e3))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::super::tests::{experiment, requests, run, served};
    use super::super::{Verdict, judge};
    use super::*;
    use weirgate_experiment::{DemandFrom, Distribution};

    /// Requests of class A need 10 ms of one of two CPUs, and 30 ms from 20 s on. The learned cost follows
    /// within `after` seconds.
    pub(crate) fn learned(start: f64, after: u64) -> Verdict {
        let mut experiment = experiment();
        experiment.traffic[0].request.path = Some("/a".into());
        let cost_ratio = DemandFrom {
            at: Duration::from_secs(20),
            cpu: Distribution::Fixed(Duration::from_millis(30)),
            ..experiment.traffic[0].demand[0]
        };
        experiment.traffic[0].demand.push(cost_ratio);
        let mut run = run(vec![requests(0, 100, 0..60, served(5))]);
        let estimate = |second: u64| {
            let cpu = match second {
                0..3 => start,
                3..=20 => 0.0052,
                _ if second < 20 + after => 0.009,
                _ => 0.0146,
            };
            // As late as the samples of the lab.
            CostEstimate {
                at: second * 1_000_000_000 + 2_000_000,
                cost: [cpu, 0.0, 0.0],
                error: [Some(0.0003), None, None],
            }
        };
        let route = |pattern: &str| RouteCosts { pattern: pattern.into(), over_time: (0..=60).map(estimate).collect() };
        run.learned_costs = vec![route("/nobody"), route("/*")];
        judge(&experiment, &run)
    }

    #[test]
    fn a_table_is_held_against_the_truth() {
        let verdict = learned(0.005, 24);
        let table = verdict.learned.as_ref().expect("it is learned");
        let [route] = table.routes.as_slice() else { panic!("{:?}", table.routes.len()) };
        // A release at 0 does not count.
        assert_eq!((route.pattern.as_str(), route.requests + 1, route.at_s.len()), ("/*", 6000, 61));
        let [cpu, disk, _] = route.resources.as_slice() else { panic!("three resources") };
        assert_eq!(cpu.actual, [(0.0, Some(0.005)), (20.0, Some(0.005)), (20.0, Some(0.015)), (60.0, Some(0.015))]);
        let ends: Vec<PhaseCost> = cpu.phases.clone();
        assert_eq!(ends[0], PhaseCost { actual: Some(0.005), cost: Some(0.0052), error: Some(0.0003) });
        assert_eq!((ends[1].cost, ends[2].cost), (Some(0.009), Some(0.0146)));
        assert_eq!(ends.iter().map(PhaseCost::found).collect::<Vec<_>>(), [Some(true), Some(false), Some(true)]);
        assert!(ends[1].off().is_some_and(|off| (off + 0.4).abs() < 1e-9));
        assert_eq!((cpu.changes.len(), cpu.changes[0].at_s), (1, 20.0));
        assert!(cpu.changes[0].within_s.is_some_and(|seconds| (seconds - 24.002).abs() < 1e-9), "{:?}", cpu.changes);
        assert!(disk.changes.is_empty() && disk.max() == 0.0 && disk.phases[0].off().is_none());
        assert_eq!(judge(&experiment(), &run(Vec::new())).learned, None);
    }

    #[test]
    fn a_wrong_beginning_counts_as_a_change_and_what_is_never_right_has_no_time() {
        let changes =
            |start, after| learned(start, after).learned.expect("it is learned").routes[0].resources[0].changes.clone();
        let [first, second] = changes(0.009, 1000)[..] else { panic!("two changes") };
        assert!((first.at_s, first.within_s.map(f64::round)) == (0.0, Some(3.0)), "{first:?}");
        assert_eq!((second.at_s, second.within_s), (20.0, None));
    }

    #[test]
    fn what_is_written_is_read() {
        let verdict = learned(0.005, 7);
        let text = serde_json::to_string(&verdict.learned).expect("it has a form");
        assert!(text.contains(r#""actual":[[0.0,0.005],[20.0,0.005],[20.0,0.015],[60.0,0.015]]"#), "{text}");
        assert!(text.contains(r#""at_s":[0.002,1.002,"#) && text.contains(r#""within_s":7.002"#), "{text}");
        let read: Option<LearnedTable> = serde_json::from_str(&text).expect("it is one");
        assert_eq!(read.map(|table| table.routes[0].resources[0].phases.len()), Some(3));
    }
}
