//! Requests and responses: the same content over HTTP/2 as over HTTP/1.1.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use weirgate_gateway::{Ending, Protocol};

use super::{Client, get, request};
use crate::stage::{Node, PLAIN, Stage, ok, windowed};

/// Opens a gateway in front of a node, and a connection to it.
fn open(node: Node) -> (Node, Stage, Client) {
    let (node, stage) = Stage::of(node, PLAIN);
    let client = Client::connect(stage.address());
    (node, stage, client)
}

#[test]
fn a_request_reaches_the_node_over_http1() {
    let (node, stage, mut client) = open(Node::answering(ok("hello")));
    let request = request("GET", "/a//b%2f?q=1").header("x-a", "1").header("te", "trailers").header("cookie", "a=b");
    let whole = client.ask(request.header("cookie", "c=d").body(()).expect("it is sound")).expect("a response");
    assert_eq!((whole.head.status().as_u16(), whole.text().as_str()), (200, "hello"));
    assert_eq!((whole.header("via"), whole.header("connection")), (Some("1.1 weirgate"), None));
    assert!(whole.header("date").is_some());
    let call = node.call();
    assert_eq!(call.line(), "GET /a//b%2f?q=1 HTTP/1.1");
    for (name, value) in [
        ("host", "a.test"),
        ("x-a", "1"),
        ("cookie", "a=b; c=d"),
        ("te", "trailers"),
        ("via", "2.0 weirgate"),
        ("x-forwarded-for", "127.0.0.1"),
    ] {
        assert_eq!(call.header(name).as_deref(), Some(value), "{}", call.head);
    }
    assert_eq!(call.header("transfer-encoding"), None);
    let record = stage.record();
    assert_eq!((record.protocol, record.ending, record.status), (Protocol::Http2, Ending::Served, 200));
    assert_eq!((record.bytes_out, record.path.as_str()), (5, "/a/b%2F?q=1"));
}

#[test]
fn bodies_and_trailers_pass_in_both_directions() {
    let answer =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n";
    let (node, stage, mut client) = open(Node::answering(answer));
    let (response, mut send) = client.begin(request("POST", "/").body(()).expect("it is sound"), false);
    for piece in ["one", "two"] {
        send.send_data(Bytes::from(piece), false).expect("it is open");
    }
    let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("x-end"), HeaderValue::from_static("here"))]);
    send.send_trailers(trailers).expect("it is open");
    let whole = client.finish(response).expect("a response");
    assert_eq!((whole.text().as_str(), whole.header("transfer-encoding")), ("abc", None));
    assert_eq!(whole.trailers.expect("trailers").get("x-sum"), Some(&HeaderValue::from_static("6")));
    let call = node.call();
    assert_eq!(call.header("transfer-encoding").as_deref(), Some("chunked"));
    assert_eq!(String::from_utf8_lossy(&call.body), "onetwox-end: here\n");
    assert_eq!(stage.record().bytes_in, 6);
}

#[test]
fn a_body_with_a_length_keeps_it() {
    let (node, _stage, mut client) = open(Node::replying(|_, body| ok(&body.len().to_string())));
    for length in [0, 1, 65_535, 65_536, 65_537, 3_000_000] {
        let head = request("PUT", "/").header("content-length", length).body(()).expect("it is sound");
        let (response, mut send) = client.begin(head, false);
        send.send_data(Bytes::from(vec![b'x'; length]), true).expect("it is open");
        assert_eq!(client.finish(response).expect("a response").text(), length.to_string());
        assert_eq!(node.call().header("content-length"), Some(length.to_string()));
    }
    client.ask(request("POST", "/").body(()).expect("it is sound")).expect("a response");
    assert_eq!(node.call().header("content-length").as_deref(), Some("0"));
}

#[test]
fn a_large_response_arrives_whole() {
    let body = "0123456789abcdef".repeat(500_000);
    let (_node, _stage, mut client) = open(Node::answering(ok(&body)));
    assert!(client.get("/").expect("a response").text() == body, "another body");
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let (_node, _stage, mut client) = open(Node::replying(|head, _| {
        let status = head.split(['/', ' ']).nth(2).unwrap_or_default();
        format!("HTTP/1.1 {status} X\r\nContent-Length: 7\r\nETag: \"x\"\r\n\r\n")
            .replace("204 X\r\nContent-Length: 7", "204 X")
            .into_bytes()
    }));
    for (method, path, length) in [("HEAD", "/200", Some("7")), ("GET", "/204", None), ("GET", "/304", Some("7"))] {
        let whole = client.ask(request(method, path).body(()).expect("it is sound")).expect("a response");
        assert_eq!(format!("/{}", whole.head.status().as_u16()), path);
        assert_eq!(
            (whole.header("content-length"), whole.header("etag"), whole.body.len()),
            (length, Some("\"x\""), 0)
        );
    }
}

#[test]
fn interim_responses_pass() {
    let (node, _stage, mut client) = open(Node::scripted());
    let (mut response, _) = client.begin(get("/"), true);
    let call = node.call();
    call.write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
    let hints = client.wait(std::future::poll_fn(|cx| response.poll_informational(cx)));
    let hints = hints.expect("an interim response").expect("it is sound");
    assert_eq!((hints.status().as_u16(), hints.headers().get("link").is_some()), (103, true));
    call.ok("x");
    assert_eq!(client.finish(response).expect("a response").text(), "x");
    // The gateway invites a body before it admits the request.
    let head = request("POST", "/").header("expect", "100-continue").body(()).expect("it is sound");
    let (mut response, mut send) = client.begin(head, false);
    let invited = client.wait(std::future::poll_fn(|cx| response.poll_informational(cx)));
    assert_eq!(invited.expect("an interim response").expect("it is sound").status(), 100);
    send.send_data(Bytes::from("abc"), true).expect("it is open");
    let call = node.call();
    assert_eq!((&call.body[..], call.header("expect")), (&b"abc"[..], None));
    call.ok("y");
    assert_eq!(client.finish(response).expect("a response").text(), "y");
}

#[test]
fn refusals_are_those_of_http1() {
    let rest = windowed(1).replace("name: all", "name: all, queue: { max_waiting: 1 }");
    let (node, stage) = Stage::of(Node::scripted(), &rest);
    let mut client = Client::connect(stage.address());
    let (first, _) = client.begin(get("/1"), true);
    let call = node.call();
    let (second, _) = client.begin(get("/2"), true);
    crate::stage::wait_until("one waits", || stage.waiting() == 1);
    let shed = client.get("/3").expect("a response");
    let mut old = stage.client();
    old.get("/4");
    let answer = old.answer();
    assert_eq!((shed.head.status().as_u16(), answer.status), (503, 503));
    assert_eq!(shed.body, answer.body);
    for name in ["retry-after", "proxy-status", "content-type", "content-length"] {
        assert_eq!(shed.header(name).map(str::to_owned), answer.header(name), "{name}");
    }
    call.ok("1");
    assert_eq!(client.finish(first).expect("a response").text(), "1");
    node.call().ok("2");
    assert_eq!(client.finish(second).expect("a response").text(), "2");
}

#[test]
fn a_response_that_breaks_off_is_reset() {
    let (node, stage, mut client) = open(Node::scripted());
    let (response, _) = client.begin(get("/"), true);
    let call = node.call();
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
    let head = client.head(response).expect("a head");
    drop(call);
    let mut body = head.into_body();
    let mut received = Vec::new();
    let error = loop {
        match client.wait(body.data()).expect("not the end") {
            Ok(piece) => received.extend_from_slice(&piece),
            Err(error) => break error,
        }
    };
    assert_eq!((&received[..], error.reason()), (&b"only this"[..], Some(h2::Reason::INTERNAL_ERROR)));
    assert_eq!(stage.record().ending, Ending::Failed("http_response_incomplete"));
    // The other streams of the connection live on.
    let (response, _) = client.begin(get("/"), true);
    node.call().ok("x");
    assert_eq!(client.finish(response).expect("a response").text(), "x");
}

#[test]
fn rules_and_limits_are_those_of_http1() {
    let rest = format!("{PLAIN}limits: {{ head_bytes: 4KiB, headers: 20, body_bytes: 10B }}\n");
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &rest);
    let mut client = Client::connect(stage.address());
    let many = (0..30).fold(request("GET", "/"), |request, _| request.header("x", "1"));
    for (request, status) in [
        (request("GET", "/").header("host", "a.test"), 200),
        (request("GET", "/").header("host", "b.test"), 400),
        (request("GET", "/%00"), 400),
        (request("TRACE", "/"), 405),
        (request("GET", "/").header("expect", "tea"), 417),
        (request("GET", "/").header("x", "y".repeat(5000)), 431),
        (request("GET", "/").header("x_forwarded_for", "1.2.3.4"), 400),
        (many, 431),
        (request("POST", "/").header("content-length", "11"), 413),
    ] {
        let ended = !request.headers_ref().is_some_and(|h| h.contains_key("content-length"));
        let (response, _) = client.begin(request.body(()).expect("it is sound"), ended);
        assert_eq!(client.finish(response).expect("a response").head.status(), status);
        let record = stage.record();
        assert_eq!((record.protocol, record.status), (Protocol::Http2, status));
    }
}
