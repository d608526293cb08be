//! `Host` and authorities (RFC 9110 Sec. 7.2, RFC 3986 Sec. 3.2.2).
//!
//! Departure: names consist of letters, digits, `.`, `-` and `_`, as in DNS and in certificates.
//! Percent-encoding, sub-delimiters and user information are refused, because readers treat them differently. An empty
//! port is the same as none (RFC 3986 Sec. 3.2.3).

use crate::bytes::{self, NAME};

/// A parsed authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// Name or address as sent, with brackets but without a final dot. It is ASCII.
    pub host: &'a [u8],
    /// Port as sent, if any.
    pub port: Option<u16>,
}

/// Maximum length of a name in DNS (RFC 1035 Sec. 2.3.4), without the final dot.
const MAX_NAME: usize = 253;

/// Splits `host[:port]`. Returns `None` if it is not valid.
pub fn split(text: &[u8]) -> Option<Authority<'_>> {
    let (host, rest) = text.split_at_checked(match text.first()? {
        b'[' => address_end(text)?,
        _ => name_end(text)?,
    })?;
    let port = match rest {
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(port(digits)?),
        _ => return None,
    };
    Some(Authority { host: host.strip_suffix(b".").unwrap_or(host), port })
}

/// Returns the length of the IPv6 address with its brackets that `text` starts with.
fn address_end(text: &[u8]) -> Option<usize> {
    let close = text.iter().position(|&b| b == b']')?;
    let address = std::str::from_utf8(text.get(1..close)?).ok()?;
    address.parse::<std::net::Ipv6Addr>().ok()?;
    Some(close + 1)
}

/// Returns the length of the name that `text` starts with, including a final dot.
fn name_end(text: &[u8]) -> Option<usize> {
    // As after a dot: a name starts with another character.
    let mut before = b'.';
    let mut end = text.len();
    for (at, &byte) in text.iter().enumerate() {
        if byte == b':' {
            end = at;
            break;
        }
        if !bytes::is(byte, NAME) || (byte == b'.' && before == b'.') {
            return None;
        }
        before = byte;
    }
    let length = if before == b'.' { end.checked_sub(1)? } else { end };
    (length <= MAX_NAME).then_some(end)
}

fn port(digits: &[u8]) -> Option<u16> {
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits.iter().try_fold(0u16, |port, digit| port.checked_mul(10)?.checked_add(u16::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_apart() {
        let of = |t: &'static str| split(t.as_bytes()).map(|a| (std::str::from_utf8(a.host).expect("ASCII"), a.port));
        assert_eq!(of("a.test"), Some(("a.test", None)));
        assert_eq!(of("A.test.:80"), Some(("A.test", Some(80))));
        assert_eq!(of("a.test:"), Some(("a.test", None)));
        assert_eq!(of("[::1]:8080"), Some(("[::1]", Some(8080))));
        assert_eq!(of("127.0.0.1"), Some(("127.0.0.1", None)));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "", ".", ":80", "a::", "a:b", "a:80:80", "a b", "a@b", "a/b", "a%2e", "a,b", "[::1", "[x]", "[::1]x",
            "a:99999", "a..b", ".a", "a\tb", "a\\b", "a?", "ä.test", "a:+80", "a: 80",
        ] {
            assert_eq!(split(text.as_bytes()), None, "{text:?}");
        }
    }
}
