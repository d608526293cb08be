//! Trace ids (W3C Trace Context): the one in the request, or a new one.

use std::cell::Cell;
use std::fmt;

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
        hex(self.high, high);
        hex(self.low, low);
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
    /// Id of the gateway's span, if the client sent no valid trace.
    span: Option<u64>,
}

impl Trace {
    /// Whether the client sent no valid trace.
    pub(crate) fn is_new(&self) -> bool {
        self.span.is_some()
    }

    /// Writes `traceparent`, unless the client's is sent on.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let Some(span) = self.span else { return };
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        text[3..35].copy_from_slice(&self.id.digits());
        hex(span, &mut text[36..52]);
        write::field(out, b"traceparent", &text);
    }
}

/// Generates ids that do not repeat. They are not secret: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug)]
pub struct TraceIds(Cell<u64>);

impl TraceIds {
    pub(crate) fn new() -> TraceIds {
        TraceIds(Cell::new(weirgate_clock::seed()))
    }

    fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) | 1
    }

    /// Returns the trace of a request: the one that it has, or a new one.
    pub(crate) fn of(&self, request: &Request) -> Trace {
        let mut sent = request.all(Name::Traceparent);
        if let Some(id) = sent.next().and_then(parse).filter(|_| sent.next().is_none()) {
            return Trace { id, span: None };
        }
        // Digits are written for a node or for the log. Most sheds need neither.
        let id = TraceId { high: self.next(), low: self.next() };
        Trace { id, span: Some(self.next()) }
    }
}

/// Writes `number` as 16 hexadecimal digits.
fn hex(number: u64, place: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in place.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Parses `version-traceid-parentid-flags` in lower case, with neither id zero.
fn parse(text: &[u8]) -> Option<TraceId> {
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
    Some(TraceId { high: number(&parts[1][..16])?, low: number(&parts[1][16..])? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &str) -> (Trace, String) {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let trace = TraceIds::new().of(&Request::parse(head.as_bytes()).expect("it is sound"));
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
            assert_eq!(parse(value.as_bytes()), Some(trace.id), "{bad}");
            assert_ne!(trace.id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        }
        assert!(of(&format!("traceparent: {given}\r\ntraceparent: {given}\r\n")).0.is_new());
    }
}
