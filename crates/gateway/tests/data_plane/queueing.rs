//! Waiting requests are released in turn, shed with a reason, or removed at once when their client leaves.

use weirgate_engine::ShedReason;
use weirgate_gateway::Ending;

use crate::stage::{Node, Stage, ok, policy, wait_until, windowed};

#[test]
fn a_request_waits_until_the_one_inside_is_done() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let (mut first, mut second) = (stage.client(), stage.client());
    first.get("/first");
    let call = node.call();
    second.get("/second");
    wait_until("the second waits", || stage.waiting() == 1);
    assert!(node.has_no_call());
    call.ok("1");
    let call = node.call();
    assert_eq!(call.line(), "GET /second HTTP/1.1");
    call.ok("2");
    assert_eq!((first.answer().text(), second.answer().text()), ("1".into(), "2".into()));
    stage.record();
    let record = stage.record();
    assert!(!record.queue_wait.is_zero() && record.total >= record.queue_wait + record.service_time);
}

#[test]
fn requests_on_all_threads_are_released() {
    let (_node, stage) =
        Stage::of(Node::replying(|head, _| ok(head.split(' ').nth(1).unwrap_or_default())), &windowed(2));
    let mut clients: Vec<_> = (0..60).map(|_| stage.client()).collect();
    for round in 0..5 {
        for (i, client) in clients.iter_mut().enumerate() {
            client.get(&format!("/{round}/{i}"));
        }
        for (i, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.answer().text(), format!("/{round}/{i}"));
        }
    }
    wait_until("all slots are free", || stage.is_empty());
}

#[test]
fn a_client_that_leaves_frees_its_place_at_once() {
    // The client may leave in any way and may have sent anything: nothing more, part of a body, the first byte after
    // 100 Continue, or a second request after the first.
    let requests = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc".to_owned(),
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(50_000)),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\nx".to_owned(),
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    ];
    for orderly in [true, false] {
        let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
        let mut in_flight = stage.client();
        in_flight.get("/in-flight");
        let call = node.call();
        for request in &requests {
            let mut client = stage.client();
            client.send(request);
            wait_until("it waits", || stage.waiting() == 1);
            if orderly {
                drop(client);
            } else {
                client.reset();
            }
            wait_until("its place is free", || stage.waiting() == 0);
            let record = stage.record();
            assert_eq!((record.ending, record.status), (Ending::Left, 0));
        }
        call.ok("");
        assert_eq!(in_flight.answer().status, 200);
        assert!(node.has_no_call());
        wait_until("all slots are free", || stage.is_empty());
    }
}

#[test]
fn a_client_that_leaves_while_inside_frees_its_slot() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let mut first = stage.client();
    first.get("/first");
    let call = node.call();
    drop(first);
    wait_until("its slot is free", || stage.is_empty());
    assert_eq!(stage.record().ending, Ending::Left);
    let mut second = stage.client();
    second.get("/second");
    node.call().ok("2");
    assert_eq!(second.answer().text(), "2");
    drop(call);
}

#[test]
fn what_is_shed_is_told_why_and_when_to_come_back() {
    let rest = "classes: [{ name: all, queue: { max_waiting: 1 }, shed: { status: 429, body: \"later\\n\", content_type: text/x-sorry } }]\n\
                discipline: { custom: { admit: none, load_control: { fixed: 1 }, precedence: fifo } }\n";
    let (node, stage) = Stage::of(Node::scripted(), rest);
    let (mut in_flight, mut queued, mut shed) = (stage.client(), stage.client(), stage.client());
    in_flight.get("/");
    let call = node.call();
    queued.get("/");
    wait_until("one waits", || stage.waiting() == 1);
    let answer = shed.ask("/");
    assert_eq!((answer.status, answer.text().as_str()), (429, "later\n"));
    assert_eq!(answer.header("content-type").as_deref(), Some("text/x-sorry"));
    assert!(answer.header("retry-after").is_some_and(|s| s.parse::<u32>().is_ok_and(|s| s >= 1)));
    assert_eq!(
        answer.header("proxy-status").as_deref(),
        Some("weirgate; error=connection_limit_reached; details=\"queue_full\"")
    );
    let record = stage.record();
    assert_eq!((record.ending, record.status), (Ending::Shed(ShedReason::QueueFull), 429));
    // The connection and the gateway continue to work.
    call.ok("");
    node.call().ok("");
    assert_eq!((in_flight.answer().status, queued.answer().status), (200, 200));
    shed.get("/");
    node.call().ok("");
    assert_eq!(shed.answer().status, 200);
}

#[test]
fn what_waits_too_long_is_shed() {
    let rest = "classes: [{ name: all, queue: { max_wait: 50ms } }]\n\
                discipline: { custom: { admit: none, load_control: { fixed: 1 }, precedence: fifo } }\n";
    let (node, stage) = Stage::of(Node::scripted(), rest);
    let (mut in_flight, mut queued) = (stage.client(), stage.client());
    in_flight.get("/");
    let call = node.call();
    let answer = queued.ask("/");
    assert_eq!(answer.status, 503);
    assert!(answer.header("proxy-status").is_some_and(|s| s.contains("queue_timeout")));
    assert_eq!(stage.record().ending, Ending::Shed(ShedReason::QueueTimeout));
    call.ok("");
}

#[test]
fn a_slow_reader_does_not_hold_its_slot() {
    // More than the sockets hold, and less than a request's buffer.
    const SIZE: usize = 24 * 1024 * 1024;
    let rest = format!("{}limits: {{ buffer_per_request: 64MiB, buffer_total: 64MiB }}\n", windowed(1));
    let node = Node::replying(|head, _| if head.contains("/big") { ok(&"x".repeat(SIZE)) } else { ok("small") });
    let stage = Stage::open(&policy(&[&node], &rest));
    let mut slow = stage.client();
    slow.get("/big");
    wait_until("the node has sent all", || node.calls().len() == 1);
    wait_until("the slot is free", || stage.is_empty());
    assert!(stage.gateway.counters().buffered_bytes.load(std::sync::atomic::Ordering::Relaxed) > 0);
    assert_eq!(stage.ask("/small").text(), "small");
    assert_eq!(slow.answer().body.len(), SIZE);
    wait_until("nothing is buffered", || {
        stage.gateway.counters().buffered_bytes.load(std::sync::atomic::Ordering::Relaxed) == 0
    });
}

#[test]
fn past_its_buffer_the_node_has_to_wait() {
    // More than the kernel buffers for a client that reads nothing.
    const SIZE: usize = 24 * 1024 * 1024;
    let rest = format!("{}limits: {{ buffer_per_request: 64KiB }}\n", windowed(1));
    let (_node, stage) = Stage::of(Node::replying(|_, _| ok(&"x".repeat(SIZE))), &rest);
    let mut slow = stage.client();
    slow.get("/");
    let buffered = || stage.gateway.counters().buffered_bytes.load(std::sync::atomic::Ordering::Relaxed);
    wait_until("the buffer is full", || buffered() >= 64 * 1024);
    assert!(!stage.is_empty());
    // One read may exceed the limit, and no more than one.
    assert!(buffered() <= 192 * 1024, "{}", buffered());
    assert_eq!(slow.answer().body.len(), SIZE);
    wait_until("the slot is free", || stage.is_empty() && buffered() == 0);
    assert_eq!(stage.record().ending, Ending::Served);
}

/// A client that reads nothing of a large response costs a connection to the node, and no slot.
#[test]
fn a_stalled_response_gives_its_slot_back() {
    const SIZE: usize = 24 * 1024 * 1024;
    let node = Node::replying(|head, _| if head.contains("/big") { ok(&"x".repeat(SIZE)) } else { ok("small") });
    let rest = format!("{}limits: {{ buffer_per_request: 64KiB }}\n", windowed(1));
    let policy = policy(&[&node], &rest).replace("nodes:", "stalled_responses: 2, nodes:");
    let stage = Stage::open(&policy);
    let mut slow: Vec<_> = (0..2).map(|_| stage.client()).collect();
    for (client, stalled) in slow.iter_mut().zip(1..) {
        client.get("/big");
        wait_until("the response is stalled", || stage.gateway.stalled_responses() == stalled);
        wait_until("the slot is free", || stage.is_empty());
    }
    // There is no place for a third one, so the next request waits until it has ended.
    let (mut third, mut quick) = (stage.client(), stage.client());
    third.get("/big");
    wait_until("the third has the slot", || !stage.is_empty());
    quick.get("/small");
    assert_eq!(third.answer().body.len(), SIZE);
    assert_eq!(quick.answer().text(), "small");
    for client in &mut slow {
        assert_eq!(client.answer().body.len(), SIZE);
    }
    wait_until("nothing is stalled", || stage.gateway.stalled_responses() == 0);
    let all: Vec<_> = (0..4).map(|_| stage.record()).collect();
    assert!(all.iter().all(|record| record.ending == Ending::Served), "{all:?}");
}

#[test]
fn a_slow_sender_holds_no_slot() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let mut slow = stage.client();
    slow.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    let mut quick = stage.client();
    quick.get("/quick");
    let call = node.call();
    assert_eq!(call.line(), "GET /quick HTTP/1.1");
    call.ok("");
    assert_eq!(quick.answer().status, 200);
    slow.send("def");
    let call = node.call();
    assert_eq!((call.line(), call.body.as_slice()), ("POST /slow HTTP/1.1", b"abcdef".as_slice()));
    call.ok("");
    assert_eq!(slow.answer().status, 200);
}
