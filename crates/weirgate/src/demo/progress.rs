//! The state of the demo, derived from the counts of the clients and the state of the gateway. The live view and
//! the plain lines both show it.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;
use weirgate_engine::{Guarantee, Statistic};
use weirgate_experiment::{Experiment, TrafficClass};
use weirgate_lab::gateways::State;
use weirgate_lab::load::Counts;
use weirgate_lab::trial;

/// Maximum number of points, for the charts: two minutes of half seconds.
const MAX_POINTS: usize = 240;

/// Time that the live marks cover: short enough to follow, long enough for a 95th percentile.
const LOOK_BACK: Duration = Duration::from_secs(3);

/// Minimum time between two looks. The first look comes at the start, when nothing has happened.
const SHORTEST: Duration = Duration::from_millis(100);

/// Share of the owed requests that has to be served, as for the judge. One in a hundred may be missing, because
/// requests at the edges of an interval are counted in the next one.
const ENOUGH: f64 = 0.99;

/// The state of the demo.
pub(crate) struct Progress {
    /// The experiment.
    pub(crate) experiment: Experiment,
    /// Names of its traffic sources. If there are none, they have the names of their classes.
    names: &'static [&'static str],
    /// The last points.
    pub(crate) points: VecDeque<Point>,
    /// Counts at the last point.
    counts: Vec<Counts>,
    pub(crate) state: State,
    /// Addresses of the gateway and of its admin API, once it runs.
    pub(crate) addresses: String,
}

/// Counts between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// Time of the later look, from the start of the run.
    pub(crate) at: Duration,
    /// Time between the looks.
    pub(crate) length: Duration,
    /// By traffic source.
    pub(crate) rows: Vec<RowPoint>,
}

/// Counts of one traffic source between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowPoint {
    pub(crate) sent: u64,
    pub(crate) served: u64,
    /// Requests that the gateway refused.
    pub(crate) shed: u64,
    /// Requests that failed or that the client abandoned.
    pub(crate) failed: u64,
    /// Requests without an outcome at the later look.
    pub(crate) under_way: u64,
    /// The guaranteed statistic of the response times, or p95.
    pub(crate) response: Option<Duration>,
}

/// The present performance of one traffic source.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Doing {
    /// Requests sent per second.
    pub(crate) sent: f64,
    /// Requests served per second.
    pub(crate) served: f64,
    /// Requests refused per second.
    pub(crate) shed: f64,
    /// Requests per second that failed or that the client abandoned.
    pub(crate) failed: f64,
    /// The guaranteed statistic, or p95, since the last look.
    pub(crate) response: Option<Duration>,
    /// Whether enough was served in the last three seconds. `None` without a guaranteed throughput.
    pub(crate) floor_held: Option<bool>,
    /// Whether all looks of the last three seconds saw response times within the limit. `None` without a limit, or
    /// without replies.
    pub(crate) ceiling_held: Option<bool>,
}

impl Progress {
    /// Returns the state before the start.
    pub(crate) fn new(experiment: &Experiment, names: &'static [&'static str]) -> Progress {
        let counts = vec![Counts::default(); experiment.traffic.len()];
        let (experiment, points) = (experiment.clone(), VecDeque::new());
        Progress { experiment, names, points, counts, state: State::default(), addresses: String::new() }
    }

    /// Adds a look. `responses` are the response times in microseconds since the look before, per traffic source.
    pub(crate) fn add(&mut self, now: &trial::Progress, responses: &[Histogram<u32>]) {
        self.state = now.state.clone();
        let admin = now.admin.as_deref().unwrap_or("off");
        self.addresses = format!("gateway http://{}, admin API {admin}", now.address);
        let length = now.elapsed.saturating_sub(self.at());
        if length < SHORTEST {
            return;
        }
        let row = |((counts, before), (times, row)): ((&Counts, &Counts), (&Histogram<u32>, usize))| RowPoint {
            sent: counts.sent - before.sent,
            served: counts.served - before.served,
            shed: counts.shed - before.shed,
            failed: counts.failed + counts.left - before.failed - before.left,
            under_way: counts.under_way(),
            response: response(times, &self.guarantee(row)),
        };
        let of_rows = now.traffic.iter().zip(&self.counts).zip(responses.iter().zip(0..));
        let rows = of_rows.map(row).collect();
        self.push(Point { at: now.elapsed, length, rows });
        self.counts.clone_from(&now.traffic);
    }

    fn push(&mut self, point: Point) {
        self.points.push_back(point);
        if self.points.len() > MAX_POINTS {
            self.points.pop_front();
        }
    }

    /// Returns the class of traffic source `row`, as an index into those of the policy.
    pub(crate) fn class_of(&self, row: usize) -> usize {
        match self.experiment.traffic[row].class {
            TrafficClass::Class(class) => class,
            // No scene has templates.
            TrafficClass::Template { .. } => 0,
        }
    }

    /// Returns the name of traffic source `row`.
    pub(crate) fn name(&self, row: usize) -> &str {
        let class = || self.experiment.site.policy.classes[self.class_of(row)].name.as_str();
        self.names.get(row).copied().unwrap_or_else(class)
    }

    /// Returns the guarantee that traffic source `row` shows: that of its class, unless an earlier one shows it.
    pub(crate) fn guarantee(&self, row: usize) -> Guarantee {
        let class = self.class_of(row);
        match (0..row).any(|earlier| self.class_of(earlier) == class) {
            true => Guarantee::default(),
            false => self.experiment.site.policy.classes[class].guarantee,
        }
    }

    /// Returns the number of traffic sources.
    pub(crate) fn rows(&self) -> usize {
        self.experiment.traffic.len()
    }

    /// Returns the time from the start to the last look.
    pub(crate) fn at(&self) -> Duration {
        self.points.back().map_or(Duration::ZERO, |point| point.at)
    }

    /// Returns the index of the phase of the last look.
    pub(crate) fn phase(&self) -> usize {
        let phases = &self.experiment.phases;
        phases.iter().position(|phase| self.at() < phase.until).unwrap_or(phases.len().saturating_sub(1))
    }

    /// Returns the present performance of traffic source `row`.
    pub(crate) fn doing(&self, row: usize) -> Doing {
        let (guarantee, policy) = (self.guarantee(row), &self.experiment.site.policy);
        let Some(last) = self.points.back() else { return Doing::default() };
        let now = last.rows[row];
        let per_second = |n: u64| n as f64 / last.length.as_secs_f64();
        let recent = self.points.iter().rev().take_while(|point| point.at + LOOK_BACK > last.at);
        let (mut owed, mut served, mut over) = (0.0, 0.0, None);
        let mut before = 0;
        for point in recent {
            let of = point.rows[row];
            if let Some(rate) = guarantee.throughput {
                let cost = self.experiment.traffic[row].cpu_at(point.at);
                let declared = policy.classes[self.class_of(row)].service_time.unwrap_or(cost);
                let cheap = (declared.as_secs_f64() / cost.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0);
                owed += (of.sent as f64).min(rate * point.length.as_secs_f64()) * cheap;
            }
            served += of.served as f64;
            if let (Some(time), Some(response)) = (guarantee.response_time, of.response) {
                over = Some(over.unwrap_or(false) || response > time.limit);
            }
            // Requests without an outcome before the first look that counts.
            before = (of.under_way + of.served + of.shed + of.failed).saturating_sub(of.sent);
        }
        // A request without an outcome is neither served nor lost yet.
        let pending = (now.under_way as f64 - before as f64).max(0.0);
        Doing {
            sent: per_second(now.sent),
            served: per_second(now.served),
            shed: per_second(now.shed),
            failed: per_second(now.failed),
            response: now.response,
            floor_held: guarantee.throughput.map(|_| served + pending >= ENOUGH * owed),
            ceiling_held: over.map(|over| !over),
        }
    }
}

/// Returns the guaranteed statistic of response times in microseconds, or their p95. `None` without any.
fn response(times: &Histogram<u32>, guarantee: &Guarantee) -> Option<Duration> {
    let micros = match guarantee.response_time.map(|time| time.statistic) {
        _ if times.is_empty() => return None,
        Some(Statistic::Average) => times.mean() as u64,
        Some(Statistic::Percentile(percent)) => times.value_at_percentile(percent),
        None => times.value_at_percentile(95.0),
    };
    Some(Duration::from_micros(micros))
}

/// Returns the name of the shown statistic.
pub(crate) fn statistic(guarantee: &Guarantee) -> String {
    guarantee.response_time.map_or("p95".to_owned(), |time| time.statistic.to_string())
}

/// Returns `7 ms`, `1234 ms`.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use weirgate_experiment::load_experiment;
    use weirgate_spanned_yaml::overrides::Override;

    use super::*;
    use crate::demo::SURGE;

    /// The state before anything has happened.
    pub(crate) fn at_start() -> Progress {
        let policy = Override::new("policy", SURGE.policy);
        let loaded = load_experiment("demo.yaml", SURGE.experiment, Path::new(""), &[policy]);
        Progress::new(&loaded.unwrap_or_else(|errors| panic!("{errors}")).experiment, &[])
    }

    /// Second number `second`, with `gold` as the first class.
    pub(crate) fn second(second: u64, gold: RowPoint) -> Point {
        let rows = vec![gold, RowPoint::default(), RowPoint::default()];
        Point { at: Duration::from_secs(second), length: Duration::from_secs(1), rows }
    }

    fn gold(sent: u64, served: u64, under_way: u64, response: u64) -> RowPoint {
        let response = Some(Duration::from_millis(response));
        RowPoint { sent, served, shed: sent - served, under_way, response, ..RowPoint::default() }
    }

    #[test]
    fn live_marks_follow_the_last_three_seconds() {
        let mut progress = at_start();
        assert_eq!(progress.doing(0), Doing::default());
        (1..=3).for_each(|s| progress.push(second(s, gold(240, 240, 5, 40))));
        let doing = progress.doing(0);
        assert_eq!((doing.floor_held, doing.ceiling_held), (Some(true), Some(true)));
        assert_eq!((doing.sent, doing.served, doing.shed), (240.0, 240.0, 0.0));
        progress.push(second(4, gold(240, 220, 5, 301)));
        let doing = progress.doing(0);
        assert_eq!((doing.floor_held, doing.ceiling_held), (Some(false), Some(false)));
        (5..=7).for_each(|s| progress.push(second(s, gold(240, 240, 5, 300))));
        let doing = progress.doing(0);
        assert_eq!((doing.floor_held, doing.ceiling_held), (Some(true), Some(true)));
    }

    #[test]
    fn a_request_without_an_outcome_is_not_lost_yet() {
        let mut progress = at_start();
        let slower = RowPoint { sent: 240, served: 200, under_way: 40, ..RowPoint::default() };
        progress.push(second(1, slower));
        assert_eq!(progress.doing(0).floor_held, Some(true));
        let no_more = RowPoint { sent: 240, served: 200, failed: 40, under_way: 40, ..RowPoint::default() };
        (2..=5).for_each(|s| progress.push(second(s, no_more)));
        assert_eq!(progress.doing(0).floor_held, Some(false));
    }

    #[test]
    fn best_effort_has_no_marks() {
        let mut progress = at_start();
        progress.push(second(1, gold(240, 240, 5, 40)));
        let doing = progress.doing(2);
        assert_eq!((doing.floor_held, doing.ceiling_held), (None, None));
    }

    #[test]
    fn looks_become_points_and_the_points_are_bounded() {
        let mut progress = at_start();
        let mut times = Histogram::new(3).expect("sound bounds");
        times.record(20_000).expect("within bounds");
        let look = |second: u64| {
            let counts = Counts { sent: 240 * second, served: 230 * second, left: 4 * second, ..Counts::default() };
            trial::Progress {
                elapsed: Duration::from_secs(second),
                length: Duration::from_secs(40),
                traffic: vec![counts; 3],
                state: State::default(),
                process: 0,
                address: ([127, 0, 0, 1], 80).into(),
                admin: None,
            }
        };
        (0..=1000).for_each(|second| progress.add(&look(second), &vec![times.clone(); 3]));
        assert_eq!((progress.points.len(), progress.at()), (MAX_POINTS, Duration::from_secs(1000)));
        let point = progress.points.back().expect("there are points").rows[0];
        assert_eq!((point.sent, point.served, point.failed, point.under_way), (240, 230, 4, 6000));
        assert_eq!(point.response.map(|time| time.as_millis()), Some(20));
        assert_eq!(progress.phase(), 3, "later looks belong to the last phase");
    }
}
