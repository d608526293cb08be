//! The span of a request.
//!
//! Source: OpenTelemetry's semantic conventions for HTTP servers, the stable ones. What they have no name for begins
//! with `weirgate.` and has the name of its field in the access log. A query may hold credentials. Those that the
//! conventions name are redacted.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weirgate_config::client_text;

use super::otlp::{Any, Attribute, Int, Span, SpanEvent, Status};
use crate::access_log::{words, would_words};
use crate::record::{AccessRecord, Ending, Protocol};
use crate::trace::SpanIds;

/// Maximum length of a text of a client, in bytes, as in the access log.
const MAX_TEXT: usize = 1024;

/// `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;

/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// The flag "sampled" of W3C Trace Context, and those of OTLP that say that it is known where the parent is, and that
/// it is in another process.
const SAMPLED: u32 = 0x01;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Methods that have a name of their own, by RFC 9110 and RFC 5789.
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];

/// Keys of a query whose values are credentials.
const SECRETS: [&str; 4] = ["AWSAccessKeyId", "Signature", "sig", "X-Goog-Signature"];

/// Returns the span of a request that has ended at `end`.
pub(super) fn of<'a>(record: &AccessRecord<'a>, ids: SpanIds, end: SystemTime) -> Span<'a> {
    let nanos = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let end = u64::try_from(nanos(end)).unwrap_or(u64::MAX);
    let start = end.saturating_sub(u64::try_from(record.total.as_nanos()).unwrap_or(u64::MAX));
    let after = |span: Duration| Int(start.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)));
    let was_released = record.service_time > Duration::ZERO;
    let mut events = Vec::new();
    if was_released {
        events.push(SpanEvent { time_unix_nano: after(record.queue_wait), name: "weirgate.released" });
        let last = record.queue_wait + record.service_time;
        events.push(SpanEvent { time_unix_nano: after(last), name: "weirgate.last_byte_of_node" });
    }
    let method = record.request.method().map_or("", http::Method::as_str);
    let failed = matches!(record.ending, Ending::Failed(_)) || record.status >= 500;
    Span {
        trace_id: record.trace_id.map_or(Cow::Borrowed(""), |id| Cow::Owned(id.to_string())),
        span_id: format!("{:016x}", ids.own),
        parent_span_id: ids.parent.map(|id| format!("{id:016x}")),
        flags: SAMPLED | HAS_IS_REMOTE | if ids.parent.is_some() { IS_REMOTE } else { 0 },
        name: if METHODS.contains(&method) { method } else { "HTTP" },
        kind: SERVER,
        start_time_unix_nano: Int(start),
        end_time_unix_nano: Int(end),
        attributes: attributes(record, method),
        events,
        status: Status { code: if failed { ERROR } else { 0 } },
    }
}

fn attributes<'a>(record: &AccessRecord<'a>, method: &'a str) -> Vec<Attribute<'a>> {
    let mut all = Vec::with_capacity(24);
    let mut add = |key, value| all.push(Attribute { key, value });
    let text = |value: &'a str| Any::Text(cut(value));
    let words_of = Any::Text;
    let number = |value: u64| Any::Int(Int(value));
    if METHODS.contains(&method) {
        add("http.request.method", text(method));
    } else {
        add("http.request.method", text("_OTHER"));
        if !method.is_empty() {
            add("http.request.method_original", text(method));
        }
    }
    add("url.scheme", text(if record.tls.is_some() { "https" } else { "http" }));
    add("url.path", text(record.request.path()));
    if let Some(query) = record.request.query() {
        add("url.query", words_of(redacted(cut(query))));
    }
    if !record.request.host().is_empty() {
        add("server.address", text(record.request.host()));
    }
    if record.status > 0 {
        add("http.response.status_code", number(u64::from(record.status)));
    }
    add("client.address", words_of(client_text(record.client).into()));
    add("network.protocol.name", text("http"));
    let version = match record.protocol {
        Protocol::Http10 => "1.0",
        Protocol::Http11 => "1.1",
        Protocol::Http2 => "2",
    };
    add("network.protocol.version", text(version));
    add("http.request.body.size", number(record.bytes_in));
    add("http.response.body.size", number(record.bytes_out));
    if let Some(agent) = record.request.values("user-agent").next() {
        add(
            "user_agent.original",
            words_of(match String::from_utf8_lossy(agent) {
                Cow::Borrowed(agent) => cut(agent),
                Cow::Owned(agent) => cut(&agent).into_owned().into(),
            }),
        );
    }
    if let Some(tls) = record.tls {
        add("tls.protocol.version", text(tls.version));
    }
    let (ending, reason) = words(record.ending);
    match record.ending {
        Ending::Failed(word) => add("error.type", text(word)),
        _ if record.status >= 500 => add("error.type", words_of(record.status.to_string().into())),
        _ => {}
    }
    add("weirgate.class", text(record.class_name));
    add("weirgate.ending", text(ending));
    if let Some(reason) = reason {
        add("weirgate.reason", text(reason));
    }
    if let Some((would, reason)) = record.would.map(would_words) {
        add("weirgate.would", text(would));
        if let Some(reason) = reason {
            add("weirgate.would_reason", text(reason));
        }
    }
    if let Some(node) = record.node {
        add("weirgate.node", text(node));
    }
    add("weirgate.retries", number(u64::from(record.retries)));
    let milliseconds = |span: Duration| Any::Double(span.as_secs_f64() * 1e3);
    add("weirgate.queue_wait_ms", milliseconds(record.queue_wait));
    add("weirgate.service_time_ms", milliseconds(record.service_time));
    add("weirgate.policy_version", number(record.version));
    all
}

/// Returns at most [`MAX_TEXT`] bytes of `value`.
fn cut(value: &str) -> Cow<'_, str> {
    if value.len() <= MAX_TEXT {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{}…", value.get(..value.floor_char_boundary(MAX_TEXT)).unwrap_or_default()))
}

/// Replaces the values of [`SECRETS`] in a query.
fn redacted(query: Cow<'_, str>) -> Cow<'_, str> {
    let is_secret = |pair: &str| pair.split_once('=').is_some_and(|(key, _)| SECRETS.contains(&key));
    if !query.split('&').any(is_secret) {
        return query;
    }
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if SECRETS.contains(&key) => format!("{key}=REDACTED"),
        _ => pair.to_owned(),
    });
    Cow::Owned(pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_secrets_redacted() {
        let long = "é".repeat(600);
        assert_eq!(cut(&long).len(), 1024 + '…'.len_utf8());
        let of = |query: &'static str| redacted(Cow::Borrowed(query)).into_owned();
        assert_eq!(of("a=1&sig=x=y&sigx=2&Signature"), "a=1&sig=REDACTED&sigx=2&Signature");
        assert_eq!(of(""), "");
    }
}
