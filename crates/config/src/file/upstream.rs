//! Upstreams: pools of nodes.

use weirgate_spanned_yaml::decode::{At, Defaulted, FromText, OneOrMany, Optional, Required, Switch, TextOrMap};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::unit::{Amount, Count, Name, Share, Span, Text};
use weirgate_spanned_yaml::{record, text_schema};

use super::address::NodeAddress;
use super::dispatch::Dispatch;

record! {
    /// A pool of servers that answer the same requests.
    pub(crate) struct Upstream {
        /// Its nodes: `host:port`, or a map with further properties of the node.
        nodes: Required<OneOrMany<NodeForm>>,
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
        /// Maximum number of idle connections kept per node and thread. 64 serve bursts of 64 requests
        /// without a new connection and take little memory.
        idle_connections: Defaulted<Count> = 64,
        /// How long an idle connection is kept. 4 s is below the 5 s of Apache and Node.js, so that a request
        /// rarely meets a connection that the node is closing.
        idle_timeout: Defaulted<Span> = "4s",
    }
}

record! {
    /// A server.
    pub(crate) struct Node {
        /// Address: `host:port`, resolved when the gateway connects.
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

/// A node, written as its address alone or as a map with further properties.
pub(crate) type NodeForm = TextOrMap<NodeAddress, Node>;

record! {
    /// An active health check: a GET request with a status that shows whether the node can serve.
    pub(crate) struct HealthCheck {
        /// Path to request. Any status from 200 to 399 is healthy.
        path: Required<Text>,
        /// The `Host` header. The node's address by default.
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
        /// File with the token required by agents that other machines can reach. By default no token is sent.
        token_file: Optional<Text>,
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
            _ => Err(Complaint::new(
                format!("{} is not a port", quoted(text)),
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
