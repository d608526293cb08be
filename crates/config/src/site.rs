//! The resolved policy file: what the gateway runs.
//!
//! A [`Site`] has every default filled in, every name bound to an index and every pattern compiled.
//! It is made from the typed file (`crate::file`) in one place (`crate::resolve`) and never from YAML
//! directly.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use weirgate_engine as engine;
use weirgate_reserves::Cluster;

/// Everything that one gateway process needs, and what a manager and its agents need. A policy with `reserves` alone
/// has no listeners, pools and classes: there is no gateway to run.
#[derive(Clone, Debug)]
pub struct Site {
    /// Where clients connect.
    pub listeners: Vec<Listener>,
    /// Peers whose `Forwarded` and `X-Forwarded-*` are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// What the engine needs: pools, nodes, classes, templates, discipline.
    pub policy: engine::Policy,
    /// Classification rules in order; the first match wins. The last one always matches.
    pub rules: Vec<Rule>,
    /// Per class what the gateway itself needs; same order as `policy.classes`.
    pub classes: Vec<ClassSite>,
    /// The same for templates; same order as `policy.templates`.
    pub templates: Vec<ClassSite>,
    /// Per pool what the gateway itself needs; same order as `policy.pools`.
    pub pools: Vec<PoolSite>,
    /// Per node its address; same order as `policy.nodes`.
    pub nodes: Vec<NodeSite>,
    /// Bounds on what clients may send and on buffers.
    pub limits: Limits,
    /// Time limits towards clients.
    pub timeouts: ClientTimeouts,
    /// The admin listener; `None` switches it off.
    pub admin: Option<Admin>,
    /// The access log; `None` switches it off.
    pub access_log: Option<AccessLog>,
    /// How long a drain waits for requests inside.
    pub drain_deadline: Duration,
    /// Threads that serve requests; `None` is one per core.
    pub threads: Option<usize>,
    /// Cluster Reserves: what the manager and the agents do.
    pub reserves: Option<Reserves>,
    /// What requests take of the nodes' resources; then `policy.resources` are [`weirgate_wire::RESOURCE_NAMES`].
    pub page_table: Option<PageTable>,
}

/// What requests take of the nodes' resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageTable {
    /// Costs are refined from what the nodes use.
    pub learned: bool,
    /// What 100 % of each of [`weirgate_wire::RESOURCE_NAMES`] is per second, in the units in which agents count; `None` is what they
    /// say.
    pub capacity: [Option<f64>; 3],
    /// Routes in the order of their patterns; without any, all are learned.
    pub routes: Vec<Route>,
    /// When and where it was measured, as its file says.
    pub probed: Option<String>,
    /// See `probed`.
    pub server: Option<String>,
}

/// A route, and what a request for it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Path and parameters, as `/album/*` or `/item.php?id=*`.
    pub pattern: weirgate_pages::Pattern,
    /// What it takes.
    pub demand: engine::Demand,
    /// How sure that is, 0 to 1, where it was measured.
    pub confidence: Option<f64>,
    /// From how many requests it was measured.
    pub samples: Option<u32>,
    /// When it was measured, if it says so itself.
    pub probed: Option<String>,
}

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub address: SocketAddr,
}

/// One classification rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What a request must look like.
    pub matches: Match,
    /// Where it goes then.
    pub target: Target,
}

/// What a rule leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A class of the policy.
    Class(engine::ClassId),
    /// A class made from a template, keyed by a value of the request. A request without the value
    /// does not match the rule.
    Template(engine::TemplateId, Key),
}

/// Which value of a request keys a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// The value of a header.
    Header(http::HeaderName),
    /// The value of a cookie.
    Cookie(String),
}

/// A condition on a request.
#[derive(Clone, Debug)]
pub enum Match {
    /// Always.
    Any,
    /// Every one holds.
    All(Vec<Match>),
    /// At least one holds.
    Either(Vec<Match>),
    /// It does not hold.
    Not(Box<Match>),
    /// The host without port, lower case; `*.example.com` matches every name below it.
    Host(HostPattern),
    /// The canonical path.
    Path(PathPattern),
    /// The method, as sent.
    Method(http::Method),
    /// The port of the listener that accepted the connection.
    Port(u16),
    /// The client's address (the rightmost untrusted hop).
    Source(IpNet),
    /// A header's value.
    Header(http::HeaderName, ValuePattern),
    /// A cookie's value.
    Cookie(String, ValuePattern),
    /// A query parameter's value, percent-decoded.
    Query(String, ValuePattern),
}

/// How a host is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this name.
    Exact(String),
    /// Any name that ends with this suffix, which starts with a dot.
    Below(String),
}

/// How a path is compared.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// Exactly.
    Exact(String),
    /// On segment borders: `/mail` matches `/mail` and `/mail/x`, not `/mailbox`.
    Prefix(String),
    /// A regular expression over the whole path.
    Pattern(Pattern),
}

/// How a value is compared.
#[derive(Clone, Debug)]
pub enum ValuePattern {
    /// It is there, whatever it is.
    Present,
    /// Exactly.
    Exact(String),
    /// It starts with this.
    Prefix(String),
    /// A regular expression over the whole value.
    Pattern(Pattern),
}

/// A compiled linear-time regular expression with its text.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// As written.
    pub text: String,
    /// Anchored at both ends.
    pub regex: regex_automata::meta::Regex,
}

/// What the gateway needs to know of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSite {
    /// How it answers what it sheds.
    pub shed: ShedReply,
    /// Time limits towards the nodes.
    pub timeouts: NodeTimeouts,
}

/// The answer to a shed request. `Retry-After` and `Proxy-Status` are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShedReply {
    /// 503 or 429.
    pub status: u16,
    /// The body's media type.
    pub content_type: String,
    /// The body.
    pub body: String,
}

/// Time limits towards the nodes of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTimeouts {
    /// To connect.
    pub connect: Duration,
    /// From the last byte of the request to the first of the response.
    pub first_byte: Duration,
    /// Between two reads of a body, from either side.
    pub body_progress: Duration,
    /// From release to the last byte from the node.
    pub total: Duration,
}

/// Time limits towards clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From the first byte of a request head to its last.
    pub header: Duration,
    /// Between two requests of one connection.
    pub idle: Duration,
}

/// Bounds on what clients may send and on buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once; more wait in the kernel's backlog.
    pub connections: usize,
    /// Most bytes of a request head (431).
    pub head_bytes: usize,
    /// Most headers (431).
    pub headers: usize,
    /// Most bytes of a request body (413); `None` is no limit.
    pub body_bytes: Option<u64>,
    /// Response bytes buffered per request for a slow client.
    pub buffer_per_request: usize,
    /// Response bytes buffered for all slow clients.
    pub buffer_total: usize,
    /// Resident bytes of the process: from 90 % on nothing is accepted, from 95 % on nothing is admitted;
    /// `None` is no bound.
    pub memory: Option<u64>,
}

/// What the gateway needs to know of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSite {
    /// Active health checks; `None` switches them off.
    pub health: Option<HealthCheck>,
    /// How the nodes' own counts are learned; `None` is not at all.
    pub collector: Option<Collector>,
    /// What of a request its dispatch takes for the target; `None` if it does not look at it.
    pub target: Option<TargetOf>,
    /// Idle connections kept per node and thread.
    pub idle_connections: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
}

/// What of a request names what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetOf {
    /// Host and canonical path.
    Path,
    /// Both, and the query.
    Query,
}

/// An active health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is requested with GET; any status from 200 to 399 is healthy.
    pub path: String,
    /// The `Host` header; `None` is the node's address.
    pub host: Option<String>,
    /// Between two checks of a node.
    pub interval: Duration,
    /// A check that takes longer has failed.
    pub timeout: Duration,
    /// Failures in a row that take a node out.
    pub fall: u32,
    /// Successes in a row that bring it back.
    pub rise: u32,
}

/// How a node's agent is asked for its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// What is requested with GET; the answer is a [`weirgate_wire::Report`].
    pub path: String,
    /// The agent's port on the node's host; `None` is the node's own.
    pub port: Option<u16>,
    /// Between two questions.
    pub every: Duration,
    /// A report that takes longer is missed.
    pub timeout: Duration,
    /// File with the token that is sent along.
    pub token_file: Option<PathBuf>,
}

impl Collector {
    /// Where the agent of the node at `node` is: `host:port`.
    #[must_use]
    pub fn at(&self, node: &str) -> String {
        match (self.port, node.rsplit_once(':')) {
            (Some(port), Some((host, _))) => format!("{host}:{port}"),
            _ => node.to_owned(),
        }
    }
}

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSite {
    /// `host:port`, resolved when it connects.
    pub address: String,
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where.
    pub address: AdminAddress,
    /// File with the bearer token (at least 128 bits as hex or base64); `None` is no token, allowed on
    /// loopback and Unix sockets only. `WEIRGATE_ADMIN_TOKEN` in the environment serves as well.
    pub token_file: Option<PathBuf>,
    /// Names that `Host` may have besides the listener's own address and `localhost`.
    pub hosts: Vec<String>,
}

/// Where the admin listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket, mode 0600.
    Unix(PathBuf),
}

/// The access log.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLog {
    /// Where; `None` is standard output.
    pub file: Option<PathBuf>,
    /// Share of served requests that are logged, 0 to 1. Sheds and errors are always logged.
    pub sample: f64,
}

/// Cluster Reserves: guaranteed shares of the nodes' CPUs for classes of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Reserves {
    /// Where agents connect to the manager.
    pub listen: SocketAddr,
    /// The manager's page and metrics; `None` switches them off.
    pub admin: Option<Admin>,
    /// Time between two periodic runs; `None` if shares are found anew on demand alone.
    pub every: Option<Duration>,
    /// Whether shares are found anew when a node asks for it.
    pub on_demand: bool,
    /// The nodes and the classes, as the manager and the agents know them.
    pub cluster: Cluster,
}
