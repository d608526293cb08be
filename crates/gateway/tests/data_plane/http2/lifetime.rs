//! Beginning and end of a connection: preface, idle time, drains.

use std::io::{ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use super::wire::{CALM, DATA, GOAWAY, HEADERS, PING, PREFACE, SETTINGS, Wire, frame, pseudo};
use super::{Client, get};
use crate::pki::{Pki, connect};
use crate::stage::{LIMIT, Node, PLAIN, Stage, ok, policy, wait_until};

#[test]
fn a_listener_can_refuse_http2() {
    let node = Node::answering(ok("x"));
    let text = policy(&[&node], PLAIN).replace("listen: 127.0.0.1:0", "listen: { address: 127.0.0.1:0, http2: false }");
    let stage = Stage::open(&text);
    let mut client = stage.client();
    client.send(PREFACE);
    assert_eq!(client.answer().status, 400);
}

#[test]
fn tls_offers_http2_where_it_is_served() {
    let (pki, node) = (Pki::new(), Node::answering(ok("over TLS")));
    for (http2, agreed) in [(true, &b"h2"[..]), (false, b"http/1.1")] {
        let certificate = pki.certificate("a", &["a.test"]);
        let listen =
            format!("listen: {{ address: 127.0.0.1:0, http2: {http2}, tls: {{ certificates: {certificate} }} }}");
        let stage = Stage::open(&policy(&[&node], PLAIN).replace("listen: 127.0.0.1:0", &listen));
        let mut config = pki.client();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut client = connect(config, stage.address(), "a.test");
        if http2 {
            let head = frame(HEADERS, 5, 1, &pseudo("GET", "/"));
            client.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b""), &head].concat()).expect("a connection");
        } else {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("a connection");
        }
        let mut received = Vec::new();
        while !received.windows(8).any(|part| part == b"over TLS") {
            let mut piece = [0; 1000];
            let bytes = client.read(&mut piece).expect("a connection");
            assert_ne!(bytes, 0, "it ends too early");
            received.extend_from_slice(&piece[..bytes]);
        }
        assert_eq!(client.conn.alpn_protocol(), Some(agreed));
        let head = node.call().head;
        assert!(head.contains("x-forwarded-proto: https\r\n"), "{head}");
    }
}

/// A broken preface gets no response of HTTP/1.1, in the clear and after a handshake that agreed on HTTP/2. A request
/// of HTTP/1.1 with a fault in its first line does.
#[test]
fn a_broken_preface_ends_the_connection() {
    const BROKEN: &[u8] = b"INVALID CONNECTION PREFACE\r\n\r\n";
    let (pki, node) = (Pki::new(), Node::answering(ok("unused")));
    let stage = Stage::open(&policy(&[&node], PLAIN));
    let mut client = TcpStream::connect(stage.address()).expect("the gateway accepts");
    client.set_read_timeout(Some(LIMIT)).expect("a socket");
    client.write_all(BROKEN).expect("a connection");
    assert!(!received(&mut client).windows(5).any(|part| part == b"HTTP/"));
    let mut client = stage.client();
    client.send(b"GET /a b HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.answer().status, 400);

    let certificate = pki.certificate("a", &["a.test"]);
    let listen = format!("listen: {{ address: 127.0.0.1:0, tls: {{ certificates: {certificate} }} }}");
    let stage = Stage::open(&policy(&[&node], PLAIN).replace("listen: 127.0.0.1:0", &listen));
    let mut config = pki.client();
    config.alpn_protocols = vec![b"h2".to_vec()];
    for broken in [BROKEN, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"] {
        let mut client = connect(config.clone(), stage.address(), "a.test");
        client.write_all(broken).expect("a connection");
        assert!(!received(&mut client).windows(5).any(|part| part == b"HTTP/"));
    }
}

/// Returns all bytes up to the end of the connection.
fn received(client: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the connection does not end"),
        // A connection that is reset has ended, too.
        _ => bytes,
    }
}

#[test]
fn a_drain_lets_requests_through() {
    let (node, stage) = Stage::of(Node::scripted(), PLAIN);
    let mut wire = Wire::connect(stage.address(), b"");
    wire.get(1, "/");
    let first = node.call();
    stage.gateway.drain();
    // The first GOAWAY still admits streams, which may be on their way. The second names the last one.
    let early = wire.until(GOAWAY);
    assert_eq!((early.number(), &early.payload[..4]), (0, &[0x7f, 0xff, 0xff, 0xff][..]));
    wire.get(3, "/");
    let second = node.call();
    let ping = wire.until_unasked(PING);
    wire.send(PING, 1, 0, &ping.payload);
    assert_eq!(wire.until(GOAWAY).payload[..4], [0, 0, 0, 3]);
    first.ok("1");
    second.ok("3");
    assert_eq!((wire.until(DATA).payload, wire.until(DATA).payload), (b"1".to_vec(), b"3".to_vec()));
    assert!(wire.next().is_none());
    stage.gateway.join();
}

#[test]
fn an_idle_connection_ends() {
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &format!("{PLAIN}timeouts: {{ idle: 1s, header: 1s }}\n"));
    let mut client = Client::connect(stage.address());
    assert_eq!(client.get("/").expect("a response").text(), "x");
    // Neither the preface alone, nor a client that answers no ping, stays for longer.
    let mut silent = stage.client();
    silent.send(PREFACE);
    let mut wire = Wire::connect(stage.address(), b"");
    assert_eq!(wire.ends_with(), Some(0));
    silent.rest();
    wait_until("all have ended", || stage.gateway.counters().open.load(Ordering::Relaxed) == 0);
    assert!(client.try_get().is_err());
}

#[test]
fn a_slow_head_ends_the_connection() {
    let (_node, stage) = Stage::of(Node::answering(ok("x")), &format!("{PLAIN}timeouts: {{ header: 1s }}\n"));
    let mut wire = Wire::connect(stage.address(), b"");
    // Without END_HEADERS.
    wire.send(HEADERS, 1, 1, &pseudo("GET", "/"));
    assert_eq!(wire.ends_with(), Some(CALM));
    wait_until("it is counted", || stage.gateway.counters().http2_floods.load(Ordering::Relaxed) == 1);
}

#[test]
fn requests_and_connections_are_counted() {
    let (_node, stage) = Stage::of(Node::answering(ok("x")), PLAIN);
    let mut client = Client::connect(stage.address());
    for _ in 0..3 {
        client.ask(get("/")).expect("a response");
    }
    let counters = stage.gateway.counters();
    assert_eq!(counters.http2_connections.load(Ordering::Relaxed), 1);
    assert_eq!(counters.http2_requests.load(Ordering::Relaxed), 3);
}
