//! Request profiling: what one page costs per request, with its linear verification.
//!
//! Source: Feng and Lin, Sec. 3.1, where a page is requested once, and then by several at once. Here it is requested in
//! rounds, each with a batch by 1, 2, 4, 8 … at once, so that what else the machine does meanwhile meets all of them
//! alike; and in two looks, between which all other pages are looked at and the server is saturated.

use std::time::Duration;

use crate::clock::Clock;
use crate::load::Load;
use crate::sample::{Batch, Series};

/// How long a batch should take: long beside the milliseconds of two questions, short beside the time for a page.
const BATCH_SECONDS: f64 = 0.25;

/// Most requests of one worker in a batch. Of the cheapest pages some hundred tell enough.
const MOST_IN_A_BATCH: u32 = 100;

/// Rounds of a look: with one alone, nobody would know whether the two looks differ.
const FEWEST_ROUNDS: usize = 2;

/// How much a page may be requested, in both looks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Most requests at once.
    pub at_once: u32,
    /// Most requests for each number of them at once.
    pub requests: u32,
    /// Longest time for each number of them at once; half as much again if the cost is not known well by then.
    pub time: Duration,
}

impl Effort {
    /// Numbers of requests at once.
    fn steps(self) -> Vec<u32> {
        (0..).map(|power| 1u32 << power).take_while(|at_once| *at_once <= self.at_once.min(1 << 16)).collect()
    }

    /// Requests of one look: half of all, or a round of one request by each.
    fn look(self) -> u32 {
        let steps = self.steps();
        (steps.len() as u32 * self.requests / 2).max(steps.iter().sum())
    }

    /// Most requests for a page.
    #[must_use]
    pub fn most(self) -> u32 {
        // The first request of a look is no sample.
        2 * (self.look() + 1)
    }

    /// Longest time for a page, but for what has begun by then.
    #[must_use]
    pub fn longest(self) -> Duration {
        self.time * self.steps().len() as u32 * 3 / 2
    }
}

/// Which look at a page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The first. Nobody knows yet what matters.
    First,
    /// The second, with the resources whose use must be known.
    Second([bool; 3]),
}

/// Looks at `path`, and adds what is seen to `series`.
///
/// # Errors
/// Why it has no cost: requests fail, or the monitor does not tell.
pub(crate) async fn look(
    load: &mut Load,
    path: &str,
    effort: Effort,
    look: Look,
    series: &mut Series,
) -> Result<(), String> {
    // The first one may fill caches; it is no sample.
    let first = load.batch(path, 1, 1).await?;
    let steps = effort.steps();
    let half = effort.time * steps.len() as u32 / 2;
    let (matters, time) = match look {
        Look::First => ([true; 3], half),
        // As long again where the cost is not known well by then.
        Look::Second(matters) => (matters, 2 * half),
    };
    let (clock, rounds) = (Clock::start(), series.rounds());
    let mut left = effort.look();
    // Requests of a client in a batch, by number of clients. A slow page is asked for no more than it must be.
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

/// Requests in a row that fit into a batch.
fn fitting(seconds: f64) -> u32 {
    ((BATCH_SECONDS / seconds.max(1e-6)) as u32).clamp(1, MOST_IN_A_BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_requested_no_more_than_is_said() {
        let effort = |at_once, requests| Effort { at_once, requests, time: Duration::from_secs(3) };
        let usual = effort(8, 200);
        assert_eq!((usual.steps(), usual.most()), (vec![1, 2, 4, 8], 802));
        assert_eq!(usual.longest(), Duration::from_secs(18));
        assert_eq!(effort(64, 8).most(), 256, "one round of 127 in each look");
    }
}
