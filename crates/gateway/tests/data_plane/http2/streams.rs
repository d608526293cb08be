//! Streams: each is queued on its own, and none holds others or a slot.

use bytes::Bytes;
use weirgate_gateway::Ending;

use super::wire::{DATA, END_STREAM, HEADERS, RST_STREAM, WINDOW_UPDATE, Wire, pseudo};
use super::{Client, get, request};
use crate::stage::{Node, PLAIN, Stage, ok, policy, wait_until, windowed};

#[test]
fn each_stream_waits_on_its_own() {
    let rest = "classes:\n  - { name: a, match: { path: /a } }\n  - { name: b }\n\
                discipline: { custom: { admit: none, load_control: { fixed: 2 }, precedence: fifo } }\n";
    let (node, stage) = Stage::of(Node::scripted(), rest);
    let mut client = Client::connect(stage.address());
    let (a, _) = client.begin(get("/a"), true);
    let first = node.call();
    let (b, _) = client.begin(get("/b"), true);
    let second = node.call();
    let (c, mut waiting) = client.begin(get("/a"), true);
    wait_until("one waits", || stage.waiting() == 1);
    // The last one to come is answered first, and a waiting one that is cancelled leaves the queue.
    second.ok("b");
    assert_eq!(client.finish(b).expect("a response").text(), "b");
    let third = node.call();
    let (_d, mut cancelled) = client.begin(get("/b"), true);
    wait_until("one waits", || stage.waiting() == 1);
    cancelled.send_reset(h2::Reason::CANCEL);
    wait_until("none waits", || stage.waiting() == 0);
    // One in flight gives its slot back.
    waiting.send_reset(h2::Reason::CANCEL);
    drop(c);
    wait_until("one is in flight", || stage.gateway.control().snapshot().outstanding == 1);
    drop(third);
    first.ok("a");
    assert_eq!(client.finish(a).expect("a response").text(), "a");
    let mut records: Vec<_> = (0..4).map(|_| stage.record()).collect();
    records.sort_by_key(|record| record.status);
    assert_eq!(records.iter().map(|r| r.ending).filter(|e| *e == Ending::Left).count(), 2);
    assert_eq!(records.iter().filter(|r| r.class == "a").count(), 2);
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn the_window_opens_by_the_bytes_that_were_passed_on() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let mut holder = stage.client();
    holder.get("/first");
    let first = node.call();
    let mut wire = Wire::connect(stage.address(), b"");
    wire.request(1, 0, &pseudo("POST", "/body"));
    for _ in 0..4 {
        wire.send(DATA, 0, 1, &[b'x'; 16 * 1024]);
    }
    wait_until("it waits", || stage.waiting() == 1);
    // A stream with a used up window does not hold back another stream of the connection.
    wire.request(3, 0, &pseudo("POST", "/other"));
    wire.send(DATA, 0, 3, &[b'y'; 16 * 1024]);
    wait_until("both wait", || stage.waiting() == 2);
    wire.settle_without(|frame| frame.kind == WINDOW_UPDATE && frame.stream != 0);
    first.ok("x");
    assert_eq!(holder.answer().text(), "x");
    let opened = wire.until_stream(WINDOW_UPDATE, 1);
    assert!(opened.number() >= 32 * 1024, "{opened:?}");
    wire.send(DATA, END_STREAM, 1, b"end");
    let call = node.call();
    assert_eq!(call.body.len(), 64 * 1024 + 3);
    call.ok("1");
    wire.send(DATA, END_STREAM, 3, b"");
    node.call().ok("3");
    assert_eq!(wire.until_stream(HEADERS, 3).stream, 3);
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn a_slow_body_holds_no_slot() {
    let rest = format!("{}timeouts: {{ body: 1s }}\n", windowed(1));
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &rest);
    let mut client = Client::connect(stage.address());
    let head = request("POST", "/").header("content-length", 10).body(()).expect("it is sound");
    let (slow, mut send) = client.begin(head, false);
    send.send_data(Bytes::from("x"), false).expect("it is open");
    assert_eq!(client.get("/").expect("a response").text(), "x");
    assert_eq!(client.finish(slow).expect("a response").head.status(), 408);
}

#[test]
fn a_client_that_does_not_read_holds_no_slot_and_no_other_stream() {
    let body = "x".repeat(300_000);
    let rest = windowed(1).replace("name: all", "name: all, timeouts: { body_progress: 1s }");
    let node = Node::replying(move |head, _| ok(if head.starts_with("GET /large") { &body } else { "small" }));
    let stage = Stage::open(&policy(&[&node], &rest));
    // The window of each stream is 10 bytes.
    let mut wire = Wire::connect(stage.address(), &[0, 4, 0, 0, 0, 10]);
    wire.get(1, "/large");
    assert_eq!(wire.until(DATA).payload.len(), 10);
    wait_until("the slot is free", || stage.is_empty());
    wire.get(3, "/small");
    assert_eq!(wire.until_stream(DATA, 3).payload, b"small");
    let record = stage.record();
    assert_eq!((record.ending, record.path.as_str()), (Ending::Served, "/small"));
    // The stream that stands still is ended.
    let reset = wire.until(RST_STREAM);
    assert_eq!((reset.stream, reset.number()), (1, 8));
    assert_eq!(stage.record().ending, Ending::Left);
    assert_eq!(stage.gateway.counters().buffered_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn streams_past_the_limit_are_refused() {
    let rest = format!("{PLAIN}limits: {{ http2_streams: 2 }}\n");
    let (node, stage) = Stage::of(Node::scripted(), &rest);
    let mut wire = Wire::connect(stage.address(), b"");
    for stream in [1, 3, 5] {
        wire.get(stream, "/");
    }
    let refused = wire.until(RST_STREAM);
    assert_eq!((refused.stream, refused.number()), (5, 7));
    let calls = [node.call(), node.call()];
    for call in calls {
        call.ok("x");
    }
    assert_eq!(wire.until(DATA).payload, b"x");
    assert_eq!(wire.until(DATA).payload, b"x");
    wire.get(7, "/");
    node.call().ok("y");
    assert_eq!(wire.until(DATA).payload, b"y");
}

#[test]
fn a_client_that_leaves_takes_its_requests_along() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let mut wire = Wire::connect(stage.address(), b"");
    for stream in [1, 3, 5] {
        wire.get(stream, "/");
    }
    let _call = node.call();
    wait_until("two wait", || stage.waiting() == 2);
    drop(wire);
    wait_until("all are gone", || stage.is_empty());
    for _ in 0..3 {
        assert_eq!(stage.record().ending, Ending::Left);
    }
}
