//! The one place where time and entropy enter the agent.
#![allow(clippy::disallowed_methods, reason = "the agent's clock")]

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read as _;
use std::time::{Duration, Instant};

use weirgate_config::Nonce;

/// Monotonic time since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Time since then.
    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// Waits until `time`.
    pub(crate) async fn reach(self, time: Duration) {
        tokio::time::sleep_until((self.0 + time).into()).await;
    }
}

/// Waits for `work`, at most `span`; `None` if it took longer.
pub(crate) async fn within<T>(span: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(span, work).await.ok()
}

/// Waits.
pub(crate) async fn sleep(span: Duration) {
    tokio::time::sleep(span).await;
}

/// A time between half of `span` and all of it, so that those who wait for the same do not all come at once.
pub(crate) fn jittered(span: Duration) -> Duration {
    let random = RandomState::new().hash_one(0u8) >> 32;
    span.mul_f64(0.5 + 0.5 * random as f64 / f64::from(u32::MAX))
}

/// Random bytes for a new connection.
///
/// # Errors
/// The system has none.
pub(crate) fn nonce() -> Result<Nonce, String> {
    let mut nonce = Nonce::default();
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut nonce));
    read.map(|()| nonce).map_err(|error| format!("/dev/urandom: {error}"))
}
