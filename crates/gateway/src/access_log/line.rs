//! Formatting of one line of the access log.
//!
//! Sources: RFC 8259 (JSON) and RFC 3339 (times). A client chooses the method, host and path. These fields are
//! escaped and truncated, so that every request is exactly one line. No headers are written (in particular
//! not `Authorization` or `Cookie`).

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weirgate_config::client_text;
use weirgate_engine::Would;

use crate::record::{AccessRecord, Ending};

/// Maximum length of a field's value, in bytes before escaping. A longer value is truncated and ends with
/// `…`.
const MAX_FIELD: usize = 1024;

/// Appends the line for `record`, including the line feed.
pub(super) fn write(line: &mut Vec<u8>, record: &AccessRecord<'_>, at: SystemTime) {
    let (ending, reason) = words(record.ending);
    line.extend_from_slice(b"{\"time\":\"");
    line.extend_from_slice(rfc3339(at).as_bytes());
    line.push(b'"');
    text(line, "class", record.class_name);
    text(line, "ending", ending);
    if let Some(reason) = reason {
        text(line, "reason", reason);
    }
    if let Some(would) = record.would {
        let (would, reason) = match would {
            Would::Wait => ("wait", None),
            Would::Release => ("release", None),
            Would::Shed(reason) => ("shed", Some(reason)),
            Would::Degrade(reason) => ("degrade", Some(reason)),
        };
        text(line, "would", would);
        if let Some(reason) = reason {
            text(line, "would_reason", reason.as_str());
        }
    }
    number(line, "status", u64::from(record.status));
    text(line, "protocol", record.protocol.as_str());
    text(line, "method", record.request.method().map_or("", http::Method::as_str));
    text(line, "host", record.request.host());
    path(line, record);
    // Writing to a vector cannot fail.
    let _ = write!(line, ",\"client\":\"{}\"", client_text(record.client));
    text(line, "scheme", if record.tls.is_some() { "https" } else { "http" });
    if let Some(tls) = record.tls {
        text(line, "tls_version", tls.version);
        if let Some(identity) = &tls.identity {
            text(line, "client_certificate", &identity.subject);
        }
    }
    if let Some(node) = record.node {
        text(line, "node", node);
    }
    number(line, "retries", u64::from(record.retries));
    milliseconds(line, "queue_wait_ms", record.queue_wait);
    milliseconds(line, "service_time_ms", record.service_time);
    milliseconds(line, "total_ms", record.total);
    number(line, "bytes_in", record.bytes_in);
    number(line, "bytes_out", record.bytes_out);
    let _ = write!(line, ",\"trace_id\":\"");
    if let Some(id) = record.trace_id {
        let _ = write!(line, "{id}");
    }
    line.push(b'"');
    number(line, "policy_version", record.version);
    line.extend_from_slice(b"}\n");
}

/// Returns the word for an ending, and for its reason.
pub(super) fn words(ending: Ending) -> (&'static str, Option<&'static str>) {
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
    let left = escaped(line, record.request.path(), MAX_FIELD);
    if let Some(query) = record.request.query()
        && left > 0
    {
        line.push(b'?');
        escaped(line, query, left - 1);
    }
    line.push(b'"');
}

fn number(line: &mut Vec<u8>, name: &str, value: u64) {
    let _ = write!(line, ",\"{name}\":{value}");
}

/// Appends `span` in milliseconds, to the microsecond.
fn milliseconds(line: &mut Vec<u8>, name: &str, span: Duration) {
    let _ = write!(line, ",\"{name}\":{}.{:03}", span.as_millis(), span.as_micros() % 1000);
}

/// Formats a time as `2026-11-21T20:15:03.042Z` (RFC 3339). The calendar starts each year in March, so that
/// the leap day is the last day of a year. 400 such years always have 146,097 days.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // 719,468 days lie between 1 March of year 0 and 1 January 1970.
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seconds: u64, millis: u64) -> String {
        rfc3339(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + millis))
    }

    #[test]
    fn timestamps_follow_the_calendar() {
        assert_eq!(stamp(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(stamp(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(stamp(1_709_251_199, 999), "2024-02-29T23:59:59.999Z");
        assert_eq!(stamp(1_709_251_200, 0), "2024-03-01T00:00:00.000Z");
        assert_eq!(stamp(1_798_761_599, 0), "2026-12-31T23:59:59.000Z");
        assert_eq!(stamp(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn times_are_written_to_the_microsecond() {
        let mut line = Vec::new();
        milliseconds(&mut line, "t", Duration::from_nanos(12_034_567_890));
        assert_eq!(line, b",\"t\":12034.567");
    }
}
