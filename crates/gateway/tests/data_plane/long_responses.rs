//! Responses that give their slot back while their body goes on: `long_responses` of a class.

use std::sync::atomic::Ordering;

use weirgate_gateway::Ending;

use crate::stage::{Call, Node, Stage, policy, wait_until, windowed};

/// A class with one slot, and `long` as its rule.
fn one_slot(node: &Node, long: &str) -> Stage {
    let rest = windowed(1).replace("{ name: all }", &format!("{{ name: all, long_responses: {long} }}"));
    Stage::open(&policy(&[node], &rest))
}

/// Sends a head and one event of a response without an end.
fn begin(call: &Call) {
    call.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
}

/// Sends another event, and the end.
fn end(call: Call) {
    call.reply("3\r\ntwo\r\n0\r\n\r\n");
}

#[test]
fn a_long_response_gives_its_slot_back_and_goes_on() {
    let node = Node::scripted();
    let stage = one_slot(&node, "{ after: 0s, max: 2 }");
    let mut streams = Vec::new();
    for open in 1..=2 {
        let mut client = stage.client();
        client.get("/events");
        let call = node.call();
        begin(&call);
        wait_until("the slot is free", || stage.is_empty() && stage.gateway.long_responses().taken() == open);
        streams.push((client, call));
    }
    let by_class: Vec<_> = stage.gateway.long_responses().by_class().into_iter().collect();
    assert_eq!(by_class, [("all".to_owned(), 2)]);

    // There is no place for a third, so it keeps the slot, and the next request waits until one of them has ended.
    let (mut third, mut quick) = (stage.client(), stage.client());
    third.get("/events");
    let held = node.call();
    begin(&held);
    let refused = || stage.gateway.counters().long_responses_refused.load(Ordering::Relaxed);
    wait_until("it asks for a place", || refused() > 0);
    quick.get("/page");
    wait_until("the page waits", || stage.waiting() == 1);
    let (mut first, call) = streams.remove(0);
    end(call);
    assert_eq!(first.answer().text(), "onetwo");
    node.call().ok("page");
    assert_eq!(quick.answer().text(), "page");

    end(held);
    assert_eq!(third.answer().text(), "onetwo");
    for (mut client, call) in streams {
        end(call);
        assert_eq!(client.answer().text(), "onetwo");
    }
    wait_until("every place is free", || stage.is_empty() && stage.gateway.long_responses().taken() == 0);
    let all: Vec<_> = (0..4).map(|_| stage.record()).collect();
    assert!(all.iter().all(|record| record.ending == Ending::Served), "{all:?}");
}

/// By default it holds its slot, and with a long `after` as well.
#[test]
fn a_response_that_is_not_long_holds_its_slot() {
    for rule in ["off", "{ after: 1h }"] {
        let node = Node::scripted();
        let stage = one_slot(&node, rule);
        let (mut client, mut other) = (stage.client(), stage.client());
        client.get("/events");
        let call = node.call();
        begin(&call);
        other.get("/page");
        wait_until("the page waits", || stage.waiting() == 1);
        end(call);
        assert_eq!(client.answer().text(), "onetwo");
        node.call().ok("page");
        assert_eq!(other.answer().text(), "page");
        assert_eq!(stage.gateway.counters().long_responses.load(Ordering::Relaxed), 0);
    }
}

/// The timeouts of the class go on without the slot, and a client that leaves frees the place.
#[test]
fn a_long_response_ends_at_its_timeouts_and_with_its_client() {
    let rest = windowed(1).replace(
        "{ name: all }",
        "{ name: all, long_responses: { after: 0s }, timeouts: { first_byte: 1s, body_progress: 300ms, total: 1s } }",
    );
    let (node, stage) = Stage::of(Node::scripted(), &rest);
    let (mut client, mut leaving) = (stage.client(), stage.client());
    client.get("/events");
    let silent = node.call();
    begin(&silent);
    wait_until("the slot is free", || stage.is_empty() && stage.gateway.long_responses().taken() == 1);
    wait_until("the silent response has ended", || stage.gateway.long_responses().taken() == 0);
    assert_eq!(stage.record().ending, Ending::Failed("http_response_timeout"));

    leaving.get("/events");
    let call = node.call();
    begin(&call);
    wait_until("it has a place", || stage.gateway.long_responses().taken() == 1);
    drop(leaving);
    wait_until("its place is free", || stage.gateway.long_responses().taken() == 0);
}
