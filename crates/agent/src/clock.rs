//! The one place where time enters the agent.
#![allow(clippy::disallowed_methods, reason = "the agent's clock")]

use std::time::Duration;

/// Waits for `work`, at most `span`; `None` if it took longer.
pub(crate) async fn within<T>(span: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(span, work).await.ok()
}

/// Waits.
pub(crate) async fn sleep(span: Duration) {
    tokio::time::sleep(span).await;
}
