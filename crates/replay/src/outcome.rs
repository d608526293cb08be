//! Figures per class, of a log and of a run.

use std::collections::BTreeMap;

use serde::Serialize;
use weirgate_engine::{Class, Policy, Statistic};
use weirgate_experiment::{Experiment, Fate, Run};
use weirgate_verdict::percentile;

use crate::requests::{Ending, Requests};

/// Outcome of all classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Every class with requests, in the order of the policy, and then classes that it does not have, by name.
    pub classes: Vec<ClassOutcome>,
}

/// Outcome of the requests of a class. Counts of a log that is a sample are those of all requests, estimated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassOutcome {
    /// Name of the class or template.
    pub class: String,
    /// Number of requests.
    pub requests: u64,
    /// Number of served requests.
    pub served: u64,
    /// Number of served requests whose response took longer than the class's limit on a percentile. `None` without such
    /// a limit.
    pub late: Option<u64>,
    /// Number of refused requests.
    pub shed: u64,
    /// Refused requests by their reason, in the words of the access log.
    pub shed_by_reason: BTreeMap<&'static str, u64>,
    /// Number of requests that the nodes failed to serve.
    pub failed: u64,
    /// Number of requests whose client left first.
    pub left: u64,
    /// Number of requests that the end of the simulation cut off.
    pub unfinished: u64,
    /// Median response time of served requests in milliseconds, from the head to the node's last byte. `None` if none
    /// was served.
    pub p50_ms: Option<f64>,
    /// Its 95th percentile.
    pub p95_ms: Option<f64>,
    /// The statistic that the class's guarantee limits. `None` without such a guarantee.
    pub limited: Option<Limited>,
}

/// The statistic of a response-time guarantee.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limited {
    /// Its name: `avg`, `p95`, …
    pub statistic: String,
    /// The limit in milliseconds.
    pub limit_ms: f64,
    /// The statistic of the served requests in milliseconds. `None` if none was served.
    pub value_ms: Option<f64>,
}

/// Word for a reason that this version does not know.
const UNKNOWN: &str = "other";

/// Sums of one class.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<Count, f64>,
    /// Response times in milliseconds.
    times: Vec<f32>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Count {
    Served,
    Shed(&'static str),
    Failed,
    Left,
    Unfinished,
}

impl Tally {
    fn add(&mut self, what: Count, count: f64) {
        *self.counts.entry(what).or_default() += count;
    }

    fn outcome(mut self, name: &str, class: Option<&Class>) -> ClassOutcome {
        self.times.sort_unstable_by(f32::total_cmp);
        let times = &self.times;
        let percentile = |percent| percentile(times, percent).map(|time| rounded(f64::from(time)));
        let count = |what| self.counts.get(&what).copied().unwrap_or(0.0);
        let whole = |count: f64| count.round() as u64;
        let shed = self.counts.iter().filter_map(|(what, count)| match what {
            Count::Shed(reason) => Some((*reason, whole(*count))),
            _ => None,
        });
        let shed: BTreeMap<&'static str, u64> = shed.collect();
        let guarantee = class.and_then(|class| class.guarantee.response_time);
        let limited = guarantee.map(|of| Limited {
            statistic: of.statistic.to_string(),
            limit_ms: of.limit.as_secs_f64() * 1e3,
            value_ms: match of.statistic {
                Statistic::Average => mean(times),
                Statistic::Percentile(p) => percentile(p),
            },
        });
        // What one request takes is no miss of an average.
        let limit = guarantee.filter(|of| matches!(of.statistic, Statistic::Percentile(_)));
        let served = whole(count(Count::Served));
        let late = limit.map(|of| {
            let within = times.partition_point(|time| f64::from(*time) <= of.limit.as_secs_f64() * 1e3);
            let share = (times.len() - within) as f64 / times.len().max(1) as f64;
            whole(count(Count::Served) * share)
        });
        ClassOutcome {
            class: name.to_owned(),
            requests: whole(self.counts.values().sum()),
            served,
            late,
            shed: shed.values().sum(),
            shed_by_reason: shed,
            failed: whole(count(Count::Failed)),
            left: whole(count(Count::Left)),
            unfinished: whole(count(Count::Unfinished)),
            p50_ms: percentile(50.0),
            p95_ms: percentile(95.0),
            limited,
        }
    }
}

fn mean(times: &[f32]) -> Option<f64> {
    let sum: f64 = times.iter().map(|time| f64::from(*time)).sum();
    (!times.is_empty()).then(|| rounded(sum / times.len() as f64))
}

/// Rounds to three digits after the point, the resolution of the log.
fn rounded(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}

/// The outcome that the log has. Limits are those of `policy`, for classes of the same name.
pub fn of_log(requests: &Requests, policy: &Policy) -> Outcome {
    let mut tallies: Vec<Tally> = requests.classes().iter().map(|_| Tally::default()).collect();
    for request in &requests.all {
        let tally = &mut tallies[request.class as usize];
        let what = match request.ending {
            Ending::Served => {
                tally.times.push((f64::from(request.wait) + f64::from(request.service)) as f32 / 1e3);
                Count::Served
            }
            Ending::Shed(reason) => Count::Shed(reason.map_or(UNKNOWN, |reason| reason.as_str())),
            Ending::Failed => Count::Failed,
            Ending::Left => Count::Left,
        };
        tally.add(what, f64::from(request.copies));
    }
    let place = |name: &str| policy.all_classes().position(|class| class.name == name).unwrap_or(usize::MAX);
    let mut named: Vec<(usize, &String, Tally)> =
        requests.classes().iter().zip(tallies).map(|(name, tally)| (place(name), name, tally)).collect();
    named.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let outcome = |(place, name, tally): (usize, &String, Tally)| tally.outcome(name, policy.all_classes().nth(place));
    Outcome { classes: named.into_iter().map(outcome).collect() }
}

/// The outcome of a run of `experiment`.
pub fn of_run(experiment: &Experiment, run: &Run) -> Outcome {
    let policy = &experiment.site.policy;
    let mut tallies: Vec<Tally> = policy.all_classes().map(|_| Tally::default()).collect();
    for record in &run.records {
        let tally = &mut tallies[experiment.traffic[record.traffic as usize].class.index(policy)];
        let what = match record.fate {
            Fate::Served => {
                tally.times.push(((record.ended - record.arrived) as f64 / 1e6) as f32);
                Count::Served
            }
            Fate::Shed => Count::Shed(record.shed.map_or(UNKNOWN, |reason| reason.as_str())),
            Fate::Failed => Count::Failed,
            Fate::Left => Count::Left,
            Fate::Cut => Count::Unfinished,
        };
        tally.add(what, 1.0);
    }
    let all = policy.all_classes().zip(tallies).filter(|(_, tally)| !tally.counts.is_empty());
    Outcome { classes: all.map(|(class, tally)| tally.outcome(&class.name, Some(class))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<f32> = (1..=20).map(|n| n as f32).collect();
        assert_eq!((percentile(&times, 95.0), percentile(&times, 50.0)), (Some(19.0), Some(10.0)));
        assert_eq!((percentile(&times[..1], 99.9), percentile::<f32>(&[], 95.0), mean(&[])), (Some(1.0), None, None));
    }
}
