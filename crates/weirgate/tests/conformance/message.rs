//! A strict HTTP/1.1 request parser, written only for this test so that it shares no mistake with the
//! gateway. Source: RFC 9112 (message syntax), RFC 9110 Sec. 5 (fields).
//!
//! It reads two forms. [`Form::Received`] is the form that a client may send: every freedom that the RFCs
//! give without a second meaning. [`Form::Normal`] is the form that a gateway may send on: the one plain
//! spelling. Departures, all towards refusal: bare LF, obs-fold, repeated or paired `Content-Length` and
//! `Transfer-Encoding` and codings other than `chunked` are malformed in both.

use std::fmt;

/// The accepted spelling.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// From a client.
    Received,
    /// From a gateway.
    Normal,
}

/// A request, or the part of one that has arrived.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: Vec<u8>,
    /// Names in lower case, values without surrounding white space.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    /// The body without chunk framing.
    pub(crate) body: Vec<u8>,
    /// Whether another request may follow on the connection.
    pub(crate) persistent: bool,
}

impl Request {
    /// Returns every value of the field `name`, which is in lower case.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_slice())
    }

    /// Returns whether the client waits for `100 Continue`.
    pub(crate) fn expects_continue(&self) -> bool {
        self.values("expect").any(|v| v.eq_ignore_ascii_case(b"100-continue"))
    }
}

impl fmt::Debug for Request {
    /// Writes bytes as text, so that a fault is readable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.target.escape_ascii())?;
        self.fields.iter().try_for_each(|(name, value)| write!(f, " | {name}: {}", value.escape_ascii()))?;
        write!(f, " | body \"{}\"", self.body.escape_ascii())
    }
}

/// The result of parsing the beginning of some bytes.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A whole request of `used` bytes.
    Whole { request: Request, used: usize },
    /// The beginning of a request. `head` is set once its head is whole, with the body so far.
    Part { head: Option<Request> },
    /// Not a valid request. `head` is set if only its body is wrong.
    Malformed { why: String, head: Option<Request> },
}

/// Reads the first request of `bytes`.
pub(crate) fn parse(bytes: &[u8], form: Form) -> Parsed {
    let mut start = 0;
    if form == Form::Received {
        // RFC 9112 Sec. 2.2: empty lines before a request are ignored.
        while bytes[start..].starts_with(b"\r\n") {
            start += 2;
        }
    }
    let Some(length) = find(&bytes[start..], b"\r\n\r\n") else { return Parsed::Part { head: None } };
    let (mut request, framing) = match head(&bytes[start..start + length], form) {
        Ok(read) => read,
        Err(why) => return Parsed::Malformed { why, head: None },
    };
    let body = &bytes[start + length + 4..];
    let read = match framing {
        Framing::Length(n) => {
            let n = usize::try_from(n).unwrap_or(usize::MAX);
            request.body = body[..n.min(body.len())].to_vec();
            if body.len() < n { Body::Part } else { Body::Whole(n) }
        }
        Framing::Chunked => chunks(body, form, &mut request.body),
    };
    match read {
        Body::Whole(used) => Parsed::Whole { request, used: start + length + 4 + used },
        Body::Part => Parsed::Part { head: Some(request) },
        Body::Malformed(why) => Parsed::Malformed { why, head: Some(request) },
    }
}

enum Framing {
    Length(u64),
    Chunked,
}

/// The result of parsing the beginning of a body.
pub(crate) enum Body {
    /// A whole body of that many bytes.
    Whole(usize),
    /// The beginning of a body.
    Part,
    /// Not a valid body.
    Malformed(String),
}

/// Reads request line and fields, without the empty line that ends them.
fn head(bytes: &[u8], form: Form) -> Result<(Request, Framing), String> {
    let mut lines = split_lines(bytes).into_iter();
    let line = lines.next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let [method, target, version] = words.as_slice() else { return Err("request line is not three words".into()) };
    if !is_token(method) {
        return Err("method is not a token".into());
    }
    let method = String::from_utf8_lossy(method).into_owned();
    let minor = match version {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9'] => minor - b'0',
        _ => return Err("version is not HTTP/1.x".into()),
    };
    if form == Form::Normal && minor != 1 {
        return Err("version is not HTTP/1.1".into());
    }
    check_target(&method, target, form)?;
    let fields = lines.map(field).collect::<Result<Vec<_>, _>>()?;
    let mut request = Request { method, target: target.to_vec(), fields, body: Vec::new(), persistent: true };
    let hosts = request.values("host").count();
    if hosts > 1 || (hosts == 0 && minor > 0) {
        return Err(format!("{hosts} Host fields"));
    }
    let framing = framing(&request, minor)?;
    let says = |word: &[u8]| {
        request.values("connection").any(|v| v.split(|b| *b == b',').any(|t| trim(t).eq_ignore_ascii_case(word)))
    };
    request.persistent = if minor == 0 { says(b"keep-alive") && !says(b"close") } else { !says(b"close") };
    Ok((request, framing))
}

/// Determines the framing by RFC 9112 Sec. 6.3, with every doubtful case refused.
fn framing(request: &Request, minor: u8) -> Result<Framing, String> {
    let lengths: Vec<&[u8]> = request.values("content-length").collect();
    let codings: Vec<&[u8]> = request.values("transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(Framing::Length(0)),
        ([length], []) if !length.is_empty() && length.iter().all(u8::is_ascii_digit) => {
            let text = String::from_utf8_lossy(length);
            text.parse().map(Framing::Length).map_err(|_| "Content-Length is too large".into())
        }
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") && minor > 0 => Ok(Framing::Chunked),
        _ => Err("Content-Length or Transfer-Encoding is repeated, paired or not understood".into()),
    }
}

/// Checks the target by RFC 9112 Sec. 3.2. A client may send any word: its meaning does not move the
/// request's end. Bytes that no URI has but that cannot end the word are accepted.
fn check_target(method: &str, target: &[u8], form: Form) -> Result<(), String> {
    if target.is_empty() || target.iter().any(|b| *b <= b' ' || *b == 0x7f) {
        return Err("target is empty or has control characters".into());
    }
    let path = target == b"*" || (method != "CONNECT" && target[0] == b'/');
    if path || form == Form::Received { Ok(()) } else { Err("target is no path".into()) }
}

/// Reads a field line by RFC 9112 Sec. 5.
fn field(line: &[u8]) -> Result<(String, Vec<u8>), String> {
    let colon = line.iter().position(|b| *b == b':').ok_or("field without a colon")?;
    let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
    if !is_token(name) {
        return Err("field name is not a token".into());
    }
    if value.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f) {
        return Err("field value has control characters".into());
    }
    Ok((String::from_utf8_lossy(name).to_ascii_lowercase(), value.to_vec()))
}

/// Reads chunks by RFC 9112 Sec. 7.1. Appends the data to `out`.
pub(crate) fn chunks(bytes: &[u8], form: Form, out: &mut Vec<u8>) -> Body {
    let mut at = 0;
    loop {
        let Some(length) = find(&bytes[at..], b"\r\n") else { return Body::Part };
        let size = match chunk_size(&bytes[at..at + length], form) {
            Ok(size) => size,
            Err(why) => return Body::Malformed(why),
        };
        at += length + 2;
        if size == 0 {
            return trailers(&bytes[at..], form, at);
        }
        let data = &bytes[at..];
        out.extend_from_slice(&data[..size.min(data.len())]);
        let Some(rest) = data.get(size..).filter(|rest| rest.len() >= 2) else { return Body::Part };
        if !rest.starts_with(b"\r\n") {
            return Body::Malformed("chunk data is not followed by CRLF".into());
        }
        at += size + 2;
    }
}

fn chunk_size(line: &[u8], form: Form) -> Result<usize, String> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let text = String::from_utf8_lossy(&line[..digits]);
    let size = usize::from_str_radix(&text, 16).map_err(|_| "chunk size is not a number".to_owned())?;
    let rest = &line[digits..];
    let extension = trim(rest);
    if form == Form::Normal && !rest.is_empty() {
        return Err("chunk with an extension".into());
    }
    if !extension.is_empty() && extension[0] != b';' {
        return Err("chunk size is followed by something else".into());
    }
    if extension.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f) {
        return Err("chunk extension has control characters".into());
    }
    Ok(size)
}

/// Reads the trailers after the last chunk, which ended at `at`.
fn trailers(bytes: &[u8], form: Form, at: usize) -> Body {
    if bytes.starts_with(b"\r\n") {
        return Body::Whole(at + 2);
    }
    let Some(length) = find(bytes, b"\r\n\r\n") else { return Body::Part };
    for line in split_lines(&bytes[..length]) {
        match field(line) {
            Err(why) => return Body::Malformed(why),
            Ok((name, _)) if form == Form::Normal && framing_name(&name) => {
                return Body::Malformed(format!("trailer {name}"));
            }
            Ok(_) => {}
        }
    }
    Body::Whole(at + length + 4)
}

/// Returns whether a trailer must not carry this field (RFC 9110 Sec. 6.5.1).
fn framing_name(name: &str) -> bool {
    matches!(name, "host" | "content-length" | "transfer-encoding" | "trailer" | "connection")
}

fn split_lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    lines
}

/// Returns whether the bytes are a token by RFC 9110 Sec. 5.6.2.
fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

/// Returns the bytes without surrounding spaces and tabs.
fn trim(bytes: &[u8]) -> &[u8] {
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let start = bytes.iter().position(|b| !blank(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|b| !blank(b)).map_or(start, |i| i + 1);
    &bytes[start..end]
}

/// Returns the first position of `needle` in `bytes`.
pub(crate) fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
