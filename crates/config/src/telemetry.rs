//! The export of traces and metrics as a policy configures it.

use std::time::Duration;

/// Export of traces and metrics to a collector, by OTLP over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct Telemetry {
    /// `host:port` of the collector.
    pub address: String,
    /// Path in front of `/v1/traces` and `/v1/metrics`, without a slash at its end.
    pub path: String,
    /// Share of the traces that are exported, 0 to 1.
    pub traces: f64,
    /// Time between two exports of metrics. `None` if there are none.
    pub metrics_every: Option<Duration>,
    /// Name of the service.
    pub service: String,
}
