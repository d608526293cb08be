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

/// Waits until `condition` holds. False if it does not within 20 s, ten times what a server needs to start.
pub(crate) fn becomes_true(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
