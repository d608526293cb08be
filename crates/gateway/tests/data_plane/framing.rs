//! The strict check on the wire: input that breaks the rules gets a 4xx, the connection closes, and no node
//! sees it.

use weirgate_gateway::Ending;

use crate::stage::{Node, PLAIN, Stage, ok, policy};

/// Sends `bytes` on a new connection. Returns the statuses received until it was closed.
fn statuses(stage: &Stage, bytes: &[u8]) -> Vec<u16> {
    let mut client = stage.client();
    client.send(bytes);
    let all = String::from_utf8_lossy(&client.rest()).into_owned();
    all.split("HTTP/1.").skip(1).filter_map(|part| part.get(2..5)?.parse().ok()).collect()
}

#[test]
fn violations_are_answered_and_never_forwarded() {
    let (node, stage) = Stage::of(Node::answering(ok("x")), PLAIN);
    let post = |fields: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}");
    for (status, bytes) in [
        (400, "GET / HTTP/1.1\nHost: a\n\n".to_owned()),
        (400, "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n".to_owned()),
        (400, "GET /%2e%2e/x HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (400, "GET /a%2f..%2f.. HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (400, "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (405, "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        (400, post("Content-Length: 3\r\nTransfer-Encoding: chunked", "0\r\n\r\n")),
        (400, post("Content-Length: 3\r\nContent-Length: 3", "abc")),
        (400, post("Content-Length: +3", "abc")),
        (400, post("Transfer-Encoding: xchunked", "0\r\n\r\n")),
        (417, "GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n".to_owned()),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(70_000))),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(100))),
        (414, format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(70_000))),
    ] {
        assert_eq!(statuses(&stage, bytes.as_bytes()), [status], "{:?}", bytes.get(..60).unwrap_or(&bytes));
        let record = stage.record();
        assert!(matches!(record.ending, Ending::Refused(_)), "{record:?}");
        assert_eq!(record.status, status);
    }
    assert!(node.has_no_call());
    assert!(stage.is_empty());
}

#[test]
fn good_requests_before_a_bad_one_are_served_first() {
    let (node, stage) = Stage::of(Node::answering(ok("x")), PLAIN);
    let good = "GET /good HTTP/1.1\r\nHost: a\r\n\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let bad =
        format!("{good}{good}GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 40\r\n\r\n{smuggled}");
    assert_eq!(statuses(&stage, bad.as_bytes()), [200, 200, 400]);
    let lines: Vec<_> = node.calls().iter().map(|c| c.line().to_owned()).collect();
    assert_eq!(lines, ["GET /good HTTP/1.1", "GET /good HTTP/1.1"]);
}

#[test]
fn a_bad_chunk_ends_the_request_on_both_sides() {
    for body in
        ["5\r\nhello\r\n5\nworld\r\n0\r\n\r\n", "5\r\nhello\r\n0x5\r\nworld\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n"]
    {
        // The node must not receive an end of the body.
        let node = Node::raw(|_, stream| {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut &*stream, &mut all)?;
            assert!(!String::from_utf8_lossy(&all).ends_with("0\r\n\r\n"));
            Ok(())
        });
        let stage = Stage::open(&policy(&[&node], PLAIN));
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(statuses(&stage, format!("{head}{body}").as_bytes()), [400], "{body:?}");
        assert!(matches!(stage.record().ending, Ending::Refused(_)));
        assert!(stage.is_empty());
    }
}

#[test]
fn bodies_are_framed_anew() {
    let (node, stage) = Stage::of(Node::scripted(), PLAIN);
    let mut client = stage.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ChunkeD\r\n\r\n0003;x=\"y\"\r\nabc\r\n02\r\nde\r\n0\r\n\r\n",
    );
    let call = node.call();
    assert_eq!(call.header("transfer-encoding").as_deref(), Some("chunked"));
    assert_eq!(call.header("content-length"), None);
    assert_eq!(call.body, b"abcde");
    call.ok("");
    assert_eq!(client.answer().status, 200);
    // A GET with a body of unknown length keeps its body.
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    let call = node.call();
    assert_eq!((call.line(), call.body.as_slice()), ("GET / HTTP/1.1", b"abc".as_slice()));
    call.ok("");
    assert_eq!(client.answer().status, 200);
}

#[test]
fn an_absolute_target_names_the_host() {
    let (node, stage) = Stage::of(Node::scripted(), PLAIN);
    let mut client = stage.client();
    client.send("GET http://A.test:80/x?y HTTP/1.1\r\nHost: a.test:80\r\n\r\n");
    let call = node.call();
    assert_eq!((call.line(), call.header("host").as_deref()), ("GET /x?y HTTP/1.1", Some("A.test:80")));
    call.ok("");
    client.answer();
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    let call = node.call();
    assert_eq!(call.line(), "OPTIONS * HTTP/1.1");
    call.ok("");
    client.answer();
}
