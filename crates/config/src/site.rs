//! The resolved policy file, which the gateway runs.
//!
//! A [`Site`] has every default filled in, every name bound to an index and every pattern compiled. It is
//! made from the typed file (`crate::file`) in one place (`crate::resolve`) and never from YAML directly.

mod acme;
mod collector;
mod learned_state;
mod pattern;
mod rule;
mod sharing;
mod source;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use crate::access_log::{AccessField, AccessFormat, AccessLog};
pub use crate::telemetry::Telemetry;

pub use ipnet::IpNet;
use weirgate_engine as engine;
use weirgate_listening::{Address, FileAccess};
use weirgate_reserves::Cluster;
use weirgate_tls::{ClientSettings, ServerSettings};

pub use self::acme::{Acme, AcmeCertificate, Challenge};
pub use self::collector::{Collector, agent_name};
pub use self::learned_state::LearnedStateSettings;
pub use self::pattern::{HostPattern, PathPattern, Pattern, ValuePattern};
pub use self::rule::{CertificatePart, Match, Rule, RuleTarget};
pub use self::sharing::{Etcd, Sharing};
pub use self::source::{Key, NetworkSize};
use crate::headers::HeaderRules;
use crate::health::HealthCheck;
use crate::visitors::Visitors;

/// All settings of one gateway process, and those of a coordinator and its agents. A policy with only `reserves`
/// has no listeners, pools and classes, and then there is no gateway to run.
#[derive(Clone, Debug)]
pub struct Site {
    /// Addresses where clients connect.
    pub listeners: Vec<Listener>,
    /// The authority that issues certificates, if listeners have names for it.
    pub acme: Option<Acme>,
    /// Peers from which `Forwarded` and `X-Forwarded-*` are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// The cookie of visitors, if the gateway sets one.
    pub visitors: Option<Visitors>,
    /// Settings of the engine: pools, nodes, classes, templates, discipline.
    pub policy: engine::Policy,
    /// Classification rules in order. The first match wins, and the last rule always matches.
    pub rules: Vec<Rule>,
    /// The gateway's settings for each class, in the order of `policy.classes`.
    pub classes: Vec<ClassSite>,
    /// The gateway's settings for each template, in the order of `policy.templates`.
    pub templates: Vec<ClassSite>,
    /// The gateway's settings for each pool, in the order of `policy.pools`.
    pub pools: Vec<PoolSite>,
    /// The address of each node, in the order of `policy.nodes`.
    pub nodes: Vec<NodeSite>,
    /// Where each pool finds its nodes, in the order of `policy.pools`. `None` if the policy names them.
    pub discover: Vec<Option<Discover>>,
    /// Limits on client input and on buffers.
    pub limits: Limits,
    /// Timeouts towards clients.
    pub timeouts: ClientTimeouts,
    /// Changes to requests and responses on their way.
    pub forward: Forward,
    /// Changes to the headers of requests without a class, which the gateway answers itself. Classes have their own.
    pub headers: HeaderRules,
    /// The admin listener. `None` switches it off.
    pub admin: Option<Admin>,
    /// Folder with the certificates by which Weirgate's own processes trust one another. `None` is no TLS between them.
    pub trust: Option<PathBuf>,
    /// Where the learned state is kept, and from where it comes. `None` if only a hand-over passes it on.
    pub learned_state: Option<LearnedStateSettings>,
    /// The gateways that keep the guarantees together. `None` if this one keeps them alone.
    pub sharing: Option<Sharing>,
    /// The access log. `None` switches it off.
    pub access_log: Option<AccessLog>,
    /// Messages of the process.
    pub log: weirgate_log::Settings,
    /// Export of traces and metrics.
    pub telemetry: Option<Telemetry>,
    /// How long a drain waits for requests in flight.
    pub drain_deadline: Duration,
    /// Number of threads that serve requests. `None` means one per core.
    pub threads: Option<usize>,
    /// Cluster Reserves: settings of the coordinator and the agents.
    pub reserves: Option<Reserves>,
    /// Costs of requests as shares of the nodes' resources. If given, `policy.resources` are
    /// [`weirgate_wire::RESOURCE_NAMES`].
    pub page_table: Option<PageTable>,
}

impl Site {
    /// Returns the listener of that name.
    pub fn listener(&self, name: &ListenerName) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.name == *name)
    }

    /// Whether a connection of `peer` to the listener of that name begins with a header of the PROXY protocol.
    pub fn expects_header(&self, name: &ListenerName, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.listener(name).is_some_and(|listener| listener.proxy_protocol.iter().any(|net| net.contains(&peer)))
    }

    /// Whether `peer` is trusted to state the origin of requests.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(&peer))
    }
}

/// Changes to requests on their way to the nodes, and to responses on their way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Forward {
    /// Whether nodes get the normal form of a path.
    pub normalized_path: bool,
    /// Whether `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` are written.
    pub x_forwarded: bool,
    /// Whether `Forwarded` is written.
    pub forwarded: bool,
    /// Whether `Via` is written, in both directions.
    pub via: bool,
    /// Whether `traceparent` is added to a request without a valid one, and names the gateway's span in exported
    /// traces.
    pub traceparent: bool,
    /// Whether `X-Request-ID` is written.
    pub request_id: bool,
}

/// Costs of requests as shares of the nodes' resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageTable {
    /// Whether costs are refined from the measured use of the nodes.
    pub learned: bool,
    /// The quantities per second that equal 100 % of each of [`weirgate_wire::RESOURCE_NAMES`], in the units in
    /// which agents count. `None` means those that the agents report.
    pub capacity: [Option<f64>; 3],
    /// Routes in the order of their patterns. Without any, all are learned.
    pub routes: Vec<Route>,
    /// When the table was measured, as its file says.
    pub probed: Option<String>,
    /// Where the table was measured, as its file says.
    pub server: Option<String>,
}

/// A route, and the cost of a request for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Pattern of path and parameters, such as `/album/*` or `/item.php?id=*`.
    pub pattern: weirgate_pages::Pattern,
    /// Cost of a request.
    pub demand: engine::Demand,
    /// Confidence of the measurement, 0 to 1, if it was measured.
    pub confidence: Option<f64>,
    /// Number of requests measured.
    pub samples: Option<u32>,
    /// When the route was measured, if it has its own time.
    pub probed: Option<String>,
}

/// A listener among those of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerName {
    /// The address, as the policy names it.
    pub address: Address,
    /// Its number among the listeners with this address, from 0. Only port 0 of an address has several.
    pub nth: usize,
}

impl ListenerName {
    /// Returns the name of the first listener with an address.
    pub fn first(address: Address) -> ListenerName {
        ListenerName { address, nth: 0 }
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nth {
            0 => self.address.fmt(f),
            nth => write!(f, "{} ({})", self.address, nth + 1),
        }
    }
}

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its address, and its number among those with the same.
    pub name: ListenerName,
    /// Mode and owner of the file, if it is a Unix socket.
    pub file: FileAccess,
    /// TLS. `None` if connections are not encrypted.
    pub tls: Option<ServerSettings>,
    /// Whether clients may speak HTTP/2.
    pub http2: bool,
    /// Port to which all requests are redirected over `https`.
    pub redirect_to_https: Option<u16>,
    /// Peers that begin each connection with a header of the PROXY protocol.
    pub proxy_protocol: Vec<IpNet>,
    /// How connections for other addresses reach it. `None` if they do not.
    pub transparent: Option<Interception>,
}

/// How the kernel brings connections for other addresses to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// Without a change of packets: the local address of a connection is the one that the client wanted.
    Tproxy,
    /// By a translation of addresses, which the kernel remembers.
    Redirect,
}

/// Version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The gateway's settings for a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSite {
    /// The reply to shed requests.
    pub shed: ShedReply,
    /// Timeouts towards the nodes.
    pub timeouts: NodeTimeouts,
    /// When its responses give their slot back before their last byte. `None`: never.
    pub long_responses: Option<LongResponses>,
    /// Limits of its tunnels.
    pub tunnels: Tunnels,
    /// The value of a request that tells its source.
    pub source: Key,
    /// Changes to headers: those of the policy, and then those of the class.
    pub headers: HeaderRules,
}

/// The reply to a shed request. `Retry-After` and `Proxy-Status` are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShedReply {
    /// 503 or 429.
    pub status: u16,
    /// Media type of the body.
    pub content_type: String,
    /// The body.
    pub body: String,
}

/// A class's timeouts towards the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTimeouts {
    /// Time to connect.
    pub connect: Duration,
    /// Time from the last byte of the request to the first byte of the reply.
    pub first_byte: Duration,
    /// Time between two reads of a body, from either side.
    pub body_progress: Duration,
    /// Time from release to the node's last byte.
    pub total: Duration,
}

/// Responses of a class that give their slot back while their body goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongResponses {
    /// Time from the head of the response.
    pub after: Duration,
    /// Maximum number at once. Further ones keep their slots.
    pub max: u32,
}

/// Limits of a class's tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnels {
    /// Maximum number at once. `None` means no limit of the class's own.
    pub max: Option<u32>,
    /// Time without a byte in either direction.
    pub idle: Duration,
    /// Time from the start to the end. `None` means no limit.
    pub total: Option<Duration>,
}

/// Timeouts towards clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// Time from the first byte of a request head to its last.
    pub header: Duration,
    /// Time between two requests on one connection.
    pub idle: Duration,
    /// Time that a client may take for a body, in addition to the time that its bytes need at `body_rate`.
    pub body: Duration,
    /// Minimum rate of a body after that time, in bytes a second, at least 1.
    pub body_rate: u64,
}

/// Limits on client input and on buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections at once. Further connections wait in the kernel's backlog.
    pub connections: usize,
    /// Maximum number of connections of one IPv4 address or IPv6 /64. Further ones are closed. `None` means no limit.
    pub connections_per_source: Option<u32>,
    /// Mean time between new connections of one IPv4 address or IPv6 /64. Those that come faster, beyond a burst, are
    /// closed. `None` means no limit.
    pub connect_interval_per_source: Option<Duration>,
    /// Maximum size of a request head in bytes. A larger one is answered with 431.
    pub head_bytes: usize,
    /// Maximum number of headers. More are answered with 431.
    pub headers: usize,
    /// Maximum size of a request body in bytes. A larger one is answered with 413. `None` means no limit.
    pub body_bytes: Option<u64>,
    /// Bytes of a request's body that conditions see, at most 64 KiB.
    pub body_prefix: usize,
    /// Maximum number of requests at once on one HTTP/2 connection.
    pub http2_streams: u32,
    /// Number of HTTP/2 frames without content that a client may send at once.
    pub http2_overhead_frames: u32,
    /// Maximum number of tunnels at once.
    pub tunnels: u32,
    /// Bytes of one reply that are buffered for a slow client.
    pub buffer_per_request: usize,
    /// Bytes of all replies that are buffered for slow clients.
    pub buffer_total: usize,
    /// Limit of the memory of the process without pages of files. From 80 % of it no reply is read ahead for a slow
    /// client, from 90 % no connection is accepted, from 95 % no request is admitted.
    pub memory: MemoryLimit,
}

/// Where the limit of the process's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// From the process's control group. No limit if the group has none.
    Cgroup,
    /// From the policy, in bytes.
    Bytes(u64),
    /// There is no limit.
    Off,
}

/// The gateway's settings for a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSite {
    /// TLS towards the nodes. `None` if connections are not encrypted.
    pub tls: Option<ClientSettings>,
    /// Active health checks. `None` switches them off.
    pub health: Option<HealthCheck>,
    /// How the nodes' own counts are learned. `None` means that they are not.
    pub collector: Option<Collector>,
    /// The parts of a request that identify its document for the pool's dispatch. `None` if dispatch does not
    /// use it.
    pub locality_key: Option<LocalityKeyOf>,
    /// Whether the nodes speak HTTP/2.
    pub http2: bool,
    /// Version of the PROXY protocol in which connections name their client. `None` if they do not.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Whether connections come from the address of the client.
    pub from_client: bool,
    /// Maximum number of idle connections kept per node and thread.
    pub idle_connections: usize,
    /// Maximum number of responses per node that stall without a slot because their clients read slowly.
    pub stalled_responses: u32,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
}

/// The parts of a request that identify the requested document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalityKeyOf {
    /// Host and canonical path.
    Path,
    /// Host, canonical path and query.
    Query,
}

/// Where a pool finds its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discover {
    /// The place that names them.
    pub source: NodeSource,
    /// Time between two looks at a file or a page.
    pub every: Duration,
    /// Least and longest time to live of names.
    pub ttl: (Duration, Duration),
    /// The name servers.
    pub resolvers: Resolvers,
    /// Maximum number of nodes. A longer list is an error.
    pub max_nodes: usize,
}

/// The name servers for discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolvers {
    /// Their addresses. Empty for those of the system.
    pub servers: Vec<SocketAddr>,
    /// Time for an answer of a server.
    pub timeout: Duration,
    /// Number of queries for an answer, at least 1.
    pub attempts: usize,
}

/// A place that names nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSource {
    /// A name. Its addresses are the nodes.
    Dns {
        /// The name.
        name: String,
        /// Port of all nodes.
        port: u16,
    },
    /// A name of service records.
    Srv(String),
    /// A file in JSON.
    File(PathBuf),
    /// A page in JSON.
    Http {
        /// `host:port`.
        address: String,
        /// Path with query.
        path: String,
    },
}

impl fmt::Display for NodeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeSource::Dns { name, port } => write!(f, "{name}:{port}"),
            NodeSource::Srv(name) => f.write_str(name),
            NodeSource::File(path) => path.display().fmt(f),
            NodeSource::Http { address, path } => write!(f, "http://{address}{path}"),
        }
    }
}

/// Address of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSite {
    /// `host:port`, resolved on each connection, `unix:/path`, or [`crate::ORIGINAL`].
    pub address: String,
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Address and port, or Unix socket.
    pub address: Address,
    /// Mode and owner of the file, if it is a Unix socket.
    pub file: FileAccess,
    /// File with a bearer token (at least 128 bits as hex or base64). `None` means no token.
    /// `WEIRGATE_ADMIN_TOKEN` in the environment can be used instead.
    pub token_file: Option<PathBuf>,
    /// Values of `Host` that are accepted in addition to the listener's own address and `localhost`.
    pub hosts: Vec<String>,
}

/// Cluster Reserves: guaranteed shares of the nodes' CPUs for classes of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserves {
    /// Address where agents connect to the coordinator.
    pub listen: SocketAddr,
    /// The coordinator's page and metrics. `None` switches them off.
    pub admin: Option<Admin>,
    /// Time between two periodic runs. `None` if shares are computed only on demand.
    pub every: Option<Duration>,
    /// Whether shares are computed again when a node asks for it.
    pub on_demand: bool,
    /// The nodes and the classes, as the coordinator and the agents know them.
    pub cluster: Cluster,
}
