//! The page of metrics as metrics of OTLP.
//!
//! Source: "Prometheus and OpenMetrics Compatibility" of OpenTelemetry's specification, part "Prometheus Metric
//! points to OTLP": a counter is a cumulative monotonic sum without `_total` in its name, a gauge a gauge, and a
//! histogram has the counts between its bounds. The page is read and not the counters behind it, so that a metric is
//! written in one place and has the same figures by both ways.

use std::borrow::Cow;

use weirgate_http_server::exposition::sample_and_exemplar;

use super::otlp::{
    Any, Attribute, CUMULATIVE, Data, Exemplar, Gauge, Histogram, HistogramPoint, Int, Metric, Number, Point, Sum,
};

/// Returns the metrics of a page. `start` and `now` are in nanoseconds since 1970.
pub(super) fn of_page(page: &str, start: u64, now: u64) -> Vec<Metric<'_>> {
    let mut metrics: Vec<Metric<'_>> = Vec::new();
    for line in page.lines() {
        match line.strip_prefix("# ").map(|rest| rest.splitn(3, ' ').collect::<Vec<_>>()).as_deref() {
            Some([what, name, rest]) => {
                if metrics.last().is_none_or(|last| last.name != *name) {
                    metrics.push(Metric { name, description: "".into(), unit: "", data: gauge() });
                }
                if let Some(metric) = metrics.last_mut() {
                    describe(metric, what, rest);
                }
            }
            Some(_) => {}
            None => {
                if let Some(metric) = metrics.last_mut() {
                    // What this process does not write is left out.
                    let _ = add(metric, line, start, now);
                }
            }
        }
    }
    metrics.retain(|metric| match &metric.data {
        Data::Gauge(gauge) => !gauge.data_points.is_empty(),
        Data::Sum(sum) => !sum.data_points.is_empty(),
        Data::Histogram(histogram) => !histogram.data_points.is_empty(),
    });
    metrics.iter_mut().for_each(finish);
    metrics
}

fn gauge<'a>() -> Data<'a> {
    Data::Gauge(Gauge { data_points: Vec::new() })
}

/// Adds what a line of comment says.
fn describe<'a>(metric: &mut Metric<'a>, what: &str, text: &'a str) {
    match (what, text) {
        ("HELP", text) => metric.description = unescaped(text),
        // UCUM, as OpenTelemetry wants it.
        ("UNIT", "seconds") => metric.unit = "s",
        ("UNIT", "bytes") => metric.unit = "By",
        ("TYPE", "counter") => {
            let sum = Sum { aggregation_temporality: CUMULATIVE, is_monotonic: true, data_points: Vec::new() };
            metric.data = Data::Sum(sum);
        }
        ("TYPE", "histogram") => {
            metric.data = Data::Histogram(Histogram { aggregation_temporality: CUMULATIVE, data_points: Vec::new() });
        }
        _ => {}
    }
}

/// Adds the point of a line. Returns `None` if it is not a part of this metric.
fn add<'a>(metric: &mut Metric<'a>, line: &'a str, start: u64, now: u64) -> Option<()> {
    let (sample, exemplar) = sample_and_exemplar(line);
    let (series, value) = sample.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, attributes(labels.strip_suffix('}')?)?),
        None => (series, Vec::new()),
    };
    let part = name.strip_prefix(metric.name)?;
    let point = |attributes, start| {
        let value = number(value)?;
        Some(Point { attributes, start_time_unix_nano: start, time_unix_nano: Int(now), value })
    };
    match (&mut metric.data, part) {
        (Data::Gauge(gauge), "") => gauge.data_points.push(point(labels, None)?),
        (Data::Sum(sum), "_total") => sum.data_points.push(point(labels, Some(Int(start)))?),
        (Data::Histogram(histogram), part) => {
            let (bounds, labels): (Vec<_>, Vec<_>) = labels.into_iter().partition(|label| label.key == "le");
            let points = &mut histogram.data_points;
            if points.last().is_none_or(|last| !same(&last.attributes, &labels)) {
                points.push(HistogramPoint {
                    attributes: labels,
                    start_time_unix_nano: Int(start),
                    time_unix_nano: Int(now),
                    count: Int(0),
                    sum: 0.0,
                    bucket_counts: Vec::new(),
                    explicit_bounds: Vec::new(),
                    exemplars: Vec::new(),
                });
            }
            let point = points.last_mut()?;
            match (part, bounds.first().map(|bound| &bound.value)) {
                ("_sum", None) => point.sum = value.parse().ok().filter(|sum: &f64| sum.is_finite())?,
                ("_count", None) => point.count = Int(value.parse().ok()?),
                ("_bucket", Some(Any::Text(bound))) => {
                    point.bucket_counts.push(Int(value.parse().ok()?));
                    // The last bucket has no bound in OTLP.
                    point.explicit_bounds.extend(bound.parse().ok().filter(|bound: &f64| bound.is_finite()));
                    point.exemplars.extend(exemplar.and_then(exemplar_of));
                }
                _ => {}
            }
        }
        _ => return None,
    }
    Some(())
}

/// Returns an exemplar of a trace: `{trace_id="…",span_id="…"} VALUE SECONDS`.
fn exemplar_of(text: &str) -> Option<Exemplar<'_>> {
    let (labels, numbers) = text.strip_prefix('{')?.split_once("} ")?;
    let (value, ended) = numbers.split_once(' ')?;
    let mut ids = attributes(labels)?.into_iter().map(|label| match (label.key, label.value) {
        ("trace_id" | "span_id", Any::Text(id)) => id,
        _ => Cow::Borrowed(""),
    });
    let ended: f64 = ended.parse().ok()?;
    Some(Exemplar {
        // Written in milliseconds.
        time_unix_nano: Int((ended * 1e3).round() as u64 * 1_000_000),
        as_double: value.parse().ok().filter(|value: &f64| value.is_finite())?,
        trace_id: ids.next()?,
        span_id: ids.next()?,
    })
}

/// Whether two lists of labels are equal.
fn same(one: &[Attribute<'_>], other: &[Attribute<'_>]) -> bool {
    let text = |label: &Attribute<'_>| match &label.value {
        Any::Text(text) => text.to_string(),
        Any::Int(_) | Any::Double(_) => String::new(),
    };
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.key == b.key && text(a) == text(b))
}

/// Makes counts of buckets of the page's, which include those of all buckets before.
fn finish(metric: &mut Metric<'_>) {
    let Data::Histogram(histogram) = &mut metric.data else { return };
    for point in &mut histogram.data_points {
        let mut before = 0;
        for count in &mut point.bucket_counts {
            (before, count.0) = (count.0, count.0.saturating_sub(before));
        }
    }
}

/// Returns a number as it is written. JSON has no infinity, and such values are left out.
fn number(text: &str) -> Option<Number> {
    match text.parse::<i64>() {
        Ok(whole) => Some(Number::Int(Int(whole))),
        Err(_) => text.parse().ok().filter(|number: &f64| number.is_finite()).map(Number::Double),
    }
}

/// Returns the labels of a series without its braces.
fn attributes(mut text: &str) -> Option<Vec<Attribute<'_>>> {
    let mut all = Vec::new();
    while !text.is_empty() {
        let (key, rest) = text.split_once("=\"")?;
        let mut escaped = false;
        let end = rest.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        })?;
        let (value, rest) = rest.split_at(end);
        all.push(Attribute { key, value: Any::Text(unescaped(value)) });
        text = rest.strip_prefix('"')?;
        text = text.strip_prefix(',').unwrap_or(text);
    }
    Some(all)
}

/// Takes off the escapes of OpenMetrics.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (c, (c == '\\').then(|| rest.next()).flatten()) {
            ('\\', Some('n')) => plain.push('\n'),
            ('\\', Some(next)) => plain.push(next),
            (c, _) => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const PAGE: &str = include_str!("page.txt");

    #[test]
    fn a_page_becomes_sums_gauges_and_histograms() {
        let metrics = serde_json::to_value(of_page(PAGE, 5, 9)).expect("JSON");
        let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
        assert_eq!(
            metrics[0],
            json!({ "name": "weirgate_shed", "description": "Shed requests, by class.", "sum": {
                "aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [
                    { "attributes": [text("class", "a\"\\\n,}="), text("reason", "x")], "startTimeUnixNano": "5",
                      "timeUnixNano": "9", "asInt": "3" },
                    { "attributes": [text("class", "b"), text("reason", "x")], "startTimeUnixNano": "5",
                      "timeUnixNano": "9", "asInt": "0" },
                ] } })
        );
        assert_eq!(
            metrics[1],
            json!({ "name": "weirgate_window", "description": "Most \"in flight\".", "gauge": { "dataPoints": [
                { "attributes": [], "timeUnixNano": "9", "asDouble": 1.5 }
            ] } })
        );
        assert_eq!((&metrics[2]["name"], &metrics[2]["unit"]), (&json!("weirgate_wait_seconds"), &json!("s")));
        let points = &metrics[2]["histogram"]["dataPoints"];
        assert_eq!(
            points[0],
            json!({ "attributes": [text("class", "a")], "startTimeUnixNano": "5", "timeUnixNano": "9", "count": "4",
                "sum": 0.75, "bucketCounts": ["1", "0", "3"], "explicitBounds": [0.001, 0.0025], "exemplars": [
                    { "timeUnixNano": "1700000000250000000", "asDouble": 0.002, "traceId": "0af7", "spanId": "b7ad" },
                ] })
        );
        assert_eq!((&points[1]["bucketCounts"], points.as_array().map(Vec::len)), (&json!(["0", "0"]), Some(2)));
        assert_eq!(metrics.as_array().map(Vec::len), Some(3), "a metric without series is left out");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[ -~\n]{0,300}", cut in 0..PAGE.len()) {
            for page in [text.as_str(), PAGE.get(..cut).unwrap_or_default(), &format!("{}{text}", PAGE.get(cut..).unwrap_or_default())] {
                let _ = serde_json::to_string(&of_page(page, 1, 2));
            }
        }
    }
}
