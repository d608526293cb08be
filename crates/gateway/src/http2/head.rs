//! Heads of HTTP/2 in the form that the stages work on, and back: the lines of an HTTP/1.1 head.
//!
//! Sources: RFC 9113 Sec. 8.2 (fields; several `Cookie` are one), Sec. 8.3 (pseudo-fields), Sec. 8.3.1 (`:authority`
//! and `Host`), RFC 8441 Sec. 4 and 5 (an extended CONNECT is an upgrade of HTTP/1.1, and its 101 is a 200). The
//! library has refused fields of one connection, upper case, and pseudo-fields in excess. The lines are then parsed
//! like those of an HTTP/1.1 client, so that the rules for both are the same.

use bytes::BytesMut;
use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use weirgate_http1::{Event, Requests};

use crate::refusal::Refusal;
use crate::request::Request;
use crate::websocket;

/// Bytes for the names of pseudo-fields and for line ends, in excess of the fields themselves.
const SPARE: usize = 128;

/// Fields of an opening handshake that the gateway makes itself, or that an extended CONNECT cannot have.
const TUNNEL_FIELDS: [HeaderName; 2] = [SEC_WEBSOCKET_KEY, CONTENT_LENGTH];

/// Reads the head of a request. `requests` is new, and reads the trailers later. `ended` tells whether the head is all
/// of the request.
///
/// # Errors
/// The head breaks a rule, or exceeds a limit.
pub(super) fn request(requests: &mut Requests, parts: &Parts, ended: bool) -> Result<Request, Refusal> {
    let mut lines = BytesMut::with_capacity(size(&parts.headers) + SPARE);
    write_request(&mut lines, parts, ended)?;
    match requests.receive(&lines)? {
        Event::Head(bytes) if bytes == lines.len() => Ok(Request::new(lines, requests.take_head())),
        _ => Err(Refusal::Http2Head),
    }
}

fn size(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

fn write_request(out: &mut BytesMut, parts: &Parts, ended: bool) -> Result<(), Refusal> {
    let authority = parts.uri.authority().map_or("", |authority| authority.as_str());
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let tunnel = parts.extensions.get::<Protocol>();
    if tunnel.is_some_and(|protocol| !protocol.as_str().eq_ignore_ascii_case(websocket::PROTOCOL)) {
        return Err(Refusal::Protocol);
    }
    let (method, connects) = match (&parts.method, tunnel) {
        (_, Some(_)) => (&Method::GET, false),
        (method, None) => (method, *method == Method::CONNECT),
    };
    let sound = path.starts_with('/') || (path == "*" && *method == Method::OPTIONS);
    if !sound && !connects {
        return Err(Refusal::Http2Path);
    }
    let has_host = parts.headers.contains_key(HOST);
    let mut line = |pieces: &[&[u8]]| pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    line(&[method.as_str().as_bytes(), b" "]);
    match parts.uri.scheme_str() {
        _ if connects => line(&[authority.as_bytes()]),
        // So that `:authority` and `Host` are compared.
        Some(scheme) if has_host && !authority.is_empty() && path != "*" => {
            line(&[scheme.as_bytes(), b"://", authority.as_bytes(), path.as_bytes()]);
        }
        _ => line(&[path.as_bytes()]),
    }
    line(&[b" HTTP/1.1\r\n"]);
    if !has_host && !authority.is_empty() {
        line(&[b"host: ", authority.as_bytes(), b"\r\n"]);
    }
    let left_out = |name: &HeaderName| *name == COOKIE || (tunnel.is_some() && TUNNEL_FIELDS.contains(name));
    for (name, value) in parts.headers.iter().filter(|(name, _)| !left_out(name)) {
        line(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    let mut cookies = parts.headers.get_all(COOKIE).iter();
    if let Some(first) = cookies.next() {
        line(&[b"cookie: ", first.as_bytes()]);
        cookies.for_each(|cookie| line(&[b"; ", cookie.as_bytes()]));
        line(&[b"\r\n"]);
    }
    if tunnel.is_some() {
        let (protocol, key) = (websocket::PROTOCOL.as_bytes(), websocket::key());
        line(&[b"connection: upgrade\r\nupgrade: ", protocol, b"\r\nsec-websocket-key: ", key.as_bytes(), b"\r\n"]);
    } else if !parts.headers.contains_key(CONTENT_LENGTH) {
        match ended {
            false => line(&[b"transfer-encoding: chunked\r\n"]),
            // Some servers insist on a length where a body is usual (RFC 9110 Sec. 8.6).
            true if matches!(parts.method, Method::POST | Method::PUT | Method::PATCH) => {
                line(&[b"content-length: 0\r\n"]);
            }
            true => {}
        }
    }
    line(&[b"\r\n"]);
    Ok(())
}

/// Reads the trailers of a request. Those of a body with a length cannot be passed on, and are dropped.
///
/// # Errors
/// They break a rule, or exceed a limit.
pub(super) fn trailers(requests: &mut Requests, trailers: &HeaderMap) -> Result<(), Refusal> {
    let mut lines = b"0\r\n".to_vec();
    for (name, value) in trailers {
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            lines.extend_from_slice(piece);
        }
    }
    lines.extend_from_slice(b"\r\n");
    let mut rest = &lines[..];
    loop {
        match requests.receive(rest)? {
            Event::Skip(bytes) => rest = rest.get(bytes..).unwrap_or_default(),
            Event::End(_) => return Ok(()),
            _ => return Err(Refusal::Http2Trailers),
        }
    }
}

/// Returns the response with the head of `lines`, which the gateway has written for a client. A change of protocol is a
/// success.
pub(super) fn response(lines: &[u8]) -> Response<()> {
    let (first, fields_of) = split_line(lines);
    // After "HTTP/1.1 ".
    let status = first.get(9..12).and_then(|status| StatusCode::from_bytes(status).ok());
    let mut response = Response::new(());
    *response.status_mut() = status.unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = fields(fields_of);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        *response.status_mut() = StatusCode::OK;
        for name in [UPGRADE, SEC_WEBSOCKET_ACCEPT] {
            response.headers_mut().remove(name);
        }
    }
    response
}

/// Returns the fields of `lines`. A field that HTTP/2 cannot have is left out.
pub(crate) fn fields(mut lines: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    while !lines.is_empty() {
        let (line, rest) = split_line(lines);
        lines = rest;
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        let (name, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii()))
            && name != http::header::CONNECTION
        {
            // More fields than it can hold do not fit into a head.
            let _ = fields.try_append(name, value);
        }
    }
    fields
}

/// Takes the first line, without its end, from the front of `lines`.
fn split_line(lines: &[u8]) -> (&[u8], &[u8]) {
    let feed = lines.iter().position(|&b| b == b'\n').unwrap_or(lines.len());
    let line = lines.get(..feed).unwrap_or_default();
    (line.strip_suffix(b"\r").unwrap_or(line), lines.get(feed + 1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use weirgate_http1::{Length, Limits};

    use super::*;

    fn read(request: http::request::Builder, ended: bool) -> Result<(String, Length), Refusal> {
        let (parts, ()) = request.body(()).expect("it is sound").into_parts();
        let mut requests = Requests::new(Limits { head_bytes: 4096, fields: 20 });
        let read = super::request(&mut requests, &parts, ended)?;
        let text = String::from_utf8_lossy(read.head().1).into_owned();
        Ok((text, requests.length()))
    }

    fn get(uri: &str) -> http::request::Builder {
        http::Request::get(uri)
    }

    #[test]
    fn pseudo_fields_become_a_line_and_host() {
        let (text, length) = read(get("http://a.test:81/x?y").header("te", "trailers"), true).expect("it is sound");
        assert_eq!(text, "GET /x?y HTTP/1.1\r\nhost: a.test:81\r\nte: trailers\r\n\r\n");
        assert_eq!(length, Length::Known(0));
        let (text, _) = read(get("http://a.test/x").header("host", "a.test:80"), true).expect("it is sound");
        assert_eq!(text, "GET http://a.test/x HTTP/1.1\r\nhost: a.test:80\r\n\r\n");
        let (text, _) = read(get("/x").header("host", "b"), true).expect("it is sound");
        assert_eq!(text, "GET /x HTTP/1.1\r\nhost: b\r\n\r\n");
    }

    #[test]
    fn a_body_has_a_length_or_chunks() {
        let post = || http::Request::post("http://a/");
        assert_eq!(read(post(), false).expect("it is sound").1, Length::Chunked);
        assert_eq!(read(post().header("content-length", "7"), false).expect("it is sound").1, Length::Known(7));
        assert!(read(post(), true).expect("it is sound").0.ends_with("\r\ncontent-length: 0\r\n\r\n"));
        assert!(read(post().header("content-length", "7").header("content-length", "7"), false).is_err());
        assert!(read(post().header("transfer-encoding", "chunked").header("content-length", "7"), false).is_err());
    }

    #[test]
    fn cookies_are_joined() {
        let request = get("http://a/").header("cookie", "a=b").header("x", "1").header("cookie", "c=d");
        assert!(read(request, true).expect("it is sound").0.ends_with("\r\nx: 1\r\ncookie: a=b; c=d\r\n\r\n"));
    }

    #[test]
    fn limits_are_those_of_every_request() {
        let many = (0..30).fold(get("http://a/"), |request, _| request.header("x", "1"));
        assert_eq!(read(many, true).map_err(|refusal| refusal.status().as_u16()), Err(431));
        let large = get("http://a/").header("x", "y".repeat(5000));
        assert_eq!(read(large, true).map_err(|refusal| refusal.status().as_u16()), Err(431));
    }

    #[test]
    fn responses_are_read_from_their_lines() {
        let response = response(b"HTTP/1.1 404 Not here\r\nX-A:  b \r\nconnection: close\r\nx-a: c\r\nx y: no\r\n\r\n");
        assert_eq!(response.status(), 404);
        let values: Vec<_> = response.headers().iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        assert_eq!(values, [("x-a", &b"b"[..]), ("x-a", b"c")]);
    }

    #[test]
    fn trailers_obey_the_rules_of_chunks() {
        let trailers_of = |name: &'static str| {
            let post = http::Request::post("http://a/").body(()).expect("it is sound").into_parts().0;
            let mut requests = Requests::new(Limits { head_bytes: 4096, fields: 20 });
            super::request(&mut requests, &post, false).expect("it is sound");
            let map = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("1"))]);
            trailers(&mut requests, &map).map(|()| requests.trailers().to_vec())
        };
        assert_eq!(trailers_of("x-sum"), Ok(b"x-sum: 1\r\n".to_vec()));
        assert!(trailers_of("content-length").is_err());
    }
}
