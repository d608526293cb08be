//! JSON types of the admin API itself: the policy in force, and pages that wrap the engine's types.
//!
//! Secrets are left out. These are the token and its file, and the values with which rules compare headers,
//! cookies and query parameters, because such values may be clients' keys.

use std::collections::BTreeMap;

use serde::Serialize;
use weirgate_config::{ClassSite, Forward, HealthProbe, RuleTarget, Site, network_text};
use weirgate_engine::{Class, ClassId, ClassSnapshot, Dispatch, Snapshot};
use weirgate_wire::admin as shape;

use super::snapshot;
use crate::active_config::ActiveConfig;
use crate::classify::{Values, describe, describe_key};

/// Response of `/live`.
#[derive(Debug, Serialize)]
pub(super) struct Live {
    pub(super) live: bool,
}

/// Response of `/ready`.
#[derive(Debug, Serialize)]
pub(super) struct Ready {
    pub(super) ready: bool,
    pub(super) phase: &'static str,
    /// Number of upstreams without a usable node, if there are some. The page is open to all, so it has no names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unusable_upstreams: Option<usize>,
    /// Absent if no other gateway is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) follows: Option<Follows>,
}

/// The part of `/ready` about the gateways that are followed. It has no addresses.
#[derive(Debug, Serialize)]
pub(super) struct Follows {
    /// Time since the last answer of one of them. `null` before the first one.
    pub(super) age_seconds: Option<f64>,
}

/// Response of `POST /reload`.
#[derive(Debug, Serialize)]
pub(super) struct Reloaded<'a> {
    pub(super) version: u64,
    pub(super) checksum: &'a str,
    /// Changed fields that take effect only at the next start.
    pub(super) at_next_start: &'a [&'static str],
}

/// Response of `POST /drain`.
#[derive(Debug, Serialize)]
pub(super) struct Draining {
    pub(super) draining: bool,
}

/// Response of `POST /nodes/{upstream}/{node}/drain`.
#[derive(Debug, Serialize)]
pub(super) struct NodeDraining<'a> {
    pub(super) upstream: &'a str,
    pub(super) node: &'a str,
    pub(super) draining: bool,
}

/// Response of `/snapshot`: the engine and a page of its live classes.
#[derive(Debug, Serialize)]
pub(super) struct SnapshotPage {
    version: u64,
    checksum: String,
    engine: shape::Snapshot,
    /// `null` if there is no page table.
    page_table: Option<shape::PageTable>,
    /// Absent if the policy names all nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    discovery: Vec<shape::Discovery>,
    /// Number of tunnels, by class. Absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) tunnels: BTreeMap<String, u32>,
    /// Number of responses that have given their slot back, by class. Absent if there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) long_responses: BTreeMap<String, u32>,
    /// Absent if the policy does not ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) learned: Option<shape::LearnedStatus>,
    /// Absent if this gateway keeps all guarantees alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) site: Option<shape::SiteStatus>,
    /// Absent without an authority that issues certificates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) acme: Vec<shape::AcmeCertificate>,
    classes: Vec<shape::Class>,
    /// `from` of the next page, or `null` on the last page.
    next: Option<u32>,
}

pub(super) fn snapshot(
    active_config: &ActiveConfig,
    whole: &Snapshot,
    classes: &[ClassSnapshot],
    next: Option<u32>,
    (page_table, discovery, acme): (Option<shape::PageTable>, Vec<shape::Discovery>, Vec<shape::AcmeCertificate>),
    collectors: &Collectors,
) -> SnapshotPage {
    let named = &active_config.site.policy.classes;
    let name = |class: ClassId| {
        let known = classes.iter().find(|c| c.class == class).map(|c| c.name.clone());
        known.or_else(|| named.get(class.0 as usize).map(|c| c.name.clone())).unwrap_or_else(|| class.0.to_string())
    };
    let mut engine = snapshot::whole(whole, name);
    engine.nodes.iter_mut().for_each(|node| add(collectors, node));
    SnapshotPage {
        version: active_config.version,
        checksum: active_config.checksum.clone(),
        engine,
        page_table,
        discovery,
        tunnels: BTreeMap::new(),
        long_responses: BTreeMap::new(),
        learned: None,
        site: None,
        acme,
        classes: classes.iter().map(snapshot::class).collect(),
        next,
    }
}

/// A look at the gateway for a live page.
#[derive(Debug, Serialize)]
pub(super) struct Look {
    #[serde(flatten)]
    pub(super) page: SnapshotPage,
    /// Phase of the gateway, as in `/ready`.
    pub(super) phase: &'static str,
    /// Number of live classes that are left out.
    pub(super) classes_left_out: usize,
    /// Number of the latest event.
    pub(super) last_event: u64,
    pub(super) refusals: Vec<shape::Refusals>,
}

pub(super) fn look(
    active_config: &ActiveConfig,
    whole: &Snapshot,
    classes: &[ClassSnapshot],
    left_out: usize,
    (collectors, discovery, phase): (&Collectors, Vec<shape::Discovery>, &'static str),
    events: shape::Events,
) -> Look {
    Look {
        page: snapshot(active_config, whole, classes, None, (None, discovery, Vec::new()), collectors),
        phase,
        classes_left_out: left_out,
        last_event: events.events.last().map_or(0, |event| event.number),
        refusals: events.refusals,
    }
}

/// State of the collectors, by the names of pool and node.
pub(super) type Collectors = BTreeMap<(String, String), shape::Collector>;

fn add(collectors: &Collectors, node: &mut shape::Node) {
    node.collector = collectors.get(&(node.pool.clone(), node.name.clone())).copied();
}

/// Response of `/nodes`.
#[derive(Debug, Serialize)]
pub(super) struct Nodes {
    version: u64,
    nodes: Vec<NodeLine>,
}

#[derive(Debug, Serialize)]
struct NodeLine {
    #[serde(flatten)]
    node: shape::Node,
    /// `null` if the policy no longer names the node.
    address: Option<String>,
}

pub(super) fn nodes(active_config: &ActiveConfig, whole: &Snapshot, collectors: &Collectors) -> Nodes {
    let address = |node: &weirgate_engine::NodeSnapshot| {
        let place = active_config.nodes.iter().find(|place| place.pool == node.pool && place.name == node.name);
        place.map(|place| place.address.clone())
    };
    let line = |known| {
        let mut node = snapshot::node(known);
        add(collectors, &mut node);
        NodeLine { node, address: address(known) }
    };
    Nodes { version: active_config.version, nodes: whole.nodes.iter().map(line).collect() }
}

/// Response of `/policy`: the policy in force, with defaults filled in.
#[derive(Debug, Serialize)]
pub(super) struct PolicyView {
    version: u64,
    checksum: String,
    discipline: String,
    listen: Vec<String>,
    trusted_proxies: Vec<String>,
    upstreams: Vec<UpstreamView>,
    classes: Vec<ClassView>,
    templates: Vec<ClassView>,
    /// Rules in order. The first one that matches applies.
    rules: Vec<RuleView>,
    max_waiting: u32,
    forward: Forward,
    drain_deadline_seconds: f64,
    admin: Option<AdminView>,
    access_log_sample: Option<f64>,
}

#[derive(Debug, Serialize)]
struct UpstreamView {
    name: String,
    dispatch: &'static str,
    health_check: Option<String>,
    collector: Option<String>,
    nodes: Vec<NodeView>,
}

#[derive(Debug, Serialize)]
struct NodeView {
    name: String,
    address: String,
    weight: f64,
    capacity: Option<f64>,
    max_outstanding: Option<u32>,
}

#[derive(Debug, Serialize)]
struct ClassView {
    name: String,
    upstream: String,
    guarantee: shape::Guarantee,
    service_time_seconds: Option<f64>,
    max_waiting: u32,
    max_waiting_per_source: u32,
    max_wait_seconds: f64,
    shed_status: u16,
    total_timeout_seconds: f64,
    /// For a template: maximum number of live classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_live: Option<u32>,
}

#[derive(Debug, Serialize)]
struct RuleView {
    when: String,
    class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    keyed_by: Option<String>,
}

#[derive(Debug, Serialize)]
struct AdminView {
    address: String,
    hosts: Vec<String>,
}

pub(super) fn policy(active_config: &ActiveConfig) -> PolicyView {
    let site = &active_config.site;
    let classes = site.policy.classes.iter().zip(&site.classes);
    let templates = site.policy.templates.iter().zip(&site.templates);
    PolicyView {
        version: active_config.version,
        checksum: active_config.checksum.clone(),
        discipline: site.policy.discipline.name.clone(),
        listen: site.listeners.iter().map(|l| l.name.address.to_string()).collect(),
        trusted_proxies: site.trusted_proxies.iter().map(network_text).collect(),
        upstreams: (0..site.policy.pools.len()).map(|pool| upstream(site, pool)).collect(),
        classes: classes.map(|(class, own)| class_view(site, class, own, None)).collect(),
        templates: templates.map(|(t, own)| class_view(site, &t.class, own, Some(t.max_live))).collect(),
        rules: active_config.classifier.rules().iter().map(|rule| rule_view(site, rule)).collect(),
        max_waiting: site.policy.max_waiting,
        forward: site.forward,
        drain_deadline_seconds: site.drain_deadline.as_secs_f64(),
        admin: site
            .admin
            .as_ref()
            .map(|admin| AdminView { address: admin.address.to_string(), hosts: admin.hosts.clone() }),
        access_log_sample: site.access_log.as_ref().map(|log| log.sample),
    }
}

fn upstream(site: &Site, pool: usize) -> UpstreamView {
    let (name, dispatch) = site.policy.pools.get(pool).map(|p| (p.name.clone(), p.dispatch)).unzip();
    let nodes = site.policy.nodes.iter().zip(&site.nodes).filter(|(node, _)| node.pool == pool);
    UpstreamView {
        name: name.unwrap_or_default(),
        dispatch: match dispatch {
            Some(Dispatch::LeastLoaded { .. }) => "least_loaded",
            Some(Dispatch::WeightedRoundRobin) => "weighted_round_robin",
            Some(Dispatch::Lard(_)) => "lard",
            Some(Dispatch::PowerOfTwo) => "power_of_two",
            Some(Dispatch::PartitionStatic { .. }) => "partition_static",
            Some(Dispatch::PartitionDynamic { .. }) => "partition_dynamic",
            Some(Dispatch::LeastOutstanding) | None => "least_outstanding",
        },
        health_check: site.pools.get(pool).and_then(|p| p.health.as_ref()).map(|h| match &h.probe {
            HealthProbe::Path(path) => path.clone(),
            HealthProbe::Grpc(service) => format!("grpc:{service}"),
        }),
        collector: site.pools.get(pool).and_then(|p| p.collector.as_ref()).map(|c| c.path.clone()),
        nodes: nodes
            .map(|(node, place)| NodeView {
                name: node.name.clone(),
                address: place.address.clone(),
                weight: node.weight,
                capacity: node.capacity,
                max_outstanding: node.max_outstanding,
            })
            .collect(),
    }
}

fn class_view(site: &Site, class: &Class, own: &ClassSite, max_live: Option<u32>) -> ClassView {
    ClassView {
        name: class.name.clone(),
        upstream: site.policy.pools.get(class.pool).map(|p| p.name.clone()).unwrap_or_default(),
        guarantee: snapshot::guarantee(&class.guarantee),
        service_time_seconds: class.service_time.map(|t| t.as_secs_f64()),
        max_waiting: class.queue.max_waiting,
        max_waiting_per_source: class.queue.max_waiting_per_flow,
        max_wait_seconds: class.queue.max_wait.as_secs_f64(),
        shed_status: own.shed.status,
        total_timeout_seconds: own.timeouts.total.as_secs_f64(),
        max_live,
    }
}

fn rule_view(site: &Site, rule: &weirgate_config::Rule) -> RuleView {
    let name = |class: Option<&Class>| class.map(|c| c.name.clone()).unwrap_or_default();
    let (class, keyed_by) = match &rule.target {
        RuleTarget::Class(class) => (name(site.policy.classes.get(class.0 as usize)), None),
        RuleTarget::Template(template, key) => {
            (name(site.policy.templates.get(template.0 as usize).map(|t| &t.class)), Some(describe_key(key)))
        }
    };
    RuleView { when: describe(&rule.matches, Values::Hidden), class, keyed_by }
}
