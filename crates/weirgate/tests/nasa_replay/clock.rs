//! The only place where the replay reads the time or waits.

#![allow(clippy::disallowed_methods, reason = "time enters the replay here and nowhere else")]

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

/// Time limit of one request, far above any actual time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time since the replay began.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts the clock.
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the time since the start.
    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// Waits until that much time has passed.
    pub(crate) async fn reach(self, at: Duration) {
        sleep_until(self.0 + at).await;
    }
}

/// Returns the result of `work`, or `None` if it takes too long.
pub(crate) async fn patiently<F: Future>(work: F) -> Option<F::Output> {
    timeout(PATIENCE, work).await.ok()
}
