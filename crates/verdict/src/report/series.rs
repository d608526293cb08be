//! A run over time, in points of two seconds: what the figures draw.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weirgate_config::RESOURCE_NAMES;
use weirgate_engine::{Class, ResponseTime};
use weirgate_experiment::{Experiment, Fate, RESOURCES, Record, Run, Sample, Work};

use crate::judge::{Declared, Pages, at_first, paces, statistic, subject_of};
use crate::oracle::{Cluster, classes};

/// Length of a point, in seconds: the windows in which the judge reads reactions.
const STEP: f64 = 2.0;

/// More points than a figure has pixels show nothing more; longer runs get longer points.
const MOST_POINTS: f64 = 600.0;

/// A run over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The run's seed.
    pub seed: u64,
    /// Seconds from one point to the next.
    pub step: f64,
    /// Length of the run in seconds.
    pub length: f64,
    /// Every class that had traffic.
    pub classes: Vec<ClassSeries>,
    /// Samples of the state: seconds, then the figure.
    pub window: Vec<(f64, f64)>,
    /// Requests inside.
    pub outstanding: Vec<(f64, f64)>,
    /// Requests inside by the resource that they take most of, where they take something of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<InsideSeries>,
}

/// Requests inside that take more of one resource than of any other: its *tendency* in mQoS (Feng and Lin, Fig. 11).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InsideSeries {
    /// Of which resource.
    pub resource: String,
    /// Per point how many were inside in the mean.
    pub requests: Vec<f64>,
}

/// A class over time. Figures are per point unless they have a time of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassSeries {
    /// Its name.
    pub name: String,
    /// Its place among the classes of the policy and its templates.
    pub index: usize,
    /// Arrivals per second.
    pub offered: Vec<f64>,
    /// Requests served per second, by their last byte.
    pub served: Vec<f64>,
    /// The guaranteed rate, normalised to the cost of the requests.
    pub guaranteed: Option<Vec<f64>>,
    /// The guaranteed statistic (the mean without one) of the requests, or pages, that arrived, in milliseconds.
    pub response_ms: Vec<Option<f64>>,
    /// `avg`, `p95`, …
    pub statistic: String,
    /// Its limit in milliseconds.
    pub limit_ms: Option<f64>,
    /// Seconds from which on another limit on the same statistic holds, or none, where a reload changes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_limits_ms: Vec<(f64, Option<f64>)>,
    /// Waiting requests: seconds, then how many.
    pub waiting: Vec<(f64, f64)>,
    /// Its share of all machines' CPUs between one sample and the next, in percent, where classes have shares:
    /// seconds, then the figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu: Vec<(f64, f64)>,
}

impl ClassSeries {
    /// Its limits, each with the second from which on it holds.
    pub(super) fn limits_ms(&self) -> impl Iterator<Item = (f64, Option<f64>)> {
        std::iter::once((0.0, self.limit_ms)).chain(self.later_limits_ms.iter().copied())
    }
}

impl Series {
    /// The series of a run.
    #[must_use]
    pub fn new(experiment: &Experiment, run: &Run) -> Series {
        let length = experiment.duration().as_secs_f64();
        let step = STEP * (length / STEP / MOST_POINTS).ceil().max(1.0);
        let points = (length / step).ceil() as usize;
        let policy = &experiment.site.policy;
        let in_force = experiment.policies().map(|(from, policy)| (from.as_secs_f64(), classes(policy).collect()));
        let in_force: Vec<(f64, Vec<&Class>)> = in_force.collect();
        let whose: Vec<usize> = experiment.traffic.iter().map(|t| subject_of(policy, &t.class)).collect();
        let nominal = Cluster::nominal(experiment);
        let series = |(index, class): (usize, &Class)| {
            let records = run.records.iter().filter(|r| whose.get(r.traffic as usize) == Some(&index));
            let mut tally = Tally::new(points, step, length);
            let (pace, _) = paces(experiment, class.pool);
            records.for_each(|record| tally.add(record, pace));
            // How long pages take alone is not drawn.
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
            classes: classes(policy).enumerate().filter_map(series).collect(),
            window: line(&run.samples, |sample| sample.window.map(f64::from)),
            outstanding: line(&run.samples, |sample| Some(f64::from(sample.outstanding))),
            inside: inside(experiment, run, step, points),
        }
    }
}

/// What happened to one class in each point.
struct Tally {
    step: f64,
    length: f64,
    arrived: Vec<u64>,
    /// Sums of what requests take.
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

    /// What a request takes in the mean, in each point.
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

/// The limits of one class that follow the first, each with the second from which on it holds.
fn later_limits(promised: &[(f64, &Class)]) -> Vec<(f64, Option<f64>)> {
    let first = promised.first().and_then(|(_, class)| class.guarantee.response_time);
    let limit = |class: &Class| {
        let same = class.guarantee.response_time.filter(|of| first.is_none_or(|first| first.statistic == of.statistic));
        same.map(|of| of.limit.as_secs_f64() * 1e3)
    };
    let pairs = promised.windows(2).filter(|pair| limit(pair[0].1) != limit(pair[1].1));
    pairs.map(|pair| (pair[1].0, limit(pair[1].1))).collect()
}

/// Requests inside over time by the resource that they take most of, measured by what all machines have of each; ties
/// go to the first. A request is inside from its release to its end.
fn inside(experiment: &Experiment, run: &Run, step: f64, points: usize) -> Vec<InsideSeries> {
    if !experiment.uses_several_resources() {
        return Vec::new();
    }
    let cluster = Cluster::live(experiment, Duration::ZERO, Duration::ZERO);
    let capacity = cluster.whole();
    let line = |name: &str| InsideSeries { resource: name.to_owned(), requests: vec![0.0; points] };
    let mut lines: Vec<InsideSeries> = RESOURCE_NAMES.iter().map(|name| line(name)).collect();
    for record in run.records.iter().filter(|record| record.released > 0) {
        let mut most = (0, f64::MIN);
        for (index, (taken, had)) in record.work().iter().zip(capacity).enumerate() {
            let share = if had > 0.0 { taken / had } else { 0.0 };
            if share > most.1 {
                most = (index, share);
            }
        }
        let requests = &mut lines[most.0].requests;
        let (from, to) = (record.released as f64 / 1e9 / step, record.ended as f64 / 1e9 / step);
        for (point, inside) in requests.iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize) {
            *inside += (to.min(point as f64 + 1.0) - from.max(point as f64)).max(0.0);
        }
    }
    lines
}

/// What a class used of all CPUs between one sample and the next.
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
