//! Stage *observe*, interface for observers: the record of each finished request.

use std::net::IpAddr;
use std::time::Duration;

use weirgate_engine::{ShedReason, TemplateId, Would};

use crate::handshake::ClientTls;
use crate::request::Request;
use crate::trace::{SpanIds, TraceId};

/// Observer of finished requests, called on the serving thread. It must neither block nor fail. A record that
/// it cannot take at once is dropped and counted.
pub trait Observer: Send + Sync {
    /// Handles the record of a finished request.
    fn observe(&self, record: &AccessRecord<'_>);
}

/// A class by its position in the policy file. Metric labels are made from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClassIndex {
    /// A class, as an index into `site.policy.classes`.
    Class(u32),
    /// All classes made from a template, as an index into `site.policy.templates`.
    Template(TemplateId),
}

weirgate_engine::named! {
    /// Protocol of a client's message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Protocol {
        /// HTTP/1.0
        Http10 = "HTTP/1.0",
        /// HTTP/1.1
        Http11 = "HTTP/1.1",
        /// HTTP/2
        Http2 = "HTTP/2.0",
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A node answered it to the last byte.
    Served,
    /// It became a tunnel (status 101, and 200 over HTTP/2), which has closed.
    Tunnelled,
    /// It was redirected to `https`.
    Redirected,
    /// It was the check of an authority that issues certificates (`http-01`), which the gateway answered.
    Challenge,
    /// The engine shed it.
    Shed(ShedReason),
    /// It broke a rule of HTTP or exceeded a limit (4xx). The text says which.
    Refused(&'static str),
    /// The nodes failed to serve it (502, 504, or broken off). The word is the error type of RFC 9209.
    Failed(&'static str),
    /// The client left before the end.
    Left,
}

/// One request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct AccessRecord<'a> {
    /// Version of the configuration under which it was classified.
    pub version: u64,
    /// Its class, or `None` if it was refused before stage *classify*.
    pub class: Option<ClassIndex>,
    /// The class's name in the policy file, or `-`.
    pub class_name: &'a str,
    /// How it ended.
    pub ending: Ending,
    /// What would have happened to it, if it passed because its class is observed.
    pub would: Option<Would>,
    /// Status sent to the client, or 0 if none was sent.
    pub status: u16,
    /// The node that answered or failed last.
    pub node: Option<&'a str>,
    /// Number of retries.
    pub retries: u8,
    /// Time from the end of its head to its release (or shed).
    pub queue_wait: Duration,
    /// Time from its release to the node's last byte, or zero if it was not released.
    pub service_time: Duration,
    /// Time from the end of its head to the last byte handed to the client's socket.
    pub total: Duration,
    /// Number of body bytes received from the client.
    pub bytes_in: u64,
    /// Number of body bytes sent to the client.
    pub bytes_out: u64,
    /// Protocol of the request.
    pub protocol: Protocol,
    /// The trace id of `traceparent`, or `None` if the request was refused before stage *classify*.
    pub trace_id: Option<&'a TraceId>,
    /// Ids of its span, if its trace is exported.
    pub span: Option<SpanIds>,
    /// The request. It has no method, host or path if the head could not be read.
    pub request: &'a Request,
    /// The client's address (the rightmost untrusted hop).
    pub client: IpAddr,
    /// Facts about the TLS of its connection, if it is encrypted.
    pub tls: Option<&'a ClientTls>,
}

impl<'a> AccessRecord<'a> {
    /// Creates the record of a request of a class that was served with status 200 in no time, to a client at
    /// 192.0.2.1 (RFC 5737) without encryption.
    pub fn served(request: &'a Request, class_name: &'a str) -> AccessRecord<'a> {
        AccessRecord {
            version: 1,
            class: None,
            class_name,
            ending: Ending::Served,
            would: None,
            status: 200,
            node: None,
            retries: 0,
            queue_wait: Duration::ZERO,
            service_time: Duration::ZERO,
            total: Duration::ZERO,
            bytes_in: 0,
            bytes_out: 0,
            protocol: Protocol::Http11,
            trace_id: None,
            span: None,
            request,
            client: IpAddr::from([192, 0, 2, 1]),
            tls: None,
        }
    }
}
