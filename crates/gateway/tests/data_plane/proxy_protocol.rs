//! The PROXY protocol: from a balancer in front of the gateway, and to the nodes.

use std::io::{Read as _, Write as _};
use std::net::Ipv6Addr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use weirgate_gateway::{Ending, HeaderFailure};

use crate::stage::{Client, Node, PLAIN, Stage, ok, policy, wait_until};

/// Builds a policy with a listener that expects headers from 127.0.0.1.
fn behind_a_balancer(node: &Node, listener: &str, rest: &str) -> String {
    let listener = format!("listen: {{ address: 127.0.0.1:0, proxy_protocol: [127.0.0.1]{listener} }}");
    policy(&[node], rest).replacen("listen: 127.0.0.1:0", &listener, 1)
}

/// Returns a header of version 2 for a TCP connection over IPv4, with further facts.
fn second(client: [u8; 4], facts: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0".to_vec();
    header.push(u8::try_from(12 + facts.len()).expect("a short header"));
    header.extend_from_slice(&client);
    header.extend_from_slice(&[10, 0, 0, 1, 0x30, 0x39, 0, 80]);
    header.extend_from_slice(facts);
    header
}

fn failures(stage: &Stage, failure: HeaderFailure) -> u64 {
    stage.gateway.counters().header_failures.all().find(|(other, _)| *other == failure).expect("a reason").1
}

#[test]
fn the_client_is_the_one_that_the_header_names() {
    let node = Node::scripted();
    let rest = "discipline: none\nclasses:\n- { name: lan, match: { source: 198.51.100.0/24 } }\n- { name: all }\n";
    let stage = Stage::open(&behind_a_balancer(&node, "", rest));
    let six =
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24"[..], &Ipv6Addr::LOCALHOST.octets(), &[0; 16], &[0, 1, 0, 2]].concat();
    for (header, client, class) in [
        (b"PROXY TCP4 198.51.100.7 10.0.0.1 12345 80\r\n".to_vec(), "198.51.100.7", "lan"),
        (b"PROXY TCP6 2001:db8::7 ::1 12345 80\r\n".to_vec(), "2001:db8::7", "all"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1", "all"),
        (second([198, 51, 100, 8], &[]), "198.51.100.8", "lan"),
        (six, "::1", "all"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec(), "127.0.0.1", "all"),
    ] {
        let mut client_of = stage.client();
        client_of.send(&header);
        for path in ["/1", "/2"] {
            client_of.get(path);
            let call = node.call();
            assert_eq!(call.header("x-forwarded-for").as_deref(), Some(client));
            call.ok("x");
            assert_eq!(client_of.answer().status, 200);
            let record = stage.record();
            assert_eq!((record.client.as_str(), record.class.as_str()), (client, class), "{header:?}");
        }
    }
}

#[test]
fn a_header_may_arrive_byte_by_byte_and_with_the_first_request() {
    let node = Node::answering(ok("x"));
    let stage = Stage::open(&behind_a_balancer(&node, "", PLAIN));
    for header in [b"PROXY TCP4 192.0.2.1 10.0.0.1 1 80\r\n".to_vec(), second([192, 0, 2, 1], &[4, 0, 2, 0, 0])] {
        let mut client = stage.client();
        for byte in &header {
            client.send([*byte]);
        }
        client.get("/");
        assert_eq!((client.answer().status, stage.record().client.as_str()), (200, "192.0.2.1"));
        let mut client = stage.client();
        client.send([&header[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        for _ in 0..2 {
            assert_eq!((client.answer().status, stage.record().client.as_str()), (200, "192.0.2.1"));
        }
    }
}

#[test]
fn a_connection_without_a_sound_header_is_closed_and_counted() {
    let node = Node::answering(ok("x"));
    let stage = Stage::open(&behind_a_balancer(&node, "", PLAIN));
    for (input, failure) in [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), HeaderFailure::Missing),
        (b"\x16\x03\x01\x02\0".to_vec(), HeaderFailure::Missing),
        (b"PROXY TCP4 192.0.2.1 10.0.0.1 1\r\nGET / HTTP/1.1\r\n\r\n".to_vec(), HeaderFailure::Malformed),
        (b"PROXY ".iter().chain([b'x'; 200].iter()).copied().collect(), HeaderFailure::Malformed),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec(), HeaderFailure::Malformed),
        (b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c".to_vec(), HeaderFailure::Malformed),
    ] {
        let before = failures(&stage, failure);
        let mut client = stage.client();
        // The gateway may have closed it already.
        let _ = client.stream().write_all(&input);
        assert!(client.is_closed(), "{input:?}");
        wait_until("it is counted", || failures(&stage, failure) == before + 1);
    }
    // A check for an open port sends nothing.
    drop(stage.client());
    wait_until("it is counted", || failures(&stage, HeaderFailure::Closed) == 1);
    assert!(node.has_no_call());
}

#[test]
fn a_header_is_due_like_a_head() {
    let node = Node::answering(ok("x"));
    let rest = format!("{PLAIN}timeouts: {{ header: 100ms }}\n");
    let stage = Stage::open(&behind_a_balancer(&node, "", &rest));
    let mut client = stage.client();
    client.send(b"PROXY TCP4 192.0.2.1");
    assert!(client.is_closed());
    wait_until("it is counted", || failures(&stage, HeaderFailure::Timeout) == 1);
}

#[test]
fn a_header_of_another_peer_is_refused() {
    let node = Node::answering(ok("x"));
    let stage = Stage::open(&behind_a_balancer(&node, "", PLAIN));
    let mut stranger = Client::from_address([127, 0, 0, 2], stage.address());
    assert_eq!(
        stranger.exchange(b"PROXY TCP4 192.0.2.1 10.0.0.1 1 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").status,
        400
    );
    assert!(matches!(stage.record().ending, Ending::Refused(_)));
    let mut stranger = Client::from_address([127, 0, 0, 2], stage.address());
    stranger.get("/");
    assert_eq!((stranger.answer().status, stage.record().client.as_str()), (200, "127.0.0.2"));
}

#[test]
fn connections_are_counted_for_the_client_that_the_header_names() {
    let node = Node::answering(ok("x"));
    let rest = format!("{PLAIN}limits: {{ connections_per_source: 2 }}\n");
    let stage = Stage::open(&behind_a_balancer(&node, "", &rest));
    let connect = |last: u8| {
        let mut client = stage.client();
        client.send(second([192, 0, 2, last], &[]));
        client
    };
    let serve = |client: &mut Client| client.ask("/").status;
    let mut clients: Vec<Client> = [1, 1, 2, 2].into_iter().map(connect).collect();
    assert!(clients.iter_mut().all(|client| serve(client) == 200));
    assert!(connect(1).is_closed());
    assert_eq!(stage.gateway.counters().refused_connections.total(), 1);
    assert_eq!(serve(&mut connect(3)), 200);
    clients.remove(0);
    wait_until("there is room again", || {
        let mut client = connect(1);
        let _ = client.stream().write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.rest().starts_with(b"HTTP/1.1 200")
    });
}

#[test]
fn a_listed_proxy_behind_the_balancer_names_the_client() {
    let node = Node::answering(ok("x"));
    let rest = format!("{PLAIN}trusted_proxies: [192.0.2.0/24]\n");
    let stage = Stage::open(&behind_a_balancer(&node, "", &rest));
    for (address, client) in [([192, 0, 2, 1], "203.0.113.9"), ([198, 51, 100, 1], "198.51.100.1")] {
        let mut stream = stage.client();
        stream.send(second(address, &[]));
        stream.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n");
        assert_eq!((stream.answer().status, stage.record().client.as_str()), (200, client));
    }
}

#[test]
fn what_the_balancer_says_about_tls_counts() {
    let node = Node::scripted();
    let rest = "discipline: none\nclasses:\n- { name: me, match: { client_certificate: { common_name: me } } }\n\
                - { name: sni, match: { sni: shop.test } }\n- { name: all }\n";
    let stage = Stage::open(&behind_a_balancer(&node, ", redirect_to_https: 443", rest));
    let ssl =
        |flags: u8| [&[0x02, 0, 9][..], b"Shop.test", &[0x20, 0, 10, flags, 0, 0, 0, 0, 0x22, 0, 2], b"me"].concat();
    for (facts, class) in [(ssl(0x03), "me"), (ssl(0x01), "sni")] {
        let mut client = stage.client();
        client.send(second([192, 0, 2, 1], &facts));
        client.get("/");
        let call = node.call();
        assert_eq!(call.header("x-forwarded-proto").as_deref(), Some("https"));
        call.ok("x");
        assert_eq!((client.answer().status, stage.record().class.as_str()), (200, class));
    }
    let mut client = stage.client();
    client.send(second([192, 0, 2, 1], &[]));
    assert_eq!(client.ask("/").status, 308, "a client without TLS is redirected");
}

#[test]
fn a_header_without_end_is_bounded() {
    let node = Node::answering(ok("x"));
    let stage = Stage::open(&behind_a_balancer(&node, "", PLAIN));
    let mut client = stage.client();
    let flood = [&b"PROXY UNKNOWN "[..], &vec![b'x'; 1 << 20]].concat();
    let _ = client.stream().write_all(&flood);
    assert!(client.is_closed());
    wait_until("it is counted", || failures(&stage, HeaderFailure::Malformed) == 1);
}

/// Opens a gateway in front of `inner`, which the header names clients to.
fn in_front_of(inner: &Stage, upstream: &str) -> Stage {
    Stage::open(&format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 2\nupstreams: {{ web: {{ nodes: [{}], {upstream} }} }}\n{PLAIN}",
        inner.address()
    ))
}

fn from(last: u8, stage: &Stage) -> Client {
    Client::from_address([127, 0, 0, last], stage.address())
}

#[test]
fn nodes_get_the_header_before_the_first_request_of_a_connection() {
    for (version, binary) in [("v1", false), ("v2", true)] {
        let (sender, headers) = channel();
        let node = Node::raw(move |_, mut stream| {
            let mut header = vec![0; 28];
            if !binary {
                header.clear();
                while header.last() != Some(&b'\n') {
                    let mut byte = [0];
                    stream.read_exact(&mut byte)?;
                    header.push(byte[0]);
                }
            }
            stream.read_exact(if binary { &mut header } else { &mut [] })?;
            let _ = sender.send(header);
            let mut request = [0; 4096];
            while stream.read(&mut request)? > 0 {
                assert!(request.starts_with(b"GET /"));
                stream.write_all(&ok("x"))?;
            }
            Ok(())
        });
        let rest = format!("proxy_protocol: {version} }} }}\n{PLAIN}");
        let stage = Stage::open(&policy(&[&node], "").replacen(" } }\n", &format!(", {rest}"), 1));
        let mut clients = [2, 3].map(|last| from(last, &stage));
        for turn in 0..6 {
            let client = &mut clients[turn % 2];
            assert_eq!(client.ask("/").status, 200);
        }
        let [own, gateway] =
            [clients[0].stream().local_addr(), clients[0].stream().peer_addr()].map(|a| a.expect("it is connected"));
        let expected = match binary {
            false => format!("PROXY TCP4 127.0.0.2 127.0.0.1 {} {}\r\n", own.port(), gateway.port()).into_bytes(),
            true => {
                let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x02\x7f\0\0\x01";
                [&start[..], &own.port().to_be_bytes(), &gateway.port().to_be_bytes()].concat()
            }
        };
        assert_eq!(headers.recv().expect("the first client's header"), expected);
        assert_ne!(headers.recv().expect("the second client's header"), expected);
        assert!(headers.try_recv().is_err(), "a connection serves all requests of its client");
    }
}

#[test]
fn no_connection_to_a_node_is_shared_by_two_clients() {
    for protocol in ["http1", "h2"] {
        let node = Node::answering(ok("x"));
        let inner = Stage::open(&behind_a_balancer(&node, "", PLAIN));
        let outer = in_front_of(&inner, &format!("protocol: {protocol}, proxy_protocol: v2"));
        let mut clients = [2, 3].map(|last| (last, from(last, &outer)));
        for _ in 0..3 {
            for (last, client) in &mut clients {
                assert_eq!(client.ask("/").status, 200);
                assert_eq!(inner.record().client, format!("127.0.0.{last}"), "{protocol}");
            }
        }
        assert_eq!(inner.gateway.counters().accepted.load(Ordering::Relaxed), 2);
        drop(clients);
        let open = || inner.gateway.counters().open.load(Ordering::Relaxed);
        wait_until("they end with their clients", || open() == 0);
    }
}

#[test]
fn idle_connections_that_name_a_client_are_closed_in_time() {
    let node = Node::answering(ok("x"));
    let inner = Stage::open(&behind_a_balancer(&node, "", PLAIN));
    let outer = in_front_of(&inner, "proxy_protocol: v1, idle_timeout: 100ms");
    let mut client = outer.client();
    assert_eq!(client.ask("/").status, 200);
    wait_until("it is closed", || inner.gateway.counters().open.load(Ordering::Relaxed) == 0);
    assert_eq!(client.ask("/").status, 200);
}

#[test]
fn health_checks_name_no_client() {
    for version in ["v1", "v2"] {
        let node = Node::answering(ok("x"));
        let inner = Stage::open(&behind_a_balancer(&node, "", PLAIN));
        let check = "health_check: { path: /health, interval: 50ms, timeout: 50ms }";
        let _outer = in_front_of(&inner, &format!("proxy_protocol: {version}, {check}"));
        let record = inner.record();
        assert_eq!((record.path.as_str(), record.client.as_str(), record.status), ("/health", "127.0.0.1", 200));
    }
}
