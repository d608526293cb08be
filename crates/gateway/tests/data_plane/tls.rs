//! TLS between clients and listeners.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, HandshakeKind};
use weirgate_gateway::{Ending, HandshakeFailure};

use super::pki::{Pki, TlsClient, connect};
use super::stage::{Node, PLAIN, Stage, ok, site, wait_until};

/// A policy with one TLS listener with these fields, and one node.
fn policy(node: &Node, tls: &str, rest: &str) -> String {
    format!(
        "listen: {{ address: \"127.0.0.1:0\", tls: {{ {tls} }} }}\nadmin: off\nthreads: 2\n\
         upstreams: {{ web: {{ nodes: \"{}\" }} }}\n{rest}",
        node.address
    )
}

fn stage(pki: &Pki, node: &Node, rest: &str) -> Stage {
    let certificate = pki.certificate("a", &["a.test", "*.b.test"]);
    Stage::open(&policy(node, &format!("certificates: {certificate}"), rest))
}

/// Sends a request and returns the body of its response, which has a length.
fn exchange(client: &mut TlsClient, request: &[u8]) -> io::Result<Vec<u8>> {
    client.write_all(request)?;
    client.flush()?;
    read(client)
}

fn read(client: &mut TlsClient) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("ASCII").to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().expect("a length")];
    client.read_exact(&mut body)?;
    Ok(body)
}

fn get(config: ClientConfig, stage: &Stage, name: &str) -> io::Result<Vec<u8>> {
    let mut client = connect(config, stage.address(), name);
    exchange(&mut client, format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes())
}

#[test]
fn a_listener_redirects_to_https() {
    let node = Node::answering(ok("x"));
    let policy = |port: u16| {
        let listen = format!("listen: {{ address: \"127.0.0.1:0\", redirect_to_https: {port} }}");
        let upstream = format!("upstreams: {{ web: {{ nodes: \"{}\" }} }}", node.address);
        format!("{listen}\nadmin: off\nthreads: 1\n{upstream}\n{PLAIN}")
    };
    let stage = Stage::open(&policy(443));
    let mut client = stage.client();
    // The connection goes on, also after a request with a body, and the body is not taken for a request.
    for (request, location) in [
        ("GET /a//b%2f?x=1 HTTP/1.1\r\nHost: Shop.test:80\r\n\r\n", "https://shop.test/a//b%2f?x=1"),
        ("POST //evil.test HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nGET /", "https://a.test//evil.test"),
        ("GET http://b.test/%61?q HTTP/1.1\r\nHost: b.test\r\n\r\n", "https://b.test/a?q"),
        ("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", "https://[::1]/"),
    ] {
        let answer = client.exchange(request);
        assert_eq!((answer.status, answer.header("location").as_deref()), (308, Some(location)));
        assert_eq!(answer.header("proxy-status"), None);
        let record = stage.record();
        assert_eq!((record.ending, record.status, record.class.as_str()), (Ending::Redirected, 308, "-"));
    }
    for request in ["OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
        assert_eq!(stage.exchange(request).status, 400, "{request}");
    }
    let other = Stage::open(&policy(8443));
    let mut client = other.client();
    assert_eq!(client.ask("/").header("location").as_deref(), Some("https://a.test:8443/"));
    assert!(other.is_empty() && stage.is_empty());
    assert_eq!(stage.gateway.counters().connects.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn listeners_on_port_0_of_one_address_have_certificates_of_their_own() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let [a, b] = ["a.test", "b.test"].map(|name| pki.certificate(name, &[name]));
    let policy = |certificates: [&str; 2]| {
        let listen = certificates.map(|own| format!("{{ address: \"127.0.0.1:0\", tls: {{ certificates: {own} }} }}"));
        let upstream = format!("upstreams: {{ web: {{ nodes: \"{}\" }} }}", node.address);
        format!("listen: [{}]\nadmin: off\nthreads: 2\n{upstream}\n{PLAIN}", listen.join(", "))
    };
    let stage = Stage::open(&policy([&a, &b]));
    let addresses = stage.gateway.addresses();
    // Every thread has a socket of each listener.
    let serves = |address, name: &str| {
        let mut answers = (0..8).map(|_| {
            let mut client = connect(pki.client(), address, name);
            exchange(&mut client, format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n").as_bytes()).is_ok()
        });
        let first = answers.next();
        assert!(answers.all(|answer| Some(answer) == first), "{name} at {address}");
        first == Some(true)
    };
    let found = || ["a.test", "b.test"].map(|name| [serves(addresses[0], name), serves(addresses[1], name)]);
    assert_eq!((addresses.len(), found()), (2, [[true, false], [false, true]]));
    let swapped = policy([&b, &a]);
    stage.gateway.reload_site(site(&swapped), &swapped).expect("a good policy");
    assert_eq!((stage.gateway.addresses(), found()), (addresses.clone(), [[false, true], [true, false]]));
}

/// Waits until handshakes have failed for exactly these reasons.
fn failed(stage: &Stage, expected: &[(HandshakeFailure, u64)]) {
    let found = || {
        let all = stage.gateway.counters().handshakes.failures();
        all.filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    wait_until(&format!("{expected:?}"), || found() == expected);
}

#[test]
fn requests_over_tls_are_served_and_say_so() {
    let (pki, node) = (Pki::new(), Node::replying(|_, body| ok(&String::from_utf8_lossy(body))));
    let stage = stage(&pki, &node, PLAIN);
    for version in [&TLS12, &TLS13] {
        let config = pki.client_of(version);
        let mut client = connect(config, stage.address(), "a.test");
        for body in ["one", "two"] {
            let request = format!("POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\n{body}");
            assert_eq!(exchange(&mut client, request.as_bytes()).expect("an answer"), body.as_bytes());
            let call = node.call();
            assert_eq!(call.header("x-forwarded-proto").as_deref(), Some("https"));
            assert_eq!(call.header("forwarded").as_deref(), Some("for=127.0.0.1;host=\"a.test\";proto=https"));
        }
    }
    failed(&stage, &[]);
}

#[test]
fn large_bodies_arrive_as_they_were_sent() {
    let pki = Pki::new();
    let node = Node::replying(|_, body| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    });
    let stage = stage(&pki, &node, PLAIN);
    let mut client = connect(pki.client(), stage.address(), "a.test");
    for size in [16_383, 16_384, 16_385, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let head = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {size}\r\n\r\n");
        // The client reads only after it has sent everything, and the response waits in the gateway meanwhile.
        assert!(exchange(&mut client, &[head.as_bytes(), &body].concat()).expect("an answer") == body, "{size}");
    }
}

#[test]
fn classes_tell_scheme_name_and_certificate() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let tls = format!(
        "certificates: {}, client_certificates: {{ mode: optional, ca: {} }}",
        pki.certificate("a", &["a.test", "*.b.test"]),
        pki.path("ca.pem").display()
    );
    let rest = "discipline: none\nclasses:\n\
        \x20 - { name: alice, match: { client_certificate: { common_name: alice, san: [x.test, { prefix: spiffe } ] } } }\n\
        \x20 - { name: known, match: { client_certificate: present } }\n\
        \x20 - { name: b, match: { sni: \"*.b.test\" } }\n\
        \x20 - { name: encrypted, match: { scheme: https } }\n";
    let stage = Stage::open(&policy(&node, &tls, rest));
    let class = |config, name| {
        get(config, &stage, name).expect("an answer");
        stage.record().class
    };
    assert_eq!(class(pki.known_client("alice", &["y.test", "x.test"]), "a.test"), "alice");
    assert_eq!(class(pki.known_client("alice", &["y.test"]), "a.test"), "known");
    assert_eq!(class(pki.client(), "x.b.test"), "b");
    assert_eq!(class(pki.client(), "a.test"), "encrypted");
}

#[test]
fn failed_handshakes_are_counted_by_reason_and_answered() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let tls = format!(
        "certificates: {}, min_version: 1.3, client_certificates: {{ ca: {} }}",
        pki.certificate("a", &["a.test"]),
        pki.path("ca.pem").display()
    );
    let stage = Stage::open(&policy(&node, &tls, PLAIN));
    let error = |config| get(config, &stage, "a.test").expect_err("a failure").to_string();
    let known = || pki.known_client("client", &["client.test"]);
    assert_eq!(get(known(), &stage, "a.test").expect("an answer"), b"x");

    assert!(error(pki.client()).contains("CertificateRequired"));
    let mut expected = vec![(HandshakeFailure::ClientCertificate, 1)];
    failed(&stage, &expected);
    let mut other = known();
    other.alpn_protocols = vec![b"h3".to_vec()];
    assert!(error(other).contains("NoApplicationProtocol"));
    expected.insert(0, (HandshakeFailure::Protocol, 1));
    failed(&stage, &expected);
    // It does not trust the certificate.
    assert!(error(Pki::new().known_client("client", &[])).contains("invalid peer certificate"));
    expected.push((HandshakeFailure::Alert, 1));
    failed(&stage, &expected);

    let answer = stage.ask("/");
    assert_eq!((answer.status, answer.text().contains("https://")), (400, true));
    expected.insert(0, (HandshakeFailure::PlainHttp, 1));
    failed(&stage, &expected);
    let mut garbage = stage.client();
    garbage.send([0; 64]);
    assert_eq!(garbage.rest().first(), Some(&21), "an alert");
    expected.push((HandshakeFailure::Malformed, 1));
    failed(&stage, &expected);
    // A first message of 60 kB in frames of 16 kB.
    let mut long = stage.client();
    let mut hello = vec![22, 3, 1, 0x40, 0x00, 1, 0, 0xe0, 0x00];
    hello.resize(5 + 0x4000, 0);
    long.send(&hello);
    long.send([22, 3, 1, 0x40, 0x00]);
    assert!(long.is_closed());
    expected.insert(1, (HandshakeFailure::TooLong, 1));
    failed(&stage, &expected);
    let leaves = stage.client();
    leaves.stream().shutdown(Shutdown::Both).expect("a socket");
    expected.insert(0, (HandshakeFailure::Closed, 1));
    failed(&stage, &expected);
}

#[test]
fn a_client_that_speaks_an_old_version_only_is_refused() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let stage = stage(&pki, &node, PLAIN);
    // A first message of TLS 1.1 with one cipher.
    let mut hello = vec![22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let mut client = stage.client();
    client.send(hello);
    assert_eq!(client.rest().get(..7), Some(&[21, 3, 3, 0, 2, 2, 40][..]), "the alert handshake_failure");
    failed(&stage, &[(HandshakeFailure::Version, 1)]);
}

#[test]
fn a_silent_client_is_closed_in_time_and_in_favour_of_others() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let slow = stage(&pki, &node, &format!("timeouts: {{ header: 100ms }}\n{PLAIN}"));
    assert!(slow.client().is_closed());
    failed(&slow, &[(HandshakeFailure::Timeout, 1)]);
    let full = stage(&pki, &node, &format!("limits: {{ connections: 1 }}\n{PLAIN}"));
    let mut silent = full.client();
    silent.send([22, 3, 1]);
    let open = || full.gateway.counters().open.load(std::sync::atomic::Ordering::Relaxed);
    wait_until("it is accepted", || open() == 1);
    assert_eq!(get(pki.client(), &full, "a.test").expect("an answer"), b"x");
    assert!(silent.is_closed());
}

#[test]
fn sessions_are_resumed_on_every_thread() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let stage = stage(&pki, &node, PLAIN);
    let config = pki.client();
    let mut kinds = Vec::new();
    for _ in 0..8 {
        let mut client = connect(config.clone(), stage.address(), "a.test");
        exchange(&mut client, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("an answer");
        kinds.push(client.conn.handshake_kind());
    }
    let expected = [Some(HandshakeKind::Full)].into_iter().chain([Some(HandshakeKind::Resumed); 7]);
    assert!(kinds.iter().copied().eq(expected), "{kinds:?}");
    let handshakes = &stage.gateway.counters().handshakes;
    let count = |of: &std::sync::atomic::AtomicU64| of.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((count(&handshakes.full), count(&handshakes.resumed)), (1, 7));
}

#[test]
fn a_session_ends_with_the_certificate_of_its_client() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let own = pki.certificate("a", &["a.test"]);
    let ca = pki.path("ca.pem");
    let clients = format!("certificates: {own}, client_certificates: {{ ca: {} }}", ca.display());
    let stage = Stage::open(&policy(&node, &clients, PLAIN));
    let config = pki.ending_client(Duration::from_secs(3));
    let mut kinds = Vec::new();
    // Each resumed session has new tickets.
    wait_until("the end of its certificate", || {
        let mut client = connect(config.clone(), stage.address(), "a.test");
        let answered = exchange(&mut client, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").is_ok();
        kinds.extend(client.conn.handshake_kind().filter(|_| answered));
        !answered
    });
    assert_eq!(kinds.first(), Some(&HandshakeKind::Full));
    assert!(kinds.len() > 1 && kinds[1..].iter().all(|kind| *kind == HandshakeKind::Resumed), "{kinds:?}");
    failed(&stage, &[(HandshakeFailure::ClientCertificate, 1)]);
}

/// Serial number of the certificate that a new client gets.
fn presented(pki: &Pki, stage: &Stage) -> Vec<u8> {
    let mut client = connect(pki.client(), stage.address(), "a.test");
    exchange(&mut client, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect("an answer");
    client.conn.peer_certificates().expect("a chain")[0].to_vec()
}

#[test]
fn renewed_certificates_are_served_without_losing_a_request() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let stage = stage(&pki, &node, PLAIN);
    let mut old = connect(pki.client(), stage.address(), "a.test");
    let get = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(exchange(&mut old, get).expect("an answer"), b"x");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for resuming in [false, true] {
            let (pki, stage, done) = (&pki, &stage, &done);
            scope.spawn(move || {
                let config = pki.client();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let config = if resuming { config.clone() } else { pki.client() };
                    let mut client = connect(config, stage.address(), "x.b.test");
                    for _ in 0..3 {
                        assert_eq!(exchange(&mut client, get).expect("an answer"), b"x");
                    }
                }
            });
        }
        let mut before = presented(&pki, &stage);
        for _ in 0..20 {
            pki.certificate("a", &["a.test", "*.b.test"]);
            stage.gateway.look_at_certificates();
            assert_eq!(presented(&pki, &stage), before, "the files may still be changing");
            stage.gateway.look_at_certificates();
            let after = presented(&pki, &stage);
            assert_ne!(after, before);
            before = after;
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(exchange(&mut old, get).expect("an answer"), b"x");
    failed(&stage, &[]);
}

#[test]
fn broken_files_leave_the_old_certificate_in_force() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let stage = stage(&pki, &node, PLAIN);
    let before = presented(&pki, &stage);
    let look = || (0..3).for_each(|_| stage.gateway.look_at_certificates());
    let key = std::fs::read(pki.path("a.key")).expect("a file");
    for broken in [None, Some(&b"broken"[..]), Some(&key[..])] {
        // Gone, without sense, and with the key of another certificate.
        pki.certificate("a", &["a.test"]);
        match broken {
            None => std::fs::remove_file(pki.path("a.key")).expect("a file"),
            Some(bytes) => std::fs::write(pki.path("a.key"), bytes).expect("a file"),
        }
        look();
        assert_eq!(presented(&pki, &stage), before);
    }
    pki.certificate("a", &["a.test"]);
    look();
    assert_ne!(presented(&pki, &stage), before);
}

#[test]
fn a_tunnel_passes_bytes_through_tls() {
    let (pki, node) = (Pki::new(), Node::scripted());
    let stage = stage(&pki, &node, PLAIN);
    let mut client = connect(pki.client(), stage.address(), "a.test");
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello";
    client.write_all(request).expect("it is taken");
    let call = node.call();
    call.write("HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    let mut early = [0; 5];
    (&call.stream).read_exact(&mut early).expect("bytes");
    assert_eq!(&early, b"hello");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    for size in [1, 100_000] {
        let bytes: Vec<u8> = (0..size).map(|at: u32| at as u8).collect();
        let mut passed = vec![0; bytes.len()];
        call.write(&bytes);
        client.read_exact(&mut passed).expect("bytes");
        assert!(passed == bytes);
        client.write_all(&bytes).expect("it is taken");
        client.flush().expect("it is taken");
        (&call.stream).read_exact(&mut passed).expect("bytes");
        assert!(passed == bytes);
    }
    client.conn.send_close_notify();
    client.flush().expect("it is taken");
    assert_eq!((&call.stream).read(&mut [0]).expect("an end"), 0);
}
