//! Stage *admit*: may a request wait here at all, and until when.
//!
//! Source: Quorum Sec. 3.3 (selective dropping): at the head of its queue a request is dropped when
//! the time left to its deadline is less than the expected compute time of its class. That instant
//! (`arrival + limit − expected`) is known in advance, so the head is dropped when it comes rather than
//! when the next slot happens to be free: the same requests are dropped, their clients learn it
//! earlier. Whatever the method, a queue has a longest wait.
//!
//! [`Admit::Predict`] departs from it in two ways. It answers at arrival: the wait is the length of the
//! queue over the rate at which the class is released, and who would wait too long is told at once. And
//! it tells requests that are owed an answer, those within the guaranteed rate of arrivals and a burst of
//! a second, from those that are not: an owed one waits as long as it can make its limit; one that is not
//! is turned away as soon as the queue is longer than a small part of the limit. A longer queue would
//! serve nobody more, it would only move everybody's response time to the limit.

mod server_load;
mod thresholds;

use core::time::Duration;

use crate::discipline::{Admit, Predict};
use crate::request::ShedReason;
use crate::time::{Time, nanos};

pub use server_load::{LoadSource, ServerLoad};
pub(crate) use thresholds::{Waiting, admits};

/// The last instant at which a request may be released, and what to call its drop afterwards. `alone` says
/// that nothing of the class is inside.
pub(crate) fn drop_at(
    admit: &Admit,
    arrived: Time,
    limit: Option<Duration>,
    expected: f64,
    alone: bool,
    max_wait: Duration,
) -> (Time, ShedReason) {
    let patience = (arrived + max_wait, ShedReason::QueueTimeout);
    let expected = match (admit, limit) {
        (Admit::Deadline { .. }, Some(_)) => expected,
        // One must get through, or nobody learns that the class is fast again.
        (Admit::Predict(_), Some(_)) if alone => 0.0,
        (Admit::Predict(p), Some(limit)) => expected.min(p.most_compute * limit.as_secs_f64()),
        _ => return patience,
    };
    let expected = if expected >= 1e9 { u64::MAX } else { (expected * 1e9) as u64 };
    let slack = nanos(limit.unwrap_or(max_wait)).saturating_sub(expected);
    let deadline = (Time::from_nanos(arrived.as_nanos().saturating_add(slack)), ShedReason::Deadline);
    if deadline.0 < patience.0 { deadline } else { patience }
}

/// Could a request of the class meet its limit if it were released the moment it arrives?
pub(crate) fn hopeless(admit: &Admit, limit: Option<Duration>, expected: f64) -> bool {
    match (admit, limit) {
        (Admit::Deadline { .. }, Some(limit)) => limit.as_secs_f64() < expected,
        _ => false,
    }
}

/// What [`Admit::Predict`] needs to know of a class at an arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// The request is within the guaranteed rate.
    pub(crate) owed: bool,
    /// Requests that wait already, more than none.
    pub(crate) waiting: u32,
    /// For how long there has been a queue, in nanoseconds.
    pub(crate) backlogged: u64,
    /// Guaranteed requests per second, 0 for none.
    pub(crate) guaranteed: f64,
    /// Limit of the response time, if there is one, and of the wait.
    pub(crate) limit: Option<Duration>,
    pub(crate) max_wait: Duration,
    /// Expected compute time in seconds.
    pub(crate) expected: f64,
    /// The class's pace, rolled up to now.
    pub(crate) pace: Pace,
}

/// Would a request that arrives now wait too long? Says why.
pub(crate) fn too_long(figures: Predict, outlook: &Outlook) -> Option<ShedReason> {
    let young = outlook.backlogged < nanos(figures.young);
    if young && (outlook.owed || outlook.guaranteed == 0.0) {
        return None;
    }
    // A young queue may be one only because the class asked for less until now.
    let pace = if young { outlook.pace.rate.max(outlook.guaranteed) } else { outlook.pace.rate };
    // And at least one could be released in the time that the queue has existed.
    let pace = pace.max(1e9 / outlook.backlogged.max(1) as f64);
    let wait = f64::from(outlook.waiting) / pace.max(1e-9);
    let patience = outlook.limit.unwrap_or(outlook.max_wait).as_secs_f64();
    let compute = if outlook.limit.is_some() { outlook.expected.min(figures.most_compute * patience) } else { 0.0 };
    let hard = figures.margin * patience - compute;
    let soft = (figures.soft_share * patience).max(figures.soft_least.as_secs_f64());
    if (!outlook.owed || outlook.backlogged > nanos(figures.old)) && wait > soft && soft < hard {
        return Some(ShedReason::Overload);
    }
    (wait > hard).then_some(ShedReason::Deadline)
}

/// The rate at which a class is released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    period: u64,
    count: u32,
    /// Requests per second, over the last few tenths of a second.
    pub(crate) rate: f64,
}

impl Pace {
    /// Nanoseconds of a period: short against any limit worth a prediction.
    const PERIOD: u64 = 100_000_000;

    pub(crate) const NONE: Pace = Pace { period: 0, count: 0, rate: 0.0 };

    /// Brings it up to `now`.
    pub(crate) fn roll(&mut self, now: Time, fresh: f64) {
        let period = now.as_nanos() / Pace::PERIOD;
        let passed = period.saturating_sub(self.period);
        if passed == 0 {
            return;
        }
        self.period = period;
        let rate = f64::from(core::mem::take(&mut self.count)) * (1e9 / Pace::PERIOD as f64);
        let empty = (passed - 1).min(10_000) as i32;
        self.rate = (self.rate + fresh * (rate - self.rate)) * (1.0 - fresh).powi(empty);
    }

    /// One more release.
    pub(crate) fn released(&mut self, now: Time, fresh: f64) {
        self.roll(now, fresh);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discipline::StaleEstimate;

    const QUORUM: &Admit = &Admit::Deadline { stale: StaleEstimate::Decay };

    #[test]
    fn drops_when_the_time_left_is_less_than_expected() {
        let limit = Some(Duration::from_millis(400));
        let wait = Duration::from_secs(30);
        let (at, why) = drop_at(QUORUM, Time::from_millis(1000), limit, 0.1, true, wait);
        assert_eq!((at, why), (Time::from_millis(1300), ShedReason::Deadline));
        let (at, why) = drop_at(&Admit::None, Time::from_millis(1000), limit, 0.1, true, wait);
        assert_eq!((at, why), (Time::from_millis(31_000), ShedReason::QueueTimeout));
        assert!(hopeless(QUORUM, limit, 0.5) && !hopeless(QUORUM, limit, 0.4) && !hopeless(&Admit::None, limit, 9.0));
    }
}
