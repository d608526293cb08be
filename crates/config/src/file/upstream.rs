//! Upstreams: pools of nodes.

use weirgate_spanned_yaml::decode::{At, Defaulted, FromText, OneOrMany, Optional, Required, Switch, TextOrMap};
use weirgate_spanned_yaml::errors::Complaint;
use weirgate_spanned_yaml::unit::{Amount, Answer, Count, Name, Share, Span, Text};
use weirgate_spanned_yaml::{record, text_schema, words};

use super::address::NodeAddress;
use super::discover::Discover;
use super::dispatch::Dispatch;
use crate::site::ProxyVersion;

record! {
    /// A pool of servers that answer the same requests.
    pub(crate) struct Upstream {
        /// Its nodes: `host:port` or `unix:/path`, or a map with further properties of the node. Or `original`: the
        /// address that the client of an intercepted connection wanted. Required without `discover`.
        nodes: Optional<OneOrMany<NodeForm>>,
        /// The place that names its nodes, instead of `nodes`.
        discover: Optional<Discover>,
        /// Protocol that the nodes speak: `http1`, or `h2` for HTTP/2, as gRPC servers do. It is not
        /// negotiated: with TLS only `h2` is offered. `http1` by default, because every web server speaks it.
        protocol: Defaulted<ProtocolWord> = "http1",
        /// Version of the PROXY protocol, `v1` or `v2`, in which a header at the start of each connection to a node
        /// names the client. A connection then serves the requests of one client connection only. Health checks name
        /// no client. By default no header is sent, because a node that does not expect it refuses it.
        proxy_protocol: Optional<ProxyVersionWord>,
        /// Whether connections to the nodes come from the address of the client, so that the nodes see it. The nodes
        /// must send their answers through this machine, and it needs `CAP_NET_ADMIN`. A connection then serves the
        /// requests of one client connection only. `false` by default.
        from_client: Defaulted<Answer> = false,
        /// TLS towards the nodes: a map, which may be empty, or `off`. Off by default, because most nodes are in a
        /// private network.
        tls: Defaulted<Switch<NodeTls>> = "off",
        /// How requests are spread over the nodes. Least outstanding by default, because it follows the speed
        /// of the nodes without configuration. Under `switch_adm`, `static_part` and `dynamic_part` the paper's
        /// method by default: weighted round robin, and for the latter two nodes partitioned over service sets.
        dispatch: Defaulted<Dispatch> = "least_outstanding",
        /// Active health checks: a map, or `off`. Off by default, because only you know a path that is cheap
        /// and tells whether the node works.
        health_check: Defaulted<Switch<HealthCheck>> = "off",
        /// How the nodes' own counts of requests are learned: a map, or `off`. Off by default, because the
        /// gateway's live counts need no help from the nodes and are never stale.
        collector: Defaulted<Switch<Collector>> = "off",
        /// When a failing node is ejected for a while: a map, or `off`.
        ejection: Defaulted<Switch<Ejection>> = {},
        /// Time in which a node that appears grows from a tenth of its weight to all of it, or `off`. This happens
        /// after a reload and when health checks find the node well again, while another node serves with its full
        /// weight. Off by default, because only you know how long your servers need to fill their caches.
        slow_start: Defaulted<Switch<Span>> = "off",
        /// Maximum number of idle connections kept per node and thread. 64 serve bursts of 64 requests
        /// without a new connection and take little memory.
        idle_connections: Defaulted<Count> = 64,
        /// Maximum number of responses per node that stall because their clients read slowly, and that hold no slot
        /// while they do. Each keeps a connection to the node open. 512 are few for an event-driven server. For one
        /// with a worker per connection, choose the workers that it has besides `max_outstanding`, or 0.
        stalled_responses: Defaulted<Count> = 512,
        /// How long an idle connection is kept. 4 s is below the 5 s of Apache and Node.js, so that a request
        /// rarely meets a connection that the node is closing.
        idle_timeout: Defaulted<Span> = "4s",
    }
}

record! {
    /// TLS towards nodes. Paths count from the folder of the policy. The files are read again when they change.
    pub(crate) struct NodeTls {
        /// File with the authorities that sign the nodes' certificates (PEM). Those of the system by default.
        ca: Optional<Text>,
        /// The name that the certificates must cover. The host of each node's address by default. Required if a node
        /// has a Unix socket.
        server_name: Optional<Text>,
        /// The gateway's own certificate, for nodes that ask for one.
        client_certificate: Optional<NodeCertificate>,
        /// Whether the nodes' certificates are verified. Without it a third party between gateway and node can read
        /// and change everything.
        verify: Defaulted<Answer> = true,
    }
}

record! {
    /// The gateway's own certificate.
    pub(crate) struct NodeCertificate {
        /// File with the certificate, followed by those of its authorities (PEM).
        certificate: Required<Text>,
        /// File with its private key (PEM), without a passphrase.
        key: Required<Text>,
    }
}

record! {
    /// A server.
    pub(crate) struct Node {
        /// Address: `host:port`, resolved when the gateway connects, `unix:/path` for a Unix socket, or `original`.
        address: Required<NodeAddress>,
        /// Its name in metrics and logs, unique in its upstream. Its address by default.
        name: Optional<Name>,
        /// Relative share of requests. By default proportional to the nodes' capacities if all of them have a
        /// capacity and none has a weight, else equal.
        weight: Defaulted<Amount> = 1,
        /// Slot-seconds of service that it provides per second, for example its number of CPUs.
        /// `weirgate check` compares the guarantees with it. Unknown by default.
        capacity: Optional<Amount>,
        /// Maximum number of requests in flight at the node. No separate limit by default.
        max_outstanding: Optional<Count>,
        /// The machine that the node runs on. Nodes with the same machine, in any upstream, share its
        /// capacity. The node's address by default.
        machine: Optional<Name>,
    }
}

words! {
    /// Protocol of nodes. `true` is HTTP/2.
    pub(crate) struct ProtocolWord(bool) {
        /// HTTP/1.1
        "http1" => false,
        /// HTTP/2
        "h2" => true,
    }
}

words! {
    /// Version of the PROXY protocol.
    pub(crate) struct ProxyVersionWord(ProxyVersion) {
        /// A line of text.
        "v1" => ProxyVersion::V1,
        /// Binary.
        "v2" => ProxyVersion::V2,
    }
}

/// A node, written as its address alone or as a map with further properties.
pub(crate) type NodeForm = TextOrMap<NodeAddress, Node>;

record! {
    /// An active health check: a GET request, or a call of gRPC. The answer shows whether the node can serve. It is
    /// made in the `protocol` of the upstream. Exactly one of `path` and `grpc` is needed.
    pub(crate) struct HealthCheck {
        /// Path to request. Any status from 200 to 399 is healthy.
        path: Optional<Text>,
        /// Name of the service to ask for by the health checking protocol of gRPC (`grpc.health.v1.Health/Check`), or
        /// `""` for the whole server. `SERVING` is healthy. For nodes with `protocol: h2`.
        grpc: Optional<Text>,
        /// The `Host` header. The node's address by default, and `localhost` for a Unix socket.
        host: Optional<Text>,
        /// Time between two checks of a node. With 2 s and three failures a dead node is taken out within
        /// about 6 s, at half a request per second.
        interval: Defaulted<Span> = "2s",
        /// Timeout of a check, after which it has failed. At most the interval, so that checks do not overlap.
        timeout: Defaulted<Span> = "1s",
        /// Consecutive failures that take a node out. A single lost packet does not mean a dead node.
        fall: Defaulted<Count> = 3,
        /// Consecutive successes that bring a node back. A single success may be luck.
        rise: Defaulted<Count> = 2,
    }
}

record! {
    /// A collector, which asks the agent on each node for the number of requests that the node is working on.
    pub(crate) struct Collector {
        /// Path to request. The reply is a report in JSON.
        path: Defaulted<Text> = "/weirgate/report",
        /// The agent's port on the node's host, or `node` if the node itself answers. `weirgate agent`
        /// listens on 9902.
        port: Defaulted<CollectorPort> = 9902,
        /// Time between two queries. 10 s by default, as published (web switch, Sec. 2), or 1 s where a page
        /// table is learned.
        every: Defaulted<Span> = "10s",
        /// Timeout of a report, after which it is missed. At most `every`, so that queries do not overlap.
        timeout: Defaulted<Span> = "2s",
    }
}

/// Port on a node's host that answers the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectorPort {
    /// This port.
    Port(u16),
    /// The node's own port.
    Node,
}

impl FromText for CollectorPort {
    const EXPECTED: &'static str = "a port such as `9902`, or `node`";

    fn from_text(text: &str) -> Result<Self, Complaint> {
        match text.parse() {
            _ if text == "node" => Ok(CollectorPort::Node),
            Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(CollectorPort::Port(port)),
            _ => Err(Complaint::about(
                text,
                "is not a port",
                "write a number from 1 to 65535, or `node` for the port of the node itself",
            )),
        }
    }
}

text_schema! {
    CollectorPort: { "anyOf": [{ "const": "node" }, { "type": "integer", "minimum": 1, "maximum": 65535 }] };
}

record! {
    /// Passive ejection: a node that keeps failing requests gets no requests for a while.
    pub(crate) struct Ejection {
        /// Consecutive failures that eject a node. A working node does not fail five times in a row by chance.
        consecutive_failures: Defaulted<Count> = 5,
        /// Duration of the first ejection. Each further one lasts twice as long, up to 16 times this value. 1
        /// s is enough to notice a restart.
        base: Defaulted<Span> = "1s",
        /// Largest share of the nodes that may be ejected at once. 75 % by default, so that at least a
        /// quarter is left to serve. If more nodes fail, the fault is probably elsewhere.
        max_share: Defaulted<Share> = "75%",
    }
}

/// Returns the nodes of an upstream that could be read.
pub(crate) fn nodes(upstream: &Upstream) -> &[At<NodeForm>] {
    upstream.nodes.get().map_or(&[], |nodes| &nodes.0)
}
