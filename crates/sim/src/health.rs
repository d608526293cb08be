//! Active health checks of the nodes, as the gateway makes them.
//!
//! Each check is a request with no demand on a connection of its own. It is treated like every other
//! request: it waits in the queue of a full server, gets no answer from a stalled server, is refused by a
//! crashed one, and is answered 500 by one that fails its requests. Checks are spread over the interval,
//! and each interval varies by a tenth, as in the gateway's `health.rs`. The rule for changing between up
//! and down is the same code.

use weirgate_config::{HealthCheck, HealthVerdict};
use weirgate_emulator::random::Random;

/// The checks of one node.
pub(crate) struct Watch {
    check: HealthCheck,
    random: Random,
    verdict: HealthVerdict,
    /// Number of the current check. It tells a late answer from the expected one.
    pub(crate) round: u32,
    /// Whether a check is under way.
    pub(crate) is_waiting: bool,
    /// The server that holds the check.
    pub(crate) server: Option<u32>,
}

impl Watch {
    /// Creates the state before the first check.
    pub(crate) fn new(check: HealthCheck, random: Random) -> Watch {
        Watch { check, random, verdict: HealthVerdict::default(), round: 0, is_waiting: false, server: None }
    }

    /// Returns the time until the next check, in nanoseconds.
    pub(crate) fn pause(&mut self) -> u64 {
        let share = self.random.unit();
        let factor = if self.round == 0 { share } else { 0.9 + 0.2 * share };
        // At least a millisecond, as in the gateway.
        ((self.check.interval.as_nanos() as f64 * factor) as u64).max(1_000_000)
    }

    /// Returns the time limit of a check, in nanoseconds.
    pub(crate) fn patience(&self) -> u64 {
        u64::try_from(self.check.timeout.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Starts a check.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.is_waiting = true;
        self.server = None;
    }

    /// Ends a check. Returns `Some(is_up)` if the node has changed between up and down. `is_lost` means
    /// that the result does not reach the gateway.
    pub(crate) fn end(&mut self, healthy: bool, is_lost: bool) -> Option<bool> {
        self.is_waiting = false;
        self.server = None;
        if is_lost { None } else { self.verdict.hear(healthy, &self.check) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weirgate_config::HealthProbe;

    fn watch() -> Watch {
        let second = Duration::from_secs(1);
        let probe = HealthProbe::Path("/".into());
        let check = HealthCheck { probe, host: None, interval: second, timeout: second, fall: 3, rise: 2 };
        Watch::new(check, Random::new(1))
    }

    #[test]
    fn a_node_changes_sides_after_several_answers() {
        let mut watch = watch();
        let heard = [true, false, false, true, false, false, false, false, true, true, true].map(|healthy| {
            watch.begin();
            watch.end(healthy, false)
        });
        assert_eq!(heard, [Some(true), None, None, None, None, None, Some(false), None, None, Some(true), None]);
    }

    #[test]
    fn a_lost_answer_is_not_noticed() {
        let mut watch = watch();
        assert_eq!([false; 5].map(|healthy| watch.end(healthy, true)), [None; 5]);
        assert_eq!([false; 3].map(|healthy| watch.end(healthy, false)), [None, None, Some(false)]);
    }

    #[test]
    fn checks_are_spread_over_the_interval() {
        let mut watch = watch();
        assert!(watch.pause() <= 1_000_000_000);
        watch.begin();
        for _ in 0..100 {
            assert!((900_000_000..=1_100_000_000).contains(&watch.pause()));
        }
    }
}
