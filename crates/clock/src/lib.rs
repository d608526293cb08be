//! Time, waiting and randomness for the drivers.
//!
//! `clippy.toml` forbids the underlying methods everywhere else. All other code is therefore a function of its
//! input, and you can find each use of time by the name of this crate. The engine does not use it: its driver
//! passes the time and a seed.
//!
//! Blocking calls are always available. Calls for asynchronous code need the feature `tokio`.
#![allow(clippy::disallowed_methods, reason = "time and randomness enter the drivers here")]

mod calendar;

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read as _};
use std::time::{Duration, Instant, SystemTime};

pub use calendar::{common_log_time, leading_date, rfc3339, rfc3339_seconds, since_1970};

#[cfg(feature = "tokio")]
pub use asynchronous::{sleep, within};

/// Pause between two checks of a condition that sends no notice.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// Monotonic clock that starts at zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Creates a clock that starts now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the time since the start.
    pub fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Returns the calendar time, for logs and records only: it can jump.
pub fn calendar() -> SystemTime {
    SystemTime::now()
}

/// Blocks the calling thread for `span`.
pub fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Blocks the calling thread until `condition` holds. Returns false if it does not hold within `limit`.
pub fn becomes_true(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let clock = Clock::start();
    while !condition() {
        if clock.now() > limit {
            return false;
        }
        pause(CHECK_EVERY);
    }
    true
}

/// Returns bytes from the system's random source, suitable for secrets.
///
/// # Errors
/// The system has no random bytes.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Returns a random number for seeds. Not suitable for secrets.
pub fn seed() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// Returns a hasher with a random key, for tables and choices that clients must not be able to influence.
pub fn keyed_hasher() -> RandomState {
    RandomState::new()
}

/// Returns a random time between half of `span` and all of it, so that many waiting processes do not act at
/// once.
pub fn jittered(span: Duration) -> Duration {
    let random = seed() >> 32;
    span.mul_f64(0.5 + 0.5 * random as f64 / f64::from(u32::MAX))
}

/// Waiting in asynchronous code. It needs a tokio runtime with its timer enabled.
#[cfg(feature = "tokio")]
mod asynchronous {
    use super::{Clock, Duration};

    impl Clock {
        /// Waits until `time`.
        pub async fn reach(self, time: Duration) {
            tokio::time::sleep_until((self.0 + time).into()).await;
        }
    }

    /// Sleeps for `span`.
    pub async fn sleep(span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Waits for `work`, for at most `span`. Returns `None` if it takes longer.
    pub async fn within<T>(span: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(span, work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_differ_and_stay_in_their_range() {
        assert_ne!(random_bytes::<16>().expect("random bytes"), random_bytes::<16>().expect("random bytes"));
        let span = Duration::from_millis(400);
        assert!((0..100).all(|_| (span / 2..=span).contains(&jittered(span))));
    }

    #[test]
    fn a_condition_is_checked_until_the_limit() {
        let mut left = 3;
        let limit = Duration::from_secs(20);
        assert!(becomes_true(limit, || {
            left -= 1;
            left == 0
        }));
        assert!(!becomes_true(Duration::ZERO, || false));
    }
}
