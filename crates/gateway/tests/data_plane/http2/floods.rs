//! Floods: each ends the connection, with a bound on the streams that it could begin, and harms no other client.

use std::sync::atomic::Ordering;

use super::wire::{
    CALM, CONTINUATION, DATA, END_STREAM, HEADERS, PADDED, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, Wire,
    field, frame, pseudo,
};
use crate::stage::{Node, PLAIN, Stage, ok, policy, wait_until, windowed};

/// Frames without content that the policy of these tests admits at once.
const BUDGET: usize = 50;

/// Writes `round` after `round` until the gateway ends the connection. Returns the number of rounds and the error code.
fn flood(stage: &Stage, before: &[u8], mut round: impl FnMut(u32) -> Vec<u8>) -> (usize, Option<u32>) {
    let mut wire = Wire::connect(stage.address(), b"");
    wire.write(before);
    let mut rounds = 0;
    // Each round is smaller than a kilobyte, so the kernel's buffers take them all.
    while rounds < 20 * BUDGET && wire.write(&round(rounds as u32)) {
        rounds += 1;
    }
    (rounds, wire.ends_with())
}

fn stage(node: &Node) -> Stage {
    let rest = format!("{}limits: {{ http2_overhead_frames: {BUDGET}, http2_streams: 20 }}\n", windowed(10));
    Stage::open(&policy(&[node], &rest))
}

/// After a flood: it is counted, its requests are gone, and another client is served.
fn survives(stage: &Stage) {
    wait_until("it is counted", || stage.gateway.counters().http2_floods.load(Ordering::Relaxed) == 1);
    wait_until("its requests are gone", || stage.is_empty());
    wait_until("it is closed", || stage.gateway.counters().open.load(Ordering::Relaxed) == 0);
    let mut wire = Wire::connect(stage.address(), b"");
    wire.get(1, "/");
    assert_eq!(wire.until(DATA).payload, b"x");
}

#[test]
fn frames_without_content() {
    let node = Node::answering(ok("x"));
    let post = frame(HEADERS, 4, 1, &pseudo("POST", "/"));
    type Case = (&'static str, Vec<u8>, Vec<u8>);
    let cases: Vec<Case> = vec![
        ("settings", vec![], frame(SETTINGS, 0, 0, b"")),
        ("pings", vec![], frame(PING, 0, 0, b"12345678")),
        ("priorities", vec![], frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 9])),
        ("unknown frames", vec![], frame(200, 0, 0, b"x")),
        // RFC 9218 Sec. 7.1
        ("PRIORITY_UPDATE", vec![], frame(16, 0, 0, b"\0\0\0\x01u=0")),
        ("window updates", vec![], frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("empty DATA", post.clone(), frame(DATA, 0, 1, b"")),
        ("padding alone", post.clone(), frame(DATA, PADDED, 1, &[3, 0, 0, 0])),
        ("empty CONTINUATION", frame(HEADERS, 0, 1, &pseudo("GET", "/")), frame(CONTINUATION, 0, 1, b"")),
    ];
    for (name, before, round) in cases {
        let stage = stage(&node);
        let (_, code) = flood(&stage, &before, |_| round.clone());
        assert_eq!(code, Some(CALM), "{name}");
        survives(&stage);
    }
}

#[test]
fn rapid_resets() {
    let node = Node::answering(ok("x"));
    let stage = stage(&node);
    let (_, code) = flood(&stage, b"", |n| {
        let stream = 2 * n + 1;
        [frame(HEADERS, 5, stream, &pseudo("GET", "/")), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    });
    assert_eq!(code, Some(CALM));
    survives(&stage);
    // One more may have begun before the turn in which the budget was found to be used up ended.
    let begun = stage.gateway.counters().http2_requests.load(Ordering::Relaxed);
    assert!(begun <= BUDGET as u64 + 2, "{begun} requests");
}

#[test]
fn resets_that_the_gateway_is_made_to_send() {
    let node = Node::answering(ok("x"));
    type Trick = (&'static str, fn(u32) -> Vec<u8>);
    let tricks: [Trick; 4] = [
        ("a window update of zero", |stream| frame(WINDOW_UPDATE, 0, stream, &[0; 4])),
        ("a window past its maximum", |stream| frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])),
        ("DATA after the end", |stream| frame(DATA, END_STREAM, stream, b"x")),
        ("a priority on itself", |stream| frame(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[1]].concat())),
    ];
    for (name, trick) in tricks {
        let stage = stage(&node);
        let (_, code) =
            flood(&stage, b"", |n| [frame(HEADERS, 5, 2 * n + 1, &pseudo("GET", "/")), trick(2 * n + 1)].concat());
        // The library ends the connection for some of them, as for any fault of the whole connection.
        assert!(code.is_some(), "{name}");
        wait_until("its requests are gone", || stage.is_empty());
        let begun = stage.gateway.counters().http2_requests.load(Ordering::Relaxed);
        assert!(begun <= 2 * BUDGET as u64, "{name}: {begun} requests");
    }
}

#[test]
fn streams_past_the_limit() {
    let node = Node::scripted();
    let stage = stage(&node);
    let (_, code) = flood(&stage, b"", |n| frame(HEADERS, 5, 2 * n + 1, &pseudo("GET", "/")));
    assert_eq!(code, Some(CALM));
    assert!(stage.gateway.counters().http2_requests.load(Ordering::Relaxed) <= 20);
    wait_until("its requests are gone", || stage.is_empty());
}

#[test]
fn heads_without_an_end_and_bombs() {
    let (node, stage) =
        Stage::of(Node::answering(ok("x")), &format!("{PLAIN}limits: {{ head_bytes: 4KiB, headers: 20 }}\n"));
    // A head that never ends.
    let (rounds, code) = flood(&stage, &frame(HEADERS, 0, 1, &pseudo("GET", "/")), |n| {
        frame(CONTINUATION, 0, 1, &field(&format!("x{n}"), &"y".repeat(900)))
    });
    assert!(code.is_some() && rounds <= 1000, "{code:?}");
    // One entry of the table, named again and again: 4,000 bytes for each byte.
    let mut bomb = pseudo("GET", "/");
    bomb.push(0x40);
    bomb.extend(&field("bomb", &"y".repeat(3500))[1..]);
    bomb.extend([0xbe; 4000]);
    let mut wire = Wire::connect(stage.address(), b"");
    wire.request(1, END_STREAM, &bomb);
    // Either an answer of 431 or the end of the connection. In no case does it reach a node.
    loop {
        match wire.next() {
            None => break,
            Some(frame) if frame.kind == HEADERS => break,
            Some(_) => {}
        }
    }
    assert!(node.has_no_call());
}

#[test]
fn pings_and_updates_that_answer_a_response_are_free() {
    let node = Node::answering(ok("x"));
    let stage = stage(&node);
    let mut wire = Wire::connect(stage.address(), b"");
    for n in 0..10 * BUDGET as u32 {
        wire.get(2 * n + 1, "/");
        assert_eq!(wire.until(DATA).payload, b"x");
        wire.send(PING, 0, 0, b"12345678");
        wire.send(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        wire.send(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    }
    assert_eq!(stage.gateway.counters().http2_floods.load(Ordering::Relaxed), 0);
}
