//! Statistics of response times: exact, over the sorted times themselves.

use weirgate_engine::Statistic;

/// Returns the `percent` percentile by nearest rank: the smallest value that at least `percent` percent of the values
/// do not exceed. `None` if there are none.
pub fn percentile<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    // A product such as 0.999 × 1000 may come out a little above a whole number. That must not cost a rank.
    let rank = (percent / 100.0 * sorted.len() as f64 - 1e-9).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied()
}

/// The mean, or 0 if there are no times.
pub(crate) fn mean(times: &[u64]) -> f64 {
    if times.is_empty() {
        return 0.0;
    }
    times.iter().map(|t| *t as f64).sum::<f64>() / times.len() as f64
}

/// A guaranteed statistic, in nanoseconds. `None` if there are no times.
pub(crate) fn statistic(sorted: &[u64], which: Statistic) -> Option<f64> {
    match which {
        Statistic::Average => (!sorted.is_empty()).then(|| mean(sorted)),
        Statistic::Percentile(percent) => percentile(sorted, percent).map(|time| time as f64),
    }
}

/// Number of the sorted times that count as within `limit` nanoseconds: the largest number, fastest first,
/// over which the statistic is within it. A percentile lets its rest be late, and a mean lets slow requests
/// use time that faster ones left. All are in time where the statistic holds.
pub(crate) fn in_time(sorted: &[u64], which: Statistic, limit: f64) -> usize {
    match which {
        Statistic::Percentile(percent) => {
            let within = sorted.partition_point(|time| *time as f64 <= limit);
            let max = (within as f64 / (percent / 100.0) + 1e-9) as usize;
            if within == 0 { 0 } else { max.min(sorted.len()) }
        }
        Statistic::Average => {
            let mut sum = 0.0;
            let means = sorted.iter().zip(1..).map(|(time, count): (_, u32)| {
                sum += *time as f64;
                sum / f64::from(count)
            });
            // Means of the fastest only grow.
            means.take_while(|mean| *mean <= limit).count()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times: Vec<u64> = (1..=1000).collect();
        assert_eq!([50.0, 95.0, 99.0, 99.9].map(|p| percentile(&times, p)), [500, 950, 990, 999].map(Some));
        assert_eq!([50.0, 99.9].map(|p| percentile(&[7], p)), [Some(7); 2]);
        assert_eq!(percentile(&[1, 2, 3], 50.0), Some(2));
        assert_eq!(percentile::<u64>(&[], 95.0), None);
    }

    #[test]
    fn as_many_are_in_time_as_the_statistic_allows() {
        let times: Vec<u64> = (1..=100).collect();
        let p90 = |limit: f64| in_time(&times, Statistic::Percentile(90.0), limit);
        assert_eq!([0.5, 45.0, 89.0, 90.0, 95.0].map(p90), [0, 50, 98, 100, 100]);
        let avg = |limit: f64| in_time(&times, Statistic::Average, limit);
        assert_eq!([0.5, 1.0, 25.0, 50.5].map(avg), [0, 1, 49, 100]);
        // The statistic holds for this number of times, and fails with one more.
        for which in [Statistic::Percentile(90.0), Statistic::Percentile(50.0), Statistic::Average] {
            for limit in 1..100 {
                let limit = f64::from(limit);
                let count = in_time(&times, which, limit);
                assert!(statistic(&times[..count], which).is_none_or(|value| value <= limit), "{which} {limit}");
                assert!(count == 100 || statistic(&times[..=count], which).is_some_and(|value| value > limit));
            }
        }
        assert_eq!(in_time(&[], Statistic::Average, 1.0), 0);
    }

    #[test]
    fn without_times_there_is_no_statistic() {
        assert_eq!(statistic(&[], Statistic::Average), None);
        assert_eq!(statistic(&[1, 2, 6], Statistic::Average), Some(3.0));
        assert_eq!(statistic(&[1, 2, 6], Statistic::Percentile(95.0)), Some(6.0));
    }
}
