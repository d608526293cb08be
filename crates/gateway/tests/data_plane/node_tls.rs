//! TLS between the gateway and nodes.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};
use weirgate_engine::NodeState;

use super::pki::Pki;
use super::stage::{Node, PLAIN, Stage, wait_until};

/// A node that sends back the bodies of requests, over TLS.
fn node(config: ServerConfig) -> Node {
    counting_node(config, Arc::default())
}

/// The same, which counts its requests.
fn counting_node(config: ServerConfig, requests: Arc<AtomicUsize>) -> Node {
    let config = Arc::new(config);
    Node::raw(move |_, stream| {
        let session = ServerConnection::new(Arc::clone(&config)).expect("a server");
        let mut stream = StreamOwned::new(session, stream.try_clone()?);
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte)? == 0 {
                    return Ok(());
                }
                head.push(byte[0]);
            }
            requests.fetch_add(1, Ordering::Relaxed);
            let head = String::from_utf8(head).expect("ASCII").to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
            stream.read_exact(&mut body)?;
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes())?;
            stream.write_all(&body)?;
            stream.flush()?;
        }
    })
}

/// A policy with an upstream that has these fields besides its node.
fn policy(node: &Node, fields: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 2\nupstreams: {{ web: {{ nodes: \"{}\", {fields} }} }}\n{PLAIN}",
        node.address
    )
}

/// Status and reason of the response to a request.
fn answer(policy: &str) -> (u16, String) {
    let stage = Stage::open(policy);
    let answer = stage.ask("/");
    (answer.status, answer.header("proxy-status").unwrap_or_default())
}

#[test]
fn bodies_of_any_size_pass_and_connections_are_kept() {
    let pki = Pki::new();
    let node = node(pki.server(&["web.test"], false));
    let tls = format!("tls: {{ ca: {}, server_name: Web.test }}", pki.path("ca.pem").display());
    let stage = Stage::open(&policy(&node, &tls));
    let mut client = stage.client();
    let sizes = [0, 1, 16_384, 2_000_000, 7];
    for size in sizes {
        let body: Vec<u8> = (0..size).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {size}\r\n\r\n"));
        client.send(&body);
        assert!(client.answer().body == body, "{size}");
    }
    let counters = stage.gateway.counters();
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
    assert_eq!((count(&counters.connects), count(&counters.reused)), (1, sizes.len() as u64 - 1));
}

#[test]
fn a_node_that_is_not_verified_gets_no_request() {
    let (pki, other) = (Pki::new(), Pki::new());
    let node = node(pki.server(&["web.test", "127.0.0.1"], false));
    let tls = |fields: &str| answer(&policy(&node, &format!("tls: {{ {fields} }}")));
    let ca = |pki: &Pki| format!("ca: {}", pki.path("ca.pem").display());
    assert_eq!(tls(&ca(&pki)).0, 200, "the address is in the certificate");
    assert_eq!(tls(&format!("{}, server_name: web.test", ca(&pki))).0, 200);
    let wrong = [
        (ca(&other), "the issuer of the node's certificate is not trusted"),
        (format!("{}, server_name: other.test", ca(&pki)), "the node's certificate is for another name"),
    ];
    for (wrong, details) in wrong {
        let (status, why) = tls(&wrong);
        let expected = format!("error=tls_certificate_error; details=\"{details}\"");
        assert_eq!((status, why.contains(&expected)), (502, true), "{why}");
    }
    assert_eq!(tls("verify: false").0, 200);
    let plain = Node::raw(|_, mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let (status, why) = answer(&policy(&plain, "tls: { verify: false }"));
    assert_eq!((status, why.contains("error=tls_protocol_error")), (502, true), "{why}");
}

#[test]
fn the_gateway_has_a_certificate_of_its_own() {
    let pki = Pki::new();
    let node = node(pki.server(&["127.0.0.1"], true));
    let ca = pki.path("ca.pem").display().to_string();
    let own = pki.certificate("gateway", &["gateway.test"]);
    assert_eq!(answer(&policy(&node, &format!("tls: {{ ca: {ca}, client_certificate: {own} }}"))).0, 200);
    assert_eq!(answer(&policy(&node, &format!("tls: {{ ca: {ca} }}"))).0, 502);
}

#[test]
fn health_checks_use_the_same_tls() {
    let (pki, other) = (Pki::new(), Pki::new());
    let requests = Arc::new(AtomicUsize::new(0));
    let node = counting_node(pki.server(&["127.0.0.1"], false), Arc::clone(&requests));
    let stage = |pki: &Pki| {
        let check = "health_check: { path: /, interval: 500ms, timeout: 500ms, fall: 1, rise: 1 }";
        Stage::open(&policy(&node, &format!("tls: {{ ca: {} }}, {check}", pki.path("ca.pem").display())))
    };
    let trusting = stage(&pki);
    wait_until("the node is asked", || requests.load(Ordering::Relaxed) > 0);
    drop(trusting);
    let other = stage(&other);
    wait_until("the node is down", || other.gateway.control().snapshot().nodes[0].state == NodeState::Down);
}

#[test]
fn renewed_authorities_count_for_new_connections() {
    let (pki, other) = (Pki::new(), Pki::new());
    let nodes = node(other.server(&["127.0.0.1"], false));
    let tls = format!("tls: {{ ca: {} }}", pki.path("ca.pem").display());
    let stage = Stage::open(&policy(&nodes, &tls));
    let status = || stage.ask("/").status;
    assert_eq!(status(), 502);
    std::fs::copy(other.path("ca.pem"), pki.path("ca.pem")).expect("a file");
    (0..2).for_each(|_| stage.gateway.look_at_certificates());
    assert_eq!(status(), 200);
}
