//! Changes of protocol: tunnels hold no slot.

use std::io::{Read, Write as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

use weirgate_gateway::Ending;

use crate::stage::{Call, Client, Node, Stage, ok, wait_until, windowed};

const ASK: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const GRANT: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Accept: y\r\n\r\n";

/// Opens a tunnel. Returns its two ends.
fn open(node: &Node, stage: &Stage, path: &str) -> (Client, Call) {
    let mut client = stage.client();
    client.send(ASK.replace("/chat", path));
    let call = node.call();
    call.write(GRANT);
    assert_eq!(client.head_answer().status, 101);
    (client, call)
}

#[test]
fn a_tunnel_carries_bytes_and_holds_no_slot() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let mut client = stage.client();
    // Bytes of the new protocol that follow the request directly are kept for the tunnel.
    client.send(format!("{ASK}first"));
    let call = node.call();
    assert_eq!(
        (call.header("upgrade").as_deref(), call.header("connection").as_deref()),
        (Some("websocket"), Some("upgrade"))
    );
    call.write(format!("{GRANT}hello"));
    let answer = client.head_answer();
    assert_eq!(answer.status, 101);
    assert_eq!(
        (answer.header("upgrade").as_deref(), answer.header("x-accept").as_deref()),
        (Some("websocket"), Some("y"))
    );
    wait_until("the slot is free", || stage.is_empty());
    let mut other = stage.client();
    other.get("/other");
    node.call().ok("");
    assert_eq!(other.answer().status, 200);
    // Both directions work, at the same time as requests.
    let mut got = [0; 5];
    (&call.stream).read_exact(&mut got).expect("the tunnel");
    assert_eq!(&got, b"first");
    client.send("ping!");
    (&call.stream).read_exact(&mut got).expect("the tunnel");
    assert_eq!(&got, b"ping!");
    call.write("pong!");
    call.stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    assert_eq!(client.rest(), b"hellopong!");
    drop((client, call));
    let mut records = [stage.record(), stage.record()];
    records.sort_by_key(|r| r.status);
    let [record, other] = &records;
    assert_eq!((other.ending, other.status), (Ending::Served, 200));
    assert_eq!((record.ending, record.status), (Ending::Tunnelled, 101));
    assert_eq!((record.bytes_in, record.bytes_out), (10, 10));
}

#[test]
fn a_declined_change_leaves_a_connection_that_works() {
    let (_node, stage) =
        Stage::of(Node::replying(|head, _| ok(head.split(' ').nth(1).unwrap_or_default())), &windowed(1));
    let mut client = stage.client();
    assert_eq!(client.exchange(format!("{ASK}GET /behind HTTP/1.1\r\nHost: a\r\n\r\n")).text(), "/chat");
    assert_eq!(client.answer().text(), "/behind");
    assert_eq!(client.ask("/later").text(), "/later");
}

#[test]
fn an_unasked_change_and_h2c_are_not_passed_on() {
    let (node, stage) = Stage::of(Node::scripted(), &windowed(1));
    let mut client = stage.client();
    client.get("/");
    node.call().reply(GRANT);
    let answer = client.answer();
    assert_eq!(answer.status, 502);
    assert_eq!(answer.header("proxy-status").as_deref(), Some("weirgate; error=http_upgrade_failed"));
    let mut client = stage.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n",
    );
    let call = node.call();
    assert_eq!((call.header("upgrade"), call.header("connection"), call.header("http2-settings")), (None, None, None));
    call.ok("plain");
    assert_eq!(client.answer().text(), "plain");
}

#[test]
fn a_silent_tunnel_is_closed() {
    let rest = "discipline: none\nclasses: [{ name: all, tunnels: { idle: 100ms } }]\n";
    let (node, stage) = Stage::of(Node::scripted(), rest);
    let (mut client, _call) = open(&node, &stage, "/chat");
    assert!(client.is_closed());
    assert_eq!(stage.record().ending, Ending::Tunnelled);
    let counters = stage.gateway.counters();
    assert_eq!(counters.tunnels_timed_out.load(Ordering::Relaxed), 1);
    assert_eq!(counters.tunnels.load(Ordering::Relaxed), 1);
    wait_until("its place is free", || stage.gateway.tunnels().taken() == 0);
}

#[test]
fn a_tunnel_ends_at_its_total_time_however_much_it_is_used() {
    let rest = "discipline: none\nclasses: [{ name: all, tunnels: { total: 400ms, idle: 300ms } }]\n";
    let (node, stage) = Stage::of(Node::scripted(), rest);
    let (mut client, call) = open(&node, &stage, "/chat");
    // A byte comes long before the idle time, again and again.
    let writer = std::thread::spawn(move || {
        while (&call.stream).write_all(b"x").is_ok() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    let read = client.rest();
    assert!(!read.is_empty() && read.iter().all(|byte| *byte == b'x'));
    let record = stage.record();
    assert!(record.total >= Duration::from_millis(400), "{record:?}");
    assert_eq!(stage.gateway.counters().tunnels_timed_out.load(Ordering::Relaxed), 1);
    drop(client);
    writer.join().expect("its side is closed");
}

#[test]
fn tunnels_are_bounded_in_all_and_by_class() {
    let rest = "discipline: none\nlimits: { tunnels: 2 }\nclasses:\n  - { name: chat, match: { path: /chat }, tunnels: { \
                max: 1 } }\n  - { name: all }\n";
    let (node, stage) = Stage::of(Node::scripted(), rest);
    let open = |path: &str| open(&node, &stage, path);
    let refused = |path: &str| {
        let mut client = stage.client();
        let answer = client.exchange(ASK.replace("/chat", path));
        assert_eq!(answer.status, 503);
        assert_eq!(
            answer.header("proxy-status").as_deref(),
            Some("weirgate; error=connection_limit_reached; details=\"gateway\"")
        );
        client
    };
    let chat = open("/chat");
    let mut again = refused("/chat");
    // The connection goes on, also with requests of the class.
    again.get("/chat");
    node.call().ok("a page");
    assert_eq!(again.answer().text(), "a page");
    let other = open("/other");
    refused("/other");
    let by_class = stage.gateway.tunnels().by_class().into_iter().collect::<Vec<_>>();
    assert_eq!(by_class, [("all".to_owned(), 1), ("chat".to_owned(), 1)]);
    assert_eq!(stage.gateway.counters().tunnels_refused.load(Ordering::Relaxed), 2);
    drop(chat);
    wait_until("there is room again", || stage.gateway.tunnels().taken() == 1);
    let chat = open("/chat");
    // A request that the node does not make a tunnel gives its place back.
    drop(other);
    wait_until("there is room again", || stage.gateway.tunnels().taken() == 1);
    let mut declined = stage.client();
    declined.send(ASK.replace("/chat", "/declined"));
    node.call().ok("no");
    assert_eq!(declined.answer().text(), "no");
    wait_until("its place is free", || stage.gateway.tunnels().taken() == 1);
    drop(chat);
}
