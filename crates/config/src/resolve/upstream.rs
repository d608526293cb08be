//! Upstreams: pools, nodes, machines.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use weirgate_engine as engine;
use weirgate_spanned_yaml::decode::{Context, Decode, Defaulted, Mark, Optional, Switch};
use weirgate_spanned_yaml::errors::quoted;
use weirgate_spanned_yaml::tree::{Node, Value};
use weirgate_spanned_yaml::unit::{Amount, Count, Span, Text, number_text, span_text};
use weirgate_tls::{CertificateFiles, Client, ClientSettings, Part, is_server_name};

use super::gateway::count;
use super::{discover, dispatch};
use crate::file::{
    Collector, CollectorPort, Ejection, HealthCheck, ListenerForm, NodeAddress, NodeForm, NodeTls, ORIGINAL, PageTable,
    PolicyFile, Upstream, nodes, socket_path,
};
use crate::health::{self, HealthProbe};
use crate::site::{self, NodeSite, PoolSite};

/// Largest sensible ratio of two weights. Beyond it a node gets no requests.
const MAX_WEIGHT: f64 = 1e6;

/// Longest slow start. A server that needs more than an hour does not become warm by requests.
const MAX_SLOW_START: Duration = Duration::from_secs(3600);

/// Default time between two queries of a node if a page table is learned. Each query ends one measurement
/// window. Shorter windows are blurred by the kernel's counters, which advance in steps of 10 ms, and longer
/// ones delay learning.
const LEARNED_EVERY: Duration = Duration::from_secs(1);

/// Longest time between two queries if a page table is learned. Windows of more than 10 s are ignored, and
/// one answer may be missed.
const LEARNED_MAX: Duration = Duration::from_secs(5);

/// All upstreams.
#[derive(Default)]
pub(super) struct Pools {
    pub(super) pools: Vec<engine::Pool>,
    pub(super) nodes: Vec<engine::Node>,
    pub(super) pool_sites: Vec<PoolSite>,
    pub(super) node_sites: Vec<NodeSite>,
    pub(super) discover: Vec<Option<site::Discover>>,
    /// Index of each upstream by name.
    pub(super) index: BTreeMap<String, usize>,
    /// Whether a listener intercepts connections.
    transparent: bool,
    /// Whether all names of upstreams could be read, so that an unknown name really is unknown.
    pub(super) complete: bool,
}

/// Known capacities of machines, with the place in the file.
type Machines = BTreeMap<String, (f64, Mark)>;

/// The agents that costs are learned from, by address, each with the machine of the first node that it reports for.
type Agents = BTreeMap<String, String>;

/// Binds the upstreams. Paths count from `folder`. Without one the files of TLS are not read.
pub(super) fn pools(file: &PolicyFile, folder: Option<&Path>, cx: &mut Context) -> Pools {
    let learned = file.page_table.get().is_some_and(|table| match table {
        PageTable::Learned => true,
        PageTable::Table(form) => form.learned.get().0,
    });
    let mut all = Pools {
        transparent: intercepts(file),
        complete: file.upstreams.get().is_some_and(|u| u.complete),
        ..Pools::default()
    };
    let resolvers = discover::resolvers(file.resolvers.get(), cx);
    let mut machines = Machines::new();
    let mut agents = Agents::new();
    for item in file.upstreams.get().map_or(&[][..], |u| &u.items) {
        let pool = all.pools.len();
        all.index.insert(item.name.0.clone(), pool);
        let Some(upstream) = item.value.get() else { continue };
        all.pools.push(engine::Pool {
            name: item.name.0.clone(),
            dispatch: dispatch::dispatch(upstream, file.discipline.get(), cx),
            ejection: ejection(upstream.ejection.get()),
            slow_start: slow_start(&upstream.slow_start, cx),
        });
        all.discover.push(discover::discover(upstream, item.value.mark, folder, &resolvers, cx));
        all.pool_sites.push(PoolSite {
            tls: upstream.tls.get().on().and_then(|form| tls(form, folder, cx)),
            health: upstream.health_check.get().on().and_then(|check| health(check, upstream, cx)),
            collector: match upstream.collector.get() {
                Switch::Off if learned && !upstream.collector.given => usual_collector(item.value.mark, cx),
                Switch::Off => None,
                Switch::On(form) => {
                    if matches!(upstream.tls.get(), Switch::On(_)) && *form.port.get() == CollectorPort::Node {
                        let hint = "run `weirgate agent` on the node and write its port";
                        cx.fail(form.port.mark, "collectors do not speak TLS, as this node does", hint);
                    }
                    Some(collector(form, learned, cx))
                }
            },
            locality_key: dispatch::locality_key(upstream),
            http2: upstream.protocol.get().0,
            proxy_protocol: upstream.proxy_protocol.get().map(|version| version.0),
            from_client: upstream.from_client.get().0,
            // Per node and thread. More would only waste file descriptors.
            idle_connections: count(&upstream.idle_connections, 65_536, cx) as usize,
            stalled_responses: count(&upstream.stalled_responses, 1_000_000, cx),
            idle_timeout: upstream.idle_timeout.get().0,
        });
        members(upstream, pool, &mut all, &mut machines, cx);
        if learned {
            same_agents(upstream, pool, &all, &mut agents, cx);
        }
    }
    for node in &mut all.nodes {
        node.capacity = node.capacity.or_else(|| machines.get(&node.machine).map(|&(capacity, _)| capacity));
    }
    weigh(file, &mut all);
    all
}

/// Whether a listener intercepts connections, or was meant to.
fn intercepts(file: &PolicyFile) -> bool {
    let is_meant = |form: &ListenerForm| matches!(form, ListenerForm::Map(map) if map.transparent.given);
    file.listen.bad || file.listen.get().is_some_and(|all| all.0.iter().any(|form| is_meant(&form.value)))
}

/// Warns about an agent that would be used for several machines. Its counts include the requests to all of
/// them, and each machine would learn the total as its own.
fn same_agents(upstream: &Upstream, pool: usize, all: &Pools, agents: &mut Agents, cx: &mut Context) {
    let Some(collector) = &all.pool_sites[pool].collector else { return };
    let members = all.nodes.iter().zip(&all.node_sites).filter(|(node, _)| node.pool == pool);
    for ((node, site), form) in members.zip(nodes(upstream)) {
        let agent = collector.at(&site.address);
        let (here, first) = (&node.machine, agents.entry(agent.clone()).or_insert_with(|| node.machine.clone()));
        if here != first {
            let what = format!("the agent at {agent} counts for machines {} and {}", quoted(first), quoted(here));
            cx.warn(form.mark, what, "write the same `machine:` for both nodes, or give each an agent");
        }
    }
}

/// If all nodes of an upstream have a capacity and none has a weight, uses the capacities as weights.
fn weigh(file: &PolicyFile, all: &mut Pools) {
    let upstreams = file.upstreams.get().map_or(&[][..], |u| &u.items);
    for (pool, upstream) in upstreams.iter().filter_map(|item| item.value.get()).enumerate() {
        let given = nodes(upstream).iter().any(|form| match &form.value {
            NodeForm::Text(_) => false,
            NodeForm::Map(node) => node.weight.given,
        });
        // The nodes of a pool stand together.
        let first = all.nodes.partition_point(|node| node.pool < pool);
        let end = all.nodes.partition_point(|node| node.pool <= pool);
        let members = &mut all.nodes[first..end];
        if given || members.iter().any(|node| node.capacity.is_none()) {
            continue;
        }
        for node in members {
            node.weight = node.capacity.unwrap_or(1.0);
        }
    }
}

/// Adds the nodes of one upstream.
fn members(upstream: &Upstream, pool: usize, all: &mut Pools, machines: &mut Machines, cx: &mut Context) {
    let mut names: BTreeMap<String, Mark> = BTreeMap::new();
    let mut addresses: BTreeMap<&NodeAddress, Mark> = BTreeMap::new();
    for form in nodes(upstream) {
        let (address, address_mark, full) = match &form.value {
            NodeForm::Text(address) => (address, form.mark, None),
            NodeForm::Map(node) => match node.address.get() {
                Some(address) => (address, node.address.mark, Some(&**node)),
                None => continue,
            },
        };
        if let Some(first) = addresses.insert(address, address_mark) {
            let what =
                format!("`{}` is a node of this upstream already, in line {}", address.0, cx.position(first).line);
            cx.fail(address_mark, what, "keep one; its `weight:` may be larger than 1");
        }
        if address.0 == ORIGINAL {
            at_original(upstream, address_mark, all.transparent, cx);
        } else if socket_path(&address.0).is_some() {
            without_host(upstream, address_mark, ("a Unix socket", "over a Unix socket"), cx);
            if upstream.from_client.get().0 {
                let what = "a Unix socket has no address of a client";
                cx.fail(address_mark, what, "remove `from_client`, or write `proxy_protocol: v2`");
            }
        }
        let given = full.and_then(|node| node.name.get().map(|name| (name.0.clone(), node.name.mark)));
        let (name, name_mark) = given.unwrap_or_else(|| (address.0.clone(), address_mark));
        if let Some(first) = names.insert(name.clone(), name_mark)
            && full.is_some_and(|node| node.name.given)
        {
            let what = format!("the name {} is taken by the node in line {}", quoted(&name), cx.position(first).line);
            cx.fail(name_mark, what, "give each node of an upstream its own name");
        }
        let mut weight = 1.0;
        let mut capacity = None;
        let mut max_outstanding = None;
        let mut machine = address.0.clone();
        if let Some(node) = full {
            Amount(weight) = *node.weight.get();
            if !(weight > 0.0 && weight <= MAX_WEIGHT) {
                let what = format!("a weight of {} is out of range", number_text(weight));
                cx.fail(node.weight.mark, what, "write more than 0 and at most 1000000");
            }
            if let Some(name) = node.machine.get() {
                machine.clone_from(&name.0);
            }
            capacity = node_capacity(&node.capacity, &machine, machines, cx);
            max_outstanding = node.max_outstanding.get().map(|&Count(max)| max);
        }
        all.nodes.push(engine::Node { name, machine, pool, weight, capacity, max_outstanding });
        all.node_sites.push(NodeSite { address: address.0.clone() });
    }
}

/// Checks an upstream that forwards to the address that the client wanted.
fn at_original(upstream: &Upstream, mark: Mark, transparent: bool, cx: &mut Context) {
    if !transparent {
        let what = "no listener intercepts connections, so clients want no other address";
        cx.fail(mark, what, "give a listener `transparent: tproxy` or `transparent: redirect`");
    }
    if nodes(upstream).len() > 1 {
        let what = "a client wants one address, so there is no choice of nodes";
        cx.fail(mark, what, "give the other nodes an upstream of their own");
    }
    if matches!(upstream.health_check.get(), Switch::On(_)) {
        let what = "health checks have no client, and so no address";
        cx.fail(upstream.health_check.mark, what, "remove them");
    }
    without_host(upstream, mark, ("an address that a client wants", "at such an address"), cx);
}

/// Checks the settings of an upstream that need the host or the port of a node, which `it` does not have.
fn without_host(upstream: &Upstream, mark: Mark, (it, there): (&str, &str), cx: &mut Context) {
    if let Switch::On(tls) = upstream.tls.get()
        && tls.verify.get().0
        && !tls.server_name.given
    {
        let what = format!("{it} has no name that a certificate could cover");
        cx.fail(mark, what, "write `server_name:` in `tls`");
    }
    if let Switch::On(collector) = upstream.collector.get()
        && *collector.port.get() == CollectorPort::Node
    {
        let what = format!("collectors do not ask {there}");
        cx.fail(mark, what, "run `weirgate agent` on this machine and write its port as `port:`");
    }
}

/// Returns a node's capacity, if it agrees with the capacity given for its machine elsewhere.
fn node_capacity(field: &Optional<Amount>, machine: &str, machines: &mut Machines, cx: &mut Context) -> Option<f64> {
    let &Amount(capacity) = field.get()?;
    if capacity <= 0.0 {
        let hint = "write the node's CPUs, or leave it out if it is unknown";
        cx.fail(field.mark, "a node without capacity cannot serve", hint);
        return None;
    }
    match machines.get(machine) {
        Some(&(other, mark)) if other != capacity => {
            let (line, here, there) = (cx.position(mark).line, number_text(capacity), number_text(other));
            let what = format!("machine {} has capacity {there} in line {line} and {here} here", quoted(machine));
            cx.fail(field.mark, what, "nodes of one machine share its capacity: write it once");
        }
        Some(_) => {}
        None => {
            machines.insert(machine.to_owned(), (capacity, field.mark));
        }
    }
    Some(capacity)
}

/// Returns the settings of TLS towards nodes. Reports faults of its files.
fn tls(form: &NodeTls, folder: Option<&Path>, cx: &mut Context) -> Option<ClientSettings> {
    let path = |text: &Text| folder.unwrap_or(Path::new("")).join(&text.0);
    let own = match form.client_certificate.get() {
        None => None,
        Some(own) => {
            let (certificate, key) = (path(own.certificate.get()?), path(own.key.get()?));
            Some(CertificateFiles { certificate, key, ocsp: None, automatic: false })
        }
    };
    let server_name = form.server_name.get().map(|name| name.0.to_ascii_lowercase());
    if let Some(name) = server_name.as_ref().filter(|name| !is_server_name(name)) {
        let what = format!("{} is no name of a server", quoted(name));
        cx.fail(form.server_name.mark, what, "write a DNS name or an IP address, without a port");
        return None;
    }
    if !form.verify.get().0 {
        let what = "the nodes' certificates are not verified: anybody between gateway and node can be the node";
        cx.warn(form.verify.mark, what, "write the authority that signs them as `ca:`");
    }
    let ca = form.ca.get().map(path);
    let settings = ClientSettings { ca, server_name, own, verify: form.verify.get().0 };
    if folder.is_some()
        && let Err(faults) = Client::load(&settings)
    {
        let own = form.client_certificate.get();
        for fault in faults {
            let mark = match fault.part {
                Part::Certificate(_) | Part::Ocsp(_) => own.map(|own| own.certificate.mark),
                Part::Key(_) => own.map(|own| own.key.mark),
                Part::Ca | Part::Crl => None,
            };
            cx.fail(mark.unwrap_or(form.ca.mark), fault.what, fault.hint);
        }
    }
    Some(settings)
}

/// Returns the time of a slow start, zero for none.
fn slow_start(field: &Defaulted<Switch<Span>>, cx: &mut Context) -> Duration {
    let &Switch::On(Span(span)) = field.get() else { return Duration::ZERO };
    if span.is_zero() || span > MAX_SLOW_START {
        let what = format!("a slow start of {} is out of range", span_text(span));
        cx.fail(field.mark, what, "write more than 0 and at most 1h, or `off`");
    }
    span
}

fn ejection(switch: &Switch<Ejection>) -> engine::Ejection {
    match switch {
        Switch::Off => engine::Ejection { consecutive_failures: 0, ..engine::Ejection::default() },
        Switch::On(ejection) => engine::Ejection {
            consecutive_failures: ejection.consecutive_failures.get().0,
            base: ejection.base.get().0,
            max_share: ejection.max_share.get().0,
        },
    }
}

fn health(check: &HealthCheck, upstream: &Upstream, cx: &mut Context) -> Option<health::HealthCheck> {
    let interval = check.interval.get().0;
    let timeout = at_most(&check.timeout, interval, "the interval", "checks", cx);
    let host = check.host.get().map(|host| host.0.clone());
    if let Some(host) = &host
        && (host.is_empty() || host.contains(['/', ' ']) || HeaderValue::from_str(host).is_err())
    {
        let what = format!("{} does not serve as a `Host` header", quoted(host));
        cx.fail(check.host.mark, what, "write a host name, with a port if the node wants one");
    }
    let probe = match (check.path.get(), check.grpc.get()) {
        (Some(text), None) => HealthProbe::Path(path(&text.0, check.path.mark, "/healthz", cx)),
        (None, Some(service)) => {
            if !upstream.protocol.get().0 {
                let hint = "add `protocol: h2` to the upstream, or check a `path:`";
                cx.fail(check.grpc.mark, "gRPC needs nodes that speak HTTP/2", hint);
            }
            HealthProbe::Grpc(service.0.clone())
        }
        (Some(_), Some(_)) => {
            let what = "a health check has one question";
            cx.fail(check.grpc.mark, what, "keep `path:` or `grpc:`");
            return None;
        }
        (None, None) => {
            if !check.path.bad && !check.grpc.bad {
                let hint = "add `path:` with a path that is cheap, or `grpc:` with a service of gRPC";
                cx.fail(check.path.mark, "this health check asks for nothing", hint);
            }
            return None;
        }
    };
    let (fall, rise) = (count(&check.fall, 1_000, cx), count(&check.rise, 1_000, cx));
    Some(health::HealthCheck { probe, host, interval, timeout, fall, rise })
}

/// Returns the default collector of an upstream that configures none but needs one to learn the page table.
fn usual_collector(mark: Mark, cx: &mut Context) -> Option<site::Collector> {
    let nothing = Node::new(cx.position(mark), Value::Map(Vec::new()));
    let form = Collector::decode(&nothing, cx)?;
    Some(collector(&form, true, cx))
}

fn collector(form: &Collector, learned: bool, cx: &mut Context) -> site::Collector {
    let every = if learned && !form.every.given { LEARNED_EVERY } else { form.every.get().0 };
    if learned && every > LEARNED_MAX {
        let what = format!("a page table cannot be learned from questions {} apart", span_text(every));
        cx.fail(form.every.mark, what, format!("write at most {}", span_text(LEARNED_MAX)));
    }
    site::Collector {
        path: path(&form.path.get().0, form.path.mark, "/weirgate/report", cx),
        port: match form.port.get() {
            CollectorPort::Port(port) => Some(*port),
            CollectorPort::Node => None,
        },
        every,
        timeout: at_most(&form.timeout, every, "`every`", "questions", cx),
    }
}

/// Returns the timeout of an action that is repeated every `interval`. `name` names that interval in
/// messages. A given timeout that exceeds it is an error.
fn at_most(timeout: &Defaulted<Span>, interval: Duration, name: &str, what: &str, cx: &mut Context) -> Duration {
    let span = timeout.get().0;
    if span > interval && timeout.given {
        let (long, short) = (span_text(span), span_text(interval));
        let hint = format!("{what} would pile up: make it at most {name}");
        cx.fail(timeout.mark, format!("the timeout {long} exceeds {name} {short}"), hint);
    }
    span.min(interval)
}

/// Checks the path that is requested from a node.
fn path(path: &str, mark: Mark, example: &str, cx: &mut Context) -> String {
    if !path.starts_with('/') || !path.bytes().all(|b| b.is_ascii_graphic()) || path.contains('#') {
        let what = format!("{} is not a path", quoted(path));
        cx.fail(mark, what, format!("write one such as `{example}`, percent-encoded"));
    }
    path.to_owned()
}
