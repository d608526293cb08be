//! The only source of time in the prober.
#![allow(clippy::disallowed_methods, reason = "the prober's clock")]

use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Monotonic clock that starts at zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Creates a clock that starts now.
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the time since the start.
    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Waits for `work`, for at most `span`. Returns `None` if it takes longer.
pub(crate) async fn within<T>(span: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(span, work).await.ok()
}

/// Sleeps for `span`.
pub(crate) async fn sleep(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Returns the seconds since 1970, for the table's date.
pub(crate) fn calendar() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the CPU time that this process has used, in seconds.
pub(crate) fn own_cpu() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
