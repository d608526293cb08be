//! Stage *admit*: may a request wait here at all, and until when.
//!
//! Source: Quorum Sec. 3.3 (selective dropping): at the head of its queue a request is dropped when
//! the time left to its deadline is less than the expected compute time of its class. That instant
//! (`arrival + limit − expected`) is known in advance, so the head is dropped when it comes rather than
//! when the next slot happens to be free: the same requests are dropped, their clients learn it
//! earlier. Whatever the method, a queue has a longest wait.
//!
//! The expected compute time is the mean over the last control period with completions, for averages
//! and percentiles alike; the paper says "how other requests of the same class are currently
//! performing" and no more. It is silent on what is expected when nothing completes; see
//! [`StaleEstimate`] and `docs/adr/0002-stale-estimates-decay.md`.

use core::time::Duration;

use crate::policy::{Admit, StaleEstimate};
use crate::request::ShedReason;
use crate::time::{Time, nanos};

/// Control period in nanoseconds: Quorum's 500 ms (Sec. 3.1), a compromise between fast reaction and
/// enough completions to average over.
pub(crate) const PERIOD: u64 = 500_000_000;

/// What is left of an unconfirmed estimate after a period. 0.7 halves it in a second, so that a class
/// is tried again within a few seconds of a stall, and hardly moves on a single empty period.
const DECAY: f64 = 0.7;

/// The last instant at which a request may be released, and what to call its drop afterwards.
pub(crate) fn drop_at(
    admit: Admit,
    arrived: Time,
    limit: Option<Duration>,
    expected: f64,
    max_wait: Duration,
) -> (Time, ShedReason) {
    let patience = (arrived + max_wait, ShedReason::QueueTimeout);
    match (admit, limit) {
        (Admit::Deadline { .. }, Some(limit)) => {
            let expected = if expected >= 1e9 { u64::MAX } else { (expected * 1e9) as u64 };
            let slack = Duration::from_nanos(nanos(limit).saturating_sub(expected));
            let deadline = (arrived + slack, ShedReason::Deadline);
            if deadline.0 < patience.0 { deadline } else { patience }
        }
        _ => patience,
    }
}

/// Could a request of the class meet its limit if it were released the moment it arrives?
pub(crate) fn hopeless(admit: Admit, limit: Option<Duration>, expected: f64) -> bool {
    match (admit, limit) {
        (Admit::Deadline { .. }, Some(limit)) => limit.as_secs_f64() < expected,
        _ => false,
    }
}

/// The expected compute time of one class: the mean of a control period, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    period: u64,
    sum: f64,
    count: u32,
    estimate: Option<f64>,
}

impl Expected {
    pub(crate) const UNKNOWN: Expected = Expected { period: 0, sum: 0.0, count: 0, estimate: None };

    /// Brings the estimate up to `now`. `inside` tells whether the class has requests inside.
    pub(crate) fn roll(&mut self, now: Time, inside: bool, admit: Admit) {
        let period = now.as_nanos() / PERIOD;
        let mut passed = period.saturating_sub(self.period);
        if passed == 0 {
            return;
        }
        self.period = period;
        if self.count > 0 {
            self.estimate = Some(self.sum / f64::from(self.count));
            self.sum = 0.0;
            self.count = 0;
            passed -= 1;
        }
        let hold = matches!(admit, Admit::Deadline { stale: StaleEstimate::Hold });
        if !inside && !hold && passed > 0 {
            self.estimate = self.estimate.map(|e| e * DECAY.powi(passed.min(64) as i32));
        }
    }

    /// One more completion. Call [`Expected::roll`] first.
    pub(crate) fn add(&mut self, seconds: f64) {
        self.sum += seconds;
        self.count += 1;
        if self.estimate.is_none() {
            self.estimate = Some(seconds);
        }
    }

    /// Seconds, if anything completed yet.
    pub(crate) fn seconds(&self) -> Option<f64> {
        self.estimate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUORUM: Admit = Admit::Deadline { stale: StaleEstimate::Decay };

    #[test]
    fn drops_when_the_time_left_is_less_than_expected() {
        let limit = Some(Duration::from_millis(400));
        let wait = Duration::from_secs(30);
        let (at, why) = drop_at(QUORUM, Time::from_millis(1000), limit, 0.1, wait);
        assert_eq!((at, why), (Time::from_millis(1300), ShedReason::Deadline));
        let (at, why) = drop_at(Admit::None, Time::from_millis(1000), limit, 0.1, wait);
        assert_eq!((at, why), (Time::from_millis(31_000), ShedReason::QueueTimeout));
        assert!(hopeless(QUORUM, limit, 0.5) && !hopeless(QUORUM, limit, 0.4) && !hopeless(Admit::None, limit, 9.0));
    }

    #[test]
    fn an_estimate_decays_only_with_nothing_inside_and_only_if_asked() {
        let at = |period: u64| Time::from_nanos(period * PERIOD);
        let hold = Admit::Deadline { stale: StaleEstimate::Hold };
        for (admit, inside, expected) in [(QUORUM, false, 0.49), (QUORUM, true, 1.0), (hold, false, 1.0)] {
            let mut e = Expected::UNKNOWN;
            e.roll(at(1), true, admit);
            e.add(0.5);
            e.add(1.5);
            e.roll(at(4), inside, admit);
            assert!((e.seconds().unwrap() - expected).abs() < 1e-12, "{admit:?} {inside}");
        }
    }
}
