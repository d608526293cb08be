//! One class over a run: which of its requests its guaranteed rate covers, and what it got in any stretch of
//! time.
//!
//! A request belongs to the stretch in which it arrives, to the end. Throughput alone is what *ends* in a
//! stretch, as in the published figures. At the borders of a stretch the two differ by what is under way, so
//! that a floor has been kept if either reaches what is owed: what ended in the stretch, or what arrived in
//! it and was served in time, that is before the end of the stretch and the grace that follows it. A class
//! that gets everything it asks for in time never misses its floor, however its requests arrive.

use std::ops::Range;

use weirgate_engine::Class;

use super::bucket::Bucket;
use super::pages::Pages;
use super::statistic::{mean, percentile, statistic};
use super::verdict::{CeilingVerdict, FloorVerdict, Part, ResponseTimes, ShedLatency, Sheds};
use crate::run::{Fate, RESOURCES, Record, Work};

/// One in a hundred may be lost to the grain of counting.
const ENOUGH: f64 = 0.99;

/// In windows of two seconds one in ten may be.
const ENOUGH_IN_A_WINDOW: f64 = 0.9;

/// How long a window is in which the reaction is judged, in nanoseconds.
const WINDOW: u64 = 2_000_000_000;

/// Milliseconds per nanosecond.
const MILLIS: f64 = 1e-6;

/// A class, and all its requests.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    class: &'a Class,
    /// Guaranteed requests per second. A template's keys are not told apart, so it has none.
    floor: Option<f64>,
    /// Seconds that a second of nominal CPU time takes on an unloaded node of the pool.
    pace: f64,
    /// How long after a stretch its requests may still be served.
    grace: u64,
    /// In order of arrival.
    attempts: Vec<Attempt>,
    /// When requests were served, in order, each with the work served up to it.
    served: Vec<(u64, Work)>,
    /// What clients wait for as a whole, if it is not each request.
    pages: Option<Pages>,
}

/// One attempt.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    arrived: u64,
    ended: u64,
    fate: Fate,
    /// What it takes of each resource.
    work: Work,
    /// Time without a CPU, in seconds.
    beside: f64,
    /// It arrived within the guaranteed rate.
    covered: bool,
    /// It was shed although its class had not had its guaranteed rate.
    wronged: bool,
    /// It is neither owed nor served: the end of the run came too soon after it.
    excused: bool,
}

/// What a class asked for and got over a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Account {
    /// Requests within the guaranteed rate, and of these as many as the agreed cost pays for.
    owed: f64,
    /// Requests that count as served.
    counted: f64,
}

impl<'a> Subject<'a> {
    /// `pace`: see the field. `grace` and `end` (of the run) in nanoseconds. `stretches` follow one another;
    /// over each of them the mean cost of requests is taken.
    pub(crate) fn new(
        class: &'a Class,
        floor: Option<f64>,
        pace: f64,
        (grace, end): (u64, u64),
        records: impl Iterator<Item = &'a Record>,
        stretches: &[Range<u64>],
    ) -> Subject<'a> {
        let attempts = records.map(|record| Attempt {
            arrived: record.arrived,
            ended: record.ended,
            fate: record.fate,
            work: record.work(),
            beside: record.beside_cpu(),
            covered: false,
            wronged: false,
            excused: record.fate == Fate::Cut && record.arrived.saturating_add(grace) >= end,
        });
        let attempts: Vec<Attempt> = attempts.collect();
        let ended = attempts.iter().filter(|a| a.fate == Fate::Served).map(|a| (a.ended, a.work));
        let mut served: Vec<(u64, Work)> = ended.collect();
        served.sort_unstable_by_key(|(at, _)| *at);
        let mut sums = [0.0; RESOURCES];
        for (_, work) in &mut served {
            sums.iter_mut().zip(*work).for_each(|(sum, work)| *sum += work);
            *work = sums;
        }
        let mut subject = Subject { class, floor, pace, grace, attempts, served, pages: None };
        subject.cover(stretches);
        subject
    }

    /// The same with response times of pages.
    pub(crate) fn in_pages(self, pages: Option<Pages>) -> Subject<'a> {
        Subject { pages, ..self }
    }

    /// Marks what the guaranteed rate covers, and what was shed wrongly.
    ///
    /// What is covered is decided by arrivals alone: each takes a token if there is one. Whether a shed is wrong
    /// depends on what the class got: every request that was let in takes tokens, as many as agreed requests
    /// fit in it, from a second bucket, which may run into debt; a shed is wrong if the tokens for it are
    /// there, and takes them. So an overloaded class that is served at its rate is not wronged by
    /// any shed, whichever requests it hits, and one that is served less is wronged by as many as it lacks.
    fn cover(&mut self, stretches: &[Range<u64>]) {
        let Some(rate) = self.floor else { return };
        let dearness: Vec<f64> = stretches.iter().map(|s| 1.0 / self.cheapness(self.between(s))).collect();
        let dearest = dearness.iter().copied().fold(1.0, f64::max);
        let (mut requests, mut costs) = (Bucket::new(rate, 1.0), Bucket::new(rate, dearest));
        let mut stretch = 0;
        for attempt in &mut self.attempts {
            while stretches.get(stretch).is_some_and(|s| s.end <= attempt.arrived) {
                stretch += 1;
            }
            attempt.covered = requests.take(attempt.arrived, 1.0);
            let cost = dearness.get(stretch).copied().unwrap_or(1.0);
            match attempt.fate {
                Fate::Shed => attempt.wronged = costs.take(attempt.arrived, cost),
                _ => costs.charge(attempt.arrived, cost),
            }
        }
    }

    /// Requests that arrived in a stretch.
    fn between(&self, stretch: &Range<u64>) -> &[Attempt] {
        let index = |at: u64| self.attempts.partition_point(|a| a.arrived < at);
        &self.attempts[index(stretch.start)..index(stretch.end).max(index(stretch.start))]
    }

    /// min(1, agreed cost / mean cost).
    fn cheapness(&self, attempts: &[Attempt]) -> f64 {
        let agreed = self.class.service_time.map(|time| time.as_secs_f64());
        match (agreed, self.mean_cost(attempts)) {
            (Some(agreed), Some(actual)) if actual > agreed => agreed / actual,
            _ => 1.0,
        }
    }

    /// Mean time that a request takes on an unloaded node, in seconds.
    fn mean_cost(&self, attempts: &[Attempt]) -> Option<f64> {
        let sum: f64 = attempts.iter().map(|a| a.work[0] * self.pace + a.beside).sum();
        (!attempts.is_empty()).then(|| sum / attempts.len() as f64)
    }

    fn account(&self, stretch: &Range<u64>) -> Account {
        let attempts = self.between(stretch);
        let covered = attempts.iter().filter(|a| a.covered && !a.excused).count();
        let last = stretch.end.saturating_add(self.grace);
        let in_time = attempts.iter().filter(|a| a.fate == Fate::Served && a.ended <= last).count();
        let ended = self.served_in(stretch).len();
        Account { owed: covered as f64 * self.cheapness(attempts), counted: ended.max(in_time) as f64 }
    }

    fn served_in(&self, stretch: &Range<u64>) -> &[(u64, Work)] {
        let index = |at: u64| self.served.partition_point(|(ended, _)| *ended < at);
        &self.served[index(stretch.start)..index(stretch.end).max(index(stretch.start))]
    }

    /// Sorted response times of the served requests, or complete pages, that arrived in a stretch.
    fn response_times(&self, stretch: &Range<u64>) -> Vec<u64> {
        let served = self.between(stretch).iter().filter(|a| a.fate == Fate::Served);
        let mut times: Vec<u64> = match &self.pages {
            Some(pages) => pages.times(stretch).map(|(_, took)| took).collect(),
            None => served.map(|a| a.ended.saturating_sub(a.arrived)).collect(),
        };
        times.sort_unstable();
        times
    }

    /// Everything that is reported of a stretch.
    pub(crate) fn part(&self, stretch: &Range<u64>) -> Part {
        let attempts = self.between(stretch);
        let seconds = seconds(stretch);
        let per_second = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
        let count = |fate: Fate| attempts.iter().filter(|a| a.fate == fate).count() as u64;
        let times = self.response_times(stretch);
        let millis = |percent: f64| percentile(&times, percent) as f64 * MILLIS;
        let account = self.account(stretch);
        let limit = self
            .class
            .guarantee
            .response_time
            .map_or(u64::MAX, |promised| u64::try_from(promised.limit.as_nanos()).unwrap_or(u64::MAX));
        Part {
            offered_per_s: per_second(attempts.len() as f64),
            served_per_s: per_second(self.served_in(stretch).len() as f64),
            in_time_per_s: per_second(times.partition_point(|time| *time <= limit) as f64),
            floor: self.floor.map(|rate| FloorVerdict {
                guaranteed_per_s: rate,
                owed_per_s: per_second(account.owed),
                counted_per_s: per_second(account.counted),
                ok: account.counted >= ENOUGH * account.owed,
            }),
            ceiling: self.class.guarantee.response_time.map(|promised| {
                let value = statistic(&times, promised.statistic);
                CeilingVerdict {
                    statistic: promised.statistic.to_string(),
                    limit_ms: promised.limit.as_secs_f64() * 1e3,
                    value_ms: value.map(|v| v * MILLIS),
                    ok: value.is_none_or(|v| v <= promised.limit.as_nanos() as f64),
                }
            }),
            shed: sheds(attempts),
            failed: count(Fate::Failed),
            left: count(Fate::Left),
            unfinished: count(Fate::Cut),
            response_ms: (!times.is_empty()).then(|| ResponseTimes {
                mean: mean(&times) * MILLIS,
                p50: millis(50.0),
                p95: millis(95.0),
                p99: millis(99.0),
            }),
            pages: self.pages.as_ref().map(|pages| pages.counts(stretch)),
        }
    }

    /// Seconds from the start of a phase until the guarantees hold in every later window; `None` if they do
    /// not in the last one. Windows of two seconds follow one another from the start of the phase; what is
    /// left at its end is too short to be judged.
    ///
    /// A window is held to less than a phase. It is owed no more than two seconds of the rate: the burst of
    /// a whole second that a class may have saved up need not be served in the same two seconds. Nine in ten are
    /// enough, and one request is let off at each of its borders: one that is missing, and the slowest one.
    pub(crate) fn reaction(&self, phase: &Range<u64>) -> Option<f64> {
        let windows = phase.end.saturating_sub(phase.start) / WINDOW;
        let bad = (0..windows).rev().find(|i| {
            let from = phase.start + i * WINDOW;
            !self.held_in(&(from..from + WINDOW))
        });
        match bad {
            None => Some(0.0),
            Some(last) if last + 1 == windows => None,
            Some(index) => Some(seconds(&(0..(index + 1) * WINDOW))),
        }
    }

    fn held_in(&self, window: &Range<u64>) -> bool {
        let floor = self.floor.is_none_or(|rate| {
            let account = self.account(window);
            let cheapness = self.cheapness(self.between(window));
            let owed = account.owed.min(rate * seconds(window) * cheapness);
            account.counted + 1.0 >= ENOUGH_IN_A_WINDOW * owed
        });
        let ceiling = self.class.guarantee.response_time.is_none_or(|promised| {
            let mut times = self.response_times(window);
            times.pop();
            statistic(&times, promised.statistic).is_none_or(|v| v <= promised.limit.as_nanos() as f64)
        });
        floor && ceiling
    }

    /// Work of requests that were served in a stretch.
    pub(crate) fn served_work(&self, stretch: &Range<u64>) -> Work {
        let up_to = |at: u64| match self.served.partition_point(|(ended, _)| *ended < at) {
            0 => [0.0; RESOURCES],
            n => self.served[n - 1].1,
        };
        let (before, after) = (up_to(stretch.start), up_to(stretch.end.max(stretch.start)));
        std::array::from_fn(|resource| after[resource] - before[resource])
    }

    /// Work that arrived in a stretch, and the part of it that was owed.
    pub(crate) fn asked_work(&self, stretch: &Range<u64>) -> (Work, f64) {
        let attempts = self.between(stretch);
        let offered = std::array::from_fn(|resource| attempts.iter().map(|a| a.work[resource]).sum());
        let owed = if attempts.is_empty() { 0.0 } else { self.account(stretch).owed / attempts.len() as f64 };
        (offered, if self.floor.is_some() { owed } else { 0.0 })
    }

    /// Mean time of the requests of a stretch on an unloaded node, in seconds; 0 without requests.
    pub(crate) fn cost(&self, stretch: &Range<u64>) -> f64 {
        self.mean_cost(self.between(stretch)).unwrap_or(0.0)
    }

    /// The class's name.
    pub(crate) fn name(&self) -> &str {
        &self.class.name
    }
}

/// The length of a stretch.
pub(crate) fn seconds(stretch: &Range<u64>) -> f64 {
    stretch.end.saturating_sub(stretch.start) as f64 / 1e9
}

fn sheds(attempts: &[Attempt]) -> Sheds {
    let shed: Vec<&Attempt> = attempts.iter().filter(|a| a.fate == Fate::Shed).collect();
    let mut waited: Vec<u64> = shed.iter().map(|a| a.ended.saturating_sub(a.arrived)).collect();
    waited.sort_unstable();
    Sheds {
        count: shed.len() as u64,
        share: shed.len() as f64 / attempts.len().max(1) as f64,
        wrong: shed.iter().filter(|a| a.wronged).count() as u64,
        latency_ms: ShedLatency {
            p50: percentile(&waited, 50.0) as f64 * MILLIS,
            p95: percentile(&waited, 95.0) as f64 * MILLIS,
        },
    }
}
