//! Plain requests: the message to the node, the response to the client, and the record.

use weirgate_gateway::Ending;

use crate::stage::{Node, PLAIN, Stage, ok};

#[test]
fn a_request_reaches_the_node_and_its_answer_the_client() {
    let (node, stage) = Stage::of(Node::scripted(), PLAIN);
    let mut client = stage.client();
    client.send("GET /a//b/../c?q=1 HTTP/1.1\r\nHost: A.test\r\nAccept: */*\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n");
    let call = node.call();
    // Rules compare a normal form. The node gets the request as it was sent.
    assert_eq!(call.line(), "GET /a//b/../c?q=1 HTTP/1.1");
    assert_eq!(call.header("host").as_deref(), Some("A.test"));
    assert_eq!(call.header("accept").as_deref(), Some("*/*"));
    assert_eq!(call.header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert_eq!(call.header("x-forwarded-host").as_deref(), Some("A.test"));
    assert_eq!(call.header("forwarded").as_deref(), Some("for=127.0.0.1;host=\"A.test\";proto=http"));
    assert_eq!(call.header("via").as_deref(), Some("1.1 weirgate"));
    assert!(call.header("traceparent").is_some());
    assert_eq!((call.header("x-hop"), call.header("connection")), (None, None));
    call.reply("HTTP/1.1 201 Made\r\nContent-Length: 5\r\nX-App: y\r\nConnection: x-app2\r\nX-App2: z\r\n\r\nhello");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str()), (201, "hello"));
    assert_eq!(answer.header("x-app").as_deref(), Some("y"));
    assert_eq!((answer.header("x-app2"), answer.header("connection")), (None, None));
    let record = stage.record();
    assert_eq!((record.ending, record.status), (Ending::Served, 201));
    assert_eq!((record.bytes_in, record.bytes_out), (0, 5));
    assert_eq!((record.class.as_str(), record.path.as_str()), ("all", "/a/c?q=1"));
    assert_eq!(record.node, Some(node.address.to_string()));
    assert_eq!((record.client.as_str(), record.retries), ("127.0.0.1", 0));
    assert!(record.total >= record.service_time && record.service_time > record.queue_wait);
    assert!(stage.is_empty());
}

#[test]
fn connections_are_kept_on_both_sides() {
    let (node, stage) = Stage::of(Node::answering(ok("x")), PLAIN);
    let mut client = stage.client();
    for _ in 0..5 {
        assert_eq!(client.ask("/").status, 200);
        assert_eq!(node.call().connection, 0);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (_node, stage) = Stage::of(Node::replying(|head, _| ok(head.split(' ').nth(1).unwrap_or_default())), PLAIN);
    let mut client = stage.client();
    client.send((0..20).map(|i| format!("GET /{i} HTTP/1.1\r\nHost: a\r\n\r\n")).collect::<String>());
    for i in 0..20 {
        assert_eq!(client.answer().text(), format!("/{i}"));
    }
}

#[test]
fn every_way_to_end_an_answer_is_understood() {
    let (node, stage) = Stage::of(Node::scripted(), PLAIN);
    let mut client = stage.client();
    client.get("/chunked");
    node.call().reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3;x=y\r\ndef\r\n0\r\n\r\n");
    assert_eq!(client.answer().text(), "abcdef");

    client.get("/until-close");
    let call = node.call();
    call.write("HTTP/1.0 200 OK\r\n\r\nall of it");
    drop(call);
    let answer = client.answer();
    assert_eq!(answer.text(), "all of it");
    assert!(answer.head.starts_with("HTTP/1.1 "));

    client.get("/none");
    node.call().reply("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(client.answer().status, 204);

    client.send("GET /not-modified HTTP/1.1\r\nHost: a\r\nIf-None-Match: x\r\n\r\n");
    node.call().reply("HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nETag: x\r\n\r\n");
    assert_eq!(client.answer().status, 304);

    client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n");
    node.call().reply("HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n");
    let answer = client.head_answer();
    assert_eq!((answer.status, answer.header("content-length").as_deref()), (200, Some("77")));

    client.get("/interim");
    node.call().reply([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".as_slice(), &ok("final")].concat());
    let hints = client.head_answer();
    assert_eq!((hints.status, hints.header("link").as_deref()), (103, Some("x")));
    assert_eq!(client.answer().text(), "final");
    for _ in 0..6 {
        assert_eq!(stage.record().ending, Ending::Served);
    }
    assert!(stage.is_empty());
}

#[test]
fn an_answer_that_cannot_be_told_from_the_next_is_not_passed_on() {
    for bad in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3, 4\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "this is not HTTP\r\n\r\n",
    ] {
        let (node, stage) = Stage::of(Node::answering(bad), "discipline: none\nclasses: [{ name: all, retry: off }]\n");
        let mut client = stage.client();
        let answer = client.ask("/");
        assert_eq!(answer.status, 502, "{bad:?}");
        assert_eq!(answer.header("proxy-status").as_deref(), Some("weirgate; error=http_protocol_error"), "{bad:?}");
        // The next request does not receive remains of this response.
        assert_eq!(client.ask("/").status, 502);
        assert_ne!(node.call().connection, node.call().connection);
    }
}

#[test]
fn slips_of_a_node_that_leave_no_doubt_are_corrected() {
    let many = "X-Field: 1\r\n".repeat(150);
    for slip in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
        "HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 \u{e9}\t!\r\nContent-Length: 3\r\n\r\nabc",
        &format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 3\r\n\r\nabc"),
    ] {
        let (node, stage) = Stage::of(Node::answering(slip), PLAIN);
        let mut client = stage.client();
        for _ in 0..2 {
            let answer = client.ask("/");
            assert_eq!((answer.status, answer.text().as_str()), (200, "abc"), "{slip:?}");
            assert_eq!(answer.head.to_ascii_lowercase().matches("content-length: 3\r\n").count(), 1, "{slip:?}");
        }
        // The end was clear, so the connection is used again.
        assert_eq!(node.call().connection, node.call().connection, "{slip:?}");
    }
}

#[test]
fn bytes_after_an_answer_belong_to_no_request() {
    let (node, stage) = Stage::of(Node::answering([ok("mine"), ok("stray")].concat()), PLAIN);
    let mut client = stage.client();
    for _ in 0..3 {
        assert_eq!(client.ask("/").text(), "mine");
    }
    let mut connections: Vec<_> = node.calls().iter().map(|c| c.connection).collect();
    connections.dedup();
    assert_eq!(connections.len(), 3);
}

#[test]
fn old_clients_get_what_they_understand() {
    let (node, stage) =
        Stage::of(Node::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), PLAIN);
    let mut client = stage.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let all = String::from_utf8(client.rest()).expect("text");
    assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && all.ends_with("\r\n\r\nabc"), "{all}");
    assert!(!all.contains("chunked"));
    assert_eq!(node.call().header("host"), Some(node.address.to_string()));
}

#[test]
fn a_closing_client_is_told_and_closed() {
    let (_node, stage) = Stage::of(Node::answering(ok("x")), PLAIN);
    let mut client = stage.client();
    let answer = client.exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.header("connection").as_deref(), Some("close"));
    assert!(client.is_closed());
}

/// A socket that is closed with unread bytes sends a reset, and the client may lose the answer to it.
#[test]
fn a_closing_client_that_goes_on_sending_gets_its_answer() {
    let (node, stage) = Stage::of(Node::scripted(), PLAIN);
    for more in ["\r\n", "GET /b HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut client = stage.client();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let call = node.call();
        client.send(more);
        call.ok("x");
        assert_eq!(client.answer().text(), "x");
        assert!(client.is_closed());
    }
    assert!(node.has_no_call());
}

#[test]
fn an_absent_node_is_a_502_with_its_reason() {
    let (_node, stage) = Stage::of(Node::absent(), PLAIN);
    let answer = stage.ask("/");
    assert_eq!(answer.status, 502);
    assert_eq!(answer.header("proxy-status").as_deref(), Some("weirgate; error=connection_refused"));
    assert_eq!(stage.record().ending, Ending::Failed("connection_refused"));
    assert!(stage.is_empty());
}
