//! The only place where this test reads the time or waits.

#![allow(clippy::disallowed_methods, reason = "time enters the test here and nowhere else")]

use std::future::Future;
use std::time::Duration;

/// Time limit of every step of a peer: ten times the time that a loaded machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The same for proxies that are not under test and are known to keep doubtful connections open.
pub(crate) const HASTE: Duration = Duration::from_secs(1);

/// Time for which a connection is watched for an answer that must not come.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);

/// Returns the result of `work`, or `None` if `limit` passes first.
pub(crate) async fn within<F: Future>(limit: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(limit, work).await.ok()
}
