//! Request profiling: the cost per request of one page, with its linear verification.
//!
//! Source: Feng and Lin, Sec. 3.1, where a page is requested once, and then by several clients at once. Here
//! a page is requested in rounds. Each round has one batch at each concurrency 1, 2, 4, 8 …, so that other
//! load on the machine affects all of them equally. There are two looks at each page. Between them all other
//! pages are looked at and the server is saturated.

use std::time::Duration;

use weirgate_clock::Clock;

use crate::load::Load;
use crate::sample::{Batch, Series};

/// Intended duration of a batch in seconds: long compared with the milliseconds of two readings, short
/// compared with the time for a page.
const BATCH_SECONDS: f64 = 0.25;

/// Maximum number of requests by one worker in a batch. A hundred are enough for the cheapest pages.
const MAX_IN_A_BATCH: u32 = 100;

/// Minimum number of rounds of a look. With only one it would be unknown whether the two looks differ.
const FEWEST_ROUNDS: usize = 2;

/// Limits on the requests for a page, for both looks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Maximum number of concurrent requests.
    pub at_once: u32,
    /// Maximum number of requests at each concurrency.
    pub requests: u32,
    /// Maximum time at each concurrency. It is extended by half if the cost is not known well by then.
    pub time: Duration,
}

impl Effort {
    fn steps(self) -> Vec<u32> {
        (0..).map(|power| 1u32 << power).take_while(|at_once| *at_once <= self.at_once.min(1 << 16)).collect()
    }

    /// Returns the number of requests of one look: half of all, or at least one round with one request by
    /// each worker.
    fn look(self) -> u32 {
        let steps = self.steps();
        (steps.len() as u32 * self.requests / 2).max(steps.iter().sum())
    }

    /// Returns the maximum number of requests for a page.
    pub fn max(self) -> u32 {
        // The first request of a look is not part of the samples.
        2 * (self.look() + 1)
    }

    /// Returns the maximum time for a page, not counting a batch already begun by then.
    pub fn longest(self) -> Duration {
        self.time * self.steps().len() as u32 * 3 / 2
    }
}

/// Number of the look at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The first one. The relevant resources are not known yet.
    First,
    /// The second one, with the resources for which the use must be known.
    Second([bool; 3]),
}

/// Looks at `path` and adds the results to `series`.
///
/// # Errors
/// The reason why it has no cost: requests fail, or the monitor does not answer.
pub(crate) async fn look(
    load: &mut Load,
    path: &str,
    effort: Effort,
    look: Look,
    series: &mut Series,
) -> Result<(), String> {
    // The first request may fill caches, so it is not part of the samples.
    let first = load.batch(path, 1, 1).await?;
    let steps = effort.steps();
    let half = effort.time * steps.len() as u32 / 2;
    let (matters, time) = match look {
        Look::First => ([true; 3], half),
        // The time is doubled if the cost is not known well by then.
        Look::Second(matters) => (matters, 2 * half),
    };
    let (clock, rounds) = (Clock::start(), series.rounds());
    let mut left = effort.look();
    // Requests by one client in a batch, for each concurrency. A slow page is requested no more often than
    // necessary.
    let mut each: Vec<u32> =
        steps.iter().map(|at_once| fitting(first.seconds).clamp(1, (4 / at_once).max(1))).collect();
    loop {
        let is_begun = series.rounds() > rounds;
        let is_known = series.rounds() >= rounds + FEWEST_ROUNDS && series.is_enough(matters);
        if left < steps.iter().sum() || (is_begun && clock.now() >= time) || is_known {
            return Ok(());
        }
        let (mut round, mut seconds, mut used) = (Vec::new(), 0.0, [0.0; 3]);
        for (step, at_once) in steps.iter().enumerate() {
            let later: u32 = steps.iter().skip(step + 1).sum();
            let fair = (effort.look() / steps.len() as u32 / at_once).max(1);
            let times = each.get(step).copied().unwrap_or(1).min(fair).min((left - later) / at_once).max(1);
            let batch = load.batch(path, *at_once, times).await?;
            left = left.saturating_sub(batch.requests);
            if let Some(each) = each.get_mut(step) {
                *each = fitting(batch.seconds / f64::from(times));
            }
            seconds += batch.seconds;
            used = [0, 1, 2].map(|at| used[at] + batch.used[at]);
            round.push(Batch { at_once: *at_once, requests: batch.requests, used: batch.used });
        }
        series.add(round);
        load.watch_again(used, seconds, matters).await?;
    }
}

/// Returns the number of consecutive requests that fit into a batch.
fn fitting(seconds: f64) -> u32 {
    ((BATCH_SECONDS / seconds.max(1e-6)) as u32).clamp(1, MAX_IN_A_BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_requested_no_more_than_is_said() {
        let effort = |at_once, requests| Effort { at_once, requests, time: Duration::from_secs(3) };
        let usual = effort(8, 200);
        assert_eq!((usual.steps(), usual.max()), (vec![1, 2, 4, 8], 802));
        assert_eq!(usual.longest(), Duration::from_secs(18));
        assert_eq!(effort(64, 8).max(), 256, "one round of 127 in each look");
    }
}
