//! Traces and metrics in the JSON form of OTLP.
//!
//! Source: OTLP 1 (opentelemetry-proto, `trace.proto`, `metrics.proto`) with the rules of its JSON: names in camel
//! case, 64-bit integers as strings, enumerations as numbers, ids in hexadecimal digits. Only what Weirgate says is
//! here.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// Name of the scope of all spans and metrics.
const SCOPE: &str = "weirgate";

/// `AggregationTemporality`: counts since the start of the process.
pub(super) const CUMULATIVE: u8 = 2;

/// A 64-bit integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Int<T>(pub(super) T);

impl<T: std::fmt::Display> Serialize for Int<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// An attribute.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Attribute<'a> {
    pub(super) key: &'a str,
    pub(super) value: Any<'a>,
}

/// Value of an attribute.
#[derive(Clone, Debug, Serialize)]
pub(super) enum Any<'a> {
    #[serde(rename = "stringValue")]
    Text(Cow<'a, str>),
    #[serde(rename = "intValue")]
    Int(Int<u64>),
    #[serde(rename = "doubleValue")]
    Double(f64),
}

/// A span of a server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span<'a> {
    pub(super) trace_id: Cow<'a, str>,
    pub(super) span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_span_id: Option<String>,
    /// The flags of W3C Trace Context, and whether the parent is in another process.
    pub(super) flags: u32,
    pub(super) name: &'a str,
    /// `SpanKind`.
    pub(super) kind: u8,
    pub(super) start_time_unix_nano: Int<u64>,
    pub(super) end_time_unix_nano: Int<u64>,
    pub(super) attributes: Vec<Attribute<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<SpanEvent>,
    pub(super) status: Status,
}

/// An event of a span.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpanEvent {
    pub(super) time_unix_nano: Int<u64>,
    pub(super) name: &'static str,
}

/// Status of a span.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    /// `StatusCode`: 0 is unset, 2 an error.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) code: u8,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(code: &u8) -> bool {
    *code == 0
}

/// A metric with its points.
#[derive(Debug, Serialize)]
pub(super) struct Metric<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) description: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) unit: &'static str,
    #[serde(flatten)]
    pub(super) data: Data<'a>,
}

/// Points by kind of the metric.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Data<'a> {
    Gauge(Gauge<'a>),
    Sum(Sum<'a>),
    Histogram(Histogram<'a>),
}

/// Values of now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gauge<'a> {
    pub(super) data_points: Vec<Point<'a>>,
}

/// Counts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sum<'a> {
    pub(super) aggregation_temporality: u8,
    pub(super) is_monotonic: bool,
    pub(super) data_points: Vec<Point<'a>>,
}

/// Distributions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Histogram<'a> {
    pub(super) aggregation_temporality: u8,
    pub(super) data_points: Vec<HistogramPoint<'a>>,
}

/// A value.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Point<'a> {
    pub(super) attributes: Vec<Attribute<'a>>,
    /// Start of the process, for counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_time_unix_nano: Option<Int<u64>>,
    pub(super) time_unix_nano: Int<u64>,
    #[serde(flatten)]
    pub(super) value: Number,
}

/// A number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Number {
    #[serde(rename = "asInt")]
    Int(Int<i64>),
    #[serde(rename = "asDouble")]
    Double(f64),
}

/// A distribution.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HistogramPoint<'a> {
    pub(super) attributes: Vec<Attribute<'a>>,
    pub(super) start_time_unix_nano: Int<u64>,
    pub(super) time_unix_nano: Int<u64>,
    pub(super) count: Int<u64>,
    pub(super) sum: f64,
    /// Counts between the bounds, one more than bounds.
    pub(super) bucket_counts: Vec<Int<u64>>,
    pub(super) explicit_bounds: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) exemplars: Vec<Exemplar<'a>>,
}

/// A measured request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Exemplar<'a> {
    pub(super) time_unix_nano: Int<u64>,
    pub(super) as_double: f64,
    pub(super) trace_id: Cow<'a, str>,
    pub(super) span_id: Cow<'a, str>,
}

/// The process that exports.
pub(super) struct Resource {
    /// Name of the service.
    pub(super) service: String,
    pub(super) host: String,
    pub(super) process: u32,
}

impl Resource {
    /// Returns an export of spans, which are JSON with commas between them.
    pub(super) fn of_spans(&self, spans: &str) -> String {
        self.around("resourceSpans", "scopeSpans", "spans", spans)
    }

    /// Returns an export of metrics.
    pub(super) fn of_metrics(&self, metrics: &[Metric<'_>]) -> serde_json::Result<String> {
        let metrics = serde_json::to_string(metrics)?;
        let metrics = metrics.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or_default();
        Ok(self.around("resourceMetrics", "scopeMetrics", "metrics", metrics))
    }

    fn around(&self, resources: &str, scopes: &str, items: &str, json: &str) -> String {
        let text = |key, value: String| serde_json::json!({ "key": key, "value": { "stringValue": value } });
        let attributes = serde_json::Value::from(vec![
            text("service.name", self.service.clone()),
            // The pair of host and process is unique at any time, and a hand-over begins another instance.
            text("service.instance.id", format!("{}:{}", self.host, self.process)),
            text("service.version", env!("CARGO_PKG_VERSION").into()),
            text("host.name", self.host.clone()),
            serde_json::json!({ "key": "process.pid", "value": { "intValue": self.process.to_string() } }),
        ]);
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "{{\"{resources}\":[{{\"resource\":{{\"attributes\":{attributes}}},\"{scopes}\":[{{\"scope\":{{\"name\":\
             \"{SCOPE}\",\"version\":\"{version}\"}},\"{items}\":[{json}]}}]}}]}}"
        )
    }
}
