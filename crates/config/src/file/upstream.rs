//! Upstreams: pools of nodes.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use weirgate_spanned_yaml::decode::{At, Context, Decode, Defaulted, FromText, OneOrMany, Optional, Required, Switch};
use weirgate_spanned_yaml::errors::{Complaint, quoted};
use weirgate_spanned_yaml::tree::{Node as Tree, Value};
use weirgate_spanned_yaml::unit::{Amount, Count, Name, Share, Span, Text};
use weirgate_spanned_yaml::{record, text_schema};

use super::address::NodeAddress;
use super::dispatch::Dispatch;

record! {
    /// A pool of servers that answer the same requests.
    pub(crate) struct Upstream {
        /// Its nodes: `host:port`, or a map with more about the node.
        nodes: Required<OneOrMany<NodeForm>>,
        /// How requests are spread over the nodes. Least outstanding by default: it follows the nodes' speed without
        /// being told. Under `switch_adm`, `static_part` and `dynamic_part` by default what the paper has: in turns,
        /// divided over the sets of services by the latter two.
        dispatch: Defaulted<Dispatch> = "least_outstanding",
        /// Active health checks: a map, or `off`. Off by default: only the operator knows a path that
        /// is cheap and tells the truth.
        health_check: Defaulted<Switch<HealthCheck>> = "off",
        /// How the nodes' own counts of requests are learned: a map, or `off`. Off by default: the gateway's
        /// live counts need no help from the nodes and are never old.
        collector: Defaulted<Switch<Collector>> = "off",
        /// When a failing node is left out for a while: a map, or `off`.
        ejection: Defaulted<Switch<Ejection>> = {},
        /// Idle connections kept per node and thread. 64 serve bursts of 64 requests without a new
        /// connection and take little memory.
        idle_connections: Defaulted<Count> = 64,
        /// How long an idle connection is kept. 4 s is below the 5 s of Apache and Node.js, so that a
        /// request does not meet a connection that the node is just closing.
        idle_timeout: Defaulted<Span> = "4s",
    }
}

record! {
    /// A server.
    pub(crate) struct Node {
        /// Where it is: `host:port`, resolved when the gateway connects.
        address: Required<NodeAddress>,
        /// Its name in metrics and logs, unique in its upstream. Its address by default.
        name: Optional<Name>,
        /// Its relative share of requests. By default the nodes' capacities if all of them have one and none a
        /// weight, else equal.
        weight: Defaulted<Amount> = 1,
        /// Slot-seconds of service it gives per second: its CPUs, say. `weirgate check` compares the
        /// guarantees with it. Unknown by default.
        capacity: Optional<Amount>,
        /// Most requests inside it at once. No limit of its own by default.
        max_outstanding: Optional<Count>,
        /// The machine it runs on. Nodes with the same machine, in any upstream, share its capacity. Its
        /// address by default.
        machine: Optional<Name>,
    }
}

/// A node in either form.
#[derive(Clone, Debug)]
pub(crate) enum NodeForm {
    /// Its address alone.
    Address(NodeAddress),
    /// The map.
    Full(Box<Node>),
}

impl Decode for NodeForm {
    fn decode(node: &Tree, cx: &mut Context) -> Option<Self> {
        match node.value {
            Value::Map(_) => Node::decode(node, cx).map(|n| NodeForm::Full(Box::new(n))),
            _ => NodeAddress::decode(node, cx).map(NodeForm::Address),
        }
    }
}

impl JsonSchema for NodeForm {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NodeForm".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<NodeAddress>(), generator.subschema_for::<Node>()] })
    }
}

record! {
    /// An active health check: a GET request whose status tells whether the node can serve.
    pub(crate) struct HealthCheck {
        /// What is requested; any status from 200 to 399 is healthy.
        path: Required<Text>,
        /// The `Host` header. The node's address by default.
        host: Optional<Text>,
        /// Time between two checks of a node. With 2 s and three failures a dead node is out within
        /// about 6 s, at the price of half a request a second.
        interval: Defaulted<Span> = "2s",
        /// A check that takes longer has failed. At most the interval, so that checks do not pile up.
        timeout: Defaulted<Span> = "1s",
        /// Failures in a row that take a node out. One lost packet is not a dead node.
        fall: Defaulted<Count> = 3,
        /// Successes in a row that bring it back. One success may be luck.
        rise: Defaulted<Count> = 2,
    }
}

record! {
    /// A collector: the agent beside each node is asked how many requests the node is working on.
    pub(crate) struct Collector {
        /// What is requested; the answer is a report in JSON.
        path: Defaulted<Text> = "/weirgate/report",
        /// The agent's port on the node's host, or `node` if the node answers on its own. 9902 is where
        /// `weirgate agent` listens.
        port: Defaulted<CollectorPort> = 9902,
        /// Time between two questions. 10 s are the published figure (web switch, Sec. 2); where a page table is
        /// learned it is 1 s unless it is said here.
        every: Defaulted<Span> = "10s",
        /// A report that takes longer is missed. At most `every`, so that questions do not pile up.
        timeout: Defaulted<Span> = "2s",
        /// File with the token that agents which others can reach ask for. By default none is sent.
        token_file: Optional<Text>,
    }
}

/// Where on a node's host its agent listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollectorPort {
    /// There.
    Port(u16),
    /// Where the node itself does.
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
    /// Passive ejection: a node that keeps failing requests is left out for a while.
    pub(crate) struct Ejection {
        /// Failures in a row that eject a node. Five do not happen by chance to a node that works.
        consecutive_failures: Defaulted<Count> = 5,
        /// How long the first ejection lasts; each further one lasts twice as long, up to 16 times. 1 s
        /// is enough for a restart to be noticed.
        base: Defaulted<Span> = "1s",
        /// Largest share of the nodes that may be ejected at once: three of four by default, as long as a quarter
        /// is left to serve. If more fail, the fault is probably elsewhere.
        max_share: Defaulted<Share> = "75%",
    }
}

/// The nodes of an upstream, as far as they could be read.
pub(crate) fn nodes(upstream: &Upstream) -> &[At<NodeForm>] {
    upstream.nodes.get().map_or(&[], |nodes| &nodes.0)
}
