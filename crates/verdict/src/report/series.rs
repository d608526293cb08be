//! A run over time in points of two seconds, as the figures draw it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weirgate_engine::{Class, ResponseTime};
use weirgate_experiment::{Experiment, Fate, RESOURCES, Record, Run, Sample, Work};
use weirgate_wire::RESOURCE_NAMES;

use crate::judge::{Declared, Pages, at_first, paces, statistic};
use crate::oracle::Cluster;

/// Length of a point in seconds: that of the windows in which the judge measures reactions.
const STEP: f64 = 2.0;

/// Maximum number of points. More points than a figure has pixels would show nothing more. Longer runs get
/// longer points.
const MAX_POINTS: f64 = 600.0;

/// A run over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Seed of the run.
    pub seed: u64,
    /// Seconds from one point to the next.
    pub step: f64,
    /// Length of the run in seconds.
    pub length: f64,
    /// Every class that had traffic.
    pub classes: Vec<ClassSeries>,
    /// Samples of the window: seconds, then the value.
    pub window: Vec<(f64, f64)>,
    /// Samples of the requests in flight: seconds, then the number.
    pub outstanding: Vec<(f64, f64)>,
    /// Requests in flight by the resource of which they need the largest part, where they need several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(alias = "inside")]
    pub in_flight: Vec<InFlightSeries>,
}

/// Requests in flight that need more of one resource than of any other: its *tendency* in mQoS (Feng and
/// Lin, Fig. 11).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlightSeries {
    /// Name of the resource.
    pub resource: String,
    /// Mean number of requests in flight at each point.
    pub requests: Vec<f64>,
}

/// A class over time. There is one value per point unless the values have their own time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassSeries {
    /// Name of the class.
    pub name: String,
    /// Its index among the classes of the policy and its templates.
    pub index: usize,
    /// Arrivals per second.
    pub offered: Vec<f64>,
    /// Requests served per second, by their last byte.
    pub served: Vec<f64>,
    /// Guaranteed rate, normalised to the cost of the requests.
    pub guaranteed: Option<Vec<f64>>,
    /// Guaranteed statistic (the mean without one) of the requests or pages that arrived, in milliseconds.
    pub response_ms: Vec<Option<f64>>,
    /// Name of the statistic: `avg`, `p95`, …
    pub statistic: String,
    /// Limit of the statistic in milliseconds.
    pub limit_ms: Option<f64>,
    /// Later limits on the same statistic, where a reload changes it: seconds from which the limit holds,
    /// then the limit or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_limits_ms: Vec<(f64, Option<f64>)>,
    /// Waiting requests: seconds, then the number.
    pub waiting: Vec<(f64, f64)>,
    /// Fraction of all machines' CPUs that it used between one sample and the next, in percent, where
    /// classes have shares: seconds, then the value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu: Vec<(f64, f64)>,
}

impl ClassSeries {
    /// Its limits, each with the second from which it holds.
    pub(super) fn limits_ms(&self) -> impl Iterator<Item = (f64, Option<f64>)> {
        std::iter::once((0.0, self.limit_ms)).chain(self.later_limits_ms.iter().copied())
    }
}

impl Series {
    /// The series of a run.
    pub fn new(experiment: &Experiment, run: &Run) -> Series {
        let length = experiment.duration().as_secs_f64();
        let step = STEP * (length / STEP / MAX_POINTS).ceil().max(1.0);
        let points = (length / step).ceil() as usize;
        let policy = &experiment.site.policy;
        let in_force = experiment.policies().map(|(from, policy)| (from.as_secs_f64(), policy.all_classes().collect()));
        let in_force: Vec<(f64, Vec<&Class>)> = in_force.collect();
        let whose: Vec<usize> = experiment.traffic.iter().map(|t| t.class.index(policy)).collect();
        let nominal = Cluster::nominal(experiment);
        let series = |(index, class): (usize, &Class)| {
            let records = run.records.iter().filter(|r| whose.get(r.traffic as usize) == Some(&index));
            let mut tally = Tally::new(points, step, length);
            let (pace, _) = paces(experiment, class.pool);
            records.for_each(|record| tally.add(record, pace));
            // The time of pages alone is not drawn.
            if let Some(pages) = Pages::of(experiment, run, index, |_| 0) {
                tally.times.iter_mut().for_each(Vec::clear);
                pages.times(&(0..u64::MAX)).for_each(|(arrived, took)| tally.took(arrived, took));
            }
            let waiting = if index < policy.classes.len() {
                line(&run.samples, |sample| sample.waiting.get(index).map(|n| f64::from(*n)))
            } else {
                Vec::new()
            };
            let cpu = cpu_line(experiment, &run.samples, index);
            let has = nominal.reached(index);
            let at_first = at_first(experiment, run, index, pace);
            let promised: Vec<(f64, &Class)> = in_force.iter().map(|(from, classes)| (*from, classes[index])).collect();
            let guaranteed = |(point, work): (usize, Work)| {
                let at = point as f64 * step;
                let class = promised.iter().rfind(|(from, _)| *from <= at).map_or(class, |(_, class)| class);
                let rate = class.guarantee.throughput.unwrap_or(0.0);
                let declared = class.service_time.map(|service| Declared::of(service, at_first));
                declared.map_or(rate, |declared| rate / declared.tokens(&work, &has))
            };
            let has_floor = promised.iter().any(|(_, class)| class.guarantee.throughput.is_some());
            let has_floor = has_floor && index < policy.classes.len();
            let guaranteed = has_floor.then(|| tally.costs().enumerate().map(guaranteed).collect());
            let later_limits_ms = later_limits(&promised);
            let series = || ClassSeries { cpu, guaranteed, later_limits_ms, ..tally.series(index, class, waiting) };
            tally.any().then(series)
        };
        Series {
            seed: run.seed,
            step,
            length,
            classes: policy.all_classes().enumerate().filter_map(series).collect(),
            window: line(&run.samples, |sample| sample.window.map(f64::from)),
            outstanding: line(&run.samples, |sample| Some(f64::from(sample.outstanding))),
            in_flight: in_flight(experiment, run, step, points),
        }
    }
}

/// Totals of one class at each point.
struct Tally {
    step: f64,
    length: f64,
    arrived: Vec<u64>,
    /// Sums of the work of requests.
    cost: Vec<Work>,
    served: Vec<u64>,
    times: Vec<Vec<u64>>,
}

impl Tally {
    fn new(points: usize, step: f64, length: f64) -> Tally {
        let (arrived, served) = (vec![0; points], vec![0; points]);
        Tally { step, length, arrived, cost: vec![[0.0; RESOURCES]; points], served, times: vec![Vec::new(); points] }
    }

    fn add(&mut self, record: &Record, pace: f64) {
        let point = |at: u64| (at as f64 / 1e9 / self.step) as usize;
        let (from, to) = (point(record.arrived), point(record.ended));
        if let (Some(arrived), Some(cost)) = (self.arrived.get_mut(from), self.cost.get_mut(from)) {
            *arrived += 1;
            let [cpu, disk, link] = record.work();
            cost.iter_mut().zip([cpu * pace, disk, link]).for_each(|(sum, takes)| *sum += takes);
        }
        if record.fate == Fate::Served {
            // The last point may be short, and on real sockets replies come after the end.
            if let Some(served) = self.served.get_mut(to)
                && record.ended as f64 / 1e9 <= self.length
            {
                *served += 1;
            }
            self.took(record.arrived, record.ended.saturating_sub(record.arrived));
        }
    }

    fn took(&mut self, arrived: u64, took: u64) {
        if let Some(times) = self.times.get_mut((arrived as f64 / 1e9 / self.step) as usize) {
            times.push(took);
        }
    }

    /// Mean work of a request at each point.
    fn costs(&self) -> impl Iterator<Item = Work> {
        let mean = |(cost, arrived): (&Work, &u64)| cost.map(|sum| sum / (*arrived).max(1) as f64);
        self.cost.iter().zip(&self.arrived).map(mean)
    }

    fn any(&self) -> bool {
        self.arrived.iter().any(|n| *n > 0)
    }

    fn series(&self, index: usize, class: &Class, waiting: Vec<(f64, f64)>) -> ClassSeries {
        let rates = |counts: &[u64]| -> Vec<f64> {
            let seconds = |i: usize| (self.length - i as f64 * self.step).min(self.step);
            counts.iter().enumerate().map(|(i, n)| *n as f64 / seconds(i)).collect()
        };
        let which = class.guarantee.response_time;
        let mut times = self.times.clone();
        let response = times.iter_mut().map(|times| {
            times.sort_unstable();
            statistic(times, which.map_or(weirgate_engine::Statistic::Average, |r: ResponseTime| r.statistic))
        });
        ClassSeries {
            name: class.name.clone(),
            index,
            offered: rates(&self.arrived),
            served: rates(&self.served),
            guaranteed: None,
            response_ms: response.map(|nanos| nanos.map(|n| n / 1e6)).collect(),
            statistic: which.map_or("avg".to_owned(), |r| r.statistic.to_string()),
            limit_ms: which.map(|r| r.limit.as_secs_f64() * 1e3),
            later_limits_ms: Vec::new(),
            waiting,
            cpu: Vec::new(),
        }
    }
}

/// Limits of one class after the first, each with the second from which it holds.
fn later_limits(promised: &[(f64, &Class)]) -> Vec<(f64, Option<f64>)> {
    let first = promised.first().and_then(|(_, class)| class.guarantee.response_time);
    let limit = |class: &Class| {
        let same = class.guarantee.response_time.filter(|of| first.is_none_or(|first| first.statistic == of.statistic));
        same.map(|of| of.limit.as_secs_f64() * 1e3)
    };
    let pairs = promised.windows(2).filter(|pair| limit(pair[0].1) != limit(pair[1].1));
    pairs.map(|pair| (pair[1].0, limit(pair[1].1))).collect()
}

/// Requests in flight over time by the resource of which they need the largest part, relative to the
/// capacity of all machines. Ties go to the first resource. A request is in flight from its release to its end.
fn in_flight(experiment: &Experiment, run: &Run, step: f64, points: usize) -> Vec<InFlightSeries> {
    if !experiment.uses_several_resources() {
        return Vec::new();
    }
    let cluster = Cluster::live(experiment, Duration::ZERO, Duration::ZERO);
    let capacity = cluster.whole();
    let line = |name: &str| InFlightSeries { resource: name.to_owned(), requests: vec![0.0; points] };
    let mut lines: Vec<InFlightSeries> = RESOURCE_NAMES.iter().map(|name| line(name)).collect();
    for record in run.records.iter().filter(|record| record.released > 0) {
        let mut max = (0, f64::MIN);
        for (index, (taken, had)) in record.work().iter().zip(capacity).enumerate() {
            let share = if had > 0.0 { taken / had } else { 0.0 };
            if share > max.1 {
                max = (index, share);
            }
        }
        let requests = &mut lines[max.0].requests;
        let (from, to) = (record.released as f64 / 1e9 / step, record.ended as f64 / 1e9 / step);
        for (point, in_flight) in requests.iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize) {
            *in_flight += (to.min(point as f64 + 1.0) - from.max(point as f64)).max(0.0);
        }
    }
    lines
}

/// A class's use of all CPUs between one sample and the next.
fn cpu_line(experiment: &Experiment, samples: &[Sample], class: usize) -> Vec<(f64, f64)> {
    let own = |m: &weirgate_experiment::Machine| f64::from(m.cpus) * f64::from(m.servers) * m.speed;
    let all: f64 = experiment.machines.iter().map(own).sum();
    let used = |pair: &[Sample]| {
        let [before, after] = pair else { return None };
        let done = after.usage.get(class)? - before.usage.get(class)?;
        let seconds = after.at.saturating_sub(before.at) as f64 / 1e9;
        (seconds > 0.0 && all > 0.0).then(|| (after.at as f64 / 1e9, 100.0 * done / (seconds * all)))
    };
    samples.windows(2).filter_map(used).collect()
}

fn line(samples: &[Sample], figure: impl Fn(&Sample) -> Option<f64>) -> Vec<(f64, f64)> {
    samples.iter().filter_map(|sample| Some((sample.at as f64 / 1e9, figure(sample)?))).collect()
}
