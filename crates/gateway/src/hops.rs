//! Heads for the next hop: without the fields that concern one connection only, and with those that a gateway adds.
//!
//! Sources: RFC 9110 Sec. 7.6.1 (`Connection`), 7.6.3 (`Via`), 10.1.4 (`TE`), RFC 7239 (`Forwarded`), RFC 9112 Sec. 6
//! (framing). Departures: `X-Real-IP` and similar fields are removed unless a listed proxy wrote them. A missing `Date`
//! is added (RFC 9110 Sec. 6.6.1).
//!
//! Most of a head is copied as it was received: spelling, order and repeated fields stay.

use weirgate_config::Forward;
use weirgate_http1::{Head, Length, Name, Names, write};

use crate::forwarded;
use crate::header_edits::Edits;
use crate::record::Protocol;
use crate::request::Request;
use crate::trace::Trace;
use crate::visitor::{self, Reception};

/// Fields that concern one connection only.
const HOP: Names = Names::of(&[
    Name::Connection,
    Name::Dropped,
    Name::KeepAlive,
    Name::ProxyConnection,
    Name::Te,
    Name::Upgrade,
    Name::Http2Settings,
]);

/// Fields that `Connection` cannot name, because they frame the message, route it, or are added by the gateway. A
/// client could otherwise strip them on their way to the node.
pub(crate) const PROTECTED: Names = Names::of(&[
    Name::Host,
    Name::ContentLength,
    Name::TransferEncoding,
    Name::Trailer,
    Name::Te,
    Name::Upgrade,
    Name::Forwarded,
    Name::Via,
    Name::Connection,
    Name::XForwardedFor,
    Name::XForwardedProto,
    Name::XForwardedHost,
    Name::XForwardedPort,
    Name::XRealIp,
    Name::Traceparent,
]);

/// Fields of a request that end here.
const NOT_TO_NODE: Names =
    HOP.union(Names::of(&[Name::TransferEncoding, Name::Expect, Name::ProxyAuthorization, Name::ProxyAuthenticate]));

/// Fields of a response that end here.
const NOT_TO_CLIENT: Names = HOP.union(Names::of(&[Name::TransferEncoding, Name::ProxyAuthenticate]));

/// Written anew, because readers that compare it letter by letter could miss another spelling.
const CHUNKED: &[u8] = b"transfer-encoding: chunked\r\n";

/// Fields that state the origin of a request.
const ORIGIN: Names = Names::of(&[
    Name::Forwarded,
    Name::XForwardedFor,
    Name::XForwardedProto,
    Name::XForwardedHost,
    Name::XForwardedPort,
    Name::XRealIp,
]);

/// For messages received over HTTP/1.1, as all responses of nodes are.
const VIA: &[u8] = b"via: 1.1 weirgate\r\n";

/// For requests received over HTTP/2.
const VIA_HTTP2: &[u8] = b"via: 2.0 weirgate\r\n";

/// Facts about the path of a request that the node is told.
pub(crate) struct Way<'a> {
    pub(crate) request: &'a Request,
    /// Protocol of the request.
    pub(crate) protocol: Protocol,
    /// Address of the peer that sent the request to the gateway. `None` for one on a Unix socket.
    pub(crate) peer: Option<&'a str>,
    /// Scheme that the peer used.
    pub(crate) scheme: &'a str,
    /// Whether the peer is trusted to state the origin of requests.
    pub(crate) trusted: bool,
    pub(crate) trace: Trace,
    /// The changes that the policy asks for.
    pub(crate) forward: Forward,
    /// Name of the cookie that the node does not get, if the request has it.
    pub(crate) hidden_cookie: Option<&'a str>,
    /// Address of the node, for a request without a host.
    pub(crate) address: &'a str,
    /// The header rules of the policy.
    pub(crate) edits: Edits<'a>,
}

/// Writes the head of a request for a node.
pub(crate) fn to_node(out: &mut Vec<u8>, way: &Way<'_>) {
    let start = out.len();
    let request = way.request;
    let (head, bytes) = request.head();
    let authority = request.authority();
    let forward = way.forward;
    let normal;
    let target = match (forward.normalized_path, request.query()) {
        (false, _) => request.target(),
        (true, None) => request.path().as_bytes(),
        (true, Some(query)) => {
            normal = format!("{}?{query}", request.path());
            normal.as_bytes()
        }
    };
    write::request_line(out, head.method(bytes), target);
    let mut left_out = NOT_TO_NODE;
    // An absolute target replaces `Host` (RFC 9112 Sec. 3.2.2).
    let host = match authority {
        b"" => Some(way.address.as_bytes()),
        authority if request.is_absolute() => Some(authority),
        _ => None,
    };
    if let Some(host) = host {
        left_out = left_out.union(Names::of(&[Name::Host]));
        write::field(out, b"host", host);
    }
    let own_trace = way.trace.is_own() && forward.traceparent;
    if own_trace {
        left_out = left_out.union(Names::of(&[Name::Traceparent]));
    }
    let new_id = forward.request_id && !(way.trusted && request.has(Name::XRequestId));
    if new_id {
        left_out = left_out.union(Names::of(&[Name::XRequestId]));
    }
    left_out = match way.trusted {
        false => left_out.union(ORIGIN),
        true if forward.x_forwarded => left_out.union(forwarded::REWRITTEN),
        true => left_out,
    };
    if let Some(cookie) = way.hidden_cookie {
        left_out = left_out.union(Names::of(&[Name::Cookie]));
        visitor::write_other_cookies(out, request, cookie);
    }
    write::fields(out, head, bytes, |field| left_out.contains(field.name()));
    if request.has(Name::TransferEncoding) {
        out.extend_from_slice(CHUNKED);
    }
    // gRPC and other protocols need to know that trailers are accepted.
    let mut codings = head.list(bytes, Name::Te);
    match request.upgrade() {
        Some(protocol) => {
            write::field(out, b"upgrade", protocol);
            out.extend_from_slice(b"connection: upgrade\r\n");
        }
        None if codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers")) => {
            out.extend_from_slice(b"te: trailers\r\nconnection: te\r\n");
        }
        None => {}
    }
    if way.trusted {
        forwarded::continued(out, request, (way.peer, way.scheme.as_bytes()), forward);
    } else {
        origin(out, authority, (way.peer, way.scheme), forward);
    }
    if forward.via {
        out.extend_from_slice(if way.protocol == Protocol::Http2 { VIA_HTTP2 } else { VIA });
    }
    if own_trace {
        way.trace.write(out);
    }
    if new_id {
        write::field(out, b"x-request-id", &way.trace.id.digits());
    }
    way.edits.apply(out, start);
    write::end(out);
}

/// Writes the origin of a request that comes from its client directly.
fn origin(out: &mut Vec<u8>, authority: &[u8], (peer, scheme): (Option<&str>, &str), forward: Forward) {
    if forward.x_forwarded {
        if let Some(peer) = peer {
            write::field(out, b"x-forwarded-for", peer.as_bytes());
        }
        write::field(out, b"x-forwarded-proto", scheme.as_bytes());
        write::field(out, b"x-forwarded-host", authority);
    }
    if forward.forwarded {
        out.extend_from_slice(b"forwarded: ");
        forwarded::element(out, peer, (authority, scheme.as_bytes()));
        out.extend_from_slice(b"\r\n");
    }
}

/// Statement of a response's head about the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Connection {
    /// Whether it stays open.
    pub(crate) kept: bool,
    /// Protocol that the client speaks.
    pub(crate) protocol: Protocol,
}

impl Connection {
    /// Writes `Connection`, if the default of the client's protocol does not say it. HTTP/2 has no such field.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        match (self.protocol, self.kept) {
            (Protocol::Http11, false) => out.extend_from_slice(b"connection: close\r\n"),
            (Protocol::Http10, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
            (Protocol::Http11, true) | (Protocol::Http10, false) | (Protocol::Http2, _) => {}
        }
    }
}

/// Frame of a response's body on its way to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// As the head says, or no body. Also in HTTP/2, which has frames of its own.
    Plain,
    /// In chunks.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

impl Frame {
    /// Returns the frame for a body of `length`.
    pub(crate) fn of(length: Length, protocol: Protocol) -> Frame {
        match (length, protocol) {
            (Length::Known(_), _) | (_, Protocol::Http2) => Frame::Plain,
            (_, Protocol::Http11) => Frame::Chunked,
            (_, Protocol::Http10) => Frame::UntilClose,
        }
    }
}

/// Additions to a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp<'a> {
    /// The present date, for a response without one.
    pub(crate) date: &'a [u8],
    /// Whether `Via` is written.
    pub(crate) via: bool,
    /// The visitor who may get a cookie.
    pub(crate) reception: Option<Reception<'a>>,
    /// The header rules of the policy.
    pub(crate) edits: Edits<'a>,
}

/// Writes the head of a node's response for the client.
pub(crate) fn to_client(
    out: &mut Vec<u8>,
    (head, bytes): (&Head, &[u8]),
    frame: Frame,
    connection: Connection,
    stamp: &Stamp<'_>,
) {
    let start = out.len();
    write::status_line(out, head.status(), head.reason(bytes));
    // One of several equal lengths stays, and none of a response that has no body (RFC 9110 Sec. 8.6).
    let no_content = head.status() == 204;
    let mut written = no_content;
    write::fields(out, head, bytes, |field| match field.name() {
        Name::ContentLength => {
            written || {
                written = field.value(bytes).iter().all(u8::is_ascii_digit);
                !written
            }
        }
        name => NOT_TO_CLIENT.contains(name),
    });
    if let Some(length) = head.content_length().filter(|_| !written) {
        write::number(out, b"content-length", length);
    }
    // The response to a HEAD may say how the body would be framed.
    let coded = head.names().contains(Name::TransferEncoding) && connection.protocol == Protocol::Http11 && !no_content;
    if frame == Frame::Chunked || coded {
        out.extend_from_slice(CHUNKED);
    }
    connection.write(out);
    if !head.names().contains(Name::Date) {
        write::field(out, b"date", stamp.date);
    }
    if stamp.via {
        out.extend_from_slice(VIA);
    }
    if let Some(reception) = &stamp.reception {
        reception.write(out, start, (head, bytes));
    }
    stamp.edits.apply(out, start);
    write::end(out);
}

/// Writes an interim response, or the 101 that changes the protocol. Only the latter is changed by `edits`, because it
/// is the last response to its request.
pub(crate) fn interim(out: &mut Vec<u8>, (head, bytes): (&Head, &[u8]), via: bool, edits: &Edits<'_>) {
    let start = out.len();
    write::status_line(out, head.status(), head.reason(bytes));
    let upgraded = head.status() == 101;
    write::fields(out, head, bytes, |field| match field.name() {
        Name::Upgrade => !upgraded,
        Name::ContentLength => true,
        name => NOT_TO_CLIENT.contains(name),
    });
    if upgraded {
        out.extend_from_slice(b"connection: upgrade\r\n");
    }
    if via {
        out.extend_from_slice(VIA);
    }
    if upgraded {
        edits.apply(out, start);
    }
    write::end(out);
}

#[cfg(test)]
mod tests {
    use weirgate_http1::{Event, Limits, Responses};

    use super::*;
    use crate::header_edits::tests::NO_EDITS;
    use crate::tests::FORWARD;
    use crate::trace::TraceIds;

    fn to_node_from(head: &str, trusted: bool) -> String {
        to_node_with(head, trusted, FORWARD)
    }

    fn to_node_with(head: &str, trusted: bool, forward: Forward) -> String {
        let request = Request::parse(head.as_bytes()).expect("it is sound");
        let trace = TraceIds::new().of(&request, 0.0, false);
        let mut out = Vec::new();
        to_node(
            &mut out,
            &Way {
                request: &request,
                protocol: Protocol::Http11,
                peer: Some("192.0.2.1"),
                scheme: "http",
                trusted,
                trace,
                forward,
                hidden_cookie: None,
                address: "10.0.0.9:80",
                edits: NO_EDITS,
            },
        );
        String::from_utf8(out).expect("ASCII")
    }

    const TRACE: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";

    #[test]
    fn a_stranger_cannot_claim_another_origin() {
        let head = format!(
            "GET /a//%2f HTTP/1.1\r\nHOST: A.test:80\r\nx-forwarded-for: 1.1.1.1\r\nX-Forwarded-Proto: https\r\n\
             x-forwarded-host: evil\r\nx-forwarded-port: 1\r\nx-real-ip: 1.1.1.1\r\nforwarded: for=1.1.1.1\r\n\
             Accept:  */*\r\n{TRACE}\r\n"
        );
        let expected = format!(
            "GET /a//%2f HTTP/1.1\r\nHOST: A.test:80\r\nAccept:  */*\r\n{TRACE}x-forwarded-for: 192.0.2.1\r\n\
             x-forwarded-proto: http\r\nx-forwarded-host: A.test:80\r\n\
             forwarded: for=192.0.2.1;host=\"A.test:80\";proto=http\r\nvia: 1.1 weirgate\r\n\r\n"
        );
        assert_eq!(to_node_from(&head, false), expected);
    }

    #[test]
    fn fields_of_one_connection_stay_on_it() {
        let head = format!(
            "GET http://a.test:80/x HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, X-Secret, x-forwarded-for, te\r\n\
             connection: via\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\n\
             Proxy-Authorization: Basic x\r\nTE: gzip, trailers\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\
             Expect: 100-continue\r\n{TRACE}\r\n"
        );
        let expected = format!(
            "GET /x HTTP/1.1\r\nhost: a.test:80\r\n{TRACE}te: trailers\r\nconnection: te\r\n\
             x-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: a.test:80\r\n\
             forwarded: for=192.0.2.1;host=\"a.test:80\";proto=http\r\nvia: 1.1 weirgate\r\n\r\n"
        );
        assert_eq!(to_node_from(&head, false), expected);
    }

    #[test]
    fn a_policy_switches_every_addition() {
        let nothing = Forward { x_forwarded: false, forwarded: false, via: false, traceparent: false, ..FORWARD };
        let head = "GET /a//b%2fc?q=%2f HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\nForwarded: for=1.1.1.1\r\n\
             X-Request-ID: x\r\ntraceparent: broken\r\n\r\n";
        let expected = "GET /a//b%2fc?q=%2f HTTP/1.1\r\nHost: a\r\nX-Request-ID: x\r\ntraceparent: broken\r\n\r\n";
        assert_eq!(to_node_with(head, false, nothing), expected);
        // The statements of a listed proxy pass as they are.
        assert_eq!(to_node_with(head, true, nothing), head);
        let node = to_node_with(head, false, Forward { normalized_path: true, request_id: true, ..FORWARD });
        assert!(node.starts_with("GET /a/b%2Fc?q=%2f HTTP/1.1\r\n") && !node.contains("X-Request-ID: x"), "{node}");
        let (_, id) = node.split_once("\r\nx-request-id: ").expect("an id");
        assert!(node.contains(&format!("\r\ntraceparent: 00-{}-", &id[..32])), "{node}");
        let node = to_node_with(head, true, Forward { request_id: true, ..FORWARD });
        assert!(node.contains("\r\nX-Request-ID: x\r\n") && !node.contains("x-request-id"), "{node}");
    }

    #[test]
    fn an_old_client_needs_no_host_and_an_upgrade_is_asked_for() {
        let node = to_node_from(&format!("GET / HTTP/1.0\r\n{TRACE}\r\n"), false);
        assert!(node.starts_with("GET / HTTP/1.1\r\nhost: 10.0.0.9:80\r\n"), "{node}");
        assert!(node.contains("\r\nforwarded: for=192.0.2.1;proto=http\r\n"), "{node}");
        let node = to_node_from(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\ntraceparent: broken\r\n\r\n",
            false,
        );
        assert!(node.contains("\r\nupgrade: websocket\r\nconnection: upgrade\r\n"), "{node}");
        assert!(!node.contains("broken") && node.contains("\r\ntraceparent: 00-"), "{node}");
    }

    fn response(head: &str, method: &str, protocol: Protocol) -> String {
        let mut responses = Responses::new(Limits { head_bytes: 4096, fields: 50 });
        responses.expect(method);
        assert_eq!(responses.receive(head.as_bytes()), Ok(Event::Head(head.len())));
        let connection = Connection { kept: true, protocol };
        let mut out = Vec::new();
        let head = (responses.head(), head.as_bytes());
        match head.0.status() {
            100..=199 => interim(&mut out, head, true, &NO_EDITS),
            _ => to_client(
                &mut out,
                head,
                Frame::of(responses.length(), protocol),
                connection,
                &Stamp { date: b"now", via: true, reception: None, edits: NO_EDITS },
            ),
        }
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn responses_lose_only_fields_of_one_connection() {
        let head = "HTTP/1.1 200 Fine, thanks\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nUpgrade: h2\r\n\
             Date: then\r\nX-Forwarded-For: kept: it is the application's\r\nTrailer: x-sum\r\nSet-Cookie: a=b\r\n\
             set-cookie: c=d\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n";
        let expected = "HTTP/1.1 200 Fine, thanks\r\nDate: then\r\nX-Forwarded-For: kept: it is the application's\r\n\
             Trailer: x-sum\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nContent-Length: 5\r\nvia: 1.1 weirgate\r\n\r\n";
        assert_eq!(response(head, "GET", Protocol::Http11), expected);
        let upgraded =
            response("HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "GET", Protocol::Http11);
        let expected = "HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nconnection: upgrade\r\nvia: 1.1 weirgate\r\n\r\n";
        assert_eq!(upgraded, expected);
    }

    #[test]
    fn bodies_are_framed_for_the_client() {
        let frames = |head: &str, method, protocol| {
            let text = response(&format!("HTTP/1.1 {head}\r\nDate: x\r\n\r\n"), method, protocol);
            text.replace("Date: x\r\n", "").replace("via: 1.1 weirgate\r\n", "").replace("\r\n", " ")
        };
        let new = |head: &str, method| frames(head, method, Protocol::Http11);
        let old = |head: &str, method| frames(head, method, Protocol::Http10);
        assert_eq!(new("200 OK\r\nTransfer-Encoding: Chunked", "GET"), "HTTP/1.1 200 OK transfer-encoding: chunked  ");
        assert_eq!(new("200 OK", "GET"), "HTTP/1.1 200 OK transfer-encoding: chunked  ");
        assert_eq!(new("200 OK\r\nContent-Length: 7, 7", "GET"), "HTTP/1.1 200 OK content-length: 7  ");
        assert_eq!(new("200 OK\r\nContent-Length: 7", "HEAD"), "HTTP/1.1 200 OK Content-Length: 7  ");
        assert_eq!(new("200 OK\r\nTransfer-Encoding: chunked", "HEAD"), "HTTP/1.1 200 OK transfer-encoding: chunked  ");
        assert_eq!(new("204 No\r\nContent-Length: 0", "GET"), "HTTP/1.1 204 No  ");
        assert_eq!(new("304 Not\r\nContent-Length: 7", "GET"), "HTTP/1.1 304 Not Content-Length: 7  ");
        assert_eq!(old("200 OK\r\nTransfer-Encoding: chunked", "GET"), "HTTP/1.1 200 OK connection: keep-alive  ");
    }
}
