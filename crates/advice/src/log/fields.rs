//! The variables of nginx's `log_format` and Apache's `LogFormat`, and their meaning.
//!
//! Sources: nginx, ngx_http_log_module, ngx_http_core_module and ngx_http_upstream_module. Apache 2.4,
//! mod_log_config. Variables that mean nothing here are read over.

use std::borrow::Cow;
use std::time::Duration;

use super::{Request, instant, request_line, request_target};

/// The meaning of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// The client's address, perhaps with more addresses.
    Client,
    /// The host, perhaps with a port. The number is the order of preference: smaller is better.
    Host(u8),
    /// A time in the Common Log Format, in brackets or not.
    CommonTime,
    /// A time of RFC 3339.
    Rfc3339,
    /// A time in units since 1970, of which this number are a second.
    Since1970(u32),
    /// The whole request line.
    RequestLine,
    /// The path, or a target in absolute form.
    Target,
    /// The status.
    Status,
    /// `User-Agent`.
    Agent,
    /// Time until the last byte, in units of which this number are a second.
    Response(u32),
    /// Times at the servers, one for each attempt, in seconds.
    Service,
    /// Addresses of the servers, one for each attempt.
    Node,
    /// Anything else.
    Other,
}

impl Field {
    /// Returns the meaning of a variable of nginx, without its `$`.
    pub(super) fn nginx(name: &str) -> Field {
        match name {
            "remote_addr" | "realip_remote_addr" => Field::Client,
            "host" => Field::Host(0),
            "http_host" => Field::Host(1),
            "server_name" => Field::Host(2),
            "time_local" => Field::CommonTime,
            "time_iso8601" => Field::Rfc3339,
            "msec" => Field::Since1970(1),
            "request" => Field::RequestLine,
            "request_uri" | "uri" | "document_uri" => Field::Target,
            "status" => Field::Status,
            "http_user_agent" => Field::Agent,
            "request_time" => Field::Response(1),
            "upstream_response_time" => Field::Service,
            "upstream_addr" => Field::Node,
            _ => Field::Other,
        }
    }

    /// Returns the meaning of a directive of Apache: its letter, and the text in braces before it.
    pub(super) fn apache(letter: char, inside: Option<&str>) -> Field {
        let inside = inside.map(str::to_ascii_lowercase);
        match (letter, inside.as_deref()) {
            ('h' | 'a', None) => Field::Client,
            ('V', None) => Field::Host(0),
            ('v', None) => Field::Host(2),
            ('i', Some("host")) => Field::Host(1),
            ('i', Some("user-agent")) => Field::Agent,
            ('t', None) => Field::CommonTime,
            ('t', Some("sec")) => Field::Since1970(1),
            ('t', Some("msec")) => Field::Since1970(1_000),
            ('t', Some("usec")) => Field::Since1970(1_000_000),
            ('r', None) => Field::RequestLine,
            ('U', None) => Field::Target,
            ('s', None) => Field::Status,
            ('D', None) | ('T', Some("us")) => Field::Response(1_000_000),
            ('T', Some("ms")) => Field::Response(1_000),
            ('T', None | Some("s")) => Field::Response(1),
            _ => Field::Other,
        }
    }

    /// Returns whether the value may be a list that contains its own separator, such as `0.1, 0.2 : 0.3`.
    pub(super) fn is_list(self) -> bool {
        matches!(self, Field::Service | Field::Node)
    }
}

/// The fields of a line that have been read so far.
#[derive(Default)]
pub(super) struct Reading<'l> {
    pub(super) request: Request<'l>,
    /// A time, of which `ends` tells whether it is that of the end.
    pub(super) at_ms: Option<i64>,
    /// Preference of the host that was found.
    host: Option<u8>,
}

impl<'l> Reading<'l> {
    /// Takes the value of a field. Returns `None` if it cannot be one.
    pub(super) fn take(&mut self, field: Field, value: &'l str) -> Option<()> {
        let request = &mut self.request;
        match field {
            Field::Client => request.client = Some(Cow::Borrowed(value)).filter(|_| value != "-"),
            Field::Host(rank) => {
                if value != "-" && !value.is_empty() && self.host.is_none_or(|known| rank < known) {
                    request.host = Some(Cow::Borrowed(value));
                    self.host = Some(rank);
                }
            }
            Field::CommonTime => {
                let inside = value.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(value);
                self.at_ms = Some(instant::date(inside)?);
            }
            Field::Rfc3339 => self.at_ms = Some(instant::date(value)?),
            Field::Since1970(per_second) => self.at_ms = Some(instant::since_1970(value, f64::from(per_second))?),
            Field::RequestLine => request_line(value, request),
            // nginx writes `/` for a request that it could not read.
            Field::Target => request_target(value, request),
            Field::Status => match value {
                // nginx writes 000 and Apache `-` if there was no response.
                "-" | "000" => request.unanswered = true,
                _ => request.status = Some(value.parse().ok().filter(|status| (100..1000).contains(status))?),
            },
            Field::Agent => request.agent = Some(Cow::Borrowed(value)).filter(|_| value != "-"),
            Field::Response(per_second) => match value {
                "-" => {}
                _ => request.response = Some(instant::duration(value, f64::from(per_second))?),
            },
            Field::Service => request.service = times(value)?,
            Field::Node => {
                let last = value.rsplit([',', ' ']).find(|text| !text.is_empty() && *text != ":");
                request.node = last.filter(|text| *text != "-").map(Cow::Borrowed);
            }
            Field::Other => {}
        }
        Some(())
    }
}

/// Adds up the times of all attempts, such as `0.100, 0.020 : -`. The inner `None` is no attempt at all.
fn times(value: &str) -> Option<Option<Duration>> {
    let mut sum = None;
    for text in value.split([',', ':']).map(str::trim).filter(|text| *text != "-" && !text.is_empty()) {
        sum = Some(sum.unwrap_or(Duration::ZERO).saturating_add(instant::duration(text, 1.0)?));
    }
    Some(sum)
}
