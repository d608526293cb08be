//! Health checks of nodes that speak HTTP/2: a GET, and the health checking protocol of gRPC.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderValue, Response, StatusCode};
use weirgate_engine::NodeState;

use super::nodes::{Act, Call, answer, fields, node, node_over};
use crate::pki::Pki;
use crate::stage::{Stage, wait_until, windowed};

fn stage(upstream: &str, check: &str) -> Stage {
    Stage::open(&format!(
        "listen: 127.0.0.1:0\nadmin: off\nthreads: 1\nupstreams: {{ web: {{ protocol: h2, {upstream}, health_check: {{ \
         {check}, interval: 20ms, fall: 1, rise: 1 }} }} }}\n{}",
        windowed(10)
    ))
}

fn is(stage: &Stage, state: NodeState) -> bool {
    stage.gateway.control().snapshot().nodes[0].state == state
}

/// Answers a check of gRPC with a message and a status of the call.
fn check_answer(message: &[u8], status: &'static str) -> Act {
    let mut head = Response::new(());
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let body = [&[0, 0, 0, 0, message.len() as u8][..], message].concat();
    Act::Answer(Box::new(head), body, Some(fields(&[("grpc-status", status)])))
}

#[test]
fn a_get_over_http2_takes_a_node_out_and_brings_it_back() {
    let ill = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&ill);
    let address = node(move |call: Call| {
        assert_eq!((call.head.uri().path(), call.head.method().as_str()), ("/healthz", "GET"));
        assert_eq!(call.head.headers().get("user-agent"), Some(&HeaderValue::from_static("weirgate-health")));
        assert_eq!(call.head.uri().authority().map(|a| a.as_str()), Some("web.internal"));
        let mut head = Response::new(());
        if told.load(Ordering::Relaxed) > 0 {
            *head.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        Act::Answer(Box::new(head), Vec::new(), None)
    });
    let stage = stage(&format!("nodes: \"{address}\""), "path: /healthz, host: web.internal");
    ill.store(1, Ordering::Relaxed);
    wait_until("it is down", || is(&stage, NodeState::Down));
    ill.store(0, Ordering::Relaxed);
    wait_until("it is up again", || is(&stage, NodeState::Up));
}

#[test]
fn the_health_service_of_grpc_decides() {
    let mode = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&mode);
    let address = node(move |call: Call| {
        assert_eq!(call.head.uri().path(), "/grpc.health.v1.Health/Check");
        assert_eq!(call.head.headers().get("content-type"), Some(&HeaderValue::from_static("application/grpc")));
        assert_eq!(call.head.headers().get("te"), Some(&HeaderValue::from_static("trailers")));
        assert_eq!(call.body, b"\0\0\0\0\x0b\x0a\x09shop.Cart");
        match told.load(Ordering::Relaxed) {
            0 => check_answer(b"\x08\x01", "0"),
            // NOT_SERVING, and a status of the call that is no success.
            1 => check_answer(b"\x08\x02", "0"),
            2 => check_answer(b"\x08\x01", "14"),
            // The server does not know the service: a response of trailers alone.
            3 => {
                let mut head = Response::new(());
                head.headers_mut().insert("grpc-status", HeaderValue::from_static("5"));
                Act::Answer(Box::new(head), Vec::new(), None)
            }
            _ => answer(vec![b'x'; 100_000]),
        }
    });
    let stage = stage(&format!("nodes: \"{address}\""), "grpc: shop.Cart");
    for ill in 1..5 {
        mode.store(ill, Ordering::Relaxed);
        wait_until("it is down", || is(&stage, NodeState::Down));
        mode.store(0, Ordering::Relaxed);
        wait_until("it is up again", || is(&stage, NodeState::Up));
    }
}

#[test]
fn checks_of_grpc_pass_over_tls() {
    let pki = Pki::new();
    let mut config = pki.server(&["127.0.0.1"], false);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mode = Arc::new(AtomicUsize::new(2));
    let told = Arc::clone(&mode);
    let address = node_over(Some(config), move |call: Call| {
        assert_eq!((call.head.uri().scheme_str(), &call.body[..]), (Some("https"), &b"\0\0\0\0\0"[..]));
        check_answer(&[8, told.load(Ordering::Relaxed) as u8], "0")
    });
    let tls = format!("nodes: \"{address}\", tls: {{ ca: {} }}", pki.path("ca.pem").display());
    let stage = stage(&tls, "grpc: \"\"");
    wait_until("it is down", || is(&stage, NodeState::Down));
    mode.store(1, Ordering::Relaxed);
    wait_until("it is up", || is(&stage, NodeState::Up));
}
