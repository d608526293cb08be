//! The one place where tests of real processes read the time or wait.

#![allow(clippy::disallowed_methods, reason = "time enters these tests here and nowhere else")]

use std::time::{Duration, Instant};

/// The longest that a server may take to start: ten times what a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks at a condition that nothing announces.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until `condition` holds. False if it never does.
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
