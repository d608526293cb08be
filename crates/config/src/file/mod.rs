//! The policy file as it is written: one typed record per map of the file.
//!
//! These declarations are the only description of the format. The decoder, the JSON Schema (with
//! these texts and defaults) and the operator's errors all come from them; `crate::resolve` turns the
//! result into a `Site`. Every default says here why it has its value.

mod address;
mod class;
mod conditions;
mod discipline;
mod dispatch;
mod gateway;
mod mqos;
mod page_table;
mod reserves;
mod tags;
mod upstream;
mod web_switch;

use serde_json::json;
use weirgate_spanned_yaml::decode::{Defaulted, Named, OneOrMany, Optional, Switch};
use weirgate_spanned_yaml::record;
use weirgate_spanned_yaml::unit::{Count, Name, Span};

pub(crate) use address::{Listen, Net, NodeAddress};
pub(crate) use class::{Class, Content, MAX_SHED_BODY, NodeTimeouts, Percentile, Queue, Retry, Shed};
pub use conditions::Token;
pub(crate) use conditions::{Inner, Match, PatternText, ValueForm, ValueRule, Values};
pub(crate) use discipline::{
    AdaptiveWindow, Admit, Aimd, Codel, Discipline, FixedWindow, Gradient, GrowWhen, Infeasible, LinearWindow,
    LoadControl, Precedence, Predict, StaleEstimate, TokenBuckets,
};
pub(crate) use dispatch::{Dispatch, Lard};
pub(crate) use gateway::{AccessLog, Admin, AdminPlace, ClientTimeouts, Limits};
pub(crate) use mqos::{MqosPrecedence, ResourceWord};
pub use page_table::page_table_schema;
pub(crate) use page_table::{CapacityForm, Cost, PageTable, PageTableFile, RouteForm, RouteText};
pub(crate) use reserves::{ReserveClassForm, ReserveNodeForm, Reserves};
pub(crate) use tags::{HandleForm, Scheduling, Seda, TagForm};
pub(crate) use upstream::{Collector, CollectorPort, Ejection, HealthCheck, NodeForm, Upstream, nodes};
pub(crate) use web_switch::{DynamicPart, LoadWord, ServerLoad, SetSizes};

record! {
    /// A policy of Weirgate: where clients connect, which servers answer them, and what each class
    /// of requests is promised.
    pub(crate) struct PolicyFile {
        /// Where clients connect: `IP:PORT`, or a list of them.
        listen: Optional<OneOrMany<Listen>>,
        /// Pools of servers, by name.
        upstreams: Optional<Named<Name, Upstream>>,
        /// Service classes in order: a request belongs to the first whose `match` holds. If none of
        /// them matches everything, a best-effort class `default` is added after them.
        classes: Optional<Vec<weirgate_spanned_yaml::decode::At<Class>>>,
        /// How the guarantees are kept: `weirgate`, `quorum`, `seda`, `switch_adm`, `static_part`, `dynamic_part`,
        /// `mqos`, `sqos`, `none`, or a map with a discipline's own figures. Weirgate's own by default: it keeps more
        /// guarantees than the published methods.
        discipline: Defaulted<Discipline> = "weirgate",
        /// Addresses and networks of proxies in front of this gateway. `Forwarded` and
        /// `X-Forwarded-*` are believed from them alone. By default from nobody: anybody can send a header.
        trusted_proxies: Optional<OneOrMany<Net>>,
        /// Most requests that wait in all queues together; more are shed. 100,000 waiting request
        /// heads are about 100 MB.
        max_waiting: Defaulted<Count> = 100000,
        /// Bounds on what clients may send and on buffers.
        limits: Defaulted<Limits> = {},
        /// Time limits towards clients.
        timeouts: Defaulted<ClientTimeouts> = {},
        /// The admin listener: `off`, `IP:PORT`, `unix:/path`, or a map. On loopback by default, so
        /// that only this machine reaches it.
        admin: Defaulted<Switch<Admin>> = "127.0.0.1:9900",
        /// The access log: `off`, `stdout`, or a map. Off by default: at thousands of requests a
        /// second it is the dearest thing the gateway does, and metrics answer most questions.
        access_log: Defaulted<Switch<AccessLog>> = "off",
        /// How long a drain waits for requests inside before it cuts them. 30 s is what service
        /// managers commonly grant before they kill.
        drain_deadline: Defaulted<Span> = "30s",
        /// Threads that serve requests; one per core by default.
        threads: Optional<Count>,
        /// What requests take of the nodes' resources, by route: the path of a file that `weirgate probe` wrote,
        /// `learned`, or a map. `mqos` and `sqos` need it; `weirgate` keeps guarantees better with it.
        page_table: Optional<PageTable>,
        /// Cluster Reserves: the shares that classes have in the nodes' CPUs, for `weirgate manager` and the agents
        /// beside the nodes. A policy with this alone needs no `listen`, `upstreams` and `classes`.
        reserves: Optional<Reserves>,
    }
}

/// What a policy of a gateway cannot do without.
pub(crate) const NEEDED: [&str; 3] = ["listen", "upstreams", "classes"];

impl PolicyFile {
    /// Whether it says anything of a gateway: one of [`NEEDED`] is there, or nothing is.
    pub(crate) fn has_gateway(&self) -> bool {
        self.listen.given || self.upstreams.given || self.classes.given || !self.reserves.given
    }
}

/// The JSON Schema of a policy file, for editors and for programs that write policies.
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::SchemaGenerator::default().into_root_schema_for::<PolicyFile>();
    schema.insert("title".into(), "Weirgate policy".into());
    schema.insert("anyOf".into(), json!([{ "required": NEEDED }, { "required": ["reserves"] }]));
    schema.insert(
        "dependentRequired".into(),
        NEEDED.map(|field| (field.to_owned(), json!(NEEDED))).into_iter().collect(),
    );
    schema.into()
}

/// Fields that people look for in the wrong map: a field of that map, theirs, and where it belongs.
const ELSEWHERE: &[(&str, &[&str], &str)] = &[
    ("guarantee", &["response_time", "throughput"], "it belongs in `guarantee:`"),
    (
        "guarantee",
        &["host", "path", "path_prefix", "path_pattern", "method", "port", "source", "header", "cookie", "query"],
        "conditions belong in `match:`",
    ),
    ("guarantee", &["max_waiting", "max_waiting_per_source", "max_wait"], "it belongs in `queue:`"),
    (
        "classes",
        &["weirgate", "quorum", "seda", "switch_adm", "static_part", "dynamic_part", "mqos", "sqos", "custom"],
        "it belongs in `discipline:`",
    ),
    ("classes", &["nodes"], "it belongs in an upstream: `upstreams: { web: { nodes: … } }`"),
    ("policy", &["listen", "upstreams", "classes", "discipline"], "it belongs in `policy:`"),
    ("nodes", &["weight", "capacity", "max_outstanding"], "it belongs in a node: `nodes: [{ address: …, … }]`"),
];

/// Where a field that is unknown in a map with the fields `known` may belong.
pub fn elsewhere(known: &[&str], field: &str) -> Option<&'static str> {
    let belongs = |&&(here, fields, _): &&(&str, &[&str], &str)| known.contains(&here) && fields.contains(&field);
    ELSEWHERE.iter().find(belongs).map(|&(_, _, place)| place)
}
