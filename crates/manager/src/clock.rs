//! The one place where time and entropy enter the manager.
#![allow(clippy::disallowed_methods, reason = "the manager's clock")]

use std::fs::File;
use std::io::{self, Read as _};
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

/// Random bytes for a new connection.
///
/// # Errors
/// The system has none.
pub(crate) fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}
