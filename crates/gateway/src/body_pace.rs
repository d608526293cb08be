//! Time that a client takes for the body of a request, and the end of it.
//!
//! A class's `body_progress` limits the pause between two pieces, so a client that sends a byte now and then could hold
//! a slot and a connection to a node until the total limit. As in Apache's mod_reqtimeout, a body has a fixed time, and
//! more in proportion to the bytes received. Departure: the time runs only while the client has to send, because a node
//! may be slow to take a large body.

use std::time::Duration;

use weirgate_config::ClientTimeouts;
use weirgate_engine::Time;

/// Time that the client of one request has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BodyPace {
    fixed: Duration,
    /// Bytes a second.
    rate: u64,
    used: Duration,
    /// Time since which the client has had to send.
    since: Option<Time>,
}

impl BodyPace {
    pub(crate) fn new(timeouts: &ClientTimeouts) -> BodyPace {
        BodyPace { fixed: timeouts.body, rate: timeouts.body_rate, used: Duration::ZERO, since: None }
    }

    /// Notes that the client has to send, after `received` bytes. Returns the time at which it is too slow.
    pub(crate) fn awaits(&mut self, now: Time, received: u64) -> Time {
        let since = *self.since.get_or_insert(now);
        let allowed = self.fixed + Duration::from_millis(received.saturating_mul(1000) / self.rate.max(1));
        since + allowed.saturating_sub(self.used)
    }

    /// Notes that bytes have arrived.
    pub(crate) fn arrived(&mut self, now: Time) {
        if let Some(since) = self.since.take() {
            self.used += now.since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> BodyPace {
        let second = Duration::from_secs(1);
        BodyPace::new(&ClientTimeouts { header: second, idle: second, body: 20 * second, body_rate: 500 })
    }

    #[test]
    fn a_byte_now_and_then_does_not_extend_the_time() {
        let mut pace = pace();
        let mut now = Time::ZERO;
        for received in 0..19 {
            let late = pace.awaits(now, received);
            assert!(late > now && late <= Time::from_millis(20_038), "{late:?}");
            now = now + Duration::from_secs(1);
            pace.arrived(now);
        }
        now = now + Duration::from_secs(1);
        assert!(pace.awaits(now, 19) < now + Duration::from_secs(2));
    }

    #[test]
    fn bytes_at_the_rate_extend_it() {
        let mut pace = pace();
        for second in 0..600 {
            let now = Time::from_millis(second * 1000);
            assert!(pace.awaits(now, second * 500) >= now + Duration::from_secs(20));
            pace.arrived(now + Duration::from_secs(1));
        }
    }

    #[test]
    fn the_time_of_the_node_does_not_count() {
        let mut pace = pace();
        pace.awaits(Time::ZERO, 0);
        pace.arrived(Time::from_millis(1000));
        // The node takes a minute for the first piece.
        let later = Time::from_millis(61_000);
        assert_eq!(pace.awaits(later, 500), later + Duration::from_secs(20));
    }
}
