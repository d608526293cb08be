//! Bodies in both directions: sizes, expectations, trailers.

use std::io::{Read, Write};

use weirgate_gateway::Ending;

use crate::stage::{Node, PLAIN, Stage, chunked, ok, policy, wait_until};

#[test]
fn large_bodies_pass_both_ways() {
    let (_node, stage) = Stage::of(Node::replying(|_, body| ok(&String::from_utf8_lossy(body))), PLAIN);
    let mut client = stage.client();
    let body: String = (0..2_000_000).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    assert!(client.answer().text() == body);
    let record = stage.record();
    assert_eq!((record.bytes_in, record.bytes_out), (body.len() as u64, body.len() as u64));
    // The same body in chunks, on the same connection.
    let chunks = chunked(body.as_bytes(), |_| (70_001, ""));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(client.exchange(chunks).text() == body);
}

#[test]
fn a_long_response_in_chunks_of_any_size_arrives_whole() {
    let body: Vec<u8> = (0..1_500_000_u32).map(|i| b'a' + (i % 26) as u8).collect();
    // Apache flushes 8 KB at a time. The others make pieces that are copied, that are sent from where they are, and
    // that end at any place of a read.
    for sizes in [&[8192][..], &[1], &[8192, 8184, 54], &[4096, 4097], &[3, 70_000, 8192, 1, 65_536, 5000]] {
        let mut turn = sizes.iter().cycle();
        let chunks = chunked(&body, |_| (*turn.next().expect("it never ends"), ""));
        let answer = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunks.as_slice()].concat();
        let (_node, stage) = Stage::of(Node::replying(move |_, _| answer.clone()), PLAIN);
        // An old client gets the bytes without chunks.
        for protocol in ["1.1", "1.0"] {
            let answer = stage.exchange(format!("GET / HTTP/{protocol}\r\nHost: a\r\n\r\n"));
            assert!(answer.body == body, "HTTP/{protocol}, {sizes:?}: {} bytes arrived", answer.body.len());
            let record = stage.record();
            assert_eq!((record.ending, record.bytes_out), (Ending::Served, body.len() as u64), "{protocol} {sizes:?}");
        }
    }
}

#[test]
fn too_large_a_body_is_refused() {
    let (node, stage) = Stage::of(Node::scripted(), &format!("{PLAIN}limits: {{ body_bytes: 100KiB }}\n"));
    assert_eq!(stage.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 102401\r\n\r\n").status, 413);
    assert!(node.has_no_call());
    // Without a declared length, the size is found out while the body arrives.
    let mut client = stage.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..2 {
        client.send(format!("10000\r\n{}\r\n", "x".repeat(0x10000)));
    }
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection").as_deref()), (413, Some("close")));
    wait_until("the slot is free", || stage.is_empty());
    assert!(matches!(stage.record().ending, Ending::Refused(_)));
}

/// The head of a request whose client waits for a 100.
const EXPECTS: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

#[test]
fn a_body_is_asked_for_before_the_request_holds_a_slot() {
    let (node, stage) = Stage::of(Node::scripted(), &crate::stage::windowed(1));
    let mut client = stage.client();
    assert_eq!(client.exchange(EXPECTS).status, 100);
    assert!(stage.is_empty(), "it holds no slot and no place in the queue");
    let mut in_flight = stage.client();
    in_flight.get("/");
    let call = node.call();
    client.send("hello");
    wait_until("it waits", || stage.waiting() == 1);
    call.ok("");
    let call = node.call();
    assert_eq!((call.header("expect"), call.body.as_slice()), (None, b"hello".as_slice()));
    call.ok("done");
    assert_eq!(client.answer().text(), "done");
    // A client that has sent its body needs no permission.
    client.send(format!("{EXPECTS}hello"));
    node.call().ok("again");
    assert_eq!(client.answer().text(), "again");
}

#[test]
fn what_is_refused_is_not_asked_for() {
    let (_node, stage) = Stage::of(Node::absent(), &format!("{PLAIN}limits: {{ body_bytes: 4B }}\n"));
    for (head, status) in [
        (EXPECTS.to_owned(), 413),
        (EXPECTS.replace("th: 5", "th: 3").replace("PUT / ", "PUT /../ "), 400),
        (EXPECTS.replace("th: 5", "th: 3").replace("100-continue", "more"), 417),
    ] {
        assert_eq!(stage.exchange(head).status, status);
    }
}

#[test]
fn trailers_pass_both_ways() {
    let (node, stage) = Stage::of(Node::scripted(), PLAIN);
    let mut client = stage.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    );
    let call = node.call();
    assert_eq!(String::from_utf8_lossy(&call.body), "helloX-Sum: 1\n");
    assert_eq!(call.header("te").as_deref(), Some("trailers"));
    call.reply(
        "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 2\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "abcX-Sum: 2\n");
}

#[test]
fn bytes_flow_before_either_side_is_done() {
    // The node answers each piece as it arrives.
    let node = Node::raw(|_, mut stream| {
        let mut all = Vec::new();
        let mut chunk = [0; 4096];
        while !all.ends_with(b"ping\r\n") {
            let read = stream.read(&mut chunk)?;
            all.extend_from_slice(&chunk[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npong\r\n")?;
        while !all.ends_with(b"0\r\n\r\n") {
            let read = stream.read(&mut chunk)?;
            all.extend_from_slice(&chunk[..read]);
        }
        stream.write_all(b"3\r\nend\r\n0\r\n\r\n")
    });
    let stage = Stage::open(&policy(&[&node], PLAIN));
    let mut client = stage.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nping\r\n");
    let mut got = Vec::new();
    let mut byte = [0; 256];
    while !got.ends_with(b"pong\r\n") {
        let read = client.stream().read(&mut byte).expect("a connection");
        got.extend_from_slice(&byte[..read]);
    }
    client.send("0\r\n\r\n");
    while !got.ends_with(b"0\r\n\r\n") {
        let read = client.stream().read(&mut byte).expect("a connection");
        assert_ne!(read, 0);
        got.extend_from_slice(&byte[..read]);
    }
    assert!(got.windows(3).any(|w| w == b"end"));
    assert_eq!(stage.record().ending, Ending::Served);
}

#[test]
fn an_early_answer_ends_the_upload() {
    let node = Node::raw(|_, mut stream| {
        let mut chunk = [0; 1024];
        let _ = stream.read(&mut chunk)?;
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")?;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest)?;
        Ok(())
    });
    let stage = Stage::open(&policy(&[&node], PLAIN));
    let mut client = stage.client();
    let answer = client.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc");
    assert_eq!((answer.status, answer.text().as_str()), (403, "no"));
    assert!(client.is_closed());
    wait_until("the slot is free", || stage.is_empty());
}
