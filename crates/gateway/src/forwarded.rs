//! Origin of a request that came through listed proxies: their statements, continued by this hop.
//!
//! Sources: RFC 7239 (`Forwarded`) and the older `X-Forwarded-*`. Proxies write one family or both. Nodes read one or
//! the other, so both must say the same: the family that is missing is derived from the one that is there. A
//! `Forwarded` that is there is continued and never changed.
//!
//! A peer on a Unix socket has no address. It adds no hop to those that it states, because a reader that looks for the
//! nearest hop that it does not trust would stop there. HAProxy does the same. Where it is the only hop, `Forwarded`
//! says `unknown` (RFC 7239 Sec. 6.2), and `X-Forwarded-For`, which has no such word, is left out.

use std::net::{IpAddr, SocketAddr};

use weirgate_config::{Forward, UNIX_CLIENT};
use weirgate_http1::{Name, Names, write};

use crate::request::Request;

/// The fields of a request from a listed proxy that [`continued`] writes anew.
pub(crate) const REWRITTEN: Names = Names::of(&[Name::XForwardedFor]);

/// Writes the fields of the origin, continued by `peer`, the listed proxy, which used `scheme`.
pub(crate) fn continued(out: &mut Vec<u8>, request: &Request, (peer, scheme): (Option<&str>, &[u8]), forward: Forward) {
    let old = hops(request, Name::XForwardedFor);
    let new = hops(request, Name::Forwarded);
    let value = |name| request.all(name).next();
    let first = |parameter: &[u8]| new.first().and_then(|element| of_element(element, parameter));

    let proto = self::scheme(request).unwrap_or(scheme);
    let authority = request.authority();
    let host = value(Name::XForwardedHost).or(first(b"host")).filter(|host| is_host(host)).unwrap_or(authority);
    if forward.x_forwarded {
        let missing = |name| !request.has(name);
        older(out, (&old, &new), peer);
        if missing(Name::XForwardedProto) {
            write::field(out, b"x-forwarded-proto", proto);
        }
        if missing(Name::XForwardedHost) {
            write::field(out, b"x-forwarded-host", host);
        }
    }
    if !forward.forwarded {
        return;
    }
    let mut hop = (host, proto);
    let mut own = hop;
    if !old.is_empty() || !new.is_empty() {
        own = (authority, scheme);
    }
    let stated = if new.is_empty() { &old[..] } else { &[] };
    let adds_a_hop = peer.is_some() || (old.is_empty() && new.is_empty());
    if stated.is_empty() && !adds_a_hop {
        return;
    }
    let mut before = "forwarded: ";
    for text in stated {
        out.extend_from_slice(before.as_bytes());
        element(out, address(text).map(|address| address.to_string()).as_deref(), hop);
        (before, hop) = (", ", (authority, b"http".as_slice()));
    }
    if adds_a_hop {
        out.extend_from_slice(before.as_bytes());
        element(out, peer, own);
    }
    out.extend_from_slice(b"\r\n");
}

/// Returns the scheme that listed proxies state for the request of the farthest hop.
pub(crate) fn scheme(request: &Request) -> Option<&[u8]> {
    let (head, bytes) = request.head();
    let newer = || head.list(bytes, Name::Forwarded).next().and_then(|element| of_element(element, b"proto"));
    request.all(Name::XForwardedProto).next().or_else(newer).filter(|proto| is_token(proto))
}

/// Writes `X-Forwarded-For`: the hops of the older family or else of the newer one, and `peer`.
fn older(out: &mut Vec<u8>, (old, new): (&[&[u8]], &[&[u8]]), peer: Option<&str>) {
    let derived = || new.iter().filter_map(|element| of_element(element, b"for")).filter_map(address);
    let derived: Vec<_> = if old.is_empty() { derived().map(|ip| ip.to_string()).collect() } else { Vec::new() };
    let hops = old.iter().copied().chain(derived.iter().map(String::as_bytes)).chain(peer.map(str::as_bytes));
    let mut before = "x-forwarded-for: ";
    for hop in hops {
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(hop);
        before = ", ";
    }
    if before == ", " {
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns the elements of all fields of this name, from the farthest hop to the nearest.
fn hops(request: &Request, name: Name) -> Vec<&[u8]> {
    let (head, bytes) = request.head();
    head.list(bytes, name).collect()
}

/// Writes one element of `Forwarded`, for an address or the word `unknown`.
pub(crate) fn element(out: &mut Vec<u8>, address: Option<&str>, (host, proto): (&[u8], &[u8])) {
    let address = address.unwrap_or("unknown");
    // Quoted, because an IPv6 address and an authority contain colons and brackets, which a token may not.
    let (before, after) = if address.contains(':') { ("for=\"[", "]\"") } else { ("for=", "") };
    for part in [before, address, after] {
        out.extend_from_slice(part.as_bytes());
    }
    if !host.is_empty() {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(proto);
}

/// Returns the value of a parameter in one element of `Forwarded`, without quotes.
pub(crate) fn of_element<'a>(element: &'a [u8], parameter: &[u8]) -> Option<&'a [u8]> {
    element.split(|&b| b == b';').find_map(|pair| {
        let at = pair.iter().position(|&b| b == b'=')?;
        let (name, value) = pair.split_at(at);
        let value = value.get(1..)?.trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
        name.trim_ascii().eq_ignore_ascii_case(parameter).then_some(value)
    })
}

/// Parses an address in the syntax of either header: bare, with a port, in brackets or in quotes.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let found = bare.parse::<IpAddr>().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|a| a.ip()));
    // A client without an address has none that a header could state.
    found.map(|ip| ip.to_canonical()).filter(|ip| *ip != UNIX_CLIENT)
}

/// Whether `text` can be written as the value of a parameter without quotes.
fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// Whether `text` can be written in quotes as it is.
fn is_host(text: &[u8]) -> bool {
    text.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn continued_from(fields: &str) -> String {
        continued_by(Some("10.0.0.1"), fields)
    }

    fn continued_by(peer: Option<&str>, fields: &str) -> String {
        let head = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        let request = Request::parse(head.as_bytes()).expect("it is sound");
        let mut out = Vec::new();
        continued(&mut out, &request, (peer, b"http"), crate::tests::FORWARD);
        String::from_utf8(out).expect("ASCII").replace("\r\n", "\n")
    }

    #[test]
    fn the_older_family_is_continued_and_said_in_the_newer_one() {
        assert_eq!(
            continued_from(
                "X-Forwarded-For: 1.1.1.1\r\nx-forwarded-for: 2001:db8::7, _x\r\nX-Forwarded-Proto: https\r\n\
                 X-Forwarded-Host: shop.test\r\n"
            ),
            "x-forwarded-for: 1.1.1.1, 2001:db8::7, _x, 10.0.0.1\n\
             forwarded: for=1.1.1.1;host=\"shop.test\";proto=https, for=\"[2001:db8::7]\";host=\"a.test\";proto=http, \
             for=unknown;host=\"a.test\";proto=http, for=10.0.0.1;host=\"a.test\";proto=http\n"
        );
        assert_eq!(
            continued_from("X-Forwarded-Proto: https\r\n"),
            "x-forwarded-for: 10.0.0.1\nx-forwarded-host: a.test\nforwarded: for=10.0.0.1;host=\"a.test\";proto=https\n"
        );
    }

    #[test]
    fn the_newer_family_is_continued_and_said_in_the_older_one() {
        assert_eq!(
            continued_from(
                "Forwarded: for=\"[2001:db8::7]:80\";proto=https;host=shop.test\r\nForwarded: For=2.2.2.2\r\n"
            ),
            "x-forwarded-for: 2001:db8::7, 2.2.2.2, 10.0.0.1\nx-forwarded-proto: https\nx-forwarded-host: shop.test\n\
             forwarded: for=10.0.0.1;host=\"a.test\";proto=http\n"
        );
    }

    #[test]
    fn a_peer_without_an_address_adds_no_hop() {
        assert_eq!(
            continued_by(None, "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n"),
            "x-forwarded-for: 192.0.2.7\nx-forwarded-host: a.test\n\
             forwarded: for=192.0.2.7;host=\"a.test\";proto=https\n"
        );
        assert_eq!(
            continued_by(None, "Forwarded: for=192.0.2.7;host=a.test;proto=https\r\n"),
            "x-forwarded-for: 192.0.2.7\nx-forwarded-proto: https\nx-forwarded-host: a.test\n"
        );
        assert_eq!(
            continued_by(None, ""),
            "x-forwarded-proto: http\nx-forwarded-host: a.test\nforwarded: for=unknown;host=\"a.test\";proto=http\n"
        );
    }

    #[test]
    fn without_a_statement_the_proxy_is_the_origin() {
        assert_eq!(
            continued_from(""),
            "x-forwarded-for: 10.0.0.1\nx-forwarded-proto: http\nx-forwarded-host: a.test\n\
             forwarded: for=10.0.0.1;host=\"a.test\";proto=http\n"
        );
        assert!(continued_from("X-Forwarded-Proto: a\"b\r\n").ends_with("proto=http\n"));
    }
}
