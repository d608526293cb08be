//! Gathers the data shown by `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weirgate_engine::ClassSnapshot;

use super::operations::Operations;
use crate::gateway::Gateway;
use crate::metrics::{Classes, Live, Scrape, Single, Value};

/// Maximum number of page table routes with metrics: the number learned separately. More series would be of
/// no use.
const MAX_ROUTES: usize = weirgate_pages::MAX_APART;

/// Returns the page table with at most `max` of its routes. Yields to other requests between pages of
/// classes.
pub(super) async fn page_table(gateway: &Gateway, max: usize) -> Option<weirgate_wire::admin::PageTable> {
    let mut table = gateway.page_table(max)?;
    let (mut offered, mut unknown) = (0, 0);
    let add = |class: ClassSnapshot| {
        offered += class.offered;
        unknown += class.unknown;
    };
    gateway.control().each_class(add).await;
    table.unknown_share = if offered > 0 { unknown as f64 / offered as f64 } else { 0.0 };
    Some(table)
}

/// Reads all the data, with the series of all classes or of the busiest. Yields to other requests between pages of
/// classes.
pub(crate) async fn collect(operations: &Operations, all: bool) -> Scrape {
    let gateway = operations.gateway();
    let control = gateway.control();
    let active_config = gateway.active_config();
    let named = active_config.site.policy.classes.len();
    let mut classes: BTreeMap<String, Live> = BTreeMap::new();
    let add = |class: ClassSnapshot| {
        let is_named = (class.class.0 as usize) < named;
        classes.entry(class.name.clone()).or_default().add(&class, is_named);
    };
    control.each_class(add).await;
    for (class, responses) in gateway.long_responses().by_class() {
        classes.entry(class).or_default().long_responses = u64::from(responses);
    }
    for (class, tunnels) in gateway.tunnels().by_class() {
        classes.entry(class).or_default().tunnels = u64::from(tunnels);
    }
    Scrape {
        metrics: Arc::clone(operations.metrics()),
        engine: control.snapshot(),
        collectors: gateway.collectors(),
        page_table: gateway.page_table(MAX_ROUTES),
        classes: Classes::select(operations.metrics(), classes, all),
        process: process(operations),
        header_failures: gateway.counters().header_failures.all().collect(),
        tls: gateway.tls_metrics(),
        discovery: gateway.discovery(),
        followed: gateway.learned_state().map_or(Vec::new(), |state| state.follows),
        acme: gateway.acme(),
        site: gateway.site(),
        policy: (active_config.version, active_config.checksum.clone()),
    }
}

/// Metrics of the process, which belong to no class or node.
fn process(operations: &Operations) -> Vec<Single> {
    let counters = operations.gateway().counters();
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let single = |name, help, value| Single { name, help, value };
    let held = operations.gateway().control().held();
    vec![
        single("connections", "Client connections accepted", Value::Counter(read(&counters.accepted))),
        single("connections_open", "Client connections open now", Value::Gauge(read(&counters.open))),
        single(
            "connections_refused",
            "Client connections closed at once because of limits.connections_per_source",
            Value::Counter(counters.refused_connections.total()),
        ),
        single(
            "connections_over_rate",
            "Client connections closed at once because of limits.new_connections_per_source",
            Value::Counter(counters.over_rate_connections.total()),
        ),
        single(
            "accept_pauses",
            "Times that accepting paused because file descriptors or memory ran out",
            Value::Counter(read(&counters.accept_pauses)),
        ),
        single(
            "http2_connections",
            "Client connections that speak HTTP/2",
            Value::Counter(read(&counters.http2_connections)),
        ),
        single("http2_requests", "Requests over HTTP/2", Value::Counter(read(&counters.http2_requests))),
        single(
            "http2_floods",
            "HTTP/2 connections closed because of frames without content, or of slow heads",
            Value::Counter(read(&counters.http2_floods)),
        ),
        single("node_connects", "Connections to nodes opened", Value::Counter(read(&counters.connects))),
        single(
            "node_connect_failures",
            "Connections to nodes that could not be opened",
            Value::Counter(read(&counters.connect_failures)),
        ),
        single(
            "node_connection_reuses",
            "Requests sent over a connection that had served one before",
            Value::Counter(read(&counters.reused)),
        ),
        single(
            "buffered",
            "Response bytes buffered for slow clients now",
            Value::BytesGauge(read(&counters.buffered_bytes)),
        ),
        single(
            "stalled_responses",
            "Responses without a slot that wait for slow clients now",
            Value::Gauge(operations.gateway().stalled_responses()),
        ),
        single(
            "long_responses",
            "Responses that have given their slot back, by long_responses of the class",
            Value::Counter(read(&counters.long_responses)),
        ),
        single(
            "long_responses_refused",
            "Times that a long response kept its slot for a second because of long_responses.max of the class",
            Value::Counter(read(&counters.long_responses_refused)),
        ),
        single("tunnels", "Tunnels opened", Value::Counter(read(&counters.tunnels))),
        single(
            "tunnels_open",
            "Tunnels open now, and requests under way that ask for one",
            Value::Gauge(operations.gateway().tunnels().taken()),
        ),
        single(
            "tunnels_refused",
            "Requests for a tunnel refused because of limits.tunnels or of tunnels.max of the class",
            Value::Counter(read(&counters.tunnels_refused)),
        ),
        single(
            "tunnels_timed_out",
            "Tunnels closed at the end of tunnels.idle or tunnels.total of the class",
            Value::Counter(read(&counters.tunnels_timed_out)),
        ),
        single("lock_uses", "Uses of the engine's lock", Value::Counter(held.uses)),
        single("lock_measured", "Measured uses of the engine's lock", Value::Counter(held.measured)),
        single(
            "lock_held",
            "Time for which the engine's lock was held in measured uses",
            Value::SecondsCounter(held.nanos as f64 / 1e9),
        ),
        single("panics", "Requests that ended in a panic", Value::Counter(read(&counters.panics))),
        single("reloads", "Reloads that succeeded", Value::Counter(read(&counters.reloads))),
        single("reload_failures", "Reloads that failed", Value::Counter(read(&counters.reload_failures))),
        single("access_log_lines", "Lines of the access log written", Value::Counter(operations.log().written())),
        single(
            "access_log_dropped",
            "Lines of the access log dropped because the writer could not keep up or write",
            Value::Counter(operations.log().dropped()),
        ),
        single(
            "telemetry_spans",
            "Spans that the collector of telemetry has taken",
            Value::Counter(operations.telemetry().exported()),
        ),
        single(
            "telemetry_spans_lost",
            "Spans lost because the collector of telemetry was too slow or did not take them",
            Value::Counter(operations.telemetry().lost()),
        ),
        single(
            "telemetry_failures",
            "Exports to the collector of telemetry that failed",
            Value::Counter(operations.telemetry().failures()),
        ),
    ]
}
