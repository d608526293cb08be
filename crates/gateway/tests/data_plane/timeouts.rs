//! Every timeout, and the side that it blames.

use std::io::{Read, Write};

use weirgate_gateway::Ending;

use crate::stage::{Node, PLAIN, Stage, ok, policy, wait_until, windowed};

fn class_with(timeouts: &str) -> String {
    format!("discipline: none\nclasses: [{{ name: all, retry: off, timeouts: {{ {timeouts} }} }}]\n")
}

#[test]
fn a_head_must_be_complete_in_time() {
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &format!("{PLAIN}timeouts: {{ header: 100ms }}\n"));
    let mut client = stage.client();
    let answer = client.exchange("GET / HTTP/1.1\r\nHost: a\r\nX: ");
    assert_eq!((answer.status, answer.header("connection").as_deref()), (408, Some("close")));
    assert!(client.is_closed());
    assert!(matches!(stage.record().ending, Ending::Refused(_)));

    // Also after a first request, and when the head arrives in small pieces.
    let mut client = stage.client();
    assert_eq!(client.ask("/").status, 200);
    client.send("GET / HTTP/1.1\r\n");
    assert_eq!(client.exchange("Host: a\r\n").status, 408);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &format!("{PLAIN}timeouts: {{ idle: 100ms }}\n"));
    let mut client = stage.client();
    assert!(client.is_closed());
    let mut client = stage.client();
    assert_eq!(client.ask("/").status, 200);
    assert!(client.is_closed());
}

#[test]
fn interim_responses_without_end_are_a_504_and_delay_no_other_request() {
    let node = Node::raw(|_, mut stream| {
        let mut head = [0; 1024];
        let bytes = stream.read(&mut head)?;
        if !head[..bytes].starts_with(b"GET /endless ") {
            return stream.write_all(&ok("other"));
        }
        let interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n".repeat(100);
        loop {
            stream.write_all(&interim)?;
        }
    });
    // With one thread, the endless response and the other request share it.
    let text = policy(&[&node], &class_with("first_byte: 500ms")).replace("threads: 2", "threads: 1");
    let stage = Stage::open(&text);
    let (mut endless, mut other) = (stage.client(), stage.client());
    endless.get("/endless");
    assert_eq!(other.ask("/").text(), "other");
    assert_eq!(stage.record().ending, Ending::Served);
    let answer = std::iter::repeat_with(|| endless.head_answer()).find(|answer| answer.status != 103);
    assert_eq!(answer.map(|answer| answer.status), Some(504));
    assert_eq!(stage.record().ending, Ending::Failed("http_response_timeout"));
    assert!(stage.is_empty());
}

/// A sender that is slow while its request waits has no more time than one that is served.
#[test]
fn a_body_that_comes_too_slowly_in_the_queue_is_a_408() {
    let node = Node::raw(|_, mut stream| {
        while stream.read(&mut [0; 4096])? > 0 {}
        Ok(())
    });
    let rest = format!("{}timeouts: {{ body: 200ms, body_rate: 1MiB }}\n", windowed(1));
    let stage = Stage::open(&policy(&[&node], &rest));
    let mut in_flight = stage.client();
    in_flight.get("/");
    wait_until("it is in flight", || stage.gateway.control().snapshot().outstanding == 1);
    for framing in ["Content-Length: 100000000", "Transfer-Encoding: chunked"] {
        let mut client = stage.client();
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n1\r\nx\r\n"));
        wait_until("it waits", || stage.waiting() == 1);
        assert_eq!(client.answer().status, 408, "{framing}");
        assert!(matches!(stage.record().ending, Ending::Refused(_)), "{framing}");
    }
    // A request without a byte of its body does not even wait.
    assert_eq!(stage.exchange("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").status, 408);
    let record = stage.record();
    assert_eq!((record.queue_wait, record.status), (std::time::Duration::ZERO, 408));
}

/// A byte now and then is progress, but not fast enough.
#[test]
fn a_body_that_comes_too_slowly_is_a_408() {
    // A node that reads and never answers.
    let node = Node::raw(|_, mut stream| {
        while stream.read(&mut [0; 4096])? > 0 {}
        Ok(())
    });
    let rest = format!("{}timeouts: {{ body: 200ms, body_rate: 1MiB }}\n", class_with("body_progress: 10s"));
    let stage = Stage::open(&policy(&[&node], &rest));
    for (framing, piece) in [
        ("Content-Length: 1000", "x"),
        ("Content-Length: 100000000", "x"),
        ("Transfer-Encoding: chunked", "1\r\nx\r\n"),
        ("Transfer-Encoding: chunked\r\nExpect: 100-continue", "1\r\nx\r\n"),
    ] {
        let mut client = stage.client();
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        if framing.contains("Expect") {
            assert_eq!(client.answer().status, 100);
        }
        client.stream().set_nonblocking(true).expect("a socket");
        wait_until("the gateway answers", || {
            // The gateway may have closed its side already.
            let _ = client.stream().write(piece.as_bytes());
            client.stream().peek(&mut [0]).is_ok()
        });
        client.stream().set_nonblocking(false).expect("a socket");
        assert_eq!(client.answer().status, 408, "{framing}");
        assert!(matches!(stage.record().ending, Ending::Refused(_)), "{framing}");
    }
    assert!(stage.is_empty());
}

#[test]
fn a_silent_node_is_a_504() {
    let (node, stage) = Stage::of(Node::scripted(), &class_with("first_byte: 100ms"));
    let mut client = stage.client();
    let answer = client.ask("/");
    assert_eq!(answer.status, 504);
    assert_eq!(answer.header("proxy-status").as_deref(), Some("weirgate; error=http_response_timeout"));
    assert_eq!(stage.record().ending, Ending::Failed("http_response_timeout"));
    assert!(stage.is_empty());
    // The connection is not reused.
    let first = node.call();
    client.get("/");
    let second = node.call();
    assert_ne!(first.connection, second.connection);
}

#[test]
fn a_node_that_stops_in_the_middle_is_cut_off() {
    let (node, stage) = Stage::of(Node::scripted(), &class_with("body_progress: 100ms"));
    let mut client = stage.client();
    client.get("/");
    let call = node.call();
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    let all = client.rest();
    assert!(all.ends_with(b"abc"));
    assert_eq!(stage.record().ending, Ending::Failed("http_response_timeout"));
    wait_until("the slot is free", || stage.is_empty());
}

#[test]
fn the_whole_must_end_in_time_however_it_trickles() {
    let node = Node::raw(|_, mut stream| {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            stream.write_all(b"x")?;
            std::thread::yield_now();
        }
    });
    let stage = Stage::open(&policy(&[&node], &class_with("total: 200ms")));
    let mut client = stage.client();
    client.get("/");
    assert!(client.rest().starts_with(b"HTTP/1.1 200"));
    assert_eq!(stage.record().ending, Ending::Failed("http_response_timeout"));
    wait_until("the slot is free", || stage.is_empty());
}

#[test]
fn a_client_that_stops_sending_gets_a_408() {
    let (_node, stage) = Stage::of(Node::scripted(), &class_with("body_progress: 100ms"));
    // Before the request is admitted (a small body) and while it is forwarded (a large body).
    for length in [10, 1_000_000] {
        let answer = stage.exchange(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nabc"));
        assert_eq!((answer.status, answer.header("connection").as_deref()), (408, Some("close")), "{length}");
        assert!(matches!(stage.record().ending, Ending::Refused(_)));
        wait_until("the slot is free", || stage.is_empty());
    }
    assert_eq!(stage.gateway.control().snapshot().nodes[0].failed, 0);
}

#[test]
fn a_client_that_stops_reading_is_cut_off() {
    let (_node, stage) =
        Stage::of(Node::replying(|_, _| ok(&"x".repeat(32 * 1024 * 1024))), &class_with("body_progress: 200ms"));
    let mut client = stage.client();
    client.get("/");
    let record = stage.record();
    assert_eq!((record.ending, record.status), (Ending::Left, 200));
    wait_until("the slot is free", || stage.is_empty());
    assert_eq!(stage.gateway.control().snapshot().nodes[0].failed, 0);
}
