//! Metrics with their series, as OpenMetrics text.
//!
//! Source: OpenMetrics 1.0 (names, units, `_total`). A page is made from the state at the time of the request, so there
//! is a [`Collector`] instead of registered metrics.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// Names and values of the labels of a series.
pub type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Returns the metrics of `collector` as text, each name with this prefix. `None` if a value cannot be written, because
/// a page without some metrics would be worse than an empty one.
pub fn render(prefix: &str, collector: impl Collector) -> Option<String> {
    let mut registry = Registry::with_prefix(prefix);
    registry.register_collector(Box::new(collector));
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).ok()?;
    Some(page)
}

/// The page of one request. Each call writes one metric name with all its series. The unit is the end of the name:
/// `_seconds` or `_bytes`.
#[derive(Debug)]
pub struct Families<'e>(pub DescriptorEncoder<'e>);

impl Families<'_> {
    /// Writes the series of a metric, each value with `write`.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn family<'l, T>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        series: impl IntoIterator<Item = (Labels<'l>, T)>,
        write: impl Fn(&mut MetricEncoder<'_>, &T) -> fmt::Result,
    ) -> fmt::Result {
        let (name, unit) = split_unit(name);
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in series {
            if labels.is_empty() {
                write(&mut encoder, &value)?;
            } else {
                write(&mut encoder.encode_family(&labels)?, &value)?;
            }
        }
        Ok(())
    }

    /// Writes the series of a counter.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn counters<'l, T: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l>, T)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, series, |encoder, value| {
            encoder.encode_counter::<NoLabelSet, T, f64>(value, None)
        })
    }

    /// Writes the series of a gauge.
    ///
    /// # Errors
    /// A value cannot be written.
    pub fn gauges<'l, T: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l>, T)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, series, |encoder, value| encoder.encode_gauge(value))
    }
}

/// Splits a name and its unit.
fn split_unit(name: &str) -> (&str, Option<Unit>) {
    let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];
    let mut found = units.into_iter().filter_map(|(end, unit)| Some((name.strip_suffix(end)?, Some(unit))));
    found.next().unwrap_or((name, None))
}
