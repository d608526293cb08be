//! The one place where time and entropy enter the gateway.
//!
//! Everything else asks here, so that the rest can be read (and tested) as a function of its input.
#![allow(clippy::disallowed_methods, reason = "the gateway's clock")]

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

use weirgate_engine::Time;

/// Monotonic time since the start of the gateway, as the engine counts it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The calendar time, for logs only.
    #[must_use]
    pub fn calendar() -> SystemTime {
        SystemTime::now()
    }

    /// Waits on a tokio runtime with its timer enabled.
    pub async fn sleep(span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Waits for `work`, at most `span`; `None` if it took longer.
    pub async fn within<T>(span: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(span, work).await.ok()
    }

    /// A hasher with a random key: for tables and choices that clients must not be able to steer.
    #[must_use]
    pub fn keyed_hasher() -> RandomState {
        RandomState::new()
    }

    /// A random number, for seeds. Not for secrets.
    #[must_use]
    pub fn seed() -> u64 {
        RandomState::new().hash_one(0u8)
    }
}
