//! Hand-over of the listening sockets to another process, and the drain that follows.
//!
//! Both processes hold the same sockets, so no connection is refused and none waits in a queue that nothing reads. The
//! gateway serves until the other process has taken over. If that fails, the gateway serves on.

use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};

use weirgate_config::ListenerName;
use weirgate_listening::Socket;

use crate::gateway::{Gateway, Phase, lock};
use crate::listener::Opened;

/// Time for which a connection without a request is kept after a hand-over. A client that sends requests more often
/// than this loses none of them, because the response to the next one announces the end of the connection.
const IDLE_AFTERWARDS: Duration = Duration::from_secs(5);

/// A hand-over under way. Dropping it gives it up. Reloads are refused meanwhile, because they could change the
/// listeners.
#[derive(Debug)]
pub struct HandOver<'a> {
    gateway: &'a Gateway,
}

/// Why a hand-over was not done.
#[derive(Debug)]
pub enum HandOverError {
    /// Another hand-over is under way.
    UnderWay,
    /// The gateway does not serve, or no longer.
    NotServing,
    /// The sockets could not be passed on, or the other process ended.
    Failed(io::Error),
}

impl fmt::Display for HandOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandOverError::UnderWay => f.write_str("a hand-over is under way"),
            HandOverError::NotServing => f.write_str("this process accepts no connections any more"),
            HandOverError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HandOverError {}

impl Gateway {
    /// Begins a hand-over.
    ///
    /// # Errors
    /// The gateway does not serve, or hands over already.
    pub fn begin_hand_over(&self) -> Result<HandOver<'_>, HandOverError> {
        let _after_a_reload = lock(&self.shared.reloading);
        if self.phase() != Phase::Ready {
            return Err(HandOverError::NotServing);
        }
        if self.shared.handing_over.swap(true, Ordering::AcqRel) {
            return Err(HandOverError::UnderWay);
        }
        Ok(HandOver { gateway: self })
    }

    /// Whether clients can connect: to this gateway, or to the process that has taken over its sockets.
    pub fn accepts(&self) -> bool {
        self.phase() == Phase::Ready || self.shared.handed_over.load(Ordering::Acquire)
    }
}

impl HandOver<'_> {
    /// Returns duplicates of all listening sockets, with their listeners as the policy names them.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub fn sockets(&self) -> Result<Vec<(ListenerName, Socket)>, HandOverError> {
        let listeners = lock(&self.gateway.shared.listeners);
        let all = listeners.iter().flat_map(|one| one.sockets.iter().map(|socket| (&one.named, socket)));
        all.map(|(named, socket)| Ok((ListenerName::clone(named), socket.try_clone().map_err(HandOverError::Failed)?)))
            .collect()
    }

    /// Lets the other process take over with `go`, and drains. An idle connection is kept for some seconds. Until then
    /// the response to its next request announces its end.
    ///
    /// # Errors
    /// The gateway was told to stop in the meantime, or `go` failed. In the second case the gateway serves on.
    pub fn finish(self, go: impl FnOnce() -> io::Result<()>) -> Result<(), HandOverError> {
        let shared = &self.gateway.shared;
        let _not_during_a_drain = lock(&shared.reloading);
        if self.gateway.phase() != Phase::Ready {
            return Err(HandOverError::NotServing);
        }
        // Before `go`, because a signal may end this process right afterwards, and a cut waits for nothing.
        lock(&shared.listeners).iter_mut().for_each(Opened::leave);
        if let Err(error) = go() {
            lock(&shared.listeners).iter_mut().for_each(Opened::take_over);
            return Err(HandOverError::Failed(error));
        }
        shared.handed_over.store(true, Ordering::Release);
        shared.drain(IDLE_AFTERWARDS);
        Ok(())
    }
}

impl Drop for HandOver<'_> {
    fn drop(&mut self) {
        self.gateway.shared.handing_over.store(false, Ordering::Release);
    }
}
