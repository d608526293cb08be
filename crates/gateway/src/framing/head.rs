//! Request heads: the request line and the fields, parsed line by line as they arrive.

use http::StatusCode;

use super::bytes::{self, TARGET, TOKEN};
use super::{Bounds, Refusal, host};

/// Maximum length of a method. The registered ones have at most 17 letters.
const MAX_METHOD: usize = 24;

/// Field names that an application behind a CGI-like interface cannot distinguish from the real ones, because
/// `-` and `_` become the same character there.
const CONFUSABLE: [&[u8]; 7] = [
    b"content_length",
    b"transfer_encoding",
    b"x_forwarded_for",
    b"x_forwarded_host",
    b"x_forwarded_proto",
    b"x_real_ip",
    b"x_forwarded_port",
];

/// Parser state for one head.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Start of the first incomplete line.
    line: usize,
    /// End of the bytes after `line` already searched for a line feed.
    searched: usize,
    /// Number of fields so far. `None` before the request line.
    fields: Option<usize>,
    /// Whether an empty line before the request line has been discarded.
    skipped: bool,
    http_11: bool,
    host: bool,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
    connect: bool,
}

/// Length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Number of bytes.
    Known(u64),
    /// Chunked: the body carries its own length.
    Chunked,
}

/// Result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// An empty line of this many bytes before the head.
    EmptyLine(usize),
    /// The complete head.
    Complete {
        /// Length of the head in bytes.
        bytes: usize,
        /// Length of its body.
        length: Length,
        /// Whether the request asks for another protocol.
        upgrade: bool,
    },
}

impl Head {
    /// Parses the lines of `input` that it has not yet parsed. Returns `None` if more input is needed.
    pub(super) fn scan(&mut self, input: &[u8], bounds: Bounds) -> Result<Option<Seen>, Refusal> {
        loop {
            let unseen = input.get(self.searched..).unwrap_or_default();
            let Some(found) = bytes::find(unseen, b'\n') else {
                self.searched = input.len();
                if input.len() > bounds.head_bytes {
                    return Err(self.too_large());
                }
                self.suspicious_start(input)?;
                return Ok(None);
            };
            let feed = self.searched + found;
            if feed >= bounds.head_bytes {
                return Err(self.too_large());
            }
            let line = input.get(self.line..feed).unwrap_or_default();
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(Refusal::bad("a line ends with a bare line feed"));
            };
            (self.line, self.searched) = (feed + 1, feed + 1);
            match self.fields {
                None if line.is_empty() => {
                    if self.skipped {
                        return Err(Refusal::bad("empty lines instead of a request"));
                    }
                    *self = Head { skipped: true, ..Head::default() };
                    return Ok(Some(Seen::EmptyLine(feed + 1)));
                }
                None => {
                    self.request_line(line)?;
                    self.fields = Some(0);
                }
                Some(_) if line.is_empty() => return self.complete(feed + 1).map(Some),
                Some(fields) => {
                    if fields >= bounds.headers {
                        return Err(Refusal::with(
                            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                            "too many header fields",
                        ));
                    }
                    self.fields = Some(fields + 1);
                    self.field(line)?;
                }
            }
        }
    }

    fn too_large(&self) -> Refusal {
        if self.fields.is_none() {
            Refusal::with(StatusCode::URI_TOO_LONG, "the request line is too long")
        } else {
            Refusal::with(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the request head is too large")
        }
    }

    /// Refuses input that does not start like a request (a TLS hello, for example) without waiting for a
    /// line.
    fn suspicious_start(&self, input: &[u8]) -> Result<(), Refusal> {
        match input.first() {
            Some(&first) if self.fields.is_none() && !bytes::is(first, TOKEN) && first != b'\r' => {
                Err(Refusal::bad("this is not HTTP/1.1"))
            }
            _ => Ok(()),
        }
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let method = bytes::span(line, TOKEN);
        if method == 0 || method > MAX_METHOD || line.get(method) != Some(&b' ') {
            return Err(Refusal::bad("the method is not valid"));
        }
        let rest = line.get(method + 1..).unwrap_or_default();
        let target = bytes::span(rest, TARGET);
        if target == 0 || rest.get(target) != Some(&b' ') {
            return Err(Refusal::bad("the request target is not valid"));
        }
        self.http_11 = match rest.get(target + 1..) {
            Some(b"HTTP/1.1") => true,
            Some(b"HTTP/1.0") => false,
            _ => return Err(Refusal::bad("the protocol version is not HTTP/1.1 or HTTP/1.0")),
        };
        self.connect = line.get(..method) == Some(b"CONNECT");
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let colon = bytes::span(line, TOKEN);
        let (name, rest) = line.split_at(colon);
        let Some((b':', value)) = rest.split_first() else {
            return Err(match rest.first() {
                Some(b' ' | b'\t') if name.is_empty() => Refusal::bad("a header line is folded"),
                Some(b' ' | b'\t') => Refusal::bad("a header name is followed by white space"),
                _ => Refusal::bad("a header name is not valid"),
            });
        };
        if name.is_empty() {
            return Err(Refusal::bad("a header has no name"));
        }
        if !bytes::is_value(value) {
            return Err(Refusal::bad("a header value has control characters"));
        }
        // Compare lengths first, because most names are none of these.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if std::mem::replace(&mut self.host, true) {
                    return Err(Refusal::bad("there are two Host headers"));
                }
                if host::split(trim(value)).is_none() {
                    return Err(Refusal::bad("the Host header is not valid"));
                }
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = decimal(trim(value)).ok_or(Refusal::bad("Content-Length is not a number"))?;
                if self.length.replace(length).is_some() {
                    return Err(Refusal::bad("there are two Content-Length headers"));
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if std::mem::replace(&mut self.chunked, true) {
                    return Err(Refusal::bad("there are two Transfer-Encoding headers"));
                }
                if !trim(value).eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::bad("the only Transfer-Encoding taken is chunked"));
                }
            }
            9..=17 if name.contains(&b'_') && CONFUSABLE.iter().any(|n| name.eq_ignore_ascii_case(n)) => {
                return Err(Refusal::bad("a header name can be mistaken for another"));
            }
            _ => {}
        }
        Ok(())
    }

    fn complete(&self, bytes: usize) -> Result<Seen, Refusal> {
        if self.http_11 && !self.host {
            return Err(Refusal::bad("there is no Host header"));
        }
        let length = match (self.length, self.chunked) {
            (Some(_), true) => return Err(Refusal::bad("Content-Length and Transfer-Encoding exclude each other")),
            (None, true) if !self.http_11 => return Err(Refusal::bad("HTTP/1.0 has no Transfer-Encoding")),
            (None, true) => Length::Chunked,
            (length, false) => Length::Known(length.unwrap_or(0)),
        };
        Ok(Seen::Complete { bytes, length, upgrade: (self.upgrade && self.http_11) || self.connect })
    }
}

/// Trims optional white space as defined by RFC 9110: spaces and tabs.
fn trim(value: &[u8]) -> &[u8] {
    let is_space = |b: &u8| matches!(b, b' ' | b'\t');
    let start = value.iter().position(|b| !is_space(b)).unwrap_or(value.len());
    let end = value.iter().rposition(|b| !is_space(b)).map_or(start, |last| last + 1);
    value.get(start..end).unwrap_or_default()
}

/// Parses a decimal number of digits only, if it fits.
fn decimal(text: &[u8]) -> Option<u64> {
    // 18 digits always fit, and no body is an exabyte long.
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))
}
