//! Counters of the gateway as a whole.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::handshake::Handshakes;
use crate::proxy_protocol::HeaderFailures;

/// Client connections that were closed at once for one reason.
#[derive(Debug, Default)]
pub struct RefusedConns {
    count: AtomicU64,
    latest: Mutex<Option<IpAddr>>,
}

impl RefusedConns {
    /// Counts a connection of `peer`.
    pub(crate) fn count(&self, peer: IpAddr) {
        self.count.fetch_add(1, Ordering::Relaxed);
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(peer);
    }

    /// Returns their number.
    pub fn total(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the peer of the latest one.
    pub fn latest(&self) -> Option<IpAddr> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters since the start, and gauges, that do not depend on a class. For bytes and requests per class see
/// [`crate::AccessRecord`] and the engine's snapshots.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of accepted client connections.
    pub accepted: AtomicU64,
    /// Accepted client connections that were closed at once, because their peer had too many.
    pub refused_connections: RefusedConns,
    /// Accepted client connections that were closed at once, because their peer opened too many in a short time.
    pub over_rate_connections: RefusedConns,
    /// Numbers of client connections that were closed for want of a header of the PROXY protocol.
    pub header_failures: HeaderFailures,
    /// Number of client connections open now.
    pub open: AtomicU64,
    /// Number of times that accepting paused because of a lack of file descriptors or memory.
    pub accept_pauses: AtomicU64,
    /// Numbers of TLS handshakes of clients.
    pub handshakes: Handshakes,
    /// Number of accepted client connections that speak HTTP/2.
    pub http2_connections: AtomicU64,
    /// Number of requests over HTTP/2.
    pub http2_requests: AtomicU64,
    /// Number of HTTP/2 connections that were closed because the client flooded them, or sent a head too slowly.
    pub http2_floods: AtomicU64,
    /// Number of attempts to connect to a node.
    pub connects: AtomicU64,
    /// Number of failed attempts to connect to a node.
    pub connect_failures: AtomicU64,
    /// Number of requests sent over a reused connection.
    pub reused: AtomicU64,
    /// Number of response bytes now buffered for slow clients.
    pub buffered_bytes: AtomicU64,
    /// Number of responses that have given their slot back, by `long_responses` of their class.
    pub long_responses: AtomicU64,
    /// Number of times that such a response kept its slot for another second, because its class had too many.
    pub long_responses_refused: AtomicU64,
    /// Number of tunnels that were opened.
    pub tunnels: AtomicU64,
    /// Number of requests for a tunnel that were refused, because there were too many.
    pub tunnels_refused: AtomicU64,
    /// Number of tunnels that were closed at the end of their idle or total time.
    pub tunnels_timed_out: AtomicU64,
    /// Number of requests that ended in a panic.
    pub panics: AtomicU64,
    /// Number of successful reloads.
    pub reloads: AtomicU64,
    /// Number of failed reloads.
    pub reload_failures: AtomicU64,
}
