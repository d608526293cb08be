//! The buckets of every histogram: those of a fixed scale, and one that ends at each limit of the policy.
//!
//! A bucket that ends exactly at a limit makes the share of requests within it exact, which the alerts on a burnt error
//! budget need. Prometheus's guide to histograms asks for such a bucket. Departure: all classes have the limits of all,
//! so that buckets of several classes can be summed.
//!
//! A reload may change the limits while threads count. So a count stays in its place when other limits come and go:
//! each bucket has a place in an array, and only the bounds are in order. The count of a limit that has gone moves to
//! the bucket above, where it would have been without that limit. A request that ends in the moment of a reload may be
//! counted in a neighbouring bucket.

/// The scale of every histogram, in microseconds: 1 ms to 30 s in steps of 2 to 2.5. Guarantees lie between a few
/// milliseconds and a few seconds. By default no request is queued for more than 30 s.
const SCALE: [u64; 14] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000,
];

/// Maximum number of limits with a bucket of their own. Most policies have fewer. Each is one more series of a class in
/// two metrics, so eight add a quarter to the page.
const MAX_LIMITS: usize = 8;

/// Place of everything larger than the last bound.
const REST: usize = SCALE.len();

/// Number of places.
pub(super) const PLACES: usize = REST + 1 + MAX_LIMITS;

/// Upper bounds in use.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bounds {
    /// Upper bounds in microseconds, ascending, each with the place of its bucket. Unused ones at the end are those of
    /// the rest.
    bounds: [(u64, usize); PLACES],
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds::of(&[None; MAX_LIMITS])
    }
}

/// A change of places: the first one's count belongs to the second one now.
pub(super) type Move = (usize, usize);

impl Bounds {
    /// Returns the scale with these limits, each at its place.
    fn of(limits: &[Option<u64>; MAX_LIMITS]) -> Bounds {
        let mut bounds = [(u64::MAX, REST); PLACES];
        let scale = SCALE.iter().enumerate().map(|(place, bound)| (*bound, place));
        let limits = limits.iter().enumerate().filter_map(|(at, limit)| Some(((*limit)?, REST + 1 + at)));
        bounds.iter_mut().zip(scale.chain(limits)).for_each(|(bound, used)| *bound = used);
        bounds.sort_unstable();
        Bounds { bounds }
    }

    /// Returns the place of the bucket for a time.
    pub(super) fn place(&self, micros: u64) -> usize {
        self.bounds.iter().find(|(bound, _)| micros <= *bound).map_or(REST, |(_, place)| *place)
    }

    /// Returns the buckets in ascending order, each with its upper bound in seconds and its count.
    pub(super) fn buckets(&self, counts: &[u64; PLACES]) -> Vec<(f64, u64)> {
        let mut buckets: Vec<(f64, u64)> = self
            .places()
            .map(|(bound, place)| {
                let bound = if place == REST { f64::INFINITY } else { bound as f64 / 1e6 };
                (bound, counts.get(place).copied().unwrap_or(0))
            })
            .collect();
        // What was counted for a limit in the moment in which it went.
        let used: u64 = buckets.iter().map(|(_, count)| count).sum();
        if let Some((_, rest)) = buckets.last_mut() {
            *rest += counts.iter().sum::<u64>().saturating_sub(used);
        }
        buckets
    }

    /// Returns the bounds in use with their places, ascending. The last one is that of the rest.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, usize)> {
        let end = self.bounds.iter().position(|(_, place)| *place == REST).unwrap_or(PLACES);
        self.bounds.iter().take(end + 1).copied()
    }

    /// Returns the bounds for a policy with these limits in microseconds, and the counts that move. Of more than
    /// [`MAX_LIMITS`] distinct limits the first ones have a bucket. A limit that stays keeps its place.
    pub(super) fn for_limits(&self, limits: impl Iterator<Item = u64>) -> (Bounds, Vec<Move>) {
        let mut wanted: Vec<u64> = Vec::new();
        for limit in limits.filter(|limit| !SCALE.contains(limit)) {
            if wanted.len() < MAX_LIMITS && !wanted.contains(&limit) {
                wanted.push(limit);
            }
        }
        let mut slots = [None; MAX_LIMITS];
        let mut gone: Vec<(usize, u64)> = Vec::new();
        for (bound, place) in self.places().filter(|(_, place)| *place > REST) {
            match wanted.iter().position(|limit| *limit == bound) {
                Some(at) => {
                    wanted.remove(at);
                    if let Some(slot) = slots.get_mut(place - REST - 1) {
                        *slot = Some(bound);
                    }
                }
                None => gone.push((place, bound)),
            }
        }
        let mut wanted = wanted.into_iter();
        slots.iter_mut().filter(|slot| slot.is_none()).for_each(|slot| *slot = wanted.next());
        let bounds = Bounds::of(&slots);
        // The place of a limit that has gone may be that of a new one, which starts at zero.
        let moves = gone.into_iter().map(|(place, limit)| (place, bounds.place(limit))).collect();
        (bounds, moves)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_limit_ends_a_bucket_of_its_own() {
        let (bounds, moved) = Bounds::default().for_limits([300_000, 100_000, 300_000].into_iter());
        assert_eq!(moved, []);
        let mut counts = [0; PLACES];
        for micros in [250_000, 250_001, 300_000, 300_001, 40_000_000] {
            counts[bounds.place(micros)] += 1;
        }
        let filled: Vec<_> = bounds.buckets(&counts).into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.25, 1), (0.3, 2), (0.5, 1), (f64::INFINITY, 1)]);
        assert_eq!(bounds.buckets(&counts).len(), SCALE.len() + 2, "100 ms are on the scale");
    }

    #[test]
    fn of_many_limits_the_first_have_a_bucket() {
        let (bounds, _) = Bounds::default().for_limits((0..100).map(|i| 900_000 - i * 1_000));
        let limits = bounds.places().filter(|(_, place)| *place > REST).count();
        assert_eq!(
            (limits, bounds.place(892_000), bounds.place(892_001)),
            (MAX_LIMITS, bounds.place(893_000), REST + 8)
        );
        assert!(bounds.place(900_000) > REST && bounds.place(900_001) < REST);
    }

    proptest! {
        /// Through any reloads: nothing is lost, the order is right, and the number of requests within a bound never
        /// falls while the bound stays.
        #[test]
        fn counts_outlive_reloads(
            policies in prop::collection::vec(prop::collection::vec(1u64..40_000, 0..12), 1..12),
            times in prop::collection::vec(0u64..50_000_000, 12..60),
        ) {
            let (mut bounds, mut counts) = (Bounds::default(), [0u64; PLACES]);
            let mut before: Vec<(f64, u64)> = Vec::new();
            let each = times.len() / policies.len();
            for (policy, times) in policies.iter().zip(times.chunks(each.max(1))) {
                let (next, moved) = bounds.for_limits(policy.iter().map(|limit| limit * 1_000));
                let taken: Vec<_> = moved.iter().map(|(from, to)| (std::mem::take(&mut counts[*from]), *to)).collect();
                taken.into_iter().for_each(|(count, to)| counts[to] += count);
                bounds = next;
                times.iter().for_each(|micros| counts[bounds.place(*micros)] += 1);
                let buckets = bounds.buckets(&counts);
                prop_assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
                let mut sum = 0;
                let now: Vec<(f64, u64)> = buckets.iter().map(|(le, count)| { sum += count; (*le, sum) }).collect();
                prop_assert_eq!(sum, counts.iter().sum::<u64>());
                for (le, within) in &before {
                    if let Some((_, later)) = now.iter().find(|(bound, _)| bound == le) {
                        prop_assert!(later >= within, "{} at {}, {} before", later, le, within);
                    }
                }
                before = now;
            }
        }
    }
}
