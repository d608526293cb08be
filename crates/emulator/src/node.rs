//! Parameters of an emulated node, its faults and its counters.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::computer::Disk;
use crate::processor::Thrashing;

/// An emulated node: one computer, or several behind the same addresses. Build it with [`NodeSpec::new`]
/// and change the fields that differ.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Name of the node, sent back in `X-Node`.
    pub name: String,
    /// Listening addresses, at least one. Port 0 takes any free port. Requests to any of the addresses
    /// share the same computers.
    pub addresses: Vec<SocketAddr>,
    /// Number of computers behind the addresses, at least 1. They receive requests in turn. All fields
    /// below apply to each of them.
    pub servers: u32,
    /// Number of virtual CPUs, at least 1.
    pub cpus: u32,
    /// Speed of a CPU, > 0. At speed 1 a demand of 8 ms takes 8 ms.
    pub speed: f64,
    /// Maximum number of requests in service at once (workers). Further requests wait in the node's own
    /// queue. `None` means no limit.
    pub concurrency: Option<u32>,
    /// Maximum number of requests that wait in the node's own queue. Further requests are answered with 503
    /// at once. `None`, or no limit of concurrency, means no limit.
    pub backlog: Option<u32>,
    /// Slowdown when too much runs at once. `None` means no slowdown.
    pub thrashing: Option<Thrashing>,
    /// Disk and the memory in front of it, for requests that name an object (`?object=17`). Without a disk,
    /// objects cost nothing. The disk time that a request states itself (`X-Disk: 3ms` or `?disk=3ms`) is
    /// always spent.
    pub disk: Option<Disk>,
    /// Bytes per second of reply bodies that the node can send, > 0. `None` means no limit. The link time
    /// that a request states itself (`X-Link: 3ms` or `?link=3ms`) is always spent.
    pub bandwidth: Option<f64>,
    /// Size of the reply body in bytes, for a request that does not state its own (`X-Bytes: 512` or
    /// `?bytes=512`).
    pub reply_bytes: usize,
    /// Whether a request is dropped as soon as its client has left. Its completed work is lost, as in a
    /// server that watches its connections. Otherwise the work continues in vain.
    pub drops_abandoned: bool,
    /// Maximum number of connections at once. Further ones wait in the kernel's backlog.
    pub connections: usize,
    /// Maximum number of request ids (`X-Request-Id` or `?id=`) that are logged. Further ones are only counted.
    pub log: usize,
}

impl NodeSpec {
    /// A node of one computer on any free loopback port, with `cpus` CPUs of nominal speed. It has no limit
    /// of its own and no disk. Its replies are 1 KiB. It continues to work
    /// for clients that have left. 16,384 connections leave room for a proxy that never closes one. Ids are
    /// not logged.
    pub fn new(name: impl Into<String>, cpus: u32) -> NodeSpec {
        NodeSpec {
            name: name.into(),
            addresses: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            servers: 1,
            cpus,
            speed: 1.0,
            concurrency: None,
            backlog: None,
            thrashing: None,
            disk: None,
            bandwidth: None,
            reply_bytes: 1024,
            drops_abandoned: false,
            connections: 16_384,
            log: 0,
        }
    }

    /// Returns a message about the first invalid field, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        let counts =
            [("CPUs", self.cpus), ("servers", self.servers), ("concurrency", self.concurrency.unwrap_or(u32::MAX))];
        let rates = [
            ("speed", Some(self.speed)),
            ("the disk's bytes per second", self.disk.map(|disk| disk.bytes_per_s)),
            ("bandwidth", self.bandwidth),
        ];
        let zero = counts.into_iter().find(|(_, count)| *count == 0).map(|(what, _)| what);
        let zero = zero.or((self.connections == 0).then_some("connections"));
        if let Some(what) = zero.or(self.addresses.is_empty().then_some("addresses")) {
            return Some(format!("node {}: {what} must be at least 1", self.name));
        }
        let is_odd = |rate: f64| !(rate.is_finite() && rate > 0.0);
        let odd = rates.into_iter().find_map(|(what, rate)| rate.filter(|rate| is_odd(*rate)).map(|rate| (what, rate)));
        odd.map(|(what, rate)| format!("node {}: {what} must be finite and > 0, not {rate}", self.name))
    }
}

/// Faults of a node, all in force at once. A crash hides all others. A stall hides all others but a crash.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// The node is gone: its listeners are closed and its connections are reset. Its requests in flight and
    /// its memory are lost.
    pub crashed: bool,
    /// The node accepts requests, but works on none and answers none. It continues with them afterwards.
    pub stalled: bool,
    /// Fraction of their speed that the node's CPUs have, > 0.
    pub speed: f64,
    /// Fraction of requests, 0 to 1, that the node answers with 500 after a millisecond instead of working.
    pub fails: f64,
    /// The same fraction for requests of single classes (`X-Class: gold` or `?class=gold`). The larger of
    /// the two applies.
    pub fails_of: Vec<(String, f64)>,
    /// The node answers at once with bytes that are not HTTP, and closes the connection.
    pub garbles: bool,
}

impl Health {
    /// A node without faults.
    pub const WELL: Health =
        Health { crashed: false, stalled: false, speed: 1.0, fails: 0.0, fails_of: Vec::new(), garbles: false };

    /// Fraction of the requests of `class` that the node answers with 500.
    pub fn fails(&self, class: Option<&str>) -> f64 {
        let own = self.fails_of.iter().filter(|(name, _)| Some(name.as_str()) == class).map(|(_, share)| *share);
        own.fold(self.fails, f64::max)
    }
}

/// Ids of a node's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdLog {
    /// Ids of the requests received completely, in order.
    pub received: Vec<Arc<str>>,
    /// Ids of the requests with a 200 that was written completely, in order. An id that appears twice, in
    /// the log of one node or in the logs of two, was worked on twice. An id that was refused or failed and
    /// was then retried does not appear twice.
    pub answered: Vec<Arc<str>>,
    /// Number of received ids that did not fit into the log.
    pub unlogged: u64,
}

/// Counters of a node since it started, across crashes. If there are several computers behind its
/// addresses, these are their sums.
#[derive(Clone, Debug)]
pub struct NodeStats {
    /// Name of the node.
    pub name: String,
    /// Requests received completely.
    pub requests: u64,
    /// Replies of any status written completely.
    pub replies: u64,
    /// Requests that the node answered with 500 because of its faults.
    pub failed: u64,
    /// Requests answered with 503 because its queue was full.
    pub refused: u64,
    /// Requests with a client that closed the connection before the reply began.
    pub unwanted: u64,
    /// Requests that the node could not parse (400) and connections that broke off during a request.
    pub bad: u64,
    /// Requests in service now: held by a worker, at the disk before that, or being sent after it.
    pub in_flight: usize,
    /// Requests that wait for a worker now.
    pub waiting: usize,
    /// Maximum number of requests that were in service at once.
    pub max_in_flight: usize,
    /// Time for which its CPUs were occupied, at most CPUs × time.
    pub busy: Duration,
    /// CPU time handed out, in time of a nominal CPU: the part of the demands that was completed.
    pub done: Duration,
    /// Time for which its disk was occupied.
    pub disk_busy: Duration,
    /// Time for which its bandwidth was fully used.
    pub link_busy: Duration,
    /// Requests that found their object in memory.
    pub hits: u64,
    /// Requests that had to read their object from the disk.
    pub misses: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub connections: usize,
    /// Ids of its requests, up to the limit of [`NodeSpec::log`].
    pub ids: IdLog,
    /// Delay between the instant at which a request finished and the start of its reply, in nanoseconds.
    /// This is the error of the emulation.
    pub lateness: Histogram<u32>,
}

/// Longest lateness that the histogram can tell apart.
const LATEST: Duration = Duration::from_secs(10);

impl NodeStats {
    /// Statistics of a node that has not yet received anything.
    pub(crate) fn new(name: String) -> NodeStats {
        // Two significant digits: the error is read as an order of magnitude and not used in calculations.
        let lateness = Histogram::new_with_bounds(1, LATEST.as_nanos() as u64, 2).expect("constant bounds are valid");
        NodeStats {
            name,
            requests: 0,
            replies: 0,
            failed: 0,
            refused: 0,
            unwanted: 0,
            bad: 0,
            in_flight: 0,
            waiting: 0,
            max_in_flight: 0,
            busy: Duration::ZERO,
            done: Duration::ZERO,
            disk_busy: Duration::ZERO,
            link_busy: Duration::ZERO,
            hits: 0,
            misses: 0,
            accepted: 0,
            connections: 0,
            ids: IdLog::default(),
            lateness,
        }
    }
}
