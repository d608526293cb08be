//! The policy file as it is written: one typed record per map of the file.
//!
//! These declarations are the only description of the format. The decoder, the JSON Schema (with these texts
//! and defaults) and the operator's error messages are derived from them. `crate::resolve` turns the result
//! into a `Site`. Every default is documented here with its reason.

mod acme;
mod address;
mod body;
mod class;
mod conditions;
pub(crate) mod discipline;
mod discover;
mod dispatch;
mod gateway;
mod headers;
mod learned_state;
mod listener;
mod mode;
mod mqos;
mod page_table;
mod priorities;
mod reserves;
mod sharing;
mod upstream;
mod visitors;
mod web_switch;

use serde_json::json;
use weirgate_spanned_yaml::decode::{Defaulted, Named, OneOrMany, Optional, Switch};
use weirgate_spanned_yaml::record;
use weirgate_spanned_yaml::unit::{Count, Name, Span, Text};

pub(crate) use acme::AcmeForm;
pub(crate) use address::{ListenAddress, Net, NodeAddress, is_authority};
pub use address::{ORIGINAL, UNIX_CLIENT, client_address, client_text, network_text, node_address, socket_path};
pub(crate) use body::Body;
pub(crate) use class::{Class, LongResponses, MAX_SHED_BODY, NodeTimeouts, Queue, Retry, Shed, SourceForm, Tunnels};
pub use conditions::Token;
pub(crate) use conditions::{ClientCertificateForm, Inner, Match, PatternText, ValueForm, ValueRule, Values};
pub(crate) use discipline::Discipline;
pub(crate) use discover::{CollectorUrl, Discover, Resolvers};
pub(crate) use dispatch::{Dispatch, Lard};
pub(crate) use gateway::{AccessLog, Admin, ClientTimeouts, ForwardForm, Limits, LogForm, MemoryForm, TelemetryForm};
pub(crate) use headers::{FieldName, Headers, ValueTemplate};
pub(crate) use learned_state::LearnedStateForm;
pub(crate) use listener::{
    CertificateForm, FileMode, GroupName, ListenerForm, ListenerTls, UserName, address as listener_address,
};
pub(crate) use mode::ModeForm;
pub(crate) use mqos::ResourceWord;
pub use page_table::page_table_schema;
pub(crate) use page_table::{CapacityForm, Cost, PageTable, PageTableFile, RouteForm, RouteText};
pub(crate) use priorities::PriorityForm;
pub(crate) use reserves::{ReserveClassForm, Reserves};
pub(crate) use sharing::{EtcdForm, SharingForm};
pub(crate) use upstream::{Collector, CollectorPort, Ejection, HealthCheck, NodeForm, NodeTls, Upstream, nodes};
pub(crate) use visitors::VisitorsForm;
pub(crate) use web_switch::{DynamicPart, LoadWord, ServerLoad, SetSizes};

record! {
    /// A Weirgate policy: where clients connect, which servers answer them, and the guarantee of each service class.
    pub(crate) struct PolicyFile {
        /// Addresses where clients connect: `IP:PORT`, `unix:/path`, a map with further properties, or a list of them.
        listen: Optional<OneOrMany<ListenerForm>>,
        /// The authority that issues certificates for the `names` of listeners (ACME, RFC 8555), such as Let's Encrypt.
        acme: Optional<AcmeForm>,
        /// Pools of servers, by name.
        upstreams: Optional<Named<Name, Upstream>>,
        /// The name servers for the discovery of nodes.
        resolvers: Defaulted<Resolvers> = {},
        /// Service classes in order: a request belongs to the first class that it matches. If no class
        /// matches every request, a best-effort class `default` is added after them.
        classes: Optional<Vec<weirgate_spanned_yaml::decode::At<Class>>>,
        /// The method that keeps the guarantees: its name, or a map with its name and parameters. `weirgate` by
        /// default, because it keeps more guarantees than the published methods.
        discipline: Defaulted<Discipline> = "weirgate",
        /// Whether decisions are carried out: `enforce`, `observe`, or for a share of the sources
        /// `{ enforce: 10% }`. Observed requests pass at once, and the decisions that would have been carried out
        /// are counted and logged. A class can have a mode of its own.
        mode: Defaulted<ModeForm> = "enforce",
        /// Addresses and networks of proxies in front of this gateway. `Forwarded` and `X-Forwarded-*` are
        /// trusted only from them. Empty by default, because any client can send these headers.
        trusted_proxies: Optional<OneOrMany<Net>>,
        /// The signed cookie by which the gateway knows returning visitors. Without it the gateway sets no cookie.
        visitors: Optional<VisitorsForm>,
        /// Maximum number of waiting requests in all queues together. Further requests are shed. 100,000
        /// waiting request heads take about 100 MB.
        max_waiting: Defaulted<Count> = 100000,
        /// Limits on client input and on buffers.
        limits: Defaulted<Limits> = {},
        /// Timeouts towards clients.
        timeouts: Defaulted<ClientTimeouts> = {},
        /// Changes to requests on their way to the nodes, and to responses on their way back.
        forward: Defaulted<ForwardForm> = {},
        /// Changes to the headers of all requests on their way to the nodes. A class can have changes of its own, which
        /// come after these.
        request_headers: Optional<Headers>,
        /// Changes to the headers of all responses on their way to the clients, also of those that the gateway gives
        /// itself. A class can have changes of its own, which come after these.
        response_headers: Optional<Headers>,
        /// The admin listener: `off`, `IP:PORT`, `unix:/path`, or a map. On loopback by default, so that only
        /// this machine reaches it.
        admin: Defaulted<Switch<Admin>> = "127.0.0.1:9900",
        /// Folder with the certificates by which Weirgate's own processes trust one another, as `weirgate pki issue`
        /// makes it. With it the admin listener, collectors, the coordinator and its agents speak mutual TLS. Required
        /// for each of them that other machines can reach. Paths count from the folder of the policy.
        trust: Optional<Text>,
        /// Where costs, windows and states of nodes outlive the process that learned them: in a file, or in another
        /// gateway. A hand-over passes them on without this.
        learned_state: Optional<LearnedStateForm>,
        /// The gateways that keep the guarantees of this policy together. Without it this gateway keeps all of them
        /// alone.
        site: Optional<SharingForm>,
        /// The access log: `off`, `stdout`, or a map. Off by default: at thousands of requests a second it is
        /// the gateway's most expensive task, and metrics answer most questions.
        access_log: Defaulted<Switch<AccessLog>> = "off",
        /// Messages of the process on standard error. Changes take effect with a reload.
        log: Defaulted<LogForm> = {},
        /// Export of traces and metrics.
        telemetry: Defaulted<Switch<TelemetryForm>> = "off",
        /// How long a drain waits for requests in flight before it aborts them. Service managers commonly
        /// wait 30 s before they kill a process.
        drain_deadline: Defaulted<Span> = "30s",
        /// Number of threads that serve requests. One per core by default.
        threads: Optional<Count>,
        /// Costs of requests per route, as shares of the nodes' resources: the path of a file that `weirgate probe`
        /// wrote, `learned`, or a map. Required by `mqos` and `sqos`. Under `weirgate` it costs throughput at present,
        /// so leave it out there.
        page_table: Optional<PageTable>,
        /// Cluster Reserves: the shares of the nodes' CPUs that classes have, for `weirgate coordinator` and the
        /// agents on the nodes. A policy with only this field needs no `listen`, `upstreams` and `classes`.
        reserves: Optional<Reserves>,
    }
}

/// Fields that the policy of a gateway must have.
pub(crate) const NEEDED: [&str; 3] = ["listen", "upstreams", "classes"];

impl PolicyFile {
    /// Whether the policy describes a gateway: it has one of the fields [`NEEDED`], or it is empty.
    pub(crate) fn has_gateway(&self) -> bool {
        self.listen.given || self.upstreams.given || self.classes.given || !self.reserves.given
    }
}

/// The JSON Schema of a policy file, for editors and for programs that write policies.
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

/// Fields that are often written into the wrong map, and fields and words that were renamed: a field that
/// identifies the map (or a word that identifies the choice), the wrong ones, and the hint.
const ELSEWHERE: &[(&str, &[&str], &str)] = &[
    ("guarantee", &["response_time", "throughput"], "it belongs in `guarantee:`"),
    (
        "guarantee",
        &[
            "host", "path", "path_prefix", "path_pattern", "method", "port", "header", "cookie", "query", "body",
            "visitor",
        ],
        "conditions belong in `match:`",
    ),
    ("guarantee", &["max_waiting", "max_waiting_per_source", "max_wait"], "it belongs in `queue:`"),
    ("classes", Discipline::FIELDS, "it belongs in `discipline:`"),
    ("classes", &["nodes"], "it belongs in an upstream: `upstreams: { web: { nodes: … } }`"),
    ("policy", &["listen", "upstreams", "classes", "discipline"], "it belongs in `policy:`"),
    ("coordinator", &["manager"], "it is called `coordinator`"),
    ("least_loaded", &["wrr"], "it is called `least_loaded`"),
    ("weighted_round_robin", &["turns"], "it is called `weighted_round_robin`"),
    ("avoid_last", &["never_twice"], "it is called `avoid_last`"),
    ("max_keys", &["targets"], "it is called `max_keys`"),
    ("priority", &["tag"], "it is called `priority`"),
    ("priorities", &["tags"], "it is called `priorities`"),
    ("min_window", &["least_window"], "it is called `min_window`"),
    ("max_window", &["most_window"], "it is called `max_window`"),
    ("min_share", &["least_share"], "it is called `min_share`"),
    ("soft_min", &["soft_least"], "it is called `soft_min`"),
    ("min", &["least"], "it is called `min`"),
    ("max", &["most"], "it is called `max`"),
    ("set", &["replace", "override"], "it is called `set`"),
    ("remove", &["delete", "unset"], "it is called `remove`"),
    ("add", &["append"], "it is called `add`"),
    (
        "request_headers",
        &["headers", "header", "set", "add", "remove"],
        "write `request_headers: { set: … }` or `response_headers: { set: … }`",
    ),
    ("path_pattern", &["form", "json", "contains"], "it belongs in `body:`"),
    ("every", &["token_file"], "agents are known by their certificates: write `trust:` at the top of the policy"),
    ("certificates", &["certificate", "key", "ocsp", "names"], "it belongs in `certificates:`"),
    (
        "mode",
        &["observe", "enforce", "enforced", "dry_run", "shadow"],
        "write `mode: observe` or `mode: { enforce: 10% }`",
    ),
    ("nodes", &["weight", "capacity", "max_outstanding"], "it belongs in a node: `nodes: [{ address: …, … }]`"),
];

/// Returns the hint for a field or word that is unknown among `known`.
pub fn elsewhere(known: &[&str], field: &str) -> Option<&'static str> {
    let belongs = |&&(here, fields, _): &&(&str, &[&str], &str)| known.contains(&here) && fields.contains(&field);
    ELSEWHERE.iter().find(belongs).map(|&(_, _, hint)| hint)
}
