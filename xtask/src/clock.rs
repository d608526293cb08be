//! The one place where these tasks read the time or wait.

#![allow(clippy::disallowed_methods, reason = "time and waiting enter the tasks here and nowhere else")]

use std::time::{Duration, Instant};

/// Measures from its creation.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
