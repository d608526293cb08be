//! The gateway as a whole: its threads, its phases, and what the admin plane may ask of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weirgate_config::Site;

use crate::control::Control;
use crate::edition::{Edition, ReloadError, ReloadSource};
use crate::record::Observer;

/// A running gateway. Clones are the same gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    control: Control,
    counters: Counters,
}

/// Where a gateway is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its threads are starting.
    Starting,
    /// It serves.
    Ready,
    /// It accepts nothing new and finishes what it has.
    Draining,
    /// Its threads have ended.
    Stopped,
}

/// Counts since the start (and gauges) that are not about a class. Bytes and requests per class are in
/// [`crate::AccessRecord`] and in the engine's snapshots.
#[derive(Debug, Default)]
pub struct Counters {
    /// Client connections accepted.
    pub accepted: AtomicU64,
    /// Client connections open now.
    pub open: AtomicU64,
    /// Times that accepting paused for want of file descriptors or memory.
    pub accept_pauses: AtomicU64,
    /// Connections to nodes opened.
    pub connects: AtomicU64,
    /// Connections to nodes that could not be opened.
    pub connect_failures: AtomicU64,
    /// Requests sent over a connection that had served one before.
    pub reused: AtomicU64,
    /// Response bytes buffered for slow clients now.
    pub buffered_bytes: AtomicU64,
    /// Requests that ended in a panic.
    pub panics: AtomicU64,
    /// Reloads that succeeded.
    pub reloads: AtomicU64,
    /// Reloads that failed.
    pub reload_failures: AtomicU64,
}

impl Gateway {
    /// Opens the listeners of `site`, starts the threads and returns when all of them serve. `text` is the
    /// policy file as read (for its checksum). `observers` are told of every request that has ended.
    ///
    /// # Errors
    /// A listener cannot be opened, the policy is not valid, or a thread cannot be started.
    pub fn start(
        site: Site,
        text: &str,
        source: ReloadSource,
        observers: Vec<Box<dyn Observer>>,
    ) -> std::io::Result<Gateway> {
        let _ = (site, text, source, observers);
        Err(std::io::Error::other("not yet"))
    }

    /// The engine, for snapshots and node events.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.shared.control
    }

    /// The site in force.
    #[must_use]
    pub fn edition(&self) -> Arc<Edition> {
        self.shared.control.edition()
    }

    /// Addresses that clients can connect to now (with the port that was chosen for port 0).
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Where the gateway is in its life.
    #[must_use]
    pub fn phase(&self) -> Phase {
        Phase::Starting
    }

    /// Counts and gauges.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Reads the policy file again and puts it in force; returns the new edition. Blocks for as long as
    /// reading and checking take.
    ///
    /// # Errors
    /// Everything wrong with it; the old policy stays in force.
    pub fn reload(&self) -> Result<Arc<Edition>, ReloadError> {
        Err(ReloadError::NoSource)
    }

    /// Puts `text` in force, resolved as the policy file would be.
    ///
    /// # Errors
    /// See [`Gateway::reload`].
    pub fn reload_text(&self, text: &str) -> Result<Arc<Edition>, ReloadError> {
        let _ = text;
        Err(ReloadError::NoSource)
    }

    /// Stops accepting, finishes what is inside within the site's drain deadline, ends the threads. Returns
    /// at once; see [`Gateway::join`].
    pub fn drain(&self) {
        self.shared.counters.panics.fetch_add(0, Ordering::Relaxed);
    }

    /// Waits until the threads have ended.
    pub fn join(&self) {}
}
