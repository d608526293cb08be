//! The only source of time and randomness in the gateway.
//!
//! All other code asks this module, so that it can be read and tested as a function of its input.
#![allow(clippy::disallowed_methods, reason = "the gateway's clock")]

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

use weirgate_engine::Time;

/// Monotonic clock with its origin at the start of the gateway, as the engine counts time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Creates a clock that starts now.
    #[must_use]
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the calendar time, for logs only.
    #[must_use]
    pub fn calendar() -> SystemTime {
        SystemTime::now()
    }

    /// Sleeps for `span`. Needs a tokio runtime with its timer enabled.
    pub async fn sleep(span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Waits for `work`, for at most `span`. Returns `None` if it takes longer.
    pub async fn within<T>(span: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(span, work).await.ok()
    }

    /// Returns a hasher with a random key, for tables and choices that clients must not be able to influence.
    #[must_use]
    pub fn keyed_hasher() -> RandomState {
        RandomState::new()
    }

    /// Returns a random number for seeds. Not suitable for secrets.
    #[must_use]
    pub fn seed() -> u64 {
        RandomState::new().hash_one(0u8)
    }
}
