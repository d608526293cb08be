//! Request profiling: what one page costs per request, with its linear verification.
//!
//! Source: Feng and Lin, Sec. 3.1. The page is requested one at a time until its mean use is known, then by 2, 4, 8 … at
//! once. What is recorded is the mean over all these requests, as in production they come at once as well.

use std::time::Duration;

use crate::clock::Clock;
use crate::linear::line;
use crate::load::Load;
use crate::sample::{Series, is_something};
use crate::state::Profile;

/// How long a batch should take: long beside the milliseconds of two questions, short beside the time for a page.
const BATCH_SECONDS: f64 = 0.25;

/// Most requests of one worker in a batch. Of the cheapest pages some hundred tell enough.
const MOST_IN_A_BATCH: u32 = 100;

/// How much a page may be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Most requests at once.
    pub at_once: u32,
    /// Most requests for each number of them at once.
    pub requests: u32,
    /// Longest time for each number of them at once.
    pub time: Duration,
}

/// What `path` costs.
///
/// # Errors
/// Why it has no cost: requests fail, or the monitor does not tell.
pub(crate) async fn profile(load: &mut Load, path: &str, effort: Effort) -> Result<Profile, String> {
    // The first one may fill caches; it is no sample.
    load.batch(path, 1, 1).await?;
    let mut all = Series::default();
    let mut points: [Vec<(f64, f64)>; 3] = Default::default();
    let steps = (0..).map(|power| 1u32 << power).take_while(|at_once| *at_once <= effort.at_once.min(1 << 16));
    for at_once in steps {
        let series = measure(load, path, at_once, effort, &mut all).await?;
        for (points, mean) in points.iter_mut().zip(series.mean()) {
            points.push((f64::from(at_once), mean * f64::from(at_once)));
        }
    }
    let used = all.mean();
    let lines = [0, 1, 2].map(|at| line(&points[at]).filter(|_| is_something(at, used[at])));
    Ok(Profile { target: path.to_owned(), used, requests: all.requests(), lines })
}

async fn measure(
    load: &mut Load,
    path: &str,
    at_once: u32,
    effort: Effort,
    all: &mut Series,
) -> Result<Series, String> {
    let (clock, mut series) = (Clock::start(), Series::default());
    let mut each = (4 / at_once).max(1);
    while !series.is_enough() && series.requests() < effort.requests && clock.now() < effort.time {
        let batch = load.batch(path, at_once, each).await?;
        series.add(batch.requests, batch.used);
        all.add(batch.requests, batch.used);
        let fits = BATCH_SECONDS / (batch.seconds / f64::from(each)).max(1e-6);
        each = (fits as u32).clamp(1, MOST_IN_A_BATCH).min((effort.requests / at_once).max(1));
    }
    Ok(series)
}
