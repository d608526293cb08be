//! Statistics of response times: exact, over the sorted times themselves.

use weirgate_engine::Statistic;

/// The `percent` percentile by nearest rank: the smallest time that at least so many percent do not exceed.
/// 0 if there are none.
pub(crate) fn percentile(sorted: &[u64], percent: f64) -> u64 {
    // A product such as 0.999 × 1000 may come out a little above a whole number; that must not cost a rank.
    let rank = (percent / 100.0 * sorted.len() as f64 - 1e-9).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied().unwrap_or(0)
}

/// The mean; 0 if there are none.
pub(crate) fn mean(times: &[u64]) -> f64 {
    if times.is_empty() {
        return 0.0;
    }
    times.iter().map(|t| *t as f64).sum::<f64>() / times.len() as f64
}

/// A guaranteed statistic, in nanoseconds; `None` if there are no times.
pub(crate) fn statistic(sorted: &[u64], which: Statistic) -> Option<f64> {
    if sorted.is_empty() {
        return None;
    }
    Some(match which {
        Statistic::Average => mean(sorted),
        Statistic::Percentile(percent) => percentile(sorted, percent) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let times: Vec<u64> = (1..=1000).collect();
        assert_eq!([50.0, 95.0, 99.0, 99.9].map(|p| percentile(&times, p)), [500, 950, 990, 999]);
        assert_eq!([50.0, 99.9].map(|p| percentile(&[7], p)), [7, 7]);
        assert_eq!(percentile(&[1, 2, 3], 50.0), 2);
        assert_eq!(percentile(&[], 95.0), 0);
    }

    #[test]
    fn without_times_there_is_no_statistic() {
        assert_eq!(statistic(&[], Statistic::Average), None);
        assert_eq!(statistic(&[1, 2, 6], Statistic::Average), Some(3.0));
        assert_eq!(statistic(&[1, 2, 6], Statistic::Percentile(95.0)), Some(6.0));
    }
}
