//! The expected compute time of a class: the time its requests are in flight, from release to last byte.
//!
//! The estimate covers the last control period with completions and uses the guaranteed statistic: the mean
//! or a percentile. Under [`Admit::Predict`] a percentile covers at least 1/(1 − p) answers, also from earlier periods.
//! The paper only says "how other requests of the same class are currently performing". See
//! `docs/adr/0006-two-readings-of-quorum.md`. It does not define the expected time when nothing completes.
//! See [`StaleEstimate`] and `docs/adr/0002-stale-estimates-decay.md`.

use core::time::Duration;

use crate::discipline::{Admit, StaleEstimate};
use crate::policy::{ResponseTime, Statistic};
use crate::time::Time;

/// Control period in nanoseconds: Quorum's 500 ms (Sec. 3.1), a compromise between fast reaction and enough
/// completions to average over.
pub(crate) const PERIOD: u64 = 500_000_000;

/// Factor applied to an unconfirmed estimate in every period. 0.7 halves the estimate in one second: a class
/// is tried again within a few seconds of a stall, and a single empty period hardly changes anything.
const DECAY: f64 = 0.7;

/// Number of compute times kept in a period to compute a percentile: enough to tell a 95th from a 90th
/// percentile.
const KEPT: usize = 64;

/// The same under [`Admit::Deadline`]. There an overloaded class stays at its limit, and noise raises it
/// beyond: by 2 % with 64 exponential times, by no measurable amount with these.
const KEPT_AT_THE_LIMIT: usize = 256;

/// How a policy makes estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimation {
    /// An unconfirmed estimate does not decay.
    hold: bool,
    /// Number of compute times kept.
    kept: usize,
    /// A percentile is taken over as many answers as it needs, and not only over those of the last period.
    whole: bool,
}

impl Estimation {
    pub(crate) fn of(admit: &Admit) -> Estimation {
        match admit {
            Admit::Deadline { stale } => {
                Estimation { hold: *stale == StaleEstimate::Hold, kept: KEPT_AT_THE_LIMIT, whole: false }
            }
            admit => Estimation { hold: false, kept: KEPT, whole: matches!(admit, Admit::Predict(_)) },
        }
    }
}

/// The expected compute time of one class: a statistic over a control period, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    period: u64,
    sum: f64,
    count: u32,
    mean: Option<f64>,
    /// The guaranteed percentile in seconds, if a percentile is guaranteed.
    percentile: Option<f64>,
    /// The latest compute times, if a percentile is guaranteed.
    kept: Option<Kept>,
}

/// The latest compute times of a class.
#[derive(Clone, Debug)]
struct Kept {
    /// In seconds, as a ring.
    times: Box<[f32]>,
    /// Place of the next one.
    next: usize,
    /// Number of them so far, at most all.
    count: usize,
}

impl Kept {
    fn new(size: usize) -> Kept {
        Kept { times: vec![0.0; size].into_boxed_slice(), next: 0, count: 0 }
    }

    #[inline]
    fn add(&mut self, seconds: f64) {
        self.times[self.next] = seconds as f32;
        self.next = if self.next + 1 == self.times.len() { 0 } else { self.next + 1 };
        self.count = (self.count + 1).min(self.times.len());
    }

    /// Returns a percentile in seconds of the latest `count` times, or of 1/(1 − p) if these are more and `whole` says
    /// so: of fewer, one in 1/(1 − p) is the largest only by chance, and the estimate is too low.
    fn percentile(&self, percent: f64, count: u32, whole: bool) -> f64 {
        let needed = if whole { (1.0 / (1.0 - percent / 100.0)).ceil() as usize } else { 0 };
        let count = (count as usize).max(needed).clamp(1, self.count.max(1));
        let mut latest = [0.0; KEPT_AT_THE_LIMIT];
        let latest = &mut latest[..count];
        for (ago, time) in latest.iter_mut().enumerate() {
            *time = self.times[(self.next + self.times.len() - 1 - ago) % self.times.len()];
        }
        latest.sort_unstable_by(f32::total_cmp);
        let rank = (count as f64 * percent / 100.0).ceil() as usize;
        f64::from(latest[rank.clamp(1, count) - 1])
    }
}

impl Expected {
    pub(crate) const UNKNOWN: Expected =
        Expected { period: 0, sum: 0.0, count: 0, mean: None, percentile: None, kept: None };

    /// Brings the estimate up to `now`. `in_flight` says whether the class has requests in flight.
    #[inline]
    pub(crate) fn roll(&mut self, now: Time, in_flight: bool, estimation: Estimation, limit: Option<ResponseTime>) {
        let period = now.as_nanos() / PERIOD;
        if period > self.period {
            self.turn(period, in_flight, estimation, limit);
        }
    }

    /// Starts a later period.
    fn turn(&mut self, period: u64, in_flight: bool, estimation: Estimation, limit: Option<ResponseTime>) {
        let mut passed = period - self.period;
        self.period = period;
        if self.count > 0 {
            self.mean = Some(self.sum / f64::from(self.count));
            self.percentile = match (limit.map(|rt| rt.statistic), &self.kept) {
                (Some(Statistic::Percentile(percent)), Some(kept)) => {
                    Some(kept.percentile(percent, self.count, estimation.whole))
                }
                _ => None,
            };
            self.sum = 0.0;
            self.count = 0;
            passed -= 1;
        }
        if !in_flight && !estimation.hold && passed > 0 {
            let left = DECAY.powi(passed.min(64) as i32);
            self.mean = self.mean.map(|e| e * left);
            self.percentile = self.percentile.map(|e| e * left);
        }
    }

    /// Adds a completion. Call [`Expected::roll`] first.
    pub(crate) fn add(&mut self, seconds: f64, estimation: Estimation, limit: Option<ResponseTime>) {
        if let Some(Statistic::Percentile(_)) = limit.map(|rt| rt.statistic) {
            self.kept.get_or_insert_with(|| Kept::new(estimation.kept)).add(seconds);
        }
        self.sum += seconds;
        self.count += 1;
        if self.mean.is_none() {
            self.mean = Some(seconds);
        }
    }

    /// Mean and guaranteed percentile in seconds, as far as they are known.
    pub(crate) fn learned(&self) -> (Option<f64>, Option<f64>) {
        (self.mean, self.percentile)
    }

    /// Takes over the estimates of another engine, `age` after they were current there. They decay for that time as
    /// they do without completions. A percentile is of use only if one is guaranteed here.
    pub(crate) fn adopt(
        &mut self,
        now: Time,
        (mean, percentile): (f64, Option<f64>),
        age: Duration,
        (estimation, limit): (Estimation, Option<ResponseTime>),
    ) {
        let periods = i32::try_from(age.as_nanos() / u128::from(PERIOD)).unwrap_or(i32::MAX).min(64);
        let left = if estimation.hold { 1.0 } else { DECAY.powi(periods) };
        let guaranteed = matches!(limit.map(|rt| rt.statistic), Some(Statistic::Percentile(_)));
        *self = Expected {
            period: now.as_nanos() / PERIOD,
            mean: Some(mean * left),
            percentile: percentile.filter(|_| guaranteed).map(|percentile| percentile * left),
            ..Expected::UNKNOWN
        };
    }

    /// Mean in seconds, if any request has completed.
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.mean
    }

    /// The guaranteed statistic in seconds if it is known, otherwise the mean.
    pub(crate) fn guaranteed(&self) -> Option<f64> {
        self.percentile.or(self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guaranteed_statistic_is_expected() {
        let at = |period: u64| Time::from_nanos(period * PERIOD);
        let limit = |statistic| Some(ResponseTime { statistic, limit: Duration::from_secs(1) });
        let quorum = Estimation::of(&Admit::Deadline { stale: StaleEstimate::Decay });
        let p95 = limit(Statistic::Percentile(95.0));
        let mut e = Expected::UNKNOWN;
        e.roll(at(1), true, quorum, p95);
        for ms in 1..=100 {
            e.add(f64::from(ms) / 1e3, quorum, p95);
        }
        e.roll(at(2), true, quorum, p95);
        let close = |value: Option<f64>, to: f64| (value.unwrap() - to).abs() < 1e-6;
        assert!(close(e.guaranteed(), 0.095) && close(e.seconds(), 0.0505), "{e:?}");
        // A mean is guaranteed from now on.
        let mean = limit(Statistic::Average);
        e.add(0.2, quorum, mean);
        e.roll(at(3), true, quorum, mean);
        assert!(close(e.guaranteed(), 0.2), "{e:?}");
    }

    #[test]
    fn a_percentile_spans_as_many_answers_as_it_needs() {
        let at = |period: u64| Time::from_nanos(period * PERIOD);
        let p95 = Some(ResponseTime { statistic: Statistic::Percentile(95.0), limit: Duration::from_secs(1) });
        let predict = Estimation::of(&Admit::Predict(crate::discipline::Predict::default()));
        let quorum = Estimation::of(&Admit::Deadline { stale: StaleEstimate::Decay });
        for (estimation, expected) in [(predict, 9.0), (quorum, 0.1)] {
            let mut e = Expected::UNKNOWN;
            e.roll(at(1), true, estimation, p95);
            // Two answers a period, and the first two of twenty are slow.
            for period in 2..12 {
                [if period == 2 { 9.0 } else { 0.1 }; 2].iter().for_each(|s| e.add(*s, estimation, p95));
                e.roll(at(period), true, estimation, p95);
            }
            assert!((e.guaranteed().unwrap() - expected).abs() < 1e-6, "{e:?}");
            (0..40).for_each(|_| e.add(0.1, estimation, p95));
            e.roll(at(12), true, estimation, p95);
            assert!((e.guaranteed().unwrap() - 0.1).abs() < 1e-6, "{e:?}");
        }
    }

    #[test]
    fn an_estimate_decays_only_with_nothing_inside_and_only_if_asked() {
        let at = |period: u64| Time::from_nanos(period * PERIOD);
        let quorum = Estimation::of(&Admit::Deadline { stale: StaleEstimate::Decay });
        let hold = Estimation::of(&Admit::Deadline { stale: StaleEstimate::Hold });
        for (admit, in_flight, expected) in [(quorum, false, 0.49), (quorum, true, 1.0), (hold, false, 1.0)] {
            let mut e = Expected::UNKNOWN;
            e.roll(at(1), true, admit, None);
            e.add(0.5, admit, None);
            e.add(1.5, admit, None);
            e.roll(at(4), in_flight, admit, None);
            assert!((e.seconds().unwrap() - expected).abs() < 1e-12, "{admit:?} {in_flight}");
        }
    }
}
