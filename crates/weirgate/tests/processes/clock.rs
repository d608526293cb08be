//! The only place where tests of real processes read the time or wait.

#![allow(clippy::disallowed_methods, reason = "time enters these tests here and nowhere else")]

use std::time::{Duration, Instant};

/// Time limit of a server's start: ten times the time that a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time between two checks of a condition that sends no notice.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until `condition` holds. Returns false if it never does.
pub(crate) fn becomes_true(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
