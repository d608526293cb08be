//! Requests of one class that wait at a gateway for tokens of its share, in the order of their arrival.
//!
//! Tokens come at the rate of the share, and a second's worth of them is kept, at least one: the bucket of the engine
//! (`crates/engine/src/scheduler/bucket.rs`). Nothing but tokens lets a request through, as on nodes that others fill.

use std::collections::VecDeque;
use std::time::Duration;

use super::STEP;

/// Time that a request may wait. The site of the guide promises 95 % of the answers within it.
const PATIENCE: Duration = Duration::from_millis(200);

/// The requests of one class at one gateway.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    tokens: f64,
    /// Times of arrival.
    waiting: VecDeque<u64>,
}

impl Queue {
    /// No request, and a full bucket.
    pub(super) fn new() -> Queue {
        Queue { tokens: f64::INFINITY, waiting: VecDeque::new() }
    }

    /// Adds the arrivals of a step that ends at `now`, and returns the number of requests that get a token in it.
    pub(super) fn step(&mut self, now: u64, arrivals: u64, share: f64) -> u64 {
        self.tokens = (self.tokens + share * STEP.as_secs_f64()).min(share.max(1.0));
        self.waiting.extend((0..arrivals).map(|_| now));
        while self.waiting.front().is_some_and(|arrived| now - arrived > PATIENCE.as_nanos() as u64) {
            self.waiting.pop_front();
        }
        let served = (self.tokens.max(0.0) as u64).min(self.waiting.len() as u64);
        self.waiting.drain(..served as usize);
        self.tokens -= served as f64;
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_the_rate_is_kept_and_waiting_ends() {
        let mut queue = Queue::new();
        assert_eq!(queue.step(0, 150, 100.0), 100);
        let rest: u64 = (1..=1_000).map(|step| queue.step(step * 1_000_000, 0, 100.0)).sum();
        assert!((19..=21).contains(&rest), "{rest} of 50 in the time that they wait");
        assert_eq!(queue.step(3_000_000_000, 1, 0.5), 1, "a slow share has a whole token, too");
    }
}
