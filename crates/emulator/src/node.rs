//! What an emulated node is, what may be wrong with it, and what it counts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::computer::Disk;
use crate::processor::Thrashing;
use crate::random::Distribution;

/// An emulated node: one computer, or several behind the same addresses. Build it with [`NodeSpec::new`] and
/// change what differs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Its name; sent back in `X-Node`.
    pub name: String,
    /// Where it listens, at least one. Port 0 takes any free port. What comes in at any of them shares the
    /// same computers.
    pub addresses: Vec<SocketAddr>,
    /// Computers hidden behind the addresses, at least 1; they take turns. All that follows is of each.
    pub servers: u32,
    /// Virtual CPUs, at least 1.
    pub cpus: u32,
    /// Speed of a CPU, > 0: at 1 a demand of 8 ms takes 8 ms.
    pub speed: f64,
    /// Most requests inside at once (workers); more wait in its own queue. `None` is no limit.
    pub concurrency: Option<u32>,
    /// Most requests that wait in its own queue; more are answered 503 at once. `None`, or no limit of
    /// concurrency, is no limit.
    pub backlog: Option<u32>,
    /// How it slows down when too much runs at once; `None` is not at all.
    pub thrashing: Option<Thrashing>,
    /// Its disk and the memory before it, for requests that name an object (`?object=17`); without one,
    /// objects cost nothing. What requests say they take of a disk (`X-Disk: 3ms` or `?disk=3ms`) they take either way.
    pub disk: Option<Disk>,
    /// Bytes per second of reply bodies that it can send, > 0; `None` is no limit. What requests say they take of the
    /// link (`X-Link: 3ms` or `?link=3ms`) they take either way.
    pub bandwidth: Option<f64>,
    /// CPU time of a request that does not say its own (`X-Demand: 8ms` or `?demand=8ms`).
    pub demand: Distribution,
    /// Delay after the CPU time of a request that does not say its own (`X-Io: 20ms` or `?io=20ms`).
    pub io: Distribution,
    /// Bytes of the reply's body of a request that does not say its own (`X-Bytes: 512` or `?bytes=512`). For how long
    /// it streams from its first byte on, each request says for itself (`X-Stream: 30s` or `?stream=30s`).
    pub reply_bytes: usize,
    /// A request whose client has left is dropped at once, with what was done of it, as by a server that
    /// looks at its connections. Otherwise the work goes on, in vain.
    pub drops_abandoned: bool,
    /// Most connections at once; more wait in the kernel's backlog.
    pub connections: usize,
    /// Most request ids (`X-Request-Id` or `?id=`) that are logged; further ones are counted only.
    pub log: usize,
}

impl NodeSpec {
    /// One computer on any free loopback port with so many CPUs of nominal speed, no limit of its own, no
    /// disk, requests of no demand and replies of 1 KiB. It works on for clients that have left. 16,384
    /// connections leave room for a proxy that never closes one; ids are not logged.
    #[must_use]
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
            demand: Distribution::ZERO,
            io: Distribution::ZERO,
            reply_bytes: 1024,
            drops_abandoned: false,
            connections: 16_384,
            log: 0,
        }
    }

    /// What makes no sense in it, if anything does not.
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

/// What is wrong with a node, all at once. A crash hides the rest, a stall everything but a crash.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// It is gone: its listeners are closed, its connections reset, and what was inside, its memory
    /// included, is forgotten.
    pub crashed: bool,
    /// It takes requests, works on none and answers none; what it holds goes on afterwards.
    pub stalled: bool,
    /// The share of its speed that its CPUs have, > 0.
    pub speed: f64,
    /// The share of requests, 0 to 1, that it answers 500 after a millisecond instead of working.
    pub fails: f64,
    /// The same of requests of single classes (`X-Class: gold` or `?class=gold`); the larger counts.
    pub fails_of: Vec<(String, f64)>,
    /// It answers bytes that are not HTTP, at once, and closes.
    pub garbles: bool,
}

impl Health {
    /// Nothing is wrong.
    pub const WELL: Health =
        Health { crashed: false, stalled: false, speed: 1.0, fails: 0.0, fails_of: Vec::new(), garbles: false };

    /// The share of the requests of `class` that it answers 500.
    #[must_use]
    pub fn fails(&self, class: Option<&str>) -> f64 {
        let own = self.fails_of.iter().filter(|(name, _)| Some(name.as_str()) == class).map(|(_, share)| *share);
        own.fold(self.fails, f64::max)
    }
}

/// The ids of a node's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdLog {
    /// Of the requests received whole, in order.
    pub received: Vec<Arc<str>>,
    /// Of the requests whose 200 was written to the end, in order. An id that is here twice, in one log or
    /// in those of two nodes, was worked on twice; one that was refused or failed and then tried again is
    /// not.
    pub answered: Vec<Arc<str>>,
    /// Received ids that did not fit into the log.
    pub unlogged: u64,
}

/// What a node has counted since it started, a crash notwithstanding. Of several computers behind its addresses
/// the sums.
#[derive(Clone, Debug)]
pub struct NodeStats {
    /// Its name.
    pub name: String,
    /// Requests received whole.
    pub requests: u64,
    /// Replies written to the end, of any status.
    pub replies: u64,
    /// Requests that its health made it answer 500.
    pub failed: u64,
    /// Requests answered 503 because its queue was full.
    pub refused: u64,
    /// Requests whose client closed the connection before the reply was begun.
    pub unwanted: u64,
    /// Requests that it could not understand (400) and connections cut off amid a request.
    pub bad: u64,
    /// Requests inside now: with a worker, at the disk before that, or being sent after it.
    pub inside: usize,
    /// Requests waiting for a worker now.
    pub waiting: usize,
    /// Most requests that were inside at once.
    pub max_inside: usize,
    /// Time for which its CPUs were occupied; at most CPUs × time.
    pub busy: Duration,
    /// CPU time handed out, in that of a nominal CPU: what was done of the demands.
    pub done: Duration,
    /// Time for which its disk was occupied.
    pub disk_busy: Duration,
    /// Time for which its bandwidth was all in use.
    pub link_busy: Duration,
    /// Requests whose object was in memory.
    pub hits: u64,
    /// Requests whose object had to be read from the disk.
    pub misses: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub connections: usize,
    /// Ids of its requests, as far as [`NodeSpec::log`] allows.
    pub ids: IdLog,
    /// How late replies were begun after the instant at which the request was finished, in
    /// nanoseconds: the error of the emulation.
    pub lateness: Histogram<u32>,
}

/// Longest lateness that is told apart.
const LATEST: Duration = Duration::from_secs(10);

impl NodeStats {
    /// Zeros.
    pub(crate) fn new(name: String) -> NodeStats {
        // Two significant digits: an error is an order of magnitude, not a figure to compute with.
        let lateness = Histogram::new_with_bounds(1, LATEST.as_nanos() as u64, 2).expect("constant bounds are valid");
        NodeStats {
            name,
            requests: 0,
            replies: 0,
            failed: 0,
            refused: 0,
            unwanted: 0,
            bad: 0,
            inside: 0,
            waiting: 0,
            max_inside: 0,
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
