//! Policies for unit tests, and tests of cases that cannot be produced from outside.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use weirgate_config::{
    ClassSite, ClientTimeouts, Forward, HeaderRules, Key, Limits, ListenerName, MemoryLimit, NetworkSize, NodeTimeouts,
    PoolSite, ShedReply, Site, Tunnels,
};
use weirgate_engine as engine;

use weirgate_listening::FileAccess;

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

/// Builds a policy with one class, no nodes, and trusted proxies in `nets`.
pub(crate) fn site_trusting(nets: &[&str]) -> Site {
    let second = Duration::from_secs(1);
    Site {
        listeners: Vec::new(),
        acme: None,
        visitors: None,
        trusted_proxies: nets.iter().map(|n| n.parse().expect("a network")).collect(),
        policy: engine::Policy {
            max_waiting: 10,
            ..engine::Policy::of_one_pool(
                engine::Discipline::none(),
                engine::Pool::new("web"),
                Vec::new(),
                vec![engine::Class::best_effort("other", 0)],
            )
        },
        rules: Vec::new(),
        classes: vec![ClassSite {
            shed: ShedReply { status: 503, content_type: "text/plain".into(), body: "overloaded\n".into() },
            timeouts: NodeTimeouts { connect: second, first_byte: second, body_progress: second, total: second },
            long_responses: None,
            tunnels: Tunnels { max: None, idle: second, total: None },
            source: Key::Network(NetworkSize::ADDRESS),
            headers: HeaderRules::default(),
        }],
        templates: Vec::new(),
        pools: vec![PoolSite {
            tls: None,
            health: None,
            collector: None,
            locality_key: None,
            http2: false,
            proxy_protocol: None,
            from_client: false,
            idle_connections: 8,
            stalled_responses: 8,
            idle_timeout: second,
        }],
        nodes: Vec::new(),
        discover: vec![None],
        limits: Limits {
            connections: 100,
            connections_per_source: None,
            connect_interval_per_source: None,
            head_bytes: 65_536,
            headers: 100,
            body_bytes: None,
            body_prefix: 8192,
            http2_streams: 100,
            http2_overhead_frames: 1000,
            tunnels: 100,
            buffer_per_request: 1 << 20,
            buffer_total: 1 << 26,
            memory: MemoryLimit::Off,
        },
        timeouts: ClientTimeouts { header: second, idle: second, body: second, body_rate: 500 },
        forward: FORWARD,
        headers: HeaderRules::default(),
        admin: None,
        trust: None,
        access_log: None,
        log: weirgate_log::Settings::default(),
        telemetry: None,
        drain_deadline: second,
        threads: Some(1),
        learned_state: None,
        sharing: None,
        reserves: None,
        page_table: None,
    }
}

/// Threat P1: a panic in one request results in a 500 for that request only.
#[test]
fn a_panic_ends_its_own_request_only() {
    let mut site = site_trusting(&[]);
    site.listeners.push(weirgate_config::Listener {
        name: ListenerName::first(SocketAddr::from(([127, 0, 0, 1], 0)).into()),
        file: FileAccess::GROUP,
        http2: true,
        redirect_to_https: None,
        proxy_protocol: Vec::new(),
        transparent: None,
        tls: None,
    });
    let gateway = Gateway::start(site, "", ReloadSource::Nowhere, Vec::new()).expect("the gateway starts");
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
