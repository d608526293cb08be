//! Hop-by-hop headers, and the headers that a gateway adds.
//!
//! Sources: RFC 9110 Sec. 7.6.1 (`Connection`), 7.6.3 (`Via`), 10.1.4 (`TE`), RFC 7239 (`Forwarded`).
//! Departures: `Connection` cannot name headers that the gateway adds or that frame the message, so that a
//! client cannot strip `X-Forwarded-For` on its way to the node. `Upgrade: h2c` is not passed on, because
//! requests in such a tunnel would not be classified. `X-Real-IP` and similar headers are removed unless a
//! listed proxy wrote them.
//!
//! Headers are edited in place. One pass finds those present, and only those are removed.

use std::fmt::Write;
use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};

use crate::client::X_FORWARDED_FOR;
use crate::trace::TRACEPARENT;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Returns whether `Connection` must not name this header.
fn is_protected(name: &HeaderName) -> bool {
    [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER, TE, UPGRADE, FORWARDED, VIA, CONNECTION].contains(name)
        || [X_FORWARDED_FOR, X_FORWARDED_PROTO, X_FORWARDED_HOST, X_FORWARDED_PORT, X_REAL_IP, TRACEPARENT]
            .contains(name)
}

/// Removes the headers named by `Connection`. This is done before any other use of the headers, so that rules
/// see the same headers as the node. Returns whether `Connection` names `upgrade`.
pub(crate) fn drop_named(headers: &mut HeaderMap) -> bool {
    if !headers.contains_key(CONNECTION) {
        return false;
    }
    let mut upgrade = false;
    let mut named: Vec<HeaderName> = Vec::new();
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"upgrade") {
                upgrade = true;
            } else if !option.eq_ignore_ascii_case(b"close")
                && !option.eq_ignore_ascii_case(b"keep-alive")
                && let Ok(name) = HeaderName::from_bytes(option)
                && !is_protected(&name)
            {
                named.push(name);
            }
        }
    }
    for name in named {
        headers.remove(name);
    }
    upgrade
}

/// Facts about the path of a request that the node is told.
#[derive(Debug)]
pub(crate) struct Way<'a> {
    /// The peer that sent the request to the gateway.
    pub(crate) peer: IpAddr,
    /// Whether the peer is trusted to state the origin of requests.
    pub(crate) trusted: bool,
    /// The requested authority, or empty if there is none.
    pub(crate) authority: &'a HeaderValue,
    /// The protocol that the client wants to switch to, if it may.
    pub(crate) upgrade: Option<&'a HeaderValue>,
}

/// Turns a client's headers into the headers for a node.
pub(crate) fn to_node(headers: &mut HeaderMap, way: &Way<'_>, cache: &mut Stamps) {
    let mut found = Found::default();
    for name in headers.keys() {
        found.note(name);
    }
    // gRPC and other protocols need to know that trailers are accepted.
    let trailers = found.te
        && headers
            .get_all(TE)
            .iter()
            .any(|v| v.as_bytes().split(|&b| b == b',').any(|t| t.trim_ascii().eq_ignore_ascii_case(b"trailers")));
    found.remove(headers, !way.trusted);
    match (way.upgrade, trailers) {
        (Some(protocol), _) => {
            headers.insert(UPGRADE, protocol.clone());
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        (None, true) => {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
        (None, false) => {}
    }
    let stamp = cache.of(way.peer, way.authority);
    if way.trusted {
        let chain =
            headers.get_all(X_FORWARDED_FOR).iter().filter_map(|v| v.to_str().ok()).collect::<Vec<_>>().join(", ");
        let chain =
            if chain.is_empty() { None } else { HeaderValue::try_from(format!("{chain}, {}", stamp.address)).ok() };
        headers.insert(X_FORWARDED_FOR, chain.unwrap_or_else(|| stamp.forwarded_for.clone()));
        headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
        headers.entry(X_FORWARDED_HOST).or_insert_with(|| way.authority.clone());
        headers.append(FORWARDED, stamp.forwarded.clone());
    } else {
        headers.insert(X_FORWARDED_FOR, stamp.forwarded_for.clone());
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
        headers.insert(X_FORWARDED_HOST, way.authority.clone());
        headers.insert(FORWARDED, stamp.forwarded.clone());
    }
    headers.append(VIA, HeaderValue::from_static("1.1 weirgate"));
}

/// Turns a node's headers into the headers for a client. `upgraded` keeps the headers that a 101 needs.
pub(crate) fn to_client(headers: &mut HeaderMap, upgraded: bool) {
    let protocol = if upgraded { headers.get(UPGRADE).cloned() } else { None };
    drop_named(headers);
    let mut found = Found::default();
    for name in headers.keys() {
        found.note(name);
    }
    found.proxy_authorization = false;
    found.expect = false;
    found.remove(headers, false);
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    headers.append(VIA, HeaderValue::from_static("1.1 weirgate"));
}

/// Headers to be removed that are present.
#[derive(Debug, Default)]
struct Found {
    connection: bool,
    te: bool,
    transfer_encoding: bool,
    upgrade: bool,
    expect: bool,
    proxy_authorization: bool,
    proxy_authenticate: bool,
    /// Any of the names that are no constants in the `http` crate.
    other: bool,
    forwarded: bool,
    x: bool,
}

impl Found {
    fn note(&mut self, name: &HeaderName) {
        match *name {
            CONNECTION => self.connection = true,
            TE => self.te = true,
            TRANSFER_ENCODING => self.transfer_encoding = true,
            UPGRADE => self.upgrade = true,
            EXPECT => self.expect = true,
            PROXY_AUTHORIZATION => self.proxy_authorization = true,
            PROXY_AUTHENTICATE => self.proxy_authenticate = true,
            FORWARDED => self.forwarded = true,
            ref name => {
                let text = name.as_str();
                self.other |= matches!(text, "keep-alive" | "proxy-connection" | "http2-settings");
                self.x |= text.starts_with("x-forwarded-") || text == "x-real-ip";
            }
        }
    }

    fn remove(&self, headers: &mut HeaderMap, forwarded: bool) {
        let standard = [
            (self.connection, &CONNECTION),
            (self.te, &TE),
            (self.transfer_encoding, &TRANSFER_ENCODING),
            (self.upgrade, &UPGRADE),
            (self.expect, &EXPECT),
            (self.proxy_authorization, &PROXY_AUTHORIZATION),
            (self.proxy_authenticate, &PROXY_AUTHENTICATE),
            (forwarded && self.forwarded, &FORWARDED),
        ];
        for (_, name) in standard.into_iter().filter(|(there, _)| *there) {
            headers.remove(name);
        }
        if self.other {
            for name in [&KEEP_ALIVE, &PROXY_CONNECTION, &HTTP2_SETTINGS] {
                headers.remove(name);
            }
        }
        if forwarded && self.x {
            for name in [&X_FORWARDED_FOR, &X_FORWARDED_PROTO, &X_FORWARDED_HOST, &X_FORWARDED_PORT, &X_REAL_IP] {
                headers.remove(name);
            }
        }
    }
}

/// Headers that describe one peer and one authority. They are the same for most requests of a connection.
#[derive(Debug, Default)]
pub(crate) struct Stamps(Option<Stamp>);

#[derive(Debug)]
struct Stamp {
    peer: IpAddr,
    authority: HeaderValue,
    address: String,
    forwarded_for: HeaderValue,
    forwarded: HeaderValue,
}

impl Stamps {
    fn of(&mut self, peer: IpAddr, authority: &HeaderValue) -> &Stamp {
        let stale = self.0.as_ref().is_none_or(|s| s.peer != peer || s.authority != authority);
        if stale {
            self.0 = None;
        }
        self.0.get_or_insert_with(|| Stamp::new(peer, authority))
    }
}

impl Stamp {
    fn new(peer: IpAddr, authority: &HeaderValue) -> Stamp {
        let address = peer.to_string();
        let mut forwarded = match peer {
            IpAddr::V4(v4) => format!("for={v4}"),
            IpAddr::V6(v6) => format!("for=\"[{v6}]\""),
        };
        if let Ok(host) = authority.to_str()
            && !host.is_empty()
        {
            // Quoted, because an authority may contain colons and brackets, which a token may not.
            let _ = write!(forwarded, ";host=\"{host}\"");
        }
        forwarded.push_str(";proto=http");
        let value = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("unknown"));
        Stamp {
            peer,
            authority: authority.clone(),
            forwarded_for: value(&address),
            forwarded: value(&forwarded),
            address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        headers
    }

    fn to_node_from(fields: &[(&str, &str)], trusted: bool) -> HeaderMap {
        let mut headers = map(fields);
        drop_named(&mut headers);
        let authority = HeaderValue::from_static("a.test:80");
        let way = Way { peer: IpAddr::from([192, 0, 2, 1]), trusted, authority: &authority, upgrade: None };
        to_node(&mut headers, &way, &mut Stamps::default());
        headers
    }

    #[test]
    fn a_stranger_cannot_claim_to_be_someone_else() {
        let headers = to_node_from(
            &[
                ("x-forwarded-for", "1.1.1.1"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "evil"),
                ("x-forwarded-port", "1"),
                ("x-real-ip", "1.1.1.1"),
                ("forwarded", "for=1.1.1.1"),
            ],
            false,
        );
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "a.test:80");
        assert_eq!(headers["forwarded"], "for=192.0.2.1;host=\"a.test:80\";proto=http");
        assert!(!headers.contains_key("x-real-ip") && !headers.contains_key("x-forwarded-port"));
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
    }

    #[test]
    fn a_listed_proxy_is_believed_and_added_to_the_chain() {
        let headers = to_node_from(
            &[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2"), ("x-forwarded-proto", "https")],
            true,
        );
        assert_eq!(headers["x-forwarded-for"], "1.1.1.1, 2.2.2.2, 192.0.2.1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "a.test:80");
    }

    #[test]
    fn what_concerns_the_neighbour_stays_with_it() {
        let headers = to_node_from(
            &[
                ("connection", "keep-alive, X-Secret, x-forwarded-for, host, te"),
                ("connection", "via"),
                ("x-secret", "1"),
                ("keep-alive", "timeout=5"),
                ("proxy-connection", "close"),
                ("proxy-authorization", "Basic x"),
                ("te", "gzip, trailers"),
                ("transfer-encoding", "chunked"),
                ("upgrade", "h2c"),
                ("http2-settings", "x"),
                ("expect", "100-continue"),
                ("host", "a.test:80"),
                ("accept", "*/*"),
            ],
            false,
        );
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "accept",
                "connection",
                "forwarded",
                "host",
                "te",
                "via",
                "x-forwarded-for",
                "x-forwarded-host",
                "x-forwarded-proto"
            ]
        );
        assert_eq!(headers["te"], "trailers");
        assert_eq!(headers["connection"], "te");
    }

    #[test]
    fn answers_lose_what_concerns_the_neighbour_too() {
        let mut headers = map(&[
            ("connection", "close, X-Internal"),
            ("x-internal", "1"),
            ("keep-alive", "timeout=5"),
            ("upgrade", "h2"),
            ("x-forwarded-for", "kept: it is the application's"),
            ("trailer", "x-sum"),
        ]);
        to_client(&mut headers, false);
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["trailer", "via", "x-forwarded-for"]);

        let mut headers = map(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        to_client(&mut headers, true);
        assert_eq!(
            (&headers["upgrade"], &headers["connection"]),
            (&"websocket".parse().unwrap(), &"upgrade".parse().unwrap())
        );
    }
}
