//! The same for callers without a tokio runtime.

use std::ops::ControlFlow;

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
    block_on(crate::exchange(address, request, limits))
}

/// Sends `request` on its own connection and passes the answer's pieces on, as [`crate::exchange_in_pieces`] does.
///
/// # Errors
/// As for [`crate::exchange_in_pieces`], or the system has no resources for the attempt.
///
/// # Panics
/// Panics within a tokio runtime.
pub fn exchange_in_pieces(
    address: &Address,
    request: Request,
    limits: &Limits,
    head: impl FnOnce(&Answer),
    take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Answer, Error> {
    block_on(crate::exchange_in_pieces(address, request, limits, head, take))
}

fn block_on(exchange: impl Future<Output = Result<Answer, Error>>) -> Result<Answer, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Connect)?;
    let answer = runtime.block_on(exchange);
    // A name may still be looked up on a thread. Nothing waits for its result.
    runtime.shutdown_background();
    answer
}
