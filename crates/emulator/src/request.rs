//! The node's side of HTTP/1.1: parses a request head and the demand stated in it.
//!
//! Implements RFC 9112 as far as a small origin server needs it: one request at a time on a connection,
//! bodies read and thrown away before the work starts, `Expect: 100-continue`, `Connection: close`.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use crate::body::Body;

/// Maximum number of header fields, the same as the gateway allows.
const HEADERS: usize = 110;

/// Parts of a request that a node needs.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    /// Bytes of the head.
    pub(crate) head: usize,
    /// Framing of the body that follows it.
    pub(crate) body: Body,
    /// Whether the connection stays open after the reply.
    pub(crate) keep_alive: bool,
    /// Whether the method is `HEAD`, so that the reply has no body.
    pub(crate) is_head: bool,
    /// Whether the client waits for permission to send its body.
    pub(crate) expects: bool,
    /// CPU time (`X-Demand: 8ms` or `?demand=8ms`). A request has no time that it does not state.
    pub(crate) demand: Duration,
    /// Delay after the CPU time (`X-Io: 20ms` or `?io=20ms`).
    pub(crate) io: Duration,
    /// Time of an otherwise idle disk and link that it needs in addition to that of its object and its reply.
    pub(crate) disk: Duration,
    pub(crate) link: Duration,
    /// Time for which its reply streams from its first byte on (`X-Stream: 30s` or `?stream=30s`).
    pub(crate) stream: Duration,
    /// Class that the request states for itself.
    pub(crate) class: Option<Box<str>>,
    /// Bytes of the reply's body, if the request states it.
    pub(crate) bytes: Option<usize>,
    /// Object that the request reads, if it names one.
    pub(crate) object: Option<u64>,
    /// Id of the request, if it has one.
    pub(crate) id: Option<Arc<str>>,
    /// Kind of content that it asks for.
    pub(crate) content: Content,
}

/// Kind of content that a request asks for, as a collector distinguishes requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Content {
    /// A file.
    Static,
    /// A page that is generated for the request. This is the default.
    #[default]
    Dynamic,
    /// The node's report (`GET /weirgate/report`), which causes no work.
    Report,
}

/// Path at which a node reports its number of requests in flight.
const REPORT: &str = "/weirgate/report";

/// Largest reply body that a request may ask for, in bytes.
const LARGEST_REPLY: usize = 1 << 30;

/// Longest part of an id that is logged and sent back, in bytes.
const LONGEST_ID: usize = 64;

/// Parses the head at the start of `bytes`. Returns `None` if it is not complete yet.
///
/// # Errors
/// A description of the fault in the head.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Request>, String> {
    // A request has only a few fields: initialising all the slots would cost more than the parsing.
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS];
    let mut head = httparse::Request::new(&mut []);
    let length = match head.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete(n)) => n,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let mut request = Request {
        head: length,
        body: Body::Length(0),
        keep_alive: head.version == Some(1),
        is_head: head.method == Some("HEAD"),
        expects: false,
        demand: Duration::ZERO,
        io: Duration::ZERO,
        disk: Duration::ZERO,
        link: Duration::ZERO,
        stream: Duration::ZERO,
        class: None,
        bytes: None,
        object: None,
        id: None,
        content: Content::default(),
    };
    let target = head.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        request.say(name, value)?;
    }
    for header in head.headers.iter() {
        let name = header.name;
        let value = String::from_utf8_lossy(header.value);
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            let n = value.parse().map_err(|_| format!("Content-Length {value:?} is not a number"))?;
            if request.body == Body::Length(0) {
                request.body = Body::Length(n);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(format!("Transfer-Encoding {value:?} is not supported"));
            }
            request.body = Body::Size;
        } else if name.eq_ignore_ascii_case("connection") {
            for option in value.split(',').map(str::trim) {
                if option.eq_ignore_ascii_case("close") {
                    request.keep_alive = false;
                } else if option.eq_ignore_ascii_case("keep-alive") {
                    request.keep_alive = true;
                }
            }
        } else if name.eq_ignore_ascii_case("expect") {
            request.expects = value.eq_ignore_ascii_case("100-continue");
        } else if name.eq_ignore_ascii_case("x-request-id") {
            request.say("id", value)?;
        } else if let Some((prefix, rest)) = name.split_at_checked(2)
            && prefix.eq_ignore_ascii_case("x-")
        {
            request.say(&rest.to_ascii_lowercase(), value)?;
        }
    }
    if path == REPORT {
        request.content = Content::Report;
    }
    Ok(Some(request))
}

impl Request {
    fn say(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "demand" => self.demand = duration(value)?,
            "io" => self.io = duration(value)?,
            "disk" => self.disk = duration(value)?,
            "link" => self.link = duration(value)?,
            "stream" => self.stream = duration(value)?,
            "class" => self.class = Some(value.into()),
            "bytes" => {
                let n = value.parse().ok().filter(|&n| n <= LARGEST_REPLY);
                self.bytes = Some(n.ok_or_else(|| format!("bytes {value:?}: want a number up to {LARGEST_REPLY}"))?);
            }
            "object" => {
                let number = value.parse().map_err(|_| format!("object {value:?}: want a whole number"))?;
                self.object = Some(number);
            }
            "content" => {
                self.content = match value {
                    "static" => Content::Static,
                    "dynamic" => Content::Dynamic,
                    _ => return Err(format!("content {value:?}: want static or dynamic")),
                }
            }
            "id" => {
                let end = value.floor_char_boundary(LONGEST_ID);
                self.id = Some(value[..end].into());
            }
            _ => {}
        }
        Ok(())
    }
}

/// Longest demand of one request, in seconds.
const LONGEST: f64 = 3600.0;

/// Parses `8ms`, `250us`, `1.5s`.
fn duration(text: &str) -> Result<Duration, String> {
    let unit = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let scale = match &text[unit..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(format!("time {text:?}: want a number with us, ms or s, such as 8ms")),
    };
    let seconds = text[..unit].parse::<f64>().map(|n| n * scale).ok().filter(|s| (0.0..=LONGEST).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("time {text:?}: want 0 to {LONGEST} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_come_from_headers_or_the_query() {
        let text = b"POST /a?demand=250us&io=1.5s&disk=2ms&link=90us&stream=30s&bytes=7&object=31000&id=q HTTP/1.1\r\nHost: x\r\nX-Request-Id: h\r\n\
            X-DEMAND: 8ms\r\nx-class: gold\r\nX-Disk: 3ms\r\ncontent-length: 3\r\nExpect: 100-continue\r\n\r\nabc";
        let request = parse(text).unwrap().unwrap();
        assert_eq!(request.head, text.len() - 3);
        assert_eq!((request.demand, request.io), (Duration::from_millis(8), Duration::from_millis(1500)));
        assert_eq!((request.disk, request.link), (Duration::from_millis(3), Duration::from_micros(90)));
        assert_eq!((request.stream, request.class.as_deref()), (Duration::from_secs(30), Some("gold")));
        assert_eq!((request.bytes, request.object, request.id.as_deref()), (Some(7), Some(31_000), Some("h")));
        assert_eq!(request.body, Body::Length(3));
        assert!(request.keep_alive && request.expects && !request.is_head);
        assert_eq!(request.content, Content::Dynamic);
        let content = |text: &str| parse(text.as_bytes()).unwrap().unwrap().content;
        assert_eq!(content("GET /?content=static HTTP/1.1\r\n\r\n"), Content::Static);
        assert_eq!(content("GET /?content=static HTTP/1.1\r\nX-Content: dynamic\r\n\r\n"), Content::Dynamic);
        assert_eq!(content("GET /weirgate/report?x HTTP/1.1\r\n\r\n"), Content::Report);
    }

    #[test]
    fn connections_close_when_asked_to_or_old() {
        let keep = |text: &str| parse(text.as_bytes()).unwrap().unwrap().keep_alive;
        assert!(keep("GET / HTTP/1.1\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.0\r\n\r\n"));
        assert!(keep("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        assert_eq!(parse(b"GET / HT"), Ok(None));
        for (bad, word) in [
            ("GET / HTTP/1.1\r\nX-Demand: 8\r\n\r\n", "want a number with us, ms or s"),
            ("GET /?io=-1ms HTTP/1.1\r\n\r\n", "-1ms"),
            ("GET /?disk=4 HTTP/1.1\r\n\r\n", "want a number with us, ms or s"),
            ("GET /?demand=9e9s HTTP/1.1\r\n\r\n", "9e9s"),
            ("GET /?demand=1.2.3s HTTP/1.1\r\n\r\n", "want 0 to 3600 s"),
            ("GET /?bytes=x HTTP/1.1\r\n\r\n", "bytes"),
            ("GET /?object=a.html HTTP/1.1\r\n\r\n", "want a whole number"),
            ("GET /?content=html HTTP/1.1\r\n\r\n", "want static or dynamic"),
            ("GET / HTTP/1.1\r\nContent-Length: 1a\r\n\r\n", "Content-Length"),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "Transfer-Encoding"),
        ] {
            let error = parse(bad.as_bytes()).unwrap_err();
            assert!(error.contains(word), "{bad:?}: {error}");
        }
    }
}
