//! Stage *observe*: measurements of a class, compared with its guarantee.
//!
//! Each class has counts since the start, and a sliding window of ten seconds in five slots of two. The
//! window is long compared with a request and short compared with an operator's patience. (Quorum Sec. 3
//! wants the time frame of a guarantee to be substantially longer than one request, and its figures use
//! two-second points.) Limits are checked by exact counts (served above the limit), and so are throughputs
//! (see `ledger`). The percentiles shown are interpolated from a histogram with eight buckets per doubling,
//! with an error of about 3 %.

use core::time::Duration;

use crate::demand::RESOURCES;
use crate::learned::Answered;
use crate::ledger::{Ledger, SECOND, Terms};
use crate::policy::{Guarantee, Statistic};
use crate::request::ShedReason;
use crate::snapshot::Achieved;
use crate::time::{Time, nanos};

/// Slots of the sliding window.
const SLOTS: usize = 5;
/// Length of a slot in nanoseconds.
const SLOT: u64 = 2_000_000_000;
/// Buckets per doubling, as a power of two.
const SUB_BITS: u32 = 3;
/// Times below 2¹⁶ ns (66 µs) share the first bucket: no reply over a network is faster.
const FIRST_BIT: u32 = 16;
/// Times from 2³⁸ ns (275 s) on share the last bucket.
const LAST_BIT: u32 = 38;
/// Buckets of a histogram.
const BUCKETS: usize = ((LAST_BIT - FIRST_BIT) << SUB_BITS) as usize + 2;

/// Completions in one sample of the service time. Their mean varies by about 12 % if times are exponential.
const SAMPLE: u32 = 64;

/// Own samples after which a service time that another engine has learned no longer counts: about a thousand answers.
/// Costs may have changed between the processes, and a learned service time never rises.
const OWN_SAMPLES: u32 = 16;

/// Factor by which the service time of another engine may be shorter than the own samples. Contention beyond that does
/// not last.
const MOST_TOO_SHORT: f64 = 8.0;

/// The way back from a service time that was learned in another engine.
#[derive(Clone, Copy, Debug)]
struct Adopted {
    /// Own samples so far, and the smallest of their means in seconds.
    samples: u32,
    own: f64,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) offered: u64,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) retried: u64,
    pub(crate) shed: [u64; ShedReason::ALL.len()],
    /// Arrivals with an unknown route.
    pub(crate) unknown: u64,
    /// Cost of good answers per resource, in billionths of a node-second.
    pub(crate) used: [u64; RESOURCES],
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.offered += other.offered;
        self.served += other.served;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.retried += other.retried;
        self.unknown += other.unknown;
        for (mine, theirs) in self.used.iter_mut().zip(other.used) {
            *mine += theirs;
        }
        for (mine, theirs) in self.shed.iter_mut().zip(other.shed) {
            *mine += theirs;
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    offered: u32,
    served: u32,
    shed: u32,
    over: u32,
    sum: f64,
}

/// Measurements of one class.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) counts: Counts,
    since: Time,
    slot: u64,
    slots: [Slot; SLOTS],
    /// Made at the first completion, so that idle tenants need no histogram.
    histogram: Option<Box<[[u32; BUCKETS]; SLOTS]>>,
    learned: Option<f64>,
    /// Present while `learned` comes from another engine.
    adopted: Option<Adopted>,
    sample_sum: f64,
    sample_count: u32,
    /// Account of its throughput guarantee. Made at the first arrival, so that idle tenants need none.
    ledger: Option<Box<Ledger>>,
    /// Since when the class has had requests in flight and no good answer. Meaningless while none is in
    /// flight.
    silent_since: Time,
    /// Time of the last good answer, here or in the engine that this one has learned from.
    pub(crate) answered: Answered,
    /// Made when a request passes that would have been refused.
    pub(crate) would: Option<Box<WouldShed>>,
}

/// Requests that passed, and would have been refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct WouldShed {
    /// Counts since the start.
    pub(crate) shed: [u64; ShedReason::ALL.len()],
    /// Slots of the sliding window with their counts.
    slots: [(u64, u32); SLOTS],
}

impl Observed {
    pub(crate) fn new(now: Time) -> Observed {
        Observed {
            counts: Counts::default(),
            since: now,
            slot: now.as_nanos() / SLOT,
            slots: [Slot::default(); SLOTS],
            histogram: None,
            learned: None,
            adopted: None,
            sample_sum: 0.0,
            sample_count: 0,
            ledger: None,
            silent_since: now,
            answered: Answered::NEVER,
            would: None,
        }
    }

    /// Empties the slots that have left the window and returns the slot of `now`.
    fn current(&mut self, now: Time) -> usize {
        let slot = now.as_nanos() / SLOT;
        let passed = slot.saturating_sub(self.slot).min(SLOTS as u64);
        for n in 0..passed {
            let index = ((slot - n) % SLOTS as u64) as usize;
            self.slots[index] = Slot::default();
            if let Some(histogram) = &mut self.histogram {
                histogram[index].fill(0);
            }
        }
        self.slot = self.slot.max(slot);
        (self.slot % SLOTS as u64) as usize
    }

    /// Counts an arrival and returns whether it is owed an answer. `service` is the class's service time in
    /// seconds.
    pub(crate) fn offered(&mut self, now: Time, guarantee: &Guarantee, service: Option<f64>) -> bool {
        self.counts.offered += 1;
        let slot = self.current(now);
        self.slots[slot].offered += 1;
        let Some(rate) = guarantee.throughput else { return false };
        let terms = Terms::of(guarantee, service);
        if !self.ledger.as_ref().is_some_and(|ledger| ledger.suits(terms)) {
            self.ledger = None;
        }
        self.ledger.get_or_insert_with(|| Box::new(Ledger::new(now, terms))).offered(now, rate)
    }

    /// The guaranteed rate changes from the first to the second one.
    pub(crate) fn rate_changes(&mut self, now: Time, rates: (f64, f64)) {
        if let Some(ledger) = &mut self.ledger {
            ledger.rate_changes(now, rates);
        }
    }

    /// Records a release. `alone` says that no other request of the class is in flight.
    #[inline]
    pub(crate) fn released(&mut self, now: Time, alone: bool) {
        if alone {
            self.silent_since = now;
        }
    }

    /// Records that the client left a request that was owed an answer.
    pub(crate) fn left(&mut self, now: Time, arrived: Time, terms: Terms) {
        if let Some(ledger) = self.ledger.as_mut().filter(|_| now.since(arrived) <= terms.limit) {
            ledger.left(now, arrived);
        }
    }

    /// Whether no answer came for longer than the response-time limit of the class, and for at least a
    /// second. Call it only while some of its requests are in flight.
    pub(crate) fn is_silent(&self, now: Time, terms: Terms) -> bool {
        now.since(self.silent_since) > terms.limit.max(SECOND)
    }

    /// Whether the class sends no more than its guarantee.
    pub(crate) fn asks_within(&self, now: Time) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.asks_within(now))
    }

    pub(crate) fn shed(&mut self, now: Time, reason: ShedReason) {
        self.counts.shed[reason.index()] += 1;
        let slot = self.current(now);
        self.slots[slot].shed += 1;
    }

    /// Counts a request that passed, and would have been refused.
    pub(crate) fn would_shed(&mut self, now: Time, reason: ShedReason) {
        let would = self.would.get_or_insert_default();
        would.shed[reason.index()] += 1;
        let slot = now.as_nanos() / SLOT;
        let counted = &mut would.slots[(slot % SLOTS as u64) as usize];
        *counted = if counted.0 == slot { (slot, counted.1 + 1) } else { (slot, 1) };
    }

    /// Adds the counts of a class that is gone.
    pub(crate) fn add_would(&mut self, other: Option<&WouldShed>) {
        let Some(other) = other else { return };
        let would = self.would.get_or_insert_default();
        would.shed.iter_mut().zip(other.shed).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Counts a good answer. `response` is the time from arrival to last byte.
    pub(crate) fn served(&mut self, now: Time, response: Duration, guarantee: &Guarantee) {
        self.counts.served += 1;
        let index = self.current(now);
        let slot = &mut self.slots[index];
        slot.served += 1;
        slot.sum += response.as_secs_f64();
        slot.over += u32::from(guarantee.response_time.is_some_and(|rt| response > rt.limit));
        let histogram = self.histogram.get_or_insert_with(|| Box::new([[0; BUCKETS]; SLOTS]));
        histogram[index][bucket(nanos(response))] += 1;
        self.silent_since = now;
        self.answered = Answered::at(now);
        if let Some(ledger) = &mut self.ledger {
            ledger.answered(now, Time::from_nanos(now.as_nanos().saturating_sub(nanos(response))));
        }
    }

    /// Adds the compute time of a good answer. The learned service time is the smallest mean of [`SAMPLE`]
    /// consecutive completions: the cost of a request on a quiet node. It only falls, so that no class gets
    /// a larger share by becoming more expensive. Returns true if it changed.
    pub(crate) fn learn(&mut self, compute: f64) -> bool {
        self.sample_sum += compute;
        self.sample_count += 1;
        let mean = self.sample_sum / f64::from(self.sample_count);
        let first = !self.has_learned();
        if self.sample_count >= SAMPLE {
            self.sample_sum = 0.0;
            self.sample_count = 0;
        } else if !first {
            return false;
        }
        if let Some(adopted) = &mut self.adopted {
            adopted.own = adopted.own.min(mean);
            adopted.samples += 1;
            let own = adopted.own;
            if adopted.samples >= OWN_SAMPLES {
                (self.learned, self.adopted) = (Some(own), None);
                return true;
            }
            let known = self.learned.unwrap_or(own);
            self.learned = Some(known.clamp(own / MOST_TOO_SHORT, own));
            return self.learned != Some(known);
        }
        // Until the first sample is complete, its running mean is used.
        if first || self.learned.is_none_or(|known| mean < known) {
            self.learned = Some(mean);
            return true;
        }
        false
    }

    /// Takes over the service time that another engine has learned, in seconds.
    pub(crate) fn adopt_service_time(&mut self, seconds: f64) {
        self.learned = Some(seconds);
        self.adopted = Some(Adopted { samples: 0, own: f64::INFINITY });
    }

    /// Learned service time in seconds.
    pub(crate) fn learned(&self) -> Option<f64> {
        self.learned
    }

    /// Whether the learned service time covers a whole sample. Until then a few slow answers make it long.
    pub(crate) fn has_learned(&self) -> bool {
        self.adopted.is_some() || self.counts.served >= u64::from(SAMPLE)
    }

    /// Measurements over the window that ends at `now`. `service` is the class's service time in seconds.
    pub(crate) fn achieved(&self, now: Time, guarantee: &Guarantee, service: Option<f64>) -> Achieved {
        let newest = now.as_nanos() / SLOT;
        let live = |slot: u64| slot <= self.slot && slot + SLOTS as u64 > newest;
        let oldest = newest.saturating_sub(SLOTS as u64 - 1);
        let begin = Time::from_nanos(oldest * SLOT).max(self.since);
        let seconds = now.since(begin).as_secs_f64();
        let mut total = Slot::default();
        let mut merged = [0u32; BUCKETS];
        for slot in oldest..=newest {
            if !live(slot) {
                continue;
            }
            let index = (slot % SLOTS as u64) as usize;
            let s = self.slots[index];
            total.offered += s.offered;
            total.served += s.served;
            total.shed += s.shed;
            total.over += s.over;
            total.sum += s.sum;
            if let Some(histogram) = &self.histogram {
                for (sum, n) in merged.iter_mut().zip(histogram[index].iter()) {
                    *sum += n;
                }
            }
        }
        let would = self.would.iter().flat_map(|would| &would.slots).filter(|(slot, _)| *slot >= oldest);
        let rate = |n: u32| if seconds > 0.0 { f64::from(n) / seconds } else { 0.0 };
        let mean = (total.served > 0).then(|| Duration::from_secs_f64(total.sum / f64::from(total.served)));
        let percentile = |p: f64| percentile(&merged, total.served, p);
        let limited = guarantee.response_time.and_then(|rt| {
            let value = match rt.statistic {
                Statistic::Average => mean?,
                Statistic::Percentile(p) => percentile(p)?,
            };
            Some((rt.statistic, value))
        });
        let response_time_held = guarantee.response_time.filter(|_| total.served > 0).map(|rt| match rt.statistic {
            Statistic::Average => mean.is_some_and(|m| m <= rt.limit),
            Statistic::Percentile(p) => f64::from(total.over) <= f64::from(total.served) * (1.0 - p / 100.0) + 1e-9,
        });
        let terms = Terms::of(guarantee, service);
        let throughput_held =
            guarantee.throughput.map(|_| self.ledger.as_ref().is_none_or(|ledger| ledger.is_held(now, terms)));
        Achieved {
            seconds,
            offered_per_s: rate(total.offered),
            served_per_s: rate(total.served),
            shed_per_s: rate(total.shed),
            would_shed_per_s: rate(would.map(|(_, count)| count).sum()),
            mean,
            p50: percentile(50.0),
            p95: percentile(95.0),
            p99: percentile(99.0),
            limited,
            throughput_held,
            response_time_held,
        }
    }
}

/// The bucket of a time in nanoseconds.
fn bucket(nanos: u64) -> usize {
    if nanos < 1 << FIRST_BIT {
        return 0;
    }
    if nanos >= 1 << LAST_BIT {
        return BUCKETS - 1;
    }
    let bit = 63 - nanos.leading_zeros();
    let sub = (nanos >> (bit - SUB_BITS)) as usize & ((1 << SUB_BITS) - 1);
    1 + (((bit - FIRST_BIT) << SUB_BITS) as usize | sub)
}

/// Lower and upper border of a bucket in nanoseconds.
fn borders(bucket: usize) -> (u64, u64) {
    if bucket == 0 {
        return (0, 1 << FIRST_BIT);
    }
    if bucket == BUCKETS - 1 {
        return (1 << LAST_BIT, 1 << LAST_BIT);
    }
    let bit = FIRST_BIT + ((bucket - 1) >> SUB_BITS) as u32;
    let sub = ((bucket - 1) & ((1 << SUB_BITS) - 1)) as u64;
    let width = 1u64 << (bit - SUB_BITS);
    let low = (1u64 << bit) + sub * width;
    (low, low + width)
}

/// The `p`-th percentile, interpolated within its bucket.
fn percentile(buckets: &[u32; BUCKETS], count: u32, p: f64) -> Option<Duration> {
    if count == 0 {
        return None;
    }
    let rank = f64::from(count) * p / 100.0;
    let mut below = 0.0;
    for (index, n) in buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
        let n = f64::from(*n);
        if below + n >= rank {
            let (low, high) = borders(index);
            let inside = ((rank - below) / n).clamp(0.0, 1.0);
            return Some(Duration::from_nanos(low + ((high - low) as f64 * inside) as u64));
        }
        below += n;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ResponseTime;

    #[test]
    fn buckets_meet_without_gaps() {
        for index in 1..BUCKETS - 1 {
            let (low, high) = borders(index);
            assert_eq!(bucket(low), index);
            assert_eq!(bucket(high - 1), index);
            assert_eq!(borders(index + 1).0, high);
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_close_to_exact_ones() {
        let mut random = crate::random::Random::new(3);
        let mut observed = Observed::new(Time::ZERO);
        let mut exact: Vec<f64> = (0..50_000).map(|_| 0.004 - 0.05 * (1.0 - random.unit()).ln()).collect();
        for t in &exact {
            observed.served(Time::from_millis(500), Duration::from_secs_f64(*t), &Guarantee::default());
        }
        exact.sort_by(f64::total_cmp);
        let got = observed.achieved(Time::from_millis(1000), &Guarantee::default(), None);
        for (value, p) in [(got.p50, 0.50), (got.p95, 0.95), (got.p99, 0.99)] {
            let (value, exact) = (value.unwrap().as_secs_f64(), exact[(50_000.0 * p) as usize]);
            assert!((value / exact - 1.0).abs() < 0.03, "p{p}: {value} instead of {exact}");
        }
        assert!((got.served_per_s - 50_000.0).abs() < 1.0);
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let rt = ResponseTime { statistic: Statistic::Percentile(95.0), limit: Duration::from_millis(100) };
        let guarantee = Guarantee { throughput: Some(10.0), response_time: Some(rt) };
        let mut observed = Observed::new(Time::ZERO);
        for _ in 0..100 {
            observed.offered(Time::from_millis(100), &guarantee, None);
            observed.served(Time::from_millis(200), Duration::from_millis(300), &guarantee);
        }
        let then = observed.achieved(Time::from_millis(9_000), &guarantee, None);
        assert_eq!((then.response_time_held, then.throughput_held), (Some(false), Some(true)));
        let later = observed.achieved(Time::from_millis(60_000), &guarantee, None);
        assert_eq!((later.served_per_s, later.response_time_held, later.p95), (0.0, None, None));
        observed.offered(Time::from_millis(60_000), &guarantee, None);
        observed.served(Time::from_millis(60_100), Duration::from_millis(50), &guarantee);
        let last = observed.achieved(Time::from_millis(60_100), &guarantee, None);
        assert_eq!(last.response_time_held, Some(true));
    }

    #[test]
    fn a_service_time_of_another_engine_counts_for_a_thousand_answers() {
        let learn = |adopted: f64, compute: f64| {
            let mut observed = Observed::new(Time::ZERO);
            observed.adopt_service_time(adopted);
            assert!(observed.has_learned());
            let mut known = vec![adopted];
            for _ in 0..OWN_SAMPLES * SAMPLE {
                observed.learn(compute);
                known.push(observed.learned().unwrap());
            }
            known
        };
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        let slower = learn(0.010, 0.030);
        assert!(slower[..1023].iter().all(|s| close(*s, 0.010)) && close(slower[1024], 0.030), "{slower:?}");
        let faster = learn(0.010, 0.004);
        assert!(close(faster[63], 0.010) && close(faster[64], 0.004) && close(faster[1024], 0.004));
        let wrong = learn(1e-9, 0.008);
        assert!(close(wrong[64], 0.001) && close(wrong[1024], 0.008));
    }

    #[test]
    fn the_learned_service_time_only_falls() {
        let mut observed = Observed::new(Time::ZERO);
        let mut feed = |seconds: f64, n: usize| {
            for _ in 0..n {
                observed.counts.served += 1;
                observed.learn(seconds);
            }
            observed.learned().unwrap()
        };
        assert!((feed(0.050, 1) - 0.050).abs() < 1e-12);
        assert!((feed(0.008, 200) - 0.008).abs() < 1e-12);
        assert!((feed(0.040, 200) - 0.008).abs() < 1e-12);
        assert!((feed(0.004, 200) - 0.004).abs() < 1e-12);
    }
}
