//! The same for callers without a tokio runtime.

use crate::{Address, Answer, Error, Limits, Request};

/// Sends `request` on its own connection, reads the answer, and blocks the calling thread meanwhile.
///
/// # Errors
/// There is no answer within the limits, or the system has no resources for the attempt. An answer with any status is
/// not an error.
///
/// # Panics
/// Panics within a tokio runtime, where [`crate::exchange`] is right.
pub fn exchange(address: &Address, request: Request, limits: &Limits) -> Result<Answer, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Connect)?;
    let answer = runtime.block_on(crate::exchange(address, request, limits));
    // A name may still be looked up on a thread. Nothing waits for its result.
    runtime.shutdown_background();
    answer
}
