//! Emulated nodes over real sockets.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod http;

use std::io::{BufRead, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use http::{PATIENCE, connect, get, one, reply, send, wait_for};
use weirgate_emulator::{Cluster, Disk, Health, NodeSpec, clock};

/// Milliseconds from now until `n` requests of 40 ms, all sent at once, are answered.
fn together(address: SocketAddr, n: usize) -> f64 {
    let mut streams: Vec<_> = (0..n).map(|_| connect(address)).collect();
    let start = clock::now();
    for stream in &mut streams {
        send(stream, "GET /?demand=40ms HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for stream in &mut streams {
        assert_eq!(reply(stream).0, 200);
    }
    (clock::now() - start) as f64 / 1e6
}

#[test]
fn requests_share_the_cpus() {
    let (cluster, address) = one(NodeSpec::new("a", 2));
    let alone = together(address, 2);
    let crowded = together(address, 8);
    // 8 on 2 CPUs take four times as long as 2. The lower bounds hold whatever else the machine does.
    assert!(alone >= 40.0 && crowded >= 159.0, "{alone} ms, {crowded} ms");
    let stats = &cluster.stats().unwrap()[0];
    assert_eq!((stats.requests, stats.replies, stats.in_flight, stats.max_in_flight), (10, 10, 0, 8));
    // 10 requests of 40 ms kept CPUs busy for 0.4 s, not less and hardly more.
    assert!((stats.busy.as_secs_f64() / 0.4 - 1.0).abs() < 0.001, "{:?}", stats.busy);
}

#[test]
fn workers_limit_what_is_inside() {
    let (cluster, address) = one(NodeSpec { concurrency: Some(2), ..NodeSpec::new("a", 4) });
    // 6 requests take three rounds of two, although there are four CPUs.
    assert!(together(address, 6) >= 119.0);
    assert_eq!(cluster.stats().unwrap()[0].max_in_flight, 2);
}

#[test]
fn a_node_works_as_long_as_a_request_says_and_signs_and_logs_it() {
    let (cluster, address) = one(NodeSpec { reply_bytes: 3, log: 2, ..NodeSpec::new("n7", 1) });
    let mut stream = connect(address);
    let start = clock::now();
    send(&mut stream, "GET /?demand=20ms HTTP/1.1\r\nHost: x\r\nX-Io: 20ms\r\nX-Request-Id: first\r\n\r\n");
    let (status, head, body) = reply(&mut stream);
    assert!(clock::now() - start >= 40_000_000);
    assert_eq!((status, body.as_slice()), (200, b"www".as_slice()));
    assert!(head.contains(&"x-node: n7".to_owned()), "{head:?}");
    assert!(head.contains(&"x-request-id: first".to_owned()), "{head:?}");
    assert_eq!(get(&mut stream, "/?id=second"), 200);
    assert_eq!(get(&mut stream, "/?id=third"), 200);
    let stats = &cluster.stats().unwrap()[0];
    let logged: [std::sync::Arc<str>; 2] = ["first".into(), "second".into()];
    assert_eq!((stats.ids.received.as_slice(), stats.ids.unlogged), (logged.as_slice(), 1));
    assert_eq!(stats.ids.answered, logged);
    assert_eq!(stats.accepted, 1);
}

#[test]
fn a_node_tells_what_was_used_of_it_and_how_long_a_request_was_inside() {
    let (cluster, address) = one(NodeSpec { servers: 2, ..NodeSpec::new("a", 3) });
    let mut stream = connect(address);
    send(&mut stream, "GET /?demand=2ms&disk=6ms HTTP/1.1\r\nHost: x\r\nX-Link: 4ms\r\n\r\n");
    let (status, head, _) = reply(&mut stream);
    let in_flight = head.iter().find_map(|field| field.strip_prefix("x-inside: ")).expect("it says how long");
    assert!(status == 200 && in_flight.parse::<u64>().unwrap() >= 12_000, "{in_flight} us");
    // The emulation may be off by half a microsecond in each of them.
    assert_eq!(cluster.done().unwrap()[0].map(|seconds| (seconds * 1e6).round()), [2000.0, 6000.0, 4000.0]);
    send(&mut stream, "GET /weirgate/report HTTP/1.1\r\nHost: x\r\n\r\n");
    let body = String::from_utf8(reply(&mut stream).2).unwrap();
    let usage = "\"usage\":{\"cpu\":{\"used\":0.002000,\"capacity\":6},\"disk\":{\"used\":0.006000,\"capacity\":2},\
                 \"bandwidth\":{\"used\":0.004000,\"capacity\":2}}";
    assert!(body.contains(usage), "{body}");
}

#[test]
fn bodies_pipelining_head_and_expect_are_understood() {
    let (cluster, address) = one(NodeSpec { reply_bytes: 5, ..NodeSpec::new("a", 1) });
    let mut stream = connect(address);
    let chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    send(&mut stream, &format!("{chunked}HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_eq!(reply(&mut stream).2.len(), 5);
    // The HEAD reply states a length and has no body.
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    send(&mut stream, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(reply(&mut stream).0, 100);
    send(&mut stream, "hi");
    assert_eq!(reply(&mut stream).0, 200);
    // A large reply is longer than any socket buffer.
    send(&mut stream, "GET /?bytes=20000000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(reply(&mut stream).2.len(), 20_000_000);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it closes when asked to");
    send(&mut connect(address), "");
    let mut bad = connect(address);
    send(&mut bad, "GET / HTTP/1.1\r\nX-Demand: soon\r\n\r\n");
    assert_eq!(reply(&mut bad).0, 400);
    let stats = &cluster.stats().unwrap()[0];
    assert_eq!((stats.requests, stats.replies, stats.bad), (4, 5, 1));
}

#[test]
fn faults_come_and_go() {
    let (cluster, address) = one(NodeSpec::new("a", 1));
    let mut stream = connect(address);
    assert_eq!(get(&mut stream, "/"), 200);

    cluster.set_health(0, Health { fails: 1.0, ..Health::WELL }).unwrap();
    assert_eq!(get(&mut stream, "/?demand=10s"), 500, "soon, whatever the demand");
    cluster.set_health(0, Health::WELL).unwrap();

    cluster.set_health(0, Health { speed: 0.25, ..Health::WELL }).unwrap();
    let start = clock::now();
    assert_eq!(get(&mut stream, "/?demand=20ms"), 200);
    assert!(clock::now() - start >= 80_000_000);
    cluster.set_health(0, Health::WELL).unwrap();

    cluster.set_health(0, Health { stalled: true, ..Health::WELL }).unwrap();
    send(&mut stream, "GET /?demand=1ms HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let silence = stream.read(&mut [0]).unwrap_err();
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    stream.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    cluster.set_health(0, Health::WELL).unwrap();
    assert_eq!(reply(&mut stream).0, 200);

    cluster.set_health(0, Health { garbles: true, ..Health::WELL }).unwrap();
    send(&mut stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(!bytes.is_empty() && !bytes.starts_with(b"HTTP"), "{bytes:?}");
    cluster.set_health(0, Health::WELL).unwrap();

    let mut in_flight = connect(address);
    send(&mut in_flight, "GET /?demand=10s HTTP/1.1\r\nHost: x\r\n\r\n");
    cluster.set_health(0, Health { crashed: true, ..Health::WELL }).unwrap();
    assert_eq!(in_flight.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(cluster.stats().unwrap()[0].in_flight, 0);
    cluster.set_health(0, Health::WELL).unwrap();
    assert_eq!(get(&mut connect(address), "/"), 200);

    assert!(cluster.set_health(1, Health { stalled: true, ..Health::WELL }).is_err());
    assert!(cluster.set_health(0, Health { speed: 0.0, ..Health::WELL }).is_err());
    assert!(cluster.set_health(0, Health { fails: 1.5, ..Health::WELL }).is_err());
}

#[test]
fn work_goes_on_for_a_client_that_has_left() {
    let (cluster, address) = one(NodeSpec::new("a", 1));
    let mut patient = connect(address);
    assert_eq!(get(&mut patient, "/"), 200);
    cluster.set_health(0, Health { stalled: true, ..Health::WELL }).unwrap();
    let mut impatient = connect(address);
    send(&mut impatient, "GET /?demand=30ms HTTP/1.1\r\nHost: x\r\n\r\n");
    let stats = || cluster.stats().unwrap().swap_remove(0);
    wait_for(|| stats().in_flight == 1);
    drop(impatient);
    wait_for(|| stats().connections == 1);
    assert_eq!(stats().in_flight, 1);
    cluster.set_health(0, Health::WELL).unwrap();
    // The abandoned request entered first and takes as long, so it is finished no later.
    assert_eq!(get(&mut patient, "/?demand=30ms"), 200);
    let stats = stats();
    assert_eq!((stats.requests, stats.replies, stats.unwanted), (3, 2, 1));
    // Both demands were met, however long the stall was. (`busy` also counts the time of the stall.)
    assert_eq!((stats.done.as_secs_f64() * 1e6).round(), 60_000.0);
}

#[test]
fn connections_are_bounded_and_the_rest_wait() {
    let (cluster, address) = one(NodeSpec { connections: 1, ..NodeSpec::new("a", 1) });
    let mut first = connect(address);
    assert_eq!(get(&mut first, "/"), 200);
    let mut second = connect(address);
    send(&mut second, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(cluster.stats().unwrap()[0].connections, 1);
    drop(first);
    assert_eq!(reply(&mut second).0, 200);
}

#[test]
fn a_dropped_cluster_closes_its_ports() {
    let (cluster, address) = one(NodeSpec::new("a", 1));
    drop(cluster);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn specifications_that_make_no_sense_are_refused() {
    let odd = || NodeSpec::new("odd", 1);
    let disk = Disk { access: Duration::ZERO, bytes_per_s: f64::NAN, cache: 0 };
    for (spec, what) in [
        (NodeSpec { cpus: 0, ..odd() }, "CPUs"),
        (NodeSpec { servers: 0, ..odd() }, "servers"),
        (NodeSpec { concurrency: Some(0), ..odd() }, "concurrency"),
        (NodeSpec { connections: 0, ..odd() }, "connections"),
        (NodeSpec { addresses: Vec::new(), ..odd() }, "addresses"),
        (NodeSpec { speed: 0.0, ..odd() }, "speed"),
        (NodeSpec { disk: Some(disk), ..odd() }, "disk"),
        (NodeSpec { bandwidth: Some(-1.0), ..odd() }, "bandwidth"),
    ] {
        let error = Cluster::start(vec![NodeSpec::new("even", 1), spec], 1).unwrap_err().to_string();
        assert!(error.contains("node odd") && error.contains(what), "{error}");
    }
    let (_cluster, taken) = one(NodeSpec::new("a", 1));
    let error = Cluster::start(vec![NodeSpec { addresses: vec![taken], ..NodeSpec::new("b", 1) }], 1).unwrap_err();
    assert!(error.kind() == ErrorKind::AddrInUse && error.to_string().contains("node b"), "{error}");
}

#[test]
fn a_stream_begins_at_once_and_ends_in_time() {
    let (cluster, address) = one(NodeSpec { drops_abandoned: true, ..NodeSpec::new("a", 1) });
    let mut stream = connect(address);
    send(&mut stream, "GET /?demand=5ms&stream=600s&bytes=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    // The body has one byte for each keep-alive, and the last one.
    let mut line = String::new();
    let mut length = String::new();
    while stream.read_line(&mut line).unwrap() > 2 {
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            bytes.trim().clone_into(&mut length);
        }
        line.clear();
    }
    assert_eq!(length, "42");
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    // The first byte is here, and the request is still in flight: it has ten minutes left.
    let stats = &cluster.stats().unwrap()[0];
    assert_eq!((first, stats.in_flight, stats.replies), ([b'w'], 1, 0));
    drop(stream);
    wait_for(|| cluster.stats().unwrap()[0].in_flight == 0);
    // A shorter stream is complete when it ends, and its connection can be used again.
    let mut stream = connect(address);
    let start = clock::now();
    for target in ["/?stream=100ms&bytes=700", "/?demand=1ms&stream=1ms&bytes=20000"] {
        send(&mut stream, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let (status, _, body) = reply(&mut stream);
        assert_eq!((status, Some(body.len().to_string().as_str())), (200, target.rsplit('=').next()));
    }
    send(&mut stream, "HEAD /?stream=50ms HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut head = String::new();
    while stream.read_line(&mut head).unwrap() > 2 {}
    assert!(clock::now() - start >= 151 * clock::SECOND / 1000, "{} ns", clock::now() - start);
}
