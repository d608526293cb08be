//! The only source of time and randomness in the agent.
#![allow(clippy::disallowed_methods, reason = "the agent's clock")]

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read as _;
use std::time::{Duration, Instant};

use weirgate_wire::Nonce;

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

    /// Waits until `time`.
    pub(crate) async fn reach(self, time: Duration) {
        tokio::time::sleep_until((self.0 + time).into()).await;
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

/// Returns a random time between half of `span` and all of it, so that many waiting agents do not act at
/// once.
pub(crate) fn jittered(span: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) >> 32;
    span.mul_f64(0.5 + 0.5 * random as f64 / f64::from(u32::MAX))
}

/// Returns random bytes for a new connection.
///
/// # Errors
/// The system has no random bytes.
pub(crate) fn nonce() -> Result<Nonce, String> {
    let mut nonce = Nonce::default();
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut nonce));
    read.map(|()| nonce).map_err(|error| format!("/dev/urandom: {error}"))
}
