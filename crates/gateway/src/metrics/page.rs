//! The page for Prometheus: OpenMetrics text, with every name `weirgate_*` and base units.
//!
//! Source: OpenMetrics 1.0 (names, units, `_total`). The page shows the guarantee of every class next to its
//! achieved value, and the window. `docs/guide/operating.md` lists the names for operators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::{fmt, iter};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use weirgate_engine::{Contention, NodeState, ShedReason, Snapshot};
use weirgate_http_server::families::{self, Families, Labels};
use weirgate_wire::RESOURCE_NAMES;

use super::bounds::Bounds;
use super::classes::{Classes, Live, Named};
use super::shown::{MAX_SHOWN, OTHER, UNCLASSIFIED};
use super::tally::{Counts, Histogram};
use super::tls::Tls;
use super::{Metrics, exemplars};
use crate::proxy_protocol::HeaderFailure;

/// Words for the elements of [`Counts::requests`], in order.
const STATUS_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Data of one page.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) engine: Snapshot,
    /// Reports of the nodes' collectors, by the names of pool and node.
    pub(crate) collectors: BTreeMap<(String, String), weirgate_wire::admin::Collector>,
    /// The page table with its busiest routes. `None` if there is no page table.
    pub(crate) page_table: Option<weirgate_wire::admin::PageTable>,
    pub(crate) classes: Classes,
    /// Counters and gauges without labels.
    pub(crate) process: Vec<Single>,
    /// Connections that were closed for want of a header of the PROXY protocol.
    pub(crate) header_failures: Vec<(HeaderFailure, u64)>,
    /// TLS of the listeners.
    pub(crate) tls: Tls,
    /// Sources that name nodes.
    pub(crate) discovery: Vec<weirgate_wire::admin::Discovery>,
    /// Gateways that are followed.
    pub(crate) followed: Vec<weirgate_wire::admin::Followed>,
    pub(crate) site: Option<weirgate_wire::admin::SiteStatus>,
    /// Certificates that an authority issues.
    pub(crate) acme: Vec<weirgate_wire::admin::AcmeCertificate>,
    /// Version and checksum of the policy in force.
    pub(crate) policy: (u64, String),
}

/// A metric without labels.
#[derive(Debug)]
pub(crate) struct Single {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: Value,
}

/// Value of a metric.
#[derive(Debug)]
pub(crate) enum Value {
    Counter(u64),
    /// A counter of seconds.
    Seconds(f64),
    Gauge(u64),
}

/// Renders the page as text.
pub(crate) fn render(scrape: Scrape) -> String {
    let shown = scrape.classes.exemplars.clone();
    match families::render("weirgate", scrape) {
        Some(page) => exemplars::add_to(page, &shown),
        None => String::from("# EOF\n"),
    }
}

/// Writes the series of a histogram of times.
fn histograms<'l>(
    page: &mut Families<'_>,
    name: &str,
    help: &str,
    bounds: &Bounds,
    series: impl Iterator<Item = (Labels<'l>, &'l Histogram<u64>)>,
) -> fmt::Result {
    page.family(name, help, MetricType::Histogram, series, |encoder, histogram| {
        let buckets = bounds.buckets(&histogram.buckets);
        let count = buckets.iter().map(|(_, n)| n).sum();
        encoder.encode_histogram::<NoLabelSet>(histogram.micros as f64 / 1e6, count, &buckets, None)
    })
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Families(encoder);
        self.requests(&mut page)?;
        self.live_classes(&mut page)?;
        self.guarantees(&mut page)?;
        self.engine(&mut page)?;
        self.nodes(&mut page)?;
        super::discovery::write(&mut page, &self.discovery)?;
        super::learned::write(&mut page, &self.followed)?;
        super::site::write(&mut page, self.site.as_ref())?;
        super::acme::write(&mut page, &self.acme)?;
        self.page_table(&mut page)?;
        self.collectors(&mut page)?;
        page.counters(
            "proxy_header_failures",
            "Client connections closed because their PROXY protocol header was missing, malformed or late, by reason",
            self.header_failures.iter().map(|(reason, n)| (vec![("reason", reason.as_str())], *n)),
        )?;
        self.tls.write(&mut page)?;
        self.process(&mut page)
    }
}

impl Scrape {
    /// Writes the counters of requests.
    fn requests(&self, page: &mut Families<'_>) -> fmt::Result {
        let counts = || self.classes.counts.iter().map(|(name, counts)| (&**name, counts));
        let each = |read: fn(&Counts) -> u64| counts().map(move |(name, counts)| (class(name), read(counts)));
        page.counters(
            "requests",
            &format!(
                "Completed requests, by class and by status class of the response. Of more than {MAX_SHOWN} classes those \
                 with the most requests have series of their own, and the others are counted together as class {OTHER}"
            ),
            counts().flat_map(|(name, counts)| {
                STATUS_CLASSES.iter().zip(counts.requests).map(move |(status, n)| (labels(name, "status", status), n))
            }),
        )?;
        page.counters(
            "shed",
            "Shed requests, by class and reason",
            counts().flat_map(|(name, counts)| {
                ShedReason::ALL
                    .iter()
                    .zip(counts.shed)
                    .map(move |(reason, n)| (labels(name, "reason", reason.as_str()), n))
            }),
        )?;
        let observed = || self.classes.live.iter().filter(|(_, live)| live.is_observed());
        page.counters(
            "would_shed",
            "Requests that passed because their class is observed, and would have been shed, by class and reason",
            observed().flat_map(|(name, live)| {
                let counts = ShedReason::ALL.iter().zip(live.would_shed);
                counts.map(move |(reason, n)| (labels(name, "reason", reason.as_str()), n))
            }),
        )?;
        page.gauges(
            "enforced_share",
            "Share of the sources of a class that are enforced, for classes that are observed",
            observed().map(|(name, live)| (class(name), live.enforced.unwrap_or(1.0))),
        )?;
        page.counters("left", "Requests whose client left before the end", each(|c| c.left))?;
        page.counters("retries", "Attempts after the first", each(|c| c.retries))?;
        page.counters("received_bytes", "Body bytes received from clients", each(|c| c.received_bytes))?;
        page.counters("sent_bytes", "Body bytes sent to clients", each(|c| c.sent_bytes))?;
        histograms(
            page,
            "response_time_seconds",
            "Time from the request's head to the node's last byte, for served requests",
            &self.classes.bounds,
            counts().map(|(name, counts)| (class(name), &counts.response_time)),
        )?;
        histograms(
            page,
            "queue_wait_seconds",
            "Time from the request's head to its release or refusal",
            &self.classes.bounds,
            counts().map(|(name, counts)| (class(name), &counts.queue_wait)),
        )?;
        page.counters(
            "refused",
            "Requests that broke the rules of HTTP or a limit, by reason",
            self.metrics.refused.counts().map(|(word, n)| (vec![("reason", word)], n)),
        )?;
        page.counters(
            "failed",
            "Requests that the nodes failed, by reason (RFC 9209)",
            self.metrics.failed.counts().map(|(word, n)| (vec![("reason", word)], n)),
        )
    }

    /// Writes the engine's present state of each class.
    fn live_classes(&self, page: &mut Families<'_>) -> fmt::Result {
        page.gauges("class_waiting", "Requests that wait", self.live(|l| l.waiting))?;
        page.gauges("class_outstanding", "Requests in flight", self.live(|l| l.outstanding))?;
        page.gauges(
            "class_tunnels",
            "Tunnels open now, and requests under way that ask for one",
            self.live(|l| l.tunnels),
        )?;
        page.gauges(
            "class_long_responses",
            "Responses under way that have given their slot back, by long_responses of the class",
            self.live(|l| l.long_responses),
        )?;
        page.gauges(
            "class_live",
            "Live classes of this name, more than 1 only for a template and for (other)",
            self.live(|l| l.classes),
        )?;
        page.gauges("class_share_ratio", "Share of the window that the class may claim", self.live(|l| l.share))
    }

    fn live<'l, T: 'l>(&'l self, read: fn(&Live) -> T) -> impl Iterator<Item = (Labels<'l>, T)> {
        self.classes.live.iter().map(move |(name, live)| (class(name), read(live)))
    }

    /// Writes the guarantee and the achieved value of classes named in the policy.
    fn guarantees(&self, page: &mut Families<'_>) -> fmt::Result {
        let gauge = |read: fn(&Named) -> Option<f64>| {
            self.classes.live.iter().filter_map(move |(name, live)| Some((class(name), read(live.named.as_ref()?)?)))
        };
        page.gauges(
            "guarantee_throughput",
            "Guaranteed minimum throughput, in requests per second",
            gauge(|c| c.guaranteed_throughput),
        )?;
        page.gauges(
            "guarantee_response_time_seconds",
            "Guaranteed maximum response time",
            gauge(|c| c.guaranteed_response_time),
        )?;
        page.gauges(
            "achieved_throughput",
            "Requests served per second over the sliding window",
            gauge(|c| c.achieved_throughput),
        )?;
        page.gauges(
            "achieved_response_time_seconds",
            "Statistic of the guarantee for the response time, over the sliding window",
            gauge(|c| c.achieved_response_time),
        )?;
        page.gauges(
            "throughput_held",
            "1 if the guaranteed throughput is held, for (other) by all of them",
            gauge(|c| c.throughput_held.map(number)),
        )?;
        page.gauges(
            "response_time_held",
            "1 if the guaranteed response time is held, for (other) by all of them",
            gauge(|c| c.response_time_held.map(number)),
        )?;
        page.gauges(
            "limit_impossible",
            "1 if the guaranteed response time is impossible, because it is shorter than the service time",
            gauge(|c| c.impossible.map(number)),
        )?;
        page.gauges("compute_time_seconds", "Estimated time from release to last byte", gauge(|c| c.compute_time))
    }

    fn engine(&self, page: &mut Families<'_>) -> fmt::Result {
        let one = |value: Option<f64>| value.into_iter().map(|value| (Vec::new(), value));
        page.gauges(
            "window",
            "Maximum number of requests in flight. Absent without a limit",
            one(self.engine.window.map(f64::from)),
        )?;
        self.groups(page)?;
        page.gauges("outstanding", "Requests in flight at all nodes", one(Some(f64::from(self.engine.outstanding))))?;
        page.gauges("waiting", "Requests in all queues", one(Some(f64::from(self.engine.waiting))))?;
        page.gauges(
            "demanded_capacity",
            "Slot-seconds per second that the guarantees need. Absent if no service time is known",
            one(self.engine.demanded_capacity),
        )?;
        page.gauges(
            "usable_capacity",
            "Slot-seconds per second of the usable nodes. Absent if unknown",
            one(self.engine.usable_capacity),
        )
    }

    /// Writes one series per machine group with its own window, or per group and resource. So there are at
    /// most as many as the number of nodes times the number of resources.
    fn groups(&self, page: &mut Families<'_>) -> fmt::Result {
        let names: Vec<String> = self.engine.groups.iter().map(|group| group.pools.join("+")).collect();
        let groups = || {
            names.iter().zip(&self.engine.groups).map(|(name, group)| {
                let resource = group.resource.as_deref().map(|resource| ("resource", resource));
                (iter::once(("machine_group", name.as_str())).chain(resource).collect::<Labels<'_>>(), group)
            })
        };
        page.gauges(
            "machine_group_window",
            "Maximum number of requests in flight at the nodes that serve the same pools. Absent without a limit",
            groups().filter_map(|(labels, group)| group.window.map(|window| (labels, u64::from(window)))),
        )?;
        page.gauges(
            "machine_group_outstanding",
            "Requests in flight at the nodes that serve the same pools",
            groups().map(|(labels, group)| (labels, u64::from(group.outstanding))),
        )?;
        let contention = || groups().filter_map(|(labels, group)| Some((labels, group.contention?)));
        page.gauges(
            "machine_group_contention",
            "1 for the state of contention between requests in flight: unseen, trial or seen",
            contention().flat_map(|(labels, (is, _))| {
                Contention::ALL.into_iter().map(move |state| {
                    let labels = labels.iter().copied().chain([("state", state.as_str())]).collect();
                    (labels, u64::from(state == is))
                })
            }),
        )?;
        page.gauges(
            "machine_group_contention_age_seconds",
            "Time since the contention state changed",
            contention().map(|(labels, (_, since))| (labels, self.engine.now.since(since).as_secs_f64())),
        )
    }

    fn nodes(&self, page: &mut Families<'_>) -> fmt::Result {
        let nodes =
            || self.engine.nodes.iter().map(|n| (vec![("pool", n.pool.as_str()), ("node", n.name.as_str())], n));
        page.gauges(
            "node_state",
            "1 for the present state of the node",
            nodes().flat_map(|(labels, node)| {
                ["up", "down", "draining", "ejected"].into_iter().map(move |state| {
                    let labels = labels.iter().copied().chain([("state", state)]).collect();
                    (labels, u64::from(state == state_word(node.state)))
                })
            }),
        )?;
        page.gauges(
            "node_outstanding",
            "Requests in flight at the node",
            nodes().map(|(labels, n)| (labels, u64::from(n.outstanding))),
        )?;
        page.counters("node_served", "Requests that the node finished", nodes().map(|(l, n)| (l, n.served)))?;
        page.counters("node_failed", "Failures of the node", nodes().map(|(labels, n)| (labels, n.failed)))?;
        page.gauges(
            "node_load",
            "Requests in flight per CPU. A dynamic request counts as its cost in static ones",
            nodes().map(|(labels, n)| (labels, n.load)),
        )?;
        self.divided_pools(page)?;
        self.localities(page)
    }

    /// Writes the state of pools that dispatch by locality.
    fn localities(&self, page: &mut Families<'_>) -> fmt::Result {
        let localities = || self.engine.localities.iter().map(|l| (vec![("pool", l.pool.as_str())], l));
        page.gauges(
            "locality_keys",
            "Locality keys that are mapped to a node",
            localities().map(|(labels, known)| (labels, u64::from(known.keys))),
        )?;
        page.counters(
            "locality_requests",
            "Requests sent to the node of their key (hit), to another (move), or with an unmapped key (new)",
            localities().flat_map(|(labels, known)| {
                [("hit", known.hits), ("move", known.moves), ("new", known.new)]
                    .map(|(sent, count)| (labels.iter().copied().chain([("sent", sent)]).collect(), count))
            }),
        )
    }

    /// Writes the state of pools that are divided among sets of services (at most four sets each), and
    /// priorities.
    fn divided_pools(&self, page: &mut Families<'_>) -> fmt::Result {
        let divided = || self.engine.divided_pools.iter().map(|p| (vec![("pool", p.pool.as_str())], p));
        page.gauges(
            "partition_nodes",
            "Usable nodes of each set of services of a divided pool",
            divided().flat_map(|(labels, pool)| {
                pool.partitions.iter().map(move |partition| {
                    let labels = labels.iter().copied().chain([("set", partition.set.as_str())]).collect();
                    (labels, u64::from(partition.nodes))
                })
            }),
        )?;
        page.gauges(
            "priority_waiting",
            "Requests that wait, by priority",
            self.engine
                .priorities
                .iter()
                .map(|priority| (vec![("priority", priority.name.as_str())], u64::from(priority.waiting))),
        )?;
        page.counters(
            "partition_moves",
            "Changes of nodes of a divided pool between sets",
            divided().map(|(labels, pool)| (labels, pool.moves)),
        )
    }

    /// Writes the costs of routes, the state of learning, and the free resources of nodes, if there is a page
    /// table.
    fn page_table(&self, page: &mut Families<'_>) -> fmt::Result {
        let Some(table) = &self.page_table else { return Ok(()) };
        let costs = table.routes.iter().flat_map(|route| {
            route.cost.iter().map(|(resource, cost)| {
                (vec![("route", route.pattern.as_str()), ("resource", resource.as_str())], *cost)
            })
        });
        page.gauges(
            "route_cost_seconds",
            "Cost of a request on the busiest routes, in seconds of a whole node's resource",
            costs,
        )?;
        page.counters(
            "page_table_windows",
            "Windows between two reports of an agent, by outcome: learned, or the reason why not",
            table.windows.iter().flat_map(|(resource, outcomes)| {
                outcomes.iter().map(move |(outcome, count)| {
                    (vec![("resource", resource.as_str()), ("outcome", outcome.as_str())], *count)
                })
            }),
        )?;
        let classes = self.classes.counts.iter().filter(|(name, _)| &**name != UNCLASSIFIED);
        page.counters(
            "unknown_route_requests",
            "Arrivals with a route that is not in the page table",
            classes.map(|(name, counts)| (class(name), counts.unknown_routes)),
        )?;
        let nodes = self.engine.nodes.iter().flat_map(|node| {
            let resources = self.engine.resources.iter().zip(RESOURCE_NAMES).zip(node.available);
            resources.map(|((_, resource), left)| {
                (vec![("pool", node.pool.as_str()), ("node", node.name.as_str()), ("resource", resource)], left)
            })
        });
        page.gauges("node_available_ratio", "Free share of the node's resource, where load control uses it", nodes)
    }

    fn collectors(&self, page: &mut Families<'_>) -> fmt::Result {
        let collectors = || {
            self.collectors
                .iter()
                .map(|((pool, node), said)| (vec![("pool", pool.as_str()), ("node", node.as_str())], said))
        };
        page.gauges(
            "collector_age_seconds",
            "Age of the last report of the node's collector. Absent before the first",
            collectors().filter_map(|(labels, said)| said.age_seconds.map(|age| (labels, age))),
        )?;
        page.counters(
            "collector_failures",
            "Missed reports of the node's collector",
            collectors().map(|(labels, said)| (labels, said.failures)),
        )
    }

    fn process(&self, page: &mut Families<'_>) -> fmt::Result {
        for Single { name, help, value } in &self.process {
            match value {
                Value::Counter(n) => page.counters(name, help, [(Vec::new(), *n)])?,
                Value::Seconds(s) => page.counters(name, help, [(Vec::new(), *s)])?,
                Value::Gauge(n) => page.gauges(name, help, [(Vec::new(), *n)])?,
            }
        }
        let (version, checksum) = &self.policy;
        page.gauges(
            "policy_version",
            "Version of the policy in force. Grows by one with every reload",
            [(vec![("checksum", checksum.as_str())], *version)],
        )?;
        let build = vec![("version", env!("CARGO_PKG_VERSION")), ("discipline", self.engine.discipline.as_str())];
        page.gauges("build_info", "Version of the program and discipline in force", [(build, 1u64)])
    }
}

/// Returns the word for a node's state in metrics.
fn state_word(state: NodeState) -> &'static str {
    match state {
        NodeState::Up => "up",
        NodeState::Down => "down",
        NodeState::Draining => "draining",
        NodeState::Ejected { .. } => "ejected",
    }
}

fn class(name: &str) -> Labels<'_> {
    vec![("class", name)]
}

/// Returns 1 if a condition holds.
fn number(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn labels<'l>(class: &'l str, name: &'static str, value: &'l str) -> Labels<'l> {
    vec![("class", class), (name, value)]
}
