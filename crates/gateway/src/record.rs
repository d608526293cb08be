//! Stage *observe*, towards people: what is told about each request when it has ended.

use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use weirgate_engine::{ShedReason, TemplateId};

/// Told of every request when it has ended, on the thread that served it. It must neither block nor
/// fail: what cannot be taken at once is dropped and counted.
pub trait Observer: Send + Sync {
    /// A request has ended.
    fn observe(&self, record: &AccessRecord<'_>);
}

/// A class as the policy file names it: what labels of metrics are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClassIndex {
    /// Index into `site.policy.classes`.
    Class(u32),
    /// Index into `site.policy.templates`, for all classes made from it.
    Template(TemplateId),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A node answered it to the last byte.
    Served,
    /// It became a tunnel (status 101), which has closed.
    Tunnelled,
    /// It was turned away by the engine.
    Shed(ShedReason),
    /// It broke the rules of HTTP or a limit (4xx); the word says which.
    Refused(&'static str),
    /// The nodes failed it (502, 504, or cut off in the middle); the word is the error of RFC 9209.
    Failed(&'static str),
    /// The client left before the end.
    Left,
}

/// One request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord<'a> {
    /// Version of the site that it was classified under.
    pub version: u64,
    /// Its class; `None` if it was refused before stage *classify*.
    pub class: Option<ClassIndex>,
    /// The class's name in the policy file, or `-`.
    pub class_name: &'a str,
    /// How it ended.
    pub ending: Ending,
    /// Status sent to the client; 0 if none was.
    pub status: u16,
    /// The node that answered (or failed) last.
    pub node: Option<&'a str>,
    /// Attempts after the first.
    pub retries: u8,
    /// From the end of its head to its release (or shed).
    pub queue_wait: Duration,
    /// From its release to the node's last byte; zero if it was not released.
    pub service_time: Duration,
    /// From the end of its head to the last byte handed to the client's socket.
    pub total: Duration,
    /// Body bytes received from the client.
    pub bytes_in: u64,
    /// Body bytes sent to the client.
    pub bytes_out: u64,
    /// The trace id of `traceparent`, as 32 hex digits.
    pub trace_id: &'a str,
    /// The method; `None` if the head could not be read.
    pub method: Option<&'a Method>,
    /// The host, lower case, without port; empty if the head could not be read.
    pub host: &'a str,
    /// Canonical path and query; empty if the head could not be read.
    pub path: &'a str,
    /// The client's address (the rightmost untrusted hop).
    pub client: IpAddr,
}
