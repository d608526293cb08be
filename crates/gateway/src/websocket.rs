//! The opening handshake of WebSocket between HTTP/1.1 and HTTP/2.
//!
//! Sources: RFC 6455 Sec. 1.3 and 4 (`Sec-WebSocket-Key`, `Sec-WebSocket-Accept`), RFC 8441 Sec. 5 (HTTP/2 has neither
//! of them). A side that speaks HTTP/2 asks with an extended CONNECT. The gateway has every request in the form of
//! HTTP/1.1, so it makes the key that a client over HTTP/2 does not send, and the answer that a node over HTTP/2 does
//! not give.

use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The name of the protocol in `Upgrade` and in `:protocol`.
pub(crate) const PROTOCOL: &str = "websocket";

/// The text that a server appends to the key (RFC 6455 Sec. 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns a new key.
pub(crate) fn key() -> String {
    // The key only has to differ from request to request. It is no secret.
    STANDARD.encode(weirgate_clock::random_bytes::<16>().unwrap_or_default())
}

/// Returns the value of `Sec-WebSocket-Accept` for a key.
pub(crate) fn accept(key: &[u8]) -> String {
    let mut hash = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_that_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn keys_have_sixteen_bytes_and_differ() {
        let (one, other) = (key(), key());
        assert_eq!(STANDARD.decode(&one).map(|bytes| bytes.len()), Ok(16));
        assert_ne!(one, other);
    }
}
