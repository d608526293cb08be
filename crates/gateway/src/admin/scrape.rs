//! Gathers the data shown by `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    let gateway = operations.gateway();
    let (counters, held) = (gateway.counters(), gateway.control().held());
    let single = |name, help, value| Single { name, help, value };
    let mut all = counters.series();
    all.extend([
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
            "stalled_responses",
            "Responses without a slot that wait for slow clients now",
            Value::Gauge(gateway.stalled_responses()),
        ),
        single(
            "tunnels_open",
            "Tunnels open now, and requests under way that ask for one",
            Value::Gauge(gateway.tunnels().taken()),
        ),
        single("lock_uses", "Uses of the engine's lock", Value::Counter(held.uses)),
        single("lock_measured", "Measured uses of the engine's lock", Value::Counter(held.measured)),
        single(
            "lock_held_seconds",
            "Time for which the engine's lock was held in measured uses",
            Value::Seconds(held.nanos as f64 / 1e9),
        ),
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
    ]);
    all
}
