//! [`crate::Admit::Deadline`]: Quorum's selective dropping.
//!
//! Source: Quorum Sec. 3.3: the head of a queue is dropped when the time left to its deadline is less than
//! the expected compute time of its class. That instant (`arrival + limit − expected`) is known in advance.
//! So the head is dropped at that instant instead of when the next slot becomes free: the same requests are
//! dropped, and their clients learn it earlier.
//!
//! Sources: nothing is refused because of the queue. The requests of a greedy source miss their deadlines, and
//! those of others do not, because sources take turns.

use core::time::Duration;

use crate::request::ShedReason;
use crate::time::{Time, nanos};

/// The last instant at which a request may be released, and the reason of its drop afterwards. `limit` is
/// its response-time limit and `expected` its expected compute time in seconds.
#[inline]
pub(super) fn last_release(arrived: Time, limit: Duration, expected: f64, max_wait: Duration) -> (Time, ShedReason) {
    let patience = patience(arrived, max_wait);
    let expected = if expected >= 1e9 { u64::MAX } else { (expected * 1e9) as u64 };
    let slack = nanos(limit).saturating_sub(expected);
    let deadline = (Time::from_nanos(arrived.as_nanos().saturating_add(slack)), ShedReason::Deadline);
    if deadline.0 < patience.0 { deadline } else { patience }
}

/// The same for a request without a deadline, from the maximum wait of its queue.
#[inline]
pub(super) fn patience(arrived: Time, max_wait: Duration) -> (Time, ShedReason) {
    (arrived + max_wait, ShedReason::QueueTimeout)
}

/// Whether a request cannot meet its limit even if it is released on arrival.
#[inline]
pub(super) fn hopeless(limit: Option<Duration>, expected: f64) -> bool {
    limit.is_some_and(|limit| limit.as_secs_f64() < expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_when_the_time_left_is_less_than_expected() {
        let limit = Duration::from_millis(400);
        let wait = Duration::from_secs(30);
        let (at, why) = last_release(Time::from_millis(1000), limit, 0.1, wait);
        assert_eq!((at, why), (Time::from_millis(1300), ShedReason::Deadline));
        let (at, why) = patience(Time::from_millis(1000), wait);
        assert_eq!((at, why), (Time::from_millis(31_000), ShedReason::QueueTimeout));
        assert!(hopeless(Some(limit), 0.5) && !hopeless(Some(limit), 0.4) && !hopeless(None, 9.0));
    }
}
