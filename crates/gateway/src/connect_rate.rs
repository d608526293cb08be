//! The rate of new connections of each source: a token bucket by key.
//!
//! Source: the *virtual scheduling* form of the generic cell rate algorithm (ITU-T I.371, Annex A): the state of a
//! bucket is the time at which it will be full. A bucket that is full needs no state. The state of the others is in two
//! generations: a source that connects enters the newer one, and the older one is forgotten once the buckets that were
//! not used since are full. Departure: a generation also ends when it has as many sources as memory is meant for. Then
//! the sources that have not connected for longest begin anew.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use weirgate_engine::Time;

/// A bucket holds the connections of this time. A browser opens six connections at once, and rules for HAProxy commonly
/// count connections over 3 s or 10 s (`conn_rate`).
const BURST: Duration = Duration::from_secs(10);

/// Maximum number of sources in a generation. Without growing further, a table holds seven eighths of 65,536, and two
/// such tables have 2 MiB.
const GENERATION: usize = 57_344;

/// The buckets of all sources.
#[derive(Debug, Default)]
pub(crate) struct ConnectRates(Mutex<Generations>);

/// Times at which the buckets of sources will be full.
#[derive(Debug)]
struct Generations {
    newer: HashMap<u64, Time>,
    older: HashMap<u64, Time>,
    /// Time at which the newer generation began.
    since: Time,
}

impl Default for Generations {
    fn default() -> Generations {
        Generations { newer: HashMap::new(), older: HashMap::new(), since: Time::ZERO }
    }
}

impl ConnectRates {
    /// Takes one connection out of the bucket of `key`, into which one comes every `interval`. Returns whether there
    /// was one.
    pub(crate) fn take(&self, key: u64, interval: Duration, now: Time) -> bool {
        // At least one connection fits.
        let size = BURST.max(interval);
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Generations { newer, older, since } = &mut *generations;
        if newer.len() >= GENERATION || now.since(*since) >= size {
            *older = std::mem::take(newer);
            *since = now;
        }
        let full = newer.get(&key).or_else(|| older.get(&key)).map_or(now, |full| now.max(*full));
        let fuller = full + interval;
        let taken = fuller.since(now) <= size;
        // One that is refused is remembered as well, so that others do not push it out.
        newer.insert(key, if taken { fuller } else { full });
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// A bucket by its level, in nanoseconds of refilling.
    struct Bucket {
        level: u128,
        size: u128,
        last: Time,
    }

    impl Bucket {
        fn take(&mut self, interval: Duration, now: Time) -> bool {
            self.level = self.size.min(self.level + now.since(self.last).as_nanos());
            self.last = now;
            let taken = self.level >= interval.as_nanos();
            if taken {
                self.level -= interval.as_nanos();
            }
            taken
        }
    }

    proptest! {
        #[test]
        fn it_is_a_token_bucket_for_each_source(
            interval in 1u64..30_000,
            steps in proptest::collection::vec((0u64..4, 0u64..20_000, 1u32..12), 1..100),
        ) {
            let (rates, interval) = (ConnectRates::default(), Duration::from_millis(interval));
            let size = BURST.max(interval).as_nanos();
            let mut buckets: Vec<_> = (0..4).map(|_| Bucket { level: size, size, last: Time::ZERO }).collect();
            let mut now = Time::ZERO;
            for (key, pause, attempts) in steps {
                now = now + Duration::from_millis(pause);
                for _ in 0..attempts {
                    let expected = buckets[usize::try_from(key).unwrap()].take(interval, now);
                    prop_assert_eq!(rates.take(key, interval, now), expected, "{:?}", now);
                }
            }
        }
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let (rates, interval) = (ConnectRates::default(), Duration::from_millis(500));
        let taken = |now| (0..100).filter(|_| rates.take(1, interval, at(now))).count();
        assert_eq!([taken(0), taken(499), taken(500), taken(2000), taken(60_000)], [20, 0, 1, 3, 20]);
        assert!(rates.take(2, interval, at(60_000)), "another source");
        // Slower than one in the time of a burst.
        let slow = Duration::from_secs(60);
        let taken = [0, 59_999, 60_000].map(|now| rates.take(3, slow, at(100_000 + now)));
        assert_eq!(taken, [true, false, true]);
    }

    #[test]
    fn threads_whose_clocks_differ_give_nothing_away() {
        let rates = ConnectRates::default();
        let taken = (0..100).filter(|n| rates.take(1, Duration::from_secs(1), at(1000 - n % 2))).count();
        assert_eq!(taken, 10);
    }

    #[test]
    fn d4_a_million_sources_take_bounded_memory_and_hide_no_other() {
        let (rates, interval) = (ConnectRates::default(), Duration::from_secs(1));
        let mut greedy = 0;
        for key in 0..1_000_000 {
            assert!(rates.take(key, interval, at(1)));
            if key % 1000 == 0 {
                greedy += u32::from(rates.take(u64::MAX, interval, at(1)));
            }
        }
        assert_eq!(greedy, 10, "it is remembered");
        let Generations { newer, older, .. } = &*rates.0.lock().unwrap();
        assert!(newer.len() <= GENERATION && older.len() <= GENERATION);
        assert!([newer, older].iter().all(|table| table.capacity() <= GENERATION));
    }

    #[test]
    fn sources_are_forgotten_when_their_buckets_are_full() {
        let (rates, interval) = (ConnectRates::default(), Duration::from_secs(1));
        (0..1000).for_each(|key| assert!(rates.take(key, interval, at(0))));
        assert!([10_000, 20_000].iter().all(|now| rates.take(5000, interval, at(*now))));
        let Generations { newer, older, .. } = &*rates.0.lock().unwrap();
        assert_eq!((newer.len(), older.len()), (1, 1));
    }
}
