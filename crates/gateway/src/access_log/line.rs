//! Formatting of one line of the access log.
//!
//! Sources: RFC 8259 (JSON), RFC 3339 (times), and the common and combined log formats of Apache's `mod_log_config`. A
//! client chooses the method, host and path. These fields are escaped and truncated, so that every request is exactly
//! one line. Of the headers only `Referer` and `User-Agent` are written, and only on demand.

use std::borrow::Cow;
use std::io::Write;
use std::time::{Duration, SystemTime};

use weirgate_clock::{common_log_time, rfc3339};
use weirgate_config::{AccessField, AccessFormat, AccessLog as Config, client_text};
use weirgate_engine::Would;

use crate::record::{AccessRecord, Ending};

/// Maximum length of a field's value, in bytes before escaping. A longer value is truncated and ends with
/// `…`.
const MAX_FIELD: usize = 1024;

/// Form and fields of the lines.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) format: AccessFormat,
    pub(super) fields: Vec<AccessField>,
}

impl Layout {
    /// Returns the layout of `config`.
    pub(super) fn of(config: Option<&Config>) -> Layout {
        match config {
            Some(config) => Layout { format: config.format, fields: config.fields.clone() },
            None => Layout { format: AccessFormat::Json, fields: AccessField::USUAL.to_vec() },
        }
    }
}

/// Appends the line for `record`, including the line feed.
pub(super) fn write(line: &mut Vec<u8>, record: &AccessRecord<'_>, at: SystemTime, layout: &Layout) {
    match layout.format {
        AccessFormat::Json => {
            let start = line.len();
            for field in &layout.fields {
                json(line, record, at, *field);
            }
            // Each field begins with a comma.
            match line.get_mut(start) {
                Some(comma) => *comma = b'{',
                None => line.push(b'{'),
            }
            line.extend_from_slice(b"}\n");
        }
        AccessFormat::Common => {
            common(line, record, at);
            line.push(b'\n');
        }
        AccessFormat::Combined => {
            common(line, record, at);
            for name in ["referer", "user-agent"] {
                line.extend_from_slice(b" \"");
                apache(line, header(record, name).as_deref().unwrap_or("-"), MAX_FIELD);
                line.push(b'"');
            }
            line.push(b'\n');
        }
    }
}

/// Appends a field with a comma before it, or nothing if it has no value.
fn json(line: &mut Vec<u8>, record: &AccessRecord<'_>, at: SystemTime, field: AccessField) {
    match field {
        AccessField::Time => text(line, "time", &rfc3339(at)),
        AccessField::Class => text(line, "class", record.class_name),
        AccessField::Ending => text(line, "ending", words(record.ending).0),
        AccessField::Reason => optional(line, "reason", words(record.ending).1),
        AccessField::Would => optional(line, "would", record.would.map(|would| would_words(would).0)),
        AccessField::WouldReason => {
            optional(line, "would_reason", record.would.and_then(|would| would_words(would).1));
        }
        AccessField::Status => number(line, "status", u64::from(record.status)),
        AccessField::Protocol => text(line, "protocol", record.protocol.as_str()),
        AccessField::Method => text(line, "method", method(record)),
        AccessField::Host => text(line, "host", record.request.host()),
        AccessField::Path => path(line, record),
        // Writing to a vector cannot fail.
        AccessField::Client => drop(write!(line, ",\"client\":\"{}\"", client_text(record.client))),
        AccessField::Scheme => text(line, "scheme", if record.tls.is_some() { "https" } else { "http" }),
        AccessField::TlsVersion => optional(line, "tls_version", record.tls.map(|tls| tls.version)),
        AccessField::ClientCertificate => {
            let identity = record.tls.and_then(|tls| tls.identity.as_ref());
            optional(line, "client_certificate", identity.map(|identity| &*identity.subject));
        }
        AccessField::Node => optional(line, "node", record.node),
        AccessField::Retries => number(line, "retries", u64::from(record.retries)),
        AccessField::QueueWait => milliseconds(line, "queue_wait_ms", record.queue_wait),
        AccessField::ServiceTime => milliseconds(line, "service_time_ms", record.service_time),
        AccessField::Total => milliseconds(line, "total_ms", record.total),
        AccessField::BytesIn => number(line, "bytes_in", record.bytes_in),
        AccessField::BytesOut => number(line, "bytes_out", record.bytes_out),
        AccessField::TraceId => {
            let _ = write!(line, ",\"trace_id\":\"");
            if let Some(id) = record.trace_id {
                let _ = write!(line, "{id}");
            }
            line.push(b'"');
        }
        AccessField::PolicyVersion => number(line, "policy_version", record.version),
        AccessField::Referer => optional(line, "referer", header(record, "referer").as_deref()),
        AccessField::UserAgent => optional(line, "user_agent", header(record, "user-agent").as_deref()),
    }
}

/// Appends the common log format: client, identity and user (both unknown), time, first line, status, body bytes.
fn common(line: &mut Vec<u8>, record: &AccessRecord<'_>, at: SystemTime) {
    let _ = write!(line, "{} - - [{}] \"", client_text(record.client), common_log_time(at));
    let method = method(record);
    if method.is_empty() {
        // No request could be read.
        line.push(b'-');
    } else {
        apache(line, method, MAX_FIELD);
        line.push(b' ');
        target(line, record, apache);
        let _ = write!(line, " {}", record.protocol.as_str());
    }
    let _ = write!(line, "\" {} ", record.status);
    match record.bytes_out {
        0 => line.push(b'-'),
        bytes => drop(write!(line, "{bytes}")),
    }
}

fn method<'a>(record: &AccessRecord<'a>) -> &'a str {
    record.request.method().map_or("", http::Method::as_str)
}

/// Returns the first value of a header of the request.
fn header<'a>(record: &AccessRecord<'a>, name: &str) -> Option<Cow<'a, str>> {
    record.request.values(name).next().map(String::from_utf8_lossy)
}

/// Appends `value` as Apache and nginx escape it, truncated to `max` bytes. Returns the number of bytes that are left
/// of `max`.
fn apache(line: &mut Vec<u8>, value: &str, max: usize) -> usize {
    let cut = if value.len() > max { value.floor_char_boundary(max) } else { value.len() };
    for byte in value.get(..cut).unwrap_or_default().bytes() {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => line.push(byte),
            _ => drop(write!(line, "\\x{byte:02x}")),
        }
    }
    max - cut
}

/// Appends `,"name":"value"` if there is a value.
fn optional(line: &mut Vec<u8>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        text(line, name, value);
    }
}

/// Returns the word for an ending, and for its reason.
pub(crate) fn words(ending: Ending) -> (&'static str, Option<&'static str>) {
    match ending {
        Ending::Served => ("served", None),
        Ending::Tunnelled => ("tunnelled", None),
        Ending::Redirected => ("redirected", None),
        Ending::Challenge => ("challenge", None),
        Ending::Shed(reason) => ("shed", Some(reason.as_str())),
        Ending::Refused(word) => ("refused", Some(word)),
        Ending::Failed(word) => ("failed", Some(word)),
        Ending::Left => ("left", None),
    }
}

/// Returns the word for what would have happened to a request of an observed class, and for its reason.
pub(crate) fn would_words(would: Would) -> (&'static str, Option<&'static str>) {
    match would {
        Would::Wait => ("wait", None),
        Would::Release => ("release", None),
        Would::Shed(reason) => ("shed", Some(reason.as_str())),
        Would::Degrade(reason) => ("degrade", Some(reason.as_str())),
    }
}

/// Appends `,"name":"value"`, escaped and truncated.
fn text(line: &mut Vec<u8>, name: &str, value: &str) {
    let _ = write!(line, ",\"{name}\":\"");
    escaped(line, value, MAX_FIELD);
    line.push(b'"');
}

/// Appends `value`, escaped, and truncated to `max` bytes. Returns the number of bytes that are left of `max`.
fn escaped(line: &mut Vec<u8>, value: &str, max: usize) -> usize {
    let cut = if value.len() > max { value.floor_char_boundary(max) } else { value.len() };
    let mut rest = value.get(..cut).unwrap_or_default();
    loop {
        // Most values need no escaping, so plain bytes are copied in one piece.
        let plain = rest.bytes().take_while(|b| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\')).count();
        let (copied, special) = rest.split_at(plain);
        line.extend_from_slice(copied.as_bytes());
        let Some(c) = special.chars().next() else { break };
        rest = special.get(c.len_utf8()..).unwrap_or_default();
        match c {
            '"' => line.extend_from_slice(b"\\\""),
            '\\' => line.extend_from_slice(b"\\\\"),
            // Control characters can move a terminal's cursor, and some readers treat U+2028 and U+2029 as
            // line ends.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    if cut < value.len() {
        line.extend_from_slice("…".as_bytes());
        return 0;
    }
    max - cut
}

/// Appends the path with the query, as one field.
fn path(line: &mut Vec<u8>, record: &AccessRecord<'_>) {
    line.extend_from_slice(b",\"path\":\"");
    target(line, record, escaped);
    line.push(b'"');
}

/// Appends the path and the query, truncated together. `append` escapes, and returns what is left of its maximum.
fn target(line: &mut Vec<u8>, record: &AccessRecord<'_>, append: fn(&mut Vec<u8>, &str, usize) -> usize) {
    let left = append(line, record.request.path(), MAX_FIELD);
    if let Some(query) = record.request.query()
        && left > 0
    {
        line.push(b'?');
        append(line, query, left - 1);
    }
}

fn number(line: &mut Vec<u8>, name: &str, value: u64) {
    let _ = write!(line, ",\"{name}\":{value}");
}

/// Appends `span` in milliseconds, to the microsecond.
fn milliseconds(line: &mut Vec<u8>, name: &str, span: Duration) {
    let _ = write!(line, ",\"{name}\":{}.{:03}", span.as_millis(), span.as_micros() % 1000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_to_the_microsecond() {
        let mut line = Vec::new();
        milliseconds(&mut line, "t", Duration::from_nanos(12_034_567_890));
        assert_eq!(line, b",\"t\":12034.567");
    }
}
