//! Trace ids (W3C Trace Context): the one in the request, or a new one, and the ids of exported spans.
//!
//! Source of the sampling: "Probability sampling" of OpenTelemetry's specification. The last 56 bits of a trace id are
//! taken for random, and a trace is sampled if they are at least 2^56 times the share that is not.

use std::cell::RefCell;
use std::fmt;
use std::num::NonZero;

use weirgate_engine::Random;
use weirgate_http1::{Name, write};

use crate::request::Request;

/// A trace id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId {
    high: u64,
    low: u64,
}

impl TraceId {
    /// Returns its hexadecimal digits.
    pub(crate) fn digits(self) -> [u8; 32] {
        let mut digits = [0; 32];
        let (high, low) = digits.split_at_mut(16);
        high.copy_from_slice(&hex(self.high));
        low.copy_from_slice(&hex(self.low));
        digits
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

/// Trace of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    pub(crate) id: TraceId,
    /// Id of the gateway's span. It is odd if the span is exported. So the state of a request has no byte for that.
    span: NonZero<u64>,
    /// Id of the client's span, if it sent a valid trace.
    parent: Option<NonZero<u64>>,
}

/// Ids of a span that is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanIds {
    /// Id of the span.
    pub(crate) own: u64,
    /// Id of the client's span, if it sent a valid one.
    pub(crate) parent: Option<u64>,
}

impl Trace {
    /// Whether the node gets the gateway's `traceparent`: the client sent no valid one, or the gateway's span is
    /// exported and therefore the parent of the node's.
    pub(crate) fn is_own(&self) -> bool {
        self.parent.is_none() || self.is_exported()
    }

    fn is_exported(&self) -> bool {
        self.span.get() & 1 == 1
    }

    /// Returns the ids of the span, if it is exported.
    pub(crate) fn span_ids(&self) -> Option<SpanIds> {
        self.is_exported().then(|| SpanIds { own: self.span.get(), parent: self.parent.map(NonZero::get) })
    }

    /// Writes `traceparent`, unless the client's is sent on.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if !self.is_own() {
            return;
        }
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        text[3..35].copy_from_slice(&self.id.digits());
        text[36..52].copy_from_slice(&hex(self.span.get()));
        if self.is_exported() {
            text[54] = b'1';
        }
        write::field(out, b"traceparent", &text);
    }
}

/// Generates ids that do not repeat. They are not secret.
#[derive(Debug)]
pub struct TraceIds(RefCell<Random>);

impl TraceIds {
    pub(crate) fn new() -> TraceIds {
        TraceIds(RefCell::new(Random::new(weirgate_clock::seed())))
    }

    fn next(&self) -> u64 {
        self.0.borrow_mut().bits() | 1
    }

    /// Returns the id of a span that is exported or not.
    fn span(&self, exported: bool) -> NonZero<u64> {
        const ONE: NonZero<u64> = NonZero::<u64>::MIN;
        const TWO: NonZero<u64> = ONE.saturating_add(1);
        let id = self.next();
        if exported { ONE | id } else { TWO | (id & !1) }
    }

    /// Returns the trace of a request: the one that it has, or a new one. Of all traces the share `exported` is
    /// sampled, and those that a client has sampled if it is `trusted`.
    pub(crate) fn of(&self, request: &Request, exported: f64, trusted: bool) -> Trace {
        let mut sent = request.all(Name::Traceparent);
        if let Some(client) = sent.next().and_then(parse).filter(|_| sent.next().is_none()) {
            let sampled = exported > 0.0 && (trusted && client.sampled || is_sampled(client.id, exported));
            return Trace { id: client.id, span: self.span(sampled), parent: Some(client.span) };
        }
        // Digits are written for a node or for the log. Most sheds need neither.
        let id = TraceId { high: self.next(), low: self.next() };
        Trace { id, span: self.span(is_sampled(id, exported)), parent: None }
    }
}

/// Returns the 16 hexadecimal digits of a number.
fn hex(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let (high, low) = digits.split_at_mut(8);
    high.copy_from_slice(&eight((number >> 32) as u32));
    low.copy_from_slice(&eight(number as u32));
    digits
}

/// Returns eight hexadecimal digits. Each has a byte of one register, because every request has 48 of them.
fn eight(number: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut values = u64::from(number);
    for (shift, kept) in [(16, 0xffff * 0x1_0000_0001), (8, 0xff * 0x1_0001_0001_0001), (4, 0xf * EACH)] {
        values = (values | values << shift) & kept;
    }
    // Six more than a letter's value does not fit into four bits.
    let letters = (values + 6 * EACH) >> 4 & EACH;
    (values + u64::from(b'0') * EACH + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

/// Whether a trace is among the `share` that is exported.
fn is_sampled(id: TraceId, share: f64) -> bool {
    const RANDOM: u64 = 1 << 56;
    (id.low % RANDOM) as f64 >= (1.0 - share) * RANDOM as f64
}

/// What a client says of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    id: TraceId,
    span: NonZero<u64>,
    sampled: bool,
}

/// Parses `version-traceid-parentid-flags` in lower case, with neither id zero.
fn parse(text: &[u8]) -> Option<Sent> {
    let is_hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let parts = [text.get(..2)?, text.get(3..35)?, text.get(36..52)?, text.get(53..55)?];
    let dashes = [text.get(2)?, text.get(35)?, text.get(52)?];
    let valid = parts.iter().all(|p| is_hex(p)) && dashes.iter().all(|&&b| b == b'-');
    let zero = parts[1..3].iter().any(|part| part.iter().all(|&b| b == b'0'));
    let length = text.len() == 55 || (parts[0] != b"00" && text.get(55) == Some(&b'-'));
    if !valid || zero || !length || parts[0] == b"ff" {
        return None;
    }
    let number = |digits| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let id = TraceId { high: number(&parts[1][..16])?, low: number(&parts[1][16..])? };
    Some(Sent { id, span: NonZero::new(number(parts[2])?)?, sampled: number(parts[3])? & 1 == 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &str) -> (Trace, String) {
        sampled(fields, 0.0, false)
    }

    fn sampled(fields: &str, share: f64, trusted: bool) -> (Trace, String) {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let trace = TraceIds::new().of(&Request::parse(head.as_bytes()).expect("it is sound"), share, trusted);
        let mut out = Vec::new();
        trace.write(&mut out);
        (trace, String::from_utf8(out).expect("ASCII"))
    }

    #[test]
    fn a_valid_id_is_kept_and_others_are_replaced() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, written) = of(&format!("traceparent: {given}\r\n"));
        assert_eq!((trace.id.to_string().as_str(), written.as_str()), ("4bf92f3577b34da6a3ce929d0e0e4736", ""));

        for bad in [
            "",
            "00-0-0-00",
            "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
        ] {
            let (trace, written) = of(&format!("traceparent: {bad}\r\n"));
            let value = written.strip_prefix("traceparent: ").and_then(|v| v.strip_suffix("\r\n")).expect("a field");
            assert_eq!(parse(value.as_bytes()).map(|sent| sent.id), Some(trace.id), "{bad}");
            assert_ne!(trace.id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        }
        assert!(of(&format!("traceparent: {given}\r\ntraceparent: {given}\r\n")).0.is_own());
    }

    #[test]
    fn a_sampled_trace_has_the_client_as_parent_and_is_the_nodes() {
        let given =
            |flags: &str| format!("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}\r\n");
        let (trace, written) = sampled(&given("00"), 1.0, false);
        let ids = trace.span_ids().expect("it is sampled");
        assert_eq!(ids.parent, Some(0x00f0_67aa_0ba9_02b7));
        let expected = format!("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-{:016x}-01\r\n", ids.own);
        assert_eq!(written, expected);
        // Of this id 0xce929d0e0e4736 / 2^56 = 0.807 are below it.
        for (flags, share, trusted, is_sampled) in [
            ("00", 0.19, false, false),
            ("00", 0.20, false, true),
            ("01", 0.19, false, false),
            ("01", 0.19, true, true),
            ("03", 1e-9, true, true),
            ("02", 0.19, true, false),
            ("01", 0.0, true, false),
        ] {
            let (trace, written) = sampled(&given(flags), share, trusted);
            assert_eq!((trace.span_ids().is_some(), written.is_empty()), (is_sampled, !is_sampled), "{flags} {share}");
        }
        let (trace, written) = sampled("", 1.0, false);
        assert_eq!(trace.span_ids().and_then(|ids| ids.parent), None);
        assert!(written.ends_with("-01\r\n") && trace.span_ids().is_some());
    }

    #[test]
    fn digits_are_those_of_the_library() {
        let mut random = Random::new(7);
        for number in [0, u64::MAX, 0x0123_4567_89ab_cdef, 0x9a9a_9a9a_a9a9_a9a9]
            .into_iter()
            .chain((0..1_000).map(|_| random.bits()))
        {
            assert_eq!(str::from_utf8(&hex(number)), Ok(format!("{number:016x}").as_str()));
        }
    }

    #[test]
    fn the_share_of_new_traces_is_sampled() {
        let (ids, request) = (
            TraceIds(RefCell::new(Random::new(1))),
            Request::parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sound"),
        );
        let count = (0..20_000).filter(|_| ids.of(&request, 0.1, false).span_ids().is_some()).count();
        // The standard deviation is 42.
        assert!((1_800..2_200).contains(&count), "{count}");
        assert!((0..1_000).all(|_| ids.of(&request, 1.0, false).span_ids().is_some()));
        assert!((0..1_000).all(|_| ids.of(&request, 0.0, true).span_ids().is_none()));
    }
}
