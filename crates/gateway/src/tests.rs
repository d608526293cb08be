//! Policies for unit tests, and tests of cases that cannot be produced from outside.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weirgate_config::{Forward, Site};

use crate::active_config::ReloadSource;
use crate::gateway::Gateway;

/// The defaults of a policy.
pub(crate) const FORWARD: Forward = Forward {
    normalized_path: false,
    x_forwarded: true,
    forwarded: true,
    via: true,
    traceparent: true,
    request_id: false,
};

/// Returns a policy with one class, no nodes, and trusted proxies in `nets`.
pub(crate) fn site_trusting(nets: &[&str]) -> Site {
    let trusted = if nets.is_empty() { String::new() } else { format!("trusted_proxies: {nets:?}\n") };
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\ndiscipline: none\n{trusted}\
         upstreams: {{ web: {{ nodes: '127.0.0.1:9' }} }}\nclasses: [{{ name: other }}]\n"
    );
    let mut site = weirgate_config::load("test", &text).unwrap_or_else(|errors| panic!("{errors}")).site;
    site.policy.nodes.clear();
    site.nodes.clear();
    site
}

/// Threat P1: a panic in one request results in a 500 for that request only.
#[test]
fn a_panic_ends_its_own_request_only() {
    let gateway =
        Gateway::start(site_trusting(&[]), "", ReloadSource::Nowhere, Vec::new()).expect("the gateway starts");
    let ask = |head: &str| {
        let mut stream = TcpStream::connect(gateway.addresses()[0]).expect("the gateway accepts");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        write!(stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{head}\r\n").expect("it takes the request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    for _ in 0..3 {
        let answer = ask("X-Panic: 1\r\n");
        assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("proxy_internal_error"), "{answer}");
        // The pool has no node, but the engine still answers.
        assert!(ask("").starts_with("HTTP/1.1 503 "));
    }
    assert_eq!(gateway.counters().panics.load(Ordering::Relaxed), 3);
    gateway.drain();
    gateway.join();
    assert_eq!(gateway.counters().open.load(Ordering::Relaxed), 0);
}
