//! What an emulated node is, what can be done to it, and what it counts.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::processor::Thrashing;
use crate::random::Distribution;

/// An emulated node. Build it with [`NodeSpec::new`] and change what differs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Its name; sent back in `X-Node`.
    pub name: String,
    /// Where it listens. Port 0 takes any free port.
    pub address: SocketAddr,
    /// Virtual CPUs, at least 1.
    pub cpus: u32,
    /// Most requests inside at once (workers); more wait in its own queue. `None` is no limit.
    pub concurrency: Option<u32>,
    /// How it slows down when too much runs at once; `None` is not at all.
    pub thrashing: Option<Thrashing>,
    /// CPU time of a request that does not say its own (`X-Demand: 8ms` or `?demand=8ms`).
    pub demand: Distribution,
    /// Delay after the CPU time of a request that does not say its own (`X-Io: 20ms` or `?io=20ms`).
    pub io: Distribution,
    /// Bytes of the reply's body of a request that does not say its own (`X-Bytes: 512` or `?bytes=512`).
    pub reply_bytes: usize,
    /// Most connections at once; more wait in the kernel's backlog.
    pub connections: usize,
    /// Most request ids (`X-Request-Id` or `?id=`) that are logged; further ones are counted only.
    pub log: usize,
}

impl NodeSpec {
    /// A node on any free loopback port with so many CPUs, no limit of its own, requests of no demand and
    /// replies of 1 KiB. 16,384 connections leave room for a proxy that never closes one; ids are not
    /// logged.
    #[must_use]
    pub fn new(name: impl Into<String>, cpus: u32) -> NodeSpec {
        NodeSpec {
            name: name.into(),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            cpus,
            concurrency: None,
            thrashing: None,
            demand: Distribution::ZERO,
            io: Distribution::ZERO,
            reply_bytes: 1024,
            connections: 16_384,
            log: 0,
        }
    }
}

/// What can be done to a running node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command {
    /// It takes requests and answers none.
    Stall,
    /// It closes its listener and all connections and forgets what was inside.
    Crash,
    /// Everything takes so many times as long.
    Slow {
        /// > 0; 1 is nominal.
        factor: f64,
    },
    /// It answers 500 at once.
    Errors,
    /// It answers bytes that are not HTTP, and closes.
    Garbage,
    /// It is well again; what a stall held back goes on.
    Recover,
}

/// What a node has counted since it started.
#[derive(Clone, Debug)]
pub struct NodeStats {
    /// Its name.
    pub name: String,
    /// Requests received whole.
    pub requests: u64,
    /// Replies written to the end, of any status.
    pub replies: u64,
    /// Requests that were finished when their client had closed the connection already.
    pub unwanted: u64,
    /// Requests that it could not understand (400) and connections cut off amid a request.
    pub bad: u64,
    /// Requests inside now.
    pub inside: usize,
    /// Requests waiting for a worker now.
    pub waiting: usize,
    /// Most requests that were inside at once.
    pub max_inside: usize,
    /// Time for which its CPUs were occupied; at most CPUs × time.
    pub busy: Duration,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub connections: usize,
    /// Ids of the requests received, in order, as far as [`NodeSpec::log`] allows.
    pub log: Vec<Box<str>>,
    /// Ids that did not fit into the log.
    pub unlogged: u64,
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
            unwanted: 0,
            bad: 0,
            inside: 0,
            waiting: 0,
            max_inside: 0,
            busy: Duration::ZERO,
            accepted: 0,
            connections: 0,
            log: Vec::new(),
            unlogged: 0,
            lateness,
        }
    }
}
