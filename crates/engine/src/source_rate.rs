//! Stage *admit*: the rate of requests that a class, and one source of a class, may send.
//!
//! Source: the generic cell rate algorithm (ITU-T I.371, Annex A): a token bucket that keeps one time.
//! The bucket holds the requests of one second, at least one. A request beyond it is shed with the time after which
//! the next one fits. It counts for no guarantee, because the operator does not want it.
//!
//! The table is bounded. A source with a full bucket is as good as unknown. Sources are kept in two tables. When the
//! younger one has too many, or when every bucket is full, it becomes the older one, and the older one is dropped. A
//! flood of more sources than fit makes the limit laxer and costs no more memory. A change of the policy forgets all
//! sources.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::request::ClassId;
use crate::time::Time;

/// Number of sources in each of the two tables: about 5 MB in all.
const MAX_SOURCES: usize = 65_536;

/// Time in which an empty bucket becomes full, if it holds more than one request.
const BURST: u64 = 1_000_000_000;

/// A bucket of tokens: the time at which it is full again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket(Time);

impl Bucket {
    /// A bucket that is full.
    pub(crate) const FULL: Bucket = Bucket(Time::ZERO);

    /// Takes a token. Returns the time until there is one if there is none now. `rate` is the maximum number of
    /// requests a second.
    pub(crate) fn take(&mut self, now: Time, rate: f64) -> Option<Duration> {
        let interval = (1e9 / rate).clamp(1.0, 1e18) as u64;
        let burst = BURST.saturating_sub(interval);
        let full = self.0.max(now);
        let room = Time::from_nanos(full.as_nanos().saturating_sub(burst));
        if room > now {
            return Some(room.since(now));
        }
        self.0 = Time::from_nanos(full.as_nanos().saturating_add(interval));
        None
    }

    /// Time until it is full.
    pub(crate) fn full_in(self, now: Time) -> Duration {
        self.0.since(now)
    }

    /// Makes it full in `span` at the earliest, which is at most the time that a bucket needs to fill.
    pub(crate) fn delay(&mut self, now: Time, span: Duration) {
        self.0 = self.0.max(now + span.min(Duration::from_nanos(BURST)));
    }
}

/// Buckets of sources by class and hash.
type Buckets = BTreeMap<(ClassId, u64), Bucket>;

/// The buckets of all sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceRates {
    young: Buckets,
    old: Buckets,
    /// Time at which every bucket is full.
    all_full: Time,
}

impl SourceRates {
    /// Takes a token of a source. Returns the time until there is one if there is none now. `rate` is the
    /// maximum number of requests a second.
    pub(crate) fn take(&mut self, now: Time, class: ClassId, flow: u64, rate: f64) -> Option<Duration> {
        if now >= self.all_full || self.young.len() >= MAX_SOURCES {
            self.old = core::mem::take(&mut self.young);
        }
        let key = (class, flow);
        let mut bucket = self.young.get(&key).or_else(|| self.old.get(&key)).copied().unwrap_or(Bucket::FULL);
        let wait = bucket.take(now, rate);
        if wait.is_none() {
            self.young.insert(key, bucket);
            self.all_full = self.all_full.max(bucket.0);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_source_has_its_rate_and_a_burst() {
        let mut rates = SourceRates::default();
        let mut take = |ms, flow, rate| rates.take(Time::from_millis(ms), ClassId(0), flow, rate);
        for _ in 0..10 {
            assert_eq!(take(5000, 1, 10.0), None);
        }
        assert_eq!(take(5000, 1, 10.0), Some(Duration::from_millis(100)));
        assert_eq!(take(5000, 2, 10.0), None, "another source has a bucket of its own");
        assert_eq!(take(5099, 1, 10.0), Some(Duration::from_millis(1)));
        assert_eq!(take(5100, 1, 10.0), None);
        // A rate below one a second has a bucket of one request.
        assert_eq!(take(5100, 3, 0.1), None);
        assert_eq!(take(9100, 3, 0.1), Some(Duration::from_secs(6)));
        assert_eq!(take(15_100, 3, 0.1), None);
    }

    /// Compares the tables with one bucket of tokens per source that is never forgotten.
    #[test]
    fn agrees_with_buckets_that_are_kept_for_ever() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut rates = SourceRates::default();
            let rate = [0.5, 3.0, 40.0][seed as usize % 3];
            let mut buckets: BTreeMap<u64, (f64, u64)> = BTreeMap::new();
            let (mut now, mut refused) = (0u64, 0);
            for _ in 0..20_000 {
                now += random.below(2 * (1e9 / rate / 7.0) as u64) + 1;
                let flow = random.below(5);
                let burst = f64::max(rate, 1.0);
                let (level, at) = buckets.entry(flow).or_insert((burst, now));
                *level = (*level + (now - *at) as f64 * rate / 1e9).min(burst);
                *at = now;
                let taken = rates.take(Time::from_nanos(now), ClassId(1), flow, rate).is_none();
                if (*level - 1.0).abs() > 1e-6 {
                    assert_eq!(taken, *level >= 1.0, "seed {seed}: {level}");
                }
                *level -= f64::from(u8::from(taken));
                refused += u32::from(!taken);
            }
            assert!(refused > 1000, "seed {seed}: {refused}");
        }
    }

    #[test]
    fn a_flood_of_sources_costs_no_more_memory() {
        let mut rates = SourceRates::default();
        for flow in 0..300_000 {
            assert_eq!(rates.take(Time::ZERO, ClassId(0), flow, 1.0), None);
            assert!(rates.young.len() <= MAX_SOURCES && rates.old.len() <= MAX_SOURCES);
        }
    }
}
