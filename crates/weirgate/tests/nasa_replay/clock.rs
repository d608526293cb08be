//! The one place where the replay reads the time or waits.

#![allow(clippy::disallowed_methods, reason = "time enters the replay here and nowhere else")]

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

/// The longest that one request may take: far above what any does.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time since the replay began.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Begins now.
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Time since the beginning.
    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// Waits until that much time has passed.
    pub(crate) async fn reach(self, at: Duration) {
        sleep_until(self.0 + at).await;
    }
}

/// What `work` gives, or `None` if it takes too long.
pub(crate) async fn patiently<F: Future>(work: F) -> Option<F::Output> {
    timeout(PATIENCE, work).await.ok()
}
