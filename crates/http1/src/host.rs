//! `Host` and authorities (RFC 9110 Sec. 7.2, RFC 3986 Sec. 3.2.2).
//!
//! Departure: names consist of letters, digits, `.`, `-` and `_`, as in DNS and in certificates.
//! Percent-encoding, sub-delimiters and user information are refused, because readers treat them differently. An empty
//! port is the same as none (RFC 3986 Sec. 3.2.3).

/// A parsed authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// Name or address as sent, with brackets but without a final dot.
    pub host: &'a str,
    /// Port as sent, if any.
    pub port: Option<u16>,
}

/// Parses `text`. Returns `None` if it is not a host with an optional port.
pub fn split(text: &[u8]) -> Option<Authority<'_>> {
    let end = if text.first() == Some(&b'[') {
        let close = text.iter().position(|&b| b == b']')?;
        let address = std::str::from_utf8(text.get(1..close)?).ok()?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        close + 1
    } else {
        let end = text.iter().position(|&b| b == b':').unwrap_or(text.len());
        let name = text.get(..end)?;
        if !name.iter().all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')) {
            return None;
        }
        end
    };
    let host = std::str::from_utf8(text.get(..end)?).ok()?;
    let host = host.strip_suffix('.').unwrap_or(host);
    // 253 is the maximum length of a name in DNS.
    if host.is_empty() || host.len() > 253 || host.starts_with('.') || host.contains("..") {
        return None;
    }
    let port = match text.get(end..)? {
        [] | [b':'] => None,
        [b':', digits @ ..] if !digits.is_empty() && digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) => {
            Some(std::str::from_utf8(digits).ok()?.parse().ok()?)
        }
        _ => return None,
    };
    Some(Authority { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_taken_apart() {
        let of = |t: &'static str| split(t.as_bytes()).map(|a| (a.host, a.port));
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
