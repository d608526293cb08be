//! Compares heads with `httparse` in both directions. Every difference is listed with its reason.
//!
//! `httparse` is the parser of hyper. It knows single heads and nothing of their meaning, so most differences are rules
//! about lengths and hosts. Each is checked here without the code that it is about: a refusal counts only if the head
//! has what it says.

use httparse::{EMPTY_HEADER, Header, ParserConfig, Status};
use weirgate_http1::{Event, Fault, Head, Limits, Requests, Responses, Version};

/// More fields than any limit of a test, so that the oracle sees those that are refused.
const FIELDS: usize = 1024;

/// Compares a request at the start of `input`. Panics at a difference that is not one of [`is_refused_rightly`].
pub fn request(input: &[u8], limits: Limits) {
    let mut headers = [EMPTY_HEADER; FIELDS];
    let mut oracle = httparse::Request::new(&mut headers);
    let theirs = oracle.parse(input);
    let mut requests = Requests::new(limits);
    let ours = after_empty_line(input, |input| requests.receive(input));
    let accepted = Accepted {
        bytes: accepted(input, theirs),
        target: oracle.path.unwrap_or_default(),
        method: oracle.method.unwrap_or_default(),
        is_11: oracle.version == Some(1),
        status: None,
        fields: oracle.headers,
    };
    if let Some(input) = both_accept(input, ours, theirs, &accepted, limits) {
        let head = requests.head();
        assert_eq!(oracle.method.map(str::as_bytes), Some(head.method(input)));
        assert_eq!(oracle.path.map(str::as_bytes), Some(head.target(input)));
        assert_eq!(oracle.version, Some(u8::from(head.version() == Version::Http11)));
        assert_eq!(of_theirs(oracle.headers), of_ours(head, input));
    }
}

/// Compares the response to a `GET` at the start of `input`. Panics like [`request`].
pub fn response(input: &[u8], limits: Limits) {
    let mut config = ParserConfig::default();
    // RFC 9112 Sec. 5.1: a proxy removes this white space.
    config.allow_spaces_after_header_name_in_responses(true);
    let mut headers = [EMPTY_HEADER; FIELDS];
    let mut oracle = httparse::Response::new(&mut headers);
    let theirs = config.parse_response(&mut oracle, input);
    let mut responses = Responses::new(limits);
    responses.expect("GET");
    let ours = after_empty_line(input, |input| responses.receive(input));
    let accepted = Accepted {
        bytes: accepted(input, theirs),
        target: "",
        method: "",
        is_11: oracle.version == Some(1),
        status: oracle.code,
        fields: oracle.headers,
    };
    if let Some(input) = both_accept(input, ours, theirs, &accepted, limits) {
        let head = responses.head();
        assert_eq!(oracle.code, Some(head.status()));
        assert_eq!(oracle.version, Some(u8::from(head.version() == Version::Http11)));
        assert_eq!(of_theirs(oracle.headers), of_ours(head, input));
    }
}

/// The bytes that the oracle accepts.
fn accepted(input: &[u8], theirs: httparse::Result<usize>) -> &[u8] {
    match theirs {
        Ok(Status::Complete(bytes)) => &input[..bytes],
        Ok(Status::Partial) | Err(_) => b"",
    }
}

/// Compares the verdicts. Returns the input from the head on if both accept it, with the same size.
fn both_accept<'a>(
    input: &'a [u8],
    (skipped, ours): (usize, Result<Event, Fault>),
    theirs: httparse::Result<usize>,
    head: &Accepted<'_>,
    limits: Limits,
) -> Option<&'a [u8]> {
    match (ours, theirs) {
        (Ok(Event::Head(bytes)), theirs) => {
            assert_eq!(theirs, Ok(Status::Complete(skipped + bytes)));
            return Some(&input[skipped..]);
        }
        (Err(fault), Ok(Status::Complete(_))) => {
            let text = head.bytes.escape_ascii().to_string();
            assert!(is_refused_rightly(fault, head, limits), "{fault:?}: only we refuse {text:?}");
        }
        (ours, Ok(Status::Complete(_))) => panic!("only the oracle sees a whole head: {ours:?}"),
        // We may see a fault before the oracle does, or wait for the end of a line that it refuses already.
        (Ok(_) | Err(_), Ok(Status::Partial) | Err(_)) => {}
    }
    None
}

/// Returns the size of an empty line at the start, if it is skipped, and the event of what follows.
fn after_empty_line(
    input: &[u8],
    mut receive: impl FnMut(&[u8]) -> Result<Event, Fault>,
) -> (usize, Result<Event, Fault>) {
    match receive(input) {
        Ok(Event::Skip(bytes)) => (bytes, receive(&input[bytes..])),
        event => (0, event),
    }
}

/// A head that the oracle accepts.
struct Accepted<'a> {
    bytes: &'a [u8],
    /// Target of a request.
    target: &'a str,
    method: &'a str,
    is_11: bool,
    /// Status of a response, `None` for a request.
    status: Option<u16>,
    fields: &'a [Header<'a>],
}

impl<'a> Accepted<'a> {
    /// Values of the fields of this name.
    fn values(&self, name: &str) -> Vec<&'a [u8]> {
        let named = self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value.trim_ascii()).collect()
    }

    fn has(&self, name: &str) -> bool {
        !self.values(name).is_empty()
    }

    /// Whether a line ends with a bare line feed.
    fn has_bare_line_feed(&self) -> bool {
        self.bytes.iter().enumerate().any(|(at, &byte)| byte == b'\n' && (at == 0 || self.bytes[at - 1] != b'\r'))
    }

    /// Whether it begins with at least two empty lines.
    fn begins_with_empty_lines(&self) -> bool {
        let lines = self.bytes.split_inclusive(|&byte| byte == b'\n');
        lines.take_while(|line| matches!(*line, b"\n" | b"\r\n")).count() > 1
    }
}

/// Whether we may refuse a head that the oracle accepts: it has what the fault says.
fn is_refused_rightly(fault: Fault, head: &Accepted<'_>, limits: Limits) -> bool {
    let is_request = head.status.is_none();
    match fault {
        // The oracle skips any number of empty lines, and takes bare line feeds.
        Fault::NotHttp => head.bytes.strip_prefix(b"\r\n").unwrap_or(head.bytes).starts_with(b"\n"),
        Fault::EmptyLines => head.begins_with_empty_lines(),
        Fault::BareLineFeed => is_request && head.has_bare_line_feed(),
        // It has no limits of size.
        Fault::Method => head.method.len() > 24,
        Fault::LineTooLong | Fault::HeadTooLarge => head.bytes.len() > limits.head_bytes,
        Fault::TooManyFields => head.fields.len() > limits.fields,
        // Some readers take a number sign for the end of the target, and bytes beyond ASCII are no part of one.
        Fault::Target => head.target.bytes().any(|byte| byte == b'#' || !byte.is_ascii()),
        // Statuses have three digits, and the first is not zero (RFC 9110 Sec. 15).
        Fault::Status => head.status.is_some_and(|status| status < 100),
        // It has no rule about the meaning of fields.
        Fault::ConfusableName => head.fields.iter().any(|field| is_confusable(field.name)),
        Fault::NoHost => is_request && head.is_11 && !head.has("host"),
        Fault::TwoHosts => head.values("host").len() > 1,
        Fault::Host => head.values("host").iter().any(|value| !is_host(value)),
        Fault::ContentLength => head.values("content-length").iter().any(|value| !is_length(value, is_request)),
        Fault::TwoContentLengths => {
            let values = head.values("content-length");
            let mut lengths = values.iter().flat_map(|value| value.split(|&byte| byte == b',')).map(number);
            let first = lengths.next();
            lengths.any(|length| is_request || Some(length) != first)
        }
        Fault::TransferEncoding => {
            head.values("transfer-encoding").iter().any(|value| !value.eq_ignore_ascii_case(b"chunked"))
        }
        Fault::TwoTransferEncodings => head.values("transfer-encoding").len() > 1,
        Fault::TwoLengths => head.has("content-length") && head.has("transfer-encoding"),
        Fault::TransferEncodingIn10 => !head.is_11 && head.has("transfer-encoding"),
        // The oracle has these rules as well, or they are about bodies.
        Fault::Version
        | Fault::Folded
        | Fault::SpaceBeforeColon
        | Fault::FieldName
        | Fault::NoName
        | Fault::FieldValue
        | Fault::ChunkTooLarge
        | Fault::ChunkSize
        | Fault::ChunkEnd
        | Fault::ChunkExtension
        | Fault::ChunkExtensions
        | Fault::BareReturn
        | Fault::Trailer
        | Fault::TrailerName
        | Fault::TrailersTooLarge => false,
    }
}

/// Whether a name becomes one that frames or forwards a message where `-` and `_` are the same.
fn is_confusable(name: &str) -> bool {
    let meant = name.to_ascii_lowercase().replace('_', "-");
    name.contains('_')
        && (meant == "content-length"
            || meant == "transfer-encoding"
            || meant == "x-real-ip"
            || ["for", "host", "proto", "port"].iter().any(|end| meant == format!("x-forwarded-{end}")))
}

/// Whether a value is a name as in DNS or an address, with a port or without one.
fn is_host(value: &[u8]) -> bool {
    let Ok(value) = std::str::from_utf8(value) else { return false };
    let (host, rest) = match value.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) if address.parse::<std::net::Ipv6Addr>().is_ok() => ("v6", rest),
        Some(_) => return false,
        None => value.split_at(value.find(':').unwrap_or(value.len())),
    };
    let port = rest.is_empty() || rest == ":" || rest.strip_prefix(':').is_some_and(is_port);
    let labels = host.strip_suffix('.').unwrap_or(host).split('.');
    let is_label =
        |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    port && labels.into_iter().all(is_label) && host.trim_end_matches('.').len() <= 253
}

fn is_port(digits: &str) -> bool {
    digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.parse::<u16>().is_ok()
}

/// Whether a value is a length, or in a response a list of lengths.
fn is_length(value: &[u8], is_request: bool) -> bool {
    let mut elements = value.split(|&byte| byte == b',');
    if is_request { number(value).is_some() } else { elements.all(|element| number(element).is_some()) }
}

/// A number of at most 18 digits.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let digits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Names and values, as both parsers give them.
fn of_ours(head: &Head, bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    head.fields().iter().map(|field| (field.spelling(bytes).to_vec(), field.value(bytes).to_vec())).collect()
}

fn of_theirs(headers: &[Header<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    headers.iter().map(|header| (header.name.as_bytes().to_vec(), header.value.to_vec())).collect()
}
