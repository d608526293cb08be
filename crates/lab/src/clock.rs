//! The lab's only clock and only sleep: real processes live in real time.

use std::time::{Duration, Instant};

/// Now.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
pub fn now() -> Instant {
    Instant::now()
}

/// Waits so long.
#[expect(clippy::disallowed_methods, reason = "the one place where this crate waits")]
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Waits until `at`, not at all if that is past.
pub fn sleep_until(at: Instant) {
    sleep(at.saturating_duration_since(now()));
}
