//! One class over a run: the requests that its guaranteed rate covers, and its results in any interval of time.
//!
//! A request belongs to the interval in which it arrives, to its end. Only throughput counts requests that
//! *end* in an interval, as in the published figures. At the borders of an interval the two differ by the
//! requests in progress. A floor is therefore kept if either of them reaches the owed number: the requests
//! that ended in the interval, or those that arrived in it and were served in time, which is before the end
//! of the interval and the grace that follows it. A class that is served completely and in time never
//! misses its floor, however its requests arrive.

use std::ops::Range;

use weirgate_engine::{ResponseTime, Statistic};
use weirgate_experiment::{Fate, RESOURCES, Record, Work};

use super::avoidable::Lacking;
use super::bucket::Bucket;
use super::pages::Pages;
use super::statistic::{in_time, mean, percentile, statistic};
use super::terms::{Terms, same_floor};
use super::verdict::{Avoidable, CeilingVerdict, FloorVerdict, Part, ResponseTimes, ShedLatency, Sheds};

/// Milliseconds per nanosecond.
const MILLIS: f64 = 1e-6;

/// A class and all its requests.
pub(crate) struct Subject<'a> {
    /// Terms of each phase.
    terms: Vec<Terms<'a>>,
    /// Two for each phase, in order: the settling part and the judged part.
    stretches: Vec<Range<u64>>,
    /// Tokens of the guaranteed rate that a request takes, for each interval.
    tokens: Vec<f64>,
    /// Attempts in order of arrival.
    attempts: Vec<Attempt>,
    /// Instants at which requests were served, in order, each with the cumulative work served.
    served: Vec<(u64, Work)>,
    /// Pages, if clients wait for pages and not for each request.
    pages: Option<Pages>,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    arrived: u64,
    ended: u64,
    fate: Fate,
    released: bool,
    /// Work that it needs of each resource.
    work: Work,
    /// Time for which it waits in service without using these resources, in seconds.
    io: f64,
    /// It arrived within the guaranteed rate.
    covered: bool,
    /// It was shed although its class had not received its guaranteed rate.
    wronged: bool,
    /// It was not in time: it is among the slowest, without which the guaranteed statistic would have held.
    late: bool,
    /// It was owed, and idle machines could have served it in time.
    avoidable: bool,
    /// It is neither owed nor served, because the end of the run came too soon after it.
    excused: bool,
}

impl Attempt {
    /// Seconds that it takes on an idle machine with this pace.
    fn alone(&self, pace: f64) -> f64 {
        self.work[0] * pace + self.work[1] + self.work[2] + self.io
    }

    fn is_in_time(&self) -> bool {
        self.fate == Fate::Served && !self.late
    }

    /// Nanoseconds from its arrival to its end, or the largest number if it was not served.
    fn took(&self) -> u64 {
        if self.fate == Fate::Served { self.ended.saturating_sub(self.arrived) } else { u64::MAX }
    }
}

/// Owed and served requests of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Account {
    /// Requests within the guaranteed rate, up to the number that the declared cost pays for.
    owed: f64,
    /// Requests that count as served.
    counted: f64,
}

impl<'a> Subject<'a> {
    /// A class with the `terms` of each phase. `stretches` follow one another, two for each phase. The mean
    /// cost of requests is taken over each of them.
    pub(crate) fn new(
        terms: Vec<Terms<'a>>,
        records: impl Iterator<Item = &'a Record>,
        stretches: &[Range<u64>],
    ) -> Subject<'a> {
        let excused = |record: &Record| {
            let phase = stretches.partition_point(|stretch| stretch.end <= record.arrived) / 2;
            let terms = terms.get(phase).or(terms.last());
            terms.is_some_and(|of| record.fate == Fate::Cut && record.arrived.saturating_add(of.grace) >= of.end)
        };
        let attempts = records.map(|record| Attempt {
            arrived: record.arrived,
            ended: record.ended,
            fate: record.fate,
            released: record.released > 0,
            work: record.work(),
            io: f64::from(record.io),
            covered: false,
            wronged: false,
            late: false,
            avoidable: false,
            excused: excused(record),
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
        let tokens = Vec::new();
        let mut subject = Subject { terms, tokens, stretches: stretches.to_vec(), attempts, served, pages: None };
        subject.tokens = (0..stretches.len()).map(|index| subject.tokens_of(index)).collect();
        subject.cover();
        subject
    }

    /// Adds pages, so that response times are those of pages.
    pub(crate) fn in_pages(self, pages: Option<Pages>) -> Subject<'a> {
        Subject { pages, ..self }
    }

    /// Notes the intervals in which workers are scarce, so that holding one is a cost.
    pub(crate) fn pay_for_workers(&mut self, short: &[bool]) {
        for index in (0..self.stretches.len()).filter(|index| short[*index]) {
            let Some(declared) = self.terms[index / 2].declared else { continue };
            let held = self.held(index / 2, &self.stretches[index]);
            self.tokens[index] = self.tokens[index].max(declared.tokens_of_worker(held));
        }
        if short.contains(&true) {
            self.cover();
        }
    }

    /// Tokens of the guaranteed rate that a request of this interval takes: its cost over the declared one.
    fn tokens_of(&self, index: usize) -> f64 {
        let (terms, stretch) = (&self.terms[index / 2], &self.stretches[index]);
        let Some(declared) = terms.declared else { return 1.0 };
        let unit = [terms.pace, 1.0, 1.0];
        let work =
            std::array::from_fn(|resource| self.mean(stretch, |attempt| attempt.work[resource]) * unit[resource]);
        declared.tokens(&work, &terms.has)
    }

    /// Mean seconds for which a request of an interval holds a worker.
    fn held(&self, phase: usize, stretch: &Range<u64>) -> f64 {
        self.mean(stretch, |attempt| attempt.work[0] * self.terms[phase].pace + attempt.io)
    }

    /// Mean of a figure over the requests of an interval, or 0 without any.
    fn mean(&self, stretch: &Range<u64>, figure: impl Fn(&Attempt) -> f64) -> f64 {
        let attempts = self.between(stretch);
        attempts.iter().map(figure).sum::<f64>() / attempts.len().max(1) as f64
    }

    /// Marks the requests that the guaranteed rate covers, and those that were shed wrongly.
    ///
    /// Coverage depends on arrivals alone: each request takes its tokens if they are there, and more than
    /// one if its class became more expensive. Whether a shed is wrong depends on the service of the class.
    /// Every admitted request takes tokens from a second bucket, which may run into debt. A shed is wrong
    /// if the tokens for it are there, and then it takes them. Sheds of an overloaded class that is served
    /// at its rate are therefore never wrong, whichever requests they hit. A class that is served less has
    /// as many wrong sheds as served requests are missing.
    fn cover(&mut self) {
        let [mut arrivals, mut served] = [Bucket::nothing(); 2];
        for phase in 0..self.terms.len() {
            [&mut arrivals, &mut served].into_iter().for_each(|bucket| self.enter(phase, bucket));
            for index in self.numbers(phase) {
                let tokens = self.tokens_at(phase, self.attempts[index].arrived);
                let attempt = &mut self.attempts[index];
                attempt.covered = arrivals.take(attempt.arrived, tokens);
                match attempt.fate {
                    Fate::Shed => attempt.wronged = served.take(attempt.arrived, tokens),
                    _ => served.charge(attempt.arrived, tokens),
                }
            }
        }
    }

    /// Prepares a bucket for a phase. It is full in the first phase, and its rate changes with the
    /// guarantee of the class.
    fn enter(&self, phase: usize, bucket: &mut Bucket) {
        let largest = self.tokens.iter().copied().fold(1.0, f64::max);
        let of = |phase: usize| self.terms[phase].bucket(largest);
        match phase.checked_sub(1) {
            None => *bucket = of(0),
            Some(before) if self.terms[before].floor == self.terms[phase].floor => {}
            Some(_) => bucket.change(self.stretches[2 * phase].start, &of(phase)),
        }
    }

    /// Numbers of the requests that arrived in a phase. The last phase includes those after its end.
    fn numbers(&self, phase: usize) -> Range<usize> {
        let first = |phase: usize| self.stretches.get(2 * phase).map_or(self.attempts.len(), |s| self.index(s.start));
        if phase == 0 { 0..first(1) } else { first(phase)..first(phase + 1) }
    }

    /// Tokens that a request of a phase takes.
    fn tokens_at(&self, phase: usize, arrived: u64) -> f64 {
        self.tokens[2 * phase + usize::from(arrived >= self.stretches[2 * phase].end)]
    }

    /// Marks the requests that were late, phase by phase: the slowest, without which the guaranteed
    /// statistic would have held. A p95 therefore lets one in twenty be late before any counts, and where a
    /// mean holds, all are in time. Requests that waited for longer than the limit and were never served
    /// are the slowest of all. Nothing is late where no gateway can keep the limit, or where limits apply
    /// to pages, which consist of several requests.
    pub(crate) fn mark_late(&mut self) {
        if self.pages.is_some() {
            return;
        }
        for number in 0..self.terms.len() {
            let phase = self.phase(number);
            let Some(promised) = self.terms[number].promised().filter(|_| !self.is_impossible(number, &phase)) else {
                continue;
            };
            let limit = promised.limit.as_nanos() as f64;
            let waited = |a: &Attempt| {
                let gave_up = a.fate == Fate::Left && !a.released || a.fate == Fate::Cut && !a.excused;
                a.fate == Fate::Served || gave_up && a.ended.saturating_sub(a.arrived) as f64 > limit
            };
            let first = self.index(phase.start);
            let attempts = self.between(&phase).iter().zip(first..);
            let mut times: Vec<(u64, usize)> =
                attempts.filter(|(a, _)| waited(a)).map(|(a, i)| (a.took(), i)).collect();
            times.sort_unstable();
            let sorted: Vec<u64> = times.iter().map(|(took, _)| *took).collect();
            let count = in_time(&sorted, promised.statistic, limit);
            times[count..].iter().for_each(|(_, index)| self.attempts[*index].late = true);
        }
    }

    /// Owed requests that were not served in time, each with its number.
    ///
    /// They are determined like wrong sheds. A request in time takes tokens and may run the bucket into
    /// debt. A request that was refused or late is lacking if the tokens for it are there, and then it
    /// takes them. If a class sends more than its rate, the lacking requests in a window of the reaction
    /// are limited to the served requests that are missing there. A burst for which the class had saved
    /// tokens need not be served at once, and service in lumps does not wrong the class.
    pub(crate) fn lacking(&self) -> Vec<(usize, Lacking)> {
        let mut served = Bucket::nothing();
        let mut found = Vec::new();
        let (mut window, mut room) = (0..0, 0.0);
        for (phase, terms) in self.terms.iter().enumerate() {
            self.enter(phase, &mut served);
            let Some(rate) = terms.floor else { continue };
            let promised = self.in_force(phase);
            let limit = terms.promised().filter(|_| !self.is_impossible(phase, &self.phase(phase)));
            for index in self.numbers(phase) {
                let attempt = &self.attempts[index];
                let tokens = self.tokens_at(phase, attempt.arrived);
                if !window.contains(&attempt.arrived) {
                    let length = terms.rules.window.as_nanos() as u64;
                    let from = attempt.arrived / length * length;
                    window = from.max(promised.start)..(from + length).min(promised.end);
                    let all = self.between(&window).iter().filter(|a| !a.excused);
                    let (covered, in_time) = all.fold((0.0, 0.0), |(covered, in_time): (f64, f64), a| {
                        (covered + f64::from(u8::from(a.covered)), in_time + f64::from(u8::from(a.is_in_time())))
                    });
                    room = covered.min((rate * seconds(&window) / tokens).max(1.0)) - in_time;
                }
                if attempt.excused || attempt.fate != Fate::Shed && !attempt.late {
                    served.charge(attempt.arrived, tokens);
                } else if served.take(attempt.arrived, tokens) && room > 0.0 {
                    room -= 1.0;
                    found.push((index, lack(terms, attempt, limit)));
                }
            }
        }
        found
    }

    /// Time for which the class has the guaranteed rate of a phase: from the start and for ever, if it never changes.
    fn in_force(&self, phase: usize) -> Range<u64> {
        let phases = same_floor(&self.terms, phase);
        let start = |phase: usize| self.stretches.get(2 * phase).map_or(u64::MAX, |stretch| stretch.start);
        (if phases.start == 0 { 0 } else { start(phases.start) })..start(phases.end)
    }

    fn phase(&self, number: usize) -> Range<u64> {
        self.stretches[2 * number].start..self.stretches[2 * number + 1].end
    }

    /// Marks request number `index` as one that idle machines could have served in time.
    pub(crate) fn mark_avoidable(&mut self, index: usize) {
        self.attempts[index].avoidable = true;
    }

    /// Number of owed requests that arrived in an interval, and of those that were refused or late while
    /// machines idled.
    pub(crate) fn avoidable(&self, stretch: &Range<u64>) -> Avoidable {
        let attempts = self.between(stretch);
        let count = |is: &dyn Fn(&Attempt) -> bool| attempts.iter().filter(|attempt| is(attempt)).count() as u64;
        Avoidable {
            owed: count(&|a| a.covered && !a.excused),
            refused: count(&|a| a.avoidable && a.fate == Fate::Shed),
            late: count(&|a| a.avoidable && a.fate != Fate::Shed),
        }
    }

    /// Whether the class has a limit below the statistic of its own requests, each alone on the fastest machine.
    fn is_impossible(&self, phase: usize, stretch: &Range<u64>) -> bool {
        let promised = self.terms[phase].promised();
        promised.is_some_and(|promised| self.alone(phase, stretch) > Some(promised.limit.as_nanos() as f64))
    }

    /// Guaranteed statistic over all requests (pages) of an interval, each alone on the fastest machine, in
    /// nanoseconds.
    fn alone(&self, phase: usize, stretch: &Range<u64>) -> Option<f64> {
        let terms = &self.terms[phase];
        let promised = terms.promised()?;
        let alone = |a: &Attempt| (a.alone(terms.best_pace) * 1e9) as u64 + terms.way;
        let mut times: Vec<u64> = match &self.pages {
            Some(pages) => pages.alone(stretch).collect(),
            None => self.between(stretch).iter().map(alone).collect(),
        };
        times.sort_unstable();
        statistic(&times, promised.statistic)
    }

    /// Number of the first request that arrived at `at` or later.
    fn index(&self, at: u64) -> usize {
        self.attempts.partition_point(|a| a.arrived < at)
    }

    /// Requests that arrived in an interval.
    fn between(&self, stretch: &Range<u64>) -> &[Attempt] {
        let first = self.index(stretch.start);
        &self.attempts[first..self.index(stretch.end).max(first)]
    }

    fn account(&self, phase: usize, stretch: &Range<u64>) -> Account {
        let attempts = self.between(stretch);
        let covered = attempts.iter().filter(|a| a.covered && !a.excused).count();
        let last = stretch.end.saturating_add(self.terms[phase].grace);
        let in_time = attempts.iter().filter(|a| a.fate == Fate::Served && a.ended <= last).count();
        let ended = self.served_in(stretch).len();
        Account { owed: covered as f64, counted: ended.max(in_time) as f64 }
    }

    fn served_in(&self, stretch: &Range<u64>) -> &[(u64, Work)] {
        let index = |at: u64| self.served.partition_point(|(ended, _)| *ended < at);
        &self.served[index(stretch.start)..index(stretch.end).max(index(stretch.start))]
    }

    /// Sorted response times of the served requests, or complete pages, that arrived in an interval.
    fn response_times(&self, stretch: &Range<u64>) -> Vec<u64> {
        let served = self.between(stretch).iter().filter(|a| a.fate == Fate::Served);
        let mut times: Vec<u64> = match &self.pages {
            Some(pages) => pages.times(stretch).map(|(_, took)| took).collect(),
            None => served.map(Attempt::took).collect(),
        };
        times.sort_unstable();
        times
    }

    /// All reported results of an interval of a phase.
    pub(crate) fn part(&self, phase: usize, stretch: &Range<u64>) -> Part {
        let terms = &self.terms[phase];
        let attempts = self.between(stretch);
        let seconds = seconds(stretch);
        let per_second = |n: f64| if seconds > 0.0 { n / seconds } else { 0.0 };
        let count = |fate: Fate| attempts.iter().filter(|a| a.fate == fate).count() as u64;
        let times = self.response_times(stretch);
        let millis = |percent: f64| percentile(&times, percent).unwrap_or(0) as f64 * MILLIS;
        let account = self.account(phase, stretch);
        let promised = terms.promised();
        let in_time = promised
            .map_or(times.len(), |promised| in_time(&times, promised.statistic, promised.limit.as_nanos() as f64));
        Part {
            offered_per_s: per_second(attempts.len() as f64),
            served_per_s: per_second(self.served_in(stretch).len() as f64),
            in_time_per_s: per_second(in_time as f64),
            floor: terms.floor.map(|rate| FloorVerdict {
                guaranteed_per_s: rate,
                owed_per_s: per_second(account.owed),
                counted_per_s: per_second(account.counted),
                ok: account.counted >= terms.rules.enough * account.owed,
            }),
            ceiling: promised.map(|promised| {
                let value = statistic(&times, promised.statistic);
                let alone = self.alone(phase, stretch).filter(|alone| *alone > promised.limit.as_nanos() as f64);
                CeilingVerdict {
                    statistic: promised.statistic.to_string(),
                    limit_ms: promised.limit.as_secs_f64() * 1e3,
                    value_ms: value.map(|v| v * MILLIS),
                    ok: value.is_none_or(|v| v <= promised.limit.as_nanos() as f64),
                    impossible_ms: alone.map(|alone| alone * MILLIS),
                }
            }),
            avoidable: self.avoidable(stretch),
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

    /// Seconds from the start of a phase until the guarantees hold in every later window. `None` if they do
    /// not hold in the last one. Windows of two seconds follow one another from the start of the phase. The
    /// rest at its end is too short to be judged.
    ///
    /// The requirements for a window are lower than for a phase. A window is owed at most two seconds of
    /// the rate: a burst of a whole second for which a class may have saved tokens need not be served in
    /// the same two seconds. Nine in ten are enough, and one request is excused at each border: one that is
    /// missing, and the slowest one. A limit that is impossible does not count.
    pub(crate) fn reaction(&self, phase: usize) -> Option<f64> {
        let whole = self.phase(phase);
        let length = self.terms[phase].rules.window.as_nanos() as u64;
        let windows = whole.end.saturating_sub(whole.start) / length;
        let is_impossible = self.is_impossible(phase, &whole);
        let bad = (0..windows).rev().find(|i| {
            let from = whole.start + i * length;
            !self.held_in(phase, &(from..from + length), is_impossible)
        });
        match bad {
            None => Some(0.0),
            Some(last) if last + 1 == windows => None,
            Some(index) => Some(seconds(&(0..(index + 1) * length))),
        }
    }

    fn held_in(&self, phase: usize, window: &Range<u64>, is_impossible: bool) -> bool {
        let terms = &self.terms[phase];
        let floor = terms.floor.is_none_or(|rate| {
            let account = self.account(phase, window);
            let stretch = self.stretches.iter().position(|stretch| window.start < stretch.end);
            let tokens = stretch.map_or(1.0, |stretch| self.tokens[stretch]);
            let owed = account.owed.min(rate * seconds(window) / tokens);
            account.counted + 1.0 >= terms.rules.enough_in_a_window * owed
        });
        let ceiling = terms.promised().is_none_or(|promised| {
            let mut times = self.response_times(window);
            times.pop();
            is_impossible || statistic(&times, promised.statistic).is_none_or(|v| v <= promised.limit.as_nanos() as f64)
        });
        floor && ceiling
    }

    /// Work of requests that were served in an interval.
    pub(crate) fn served_work(&self, stretch: &Range<u64>) -> Work {
        let up_to = |at: u64| match self.served.partition_point(|(ended, _)| *ended < at) {
            0 => [0.0; RESOURCES],
            n => self.served[n - 1].1,
        };
        let (before, after) = (up_to(stretch.start), up_to(stretch.end.max(stretch.start)));
        std::array::from_fn(|resource| after[resource] - before[resource])
    }

    /// Work that arrived in an interval of a phase, and the owed fraction of it.
    pub(crate) fn asked_work(&self, phase: usize, stretch: &Range<u64>) -> (Work, f64) {
        let attempts = self.between(stretch);
        let offered = std::array::from_fn(|resource| attempts.iter().map(|a| a.work[resource]).sum());
        let owed = if attempts.is_empty() { 0.0 } else { self.account(phase, stretch).owed / attempts.len() as f64 };
        (offered, if self.terms[phase].floor.is_some() { owed } else { 0.0 })
    }

    /// Worker-seconds held by the owed requests of an interval of a phase.
    pub(crate) fn owed_workers(&self, phase: usize, stretch: &Range<u64>) -> f64 {
        if self.terms[phase].floor.is_none() {
            return 0.0;
        }
        self.account(phase, stretch).owed * self.held(phase, stretch)
    }

    /// Mean time of the requests of an interval of a phase on an unloaded node, in seconds. 0 without requests.
    pub(crate) fn cost(&self, phase: usize, stretch: &Range<u64>) -> f64 {
        self.mean(stretch, |attempt| attempt.alone(self.terms[phase].pace))
    }

    /// Whether it has a guaranteed throughput in any phase.
    pub(crate) fn has_floor(&self) -> bool {
        self.terms.iter().any(|terms| terms.floor.is_some())
    }

    pub(crate) fn name(&self) -> &str {
        self.terms.first().map_or("", |terms| &terms.class.name)
    }
}

/// The time during which a request could have been served within a limit, and its work.
fn lack(terms: &Terms<'_>, attempt: &Attempt, limit: Option<ResponseTime>) -> Lacking {
    let alone = attempt.alone(terms.pace);
    let own = (alone * 1e9) as u64;
    let time = match limit {
        // As long as the bucket covers it.
        None => terms.rules.burst.as_nanos() as u64 + own,
        Some(promised) => {
            let limit = (promised.limit.as_nanos() as u64).saturating_sub(terms.way);
            // Single requests may take longer than a mean.
            if promised.statistic == Statistic::Average { limit.max(own) } else { limit }
        }
    };
    let [cpu, disk, link] = attempt.work;
    Lacking {
        pool: terms.class.pool,
        time: (attempt.arrived, attempt.arrived.saturating_add(time)),
        takes: [cpu, disk, link, cpu * terms.pace + attempt.io],
        alone,
    }
}

/// Length of an interval in seconds.
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
            p50: percentile(&waited, 50.0).unwrap_or(0) as f64 * MILLIS,
            p95: percentile(&waited, 95.0).unwrap_or(0) as f64 * MILLIS,
        },
    }
}
