//! Counters of the gateway as a whole.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::handshake::Handshakes;
use crate::metrics::{Single, Value};
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

/// Declares the counters, each with its kind and its name in the metrics. Its comment is its help there.
macro_rules! counters {
    ($( $(#[doc = $help:literal])+ $field:ident: $Kind:ident = $name:literal, )+) => {
        /// Counters since the start, and gauges, that do not depend on a class. For bytes and requests per class see
        /// [`crate::AccessRecord`] and the engine's snapshots.
        #[derive(Debug, Default)]
        pub struct Counters {
            $( $(#[doc = $help])+ pub $field: AtomicU64, )+
            /// Accepted client connections that were closed at once, because their peer had too many.
            pub refused_connections: RefusedConns,
            /// Accepted client connections that were closed at once, because their peer opened too many in a short
            /// time.
            pub over_rate_connections: RefusedConns,
            /// Numbers of client connections that were closed for want of a header of the PROXY protocol.
            pub header_failures: HeaderFailures,
            /// Numbers of TLS handshakes of clients.
            pub handshakes: Handshakes,
        }

        impl Counters {
            /// Returns the series of the counters with one number.
            pub(crate) fn series(&self) -> Vec<Single> {
                vec![$( Single {
                    name: $name,
                    help: concat!($($help),+).trim_start().trim_end_matches('.'),
                    value: Value::$Kind(self.$field.load(Ordering::Relaxed)),
                }, )+]
            }
        }
    };
}

counters! {
    /// Client connections accepted.
    accepted: Counter = "connections",
    /// Client connections open now.
    open: Gauge = "connections_open",
    /// Times that accepting paused because file descriptors or memory ran out.
    accept_pauses: Counter = "accept_pauses",
    /// Client connections that made room for others, because there were as many as there may be or memory or file
    /// descriptors ran out.
    spared_connections: Counter = "connections_spared",
    /// Client connections that speak HTTP/2.
    http2_connections: Counter = "http2_connections",
    /// Requests over HTTP/2.
    http2_requests: Counter = "http2_requests",
    /// HTTP/2 connections closed because of frames without content, or of slow heads.
    http2_floods: Counter = "http2_floods",
    /// Connections to nodes opened.
    connects: Counter = "node_connects",
    /// Connections to nodes that could not be opened.
    connect_failures: Counter = "node_connect_failures",
    /// Requests sent over a connection that had served one before.
    reused: Counter = "node_connection_reuses",
    /// Response bytes buffered for slow clients now.
    buffered_bytes: Gauge = "buffered_bytes",
    /// Responses that have given their slot back, by long_responses of the class.
    long_responses: Counter = "long_responses",
    /// Times that a long response kept its slot for a second because of long_responses.max of the class.
    long_responses_refused: Counter = "long_responses_refused",
    /// Tunnels opened.
    tunnels: Counter = "tunnels",
    /// Requests for a tunnel refused because of limits.tunnels or of tunnels.max of the class.
    tunnels_refused: Counter = "tunnels_refused",
    /// Tunnels closed at the end of tunnels.idle or tunnels.total of the class.
    tunnels_timed_out: Counter = "tunnels_timed_out",
    /// Requests that ended in a panic.
    panics: Counter = "panics",
    /// Reloads that succeeded.
    reloads: Counter = "reloads",
    /// Reloads that failed.
    reload_failures: Counter = "reload_failures",
}
