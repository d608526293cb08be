//! The only source of time and randomness in the coordinator.
#![allow(clippy::disallowed_methods, reason = "the coordinator's clock")]

use std::fs::File;
use std::io::{self, Read as _};
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

/// Returns random bytes for a new connection.
///
/// # Errors
/// The system has no random bytes.
pub(crate) fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}
