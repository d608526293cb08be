//! Trace ids (W3C Trace Context): the one in the request, or a new one.

use std::cell::Cell;

use http::{HeaderMap, HeaderName, HeaderValue};

/// `traceparent`.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A trace id as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceId([u8; 32]);

impl TraceId {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Generates ids that do not repeat. They are not secret: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug)]
pub(crate) struct TraceIds(Cell<u64>);

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

    /// Returns the id of a request. Adds `traceparent` if the request has no valid one.
    pub(crate) fn of(&self, headers: &mut HeaderMap) -> TraceId {
        self.continue_with(None, headers)
    }

    /// Does the same for a request that is sent again. Uses `known`, if given, instead of a new id.
    pub(crate) fn continue_with(&self, known: Option<TraceId>, headers: &mut HeaderMap) -> TraceId {
        if let Some(id) = headers.get(TRACEPARENT).and_then(|v| parse(v.as_bytes())) {
            return id;
        }
        let id = known.unwrap_or_else(|| {
            let mut id = [0; 32];
            let (high, low) = id.split_at_mut(16);
            hex(self.next(), high);
            hex(self.next(), low);
            TraceId(id)
        });
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        text[3..35].copy_from_slice(&id.0);
        hex(self.next(), &mut text[36..52]);
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            headers.insert(TRACEPARENT, value);
        }
        id
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
    parts[1].try_into().ok().map(TraceId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_id_is_kept_and_others_are_replaced() {
        let ids = TraceIds::new();
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static(given));
        assert_eq!(ids.of(&mut headers).as_str(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(headers[TRACEPARENT], given);

        for bad in [
            "",
            "00-0-0-00",
            "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
        ] {
            headers.insert(TRACEPARENT, HeaderValue::from_static(bad));
            let id = ids.of(&mut headers);
            let now = headers[TRACEPARENT].to_str().expect("ASCII").to_owned();
            assert_eq!(parse(now.as_bytes()).map(|t| t.0), Some(id.0), "{bad}");
            assert_ne!(id.as_str(), "4bf92f3577b34da6a3ce929d0e0e4736");
        }
    }
}
