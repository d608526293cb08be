//! Fairness among sources inside a class, and the limits of a source.

use std::io::Write;

use crate::pki::Pki;
use crate::stage::{Client, Node, Stage, policy, site, wait_until};

/// Sends a request from this client address, with these headers.
fn from(stage: &Stage, address: &str, headers: &str) -> Client {
    let mut client = stage.client();
    client.send(format!("GET /{address} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n{headers}\r\n"));
    client
}

/// A class with one request in flight at most. `more` are further fields of the class.
fn one_at_a_time(node: &Node, more: &str) -> Stage {
    let rest = format!(
        "trusted_proxies: [127.0.0.1]\nclasses: [{{ name: all{more} }}]\n\
         discipline: {{ custom: {{ admit: none, load_control: {{ fixed: 1 }}, precedence: fifo }} }}\n"
    );
    Stage::open(&policy(&[node], &rest))
}

#[test]
fn a_polite_client_does_not_stand_behind_150_requests_of_another() {
    let node = Node::scripted();
    let stage = one_at_a_time(&node, "");
    let mut greedy: Vec<Client> = (0..150).map(|_| from(&stage, "192.0.2.1", "")).collect();
    let first = node.call();
    wait_until("the others wait", || stage.waiting() == 149);
    let mut polite = from(&stage, "192.0.2.2", "");
    wait_until("it waits too", || stage.waiting() == 150);
    first.ok("");
    let lines: Vec<String> = (0..149)
        .map(|_| {
            let call = node.call();
            let line = call.line().to_owned();
            call.ok("");
            line
        })
        .collect();
    node.call().ok("");
    // One request of the greedy client has its turn before.
    assert_eq!(lines.iter().position(|line| line.starts_with("GET /192.0.2.2")), Some(1));
    assert_eq!(polite.answer().status, 200);
    assert!(greedy.iter_mut().all(|client| client.answer().status == 200));
}

#[test]
fn a_full_queue_makes_room_for_a_polite_client() {
    let node = Node::scripted();
    let stage = one_at_a_time(&node, ", queue: { max_waiting: 20 }");
    let mut greedy: Vec<Client> = (0..21).map(|_| from(&stage, "192.0.2.1", "")).collect();
    let first = node.call();
    wait_until("the queue is full", || stage.waiting() == 20);
    let mut refused = from(&stage, "192.0.2.1", "");
    assert_eq!(refused.answer().header("proxy-status").as_deref(), Some(QUEUE_FULL));
    let mut polite = from(&stage, "192.0.2.2", "");
    let all = || stage.gateway.control().classes(weirgate_engine::ClassId(0), 1);
    wait_until("a request of the greedy client makes room", || all()[0].shed.iter().sum::<u64>() == 2);
    assert_eq!(stage.waiting(), 20);
    first.ok("");
    for _ in 0..20 {
        node.call().ok("");
    }
    assert_eq!(polite.answer().status, 200);
    let answers: Vec<_> = greedy.iter_mut().map(Client::answer).collect();
    let shed: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    assert_eq!(shed.len(), 1);
    assert_eq!(shed[0].header("proxy-status").as_deref(), Some(SOURCE_FULL));
}

const QUEUE_FULL: &str = "weirgate; error=connection_limit_reached; details=\"queue_full\"";
const SOURCE_FULL: &str = "weirgate; error=connection_limit_reached; details=\"source_full\"";

#[test]
fn a_policy_says_what_a_source_is() {
    // The policy's `source`, and two requests: address and headers of each.
    for (source, one, two, alike) in [
        ("address", ("192.0.2.1", ""), ("192.0.2.2", ""), false),
        ("/24", ("192.0.2.1", ""), ("192.0.2.2", ""), true),
        ("/24", ("192.0.2.1", ""), ("192.0.3.1", ""), false),
        ("/24 /48", ("2001:db8:0:1::1", ""), ("2001:db8:0:2::1", ""), true),
        ("/24", ("2001:db8:0:100::1", ""), ("2001:db8:0:200::1", ""), false),
        ("{ header: X-Key }", ("192.0.2.1", "X-Key: a\r\n"), ("192.0.2.2", "X-Key: a\r\n"), true),
        ("{ header: X-Key }", ("192.0.2.1", "X-Key: a\r\n"), ("192.0.2.1", "X-Key: b\r\n"), false),
        ("{ cookie: sid }", ("192.0.2.1", "Cookie: sid=a\r\n"), ("192.0.2.1", "Cookie: sid=b\r\n"), false),
        ("{ cookie: sid }", ("192.0.2.1", ""), ("192.0.2.1", "Cookie: other=b\r\n"), true),
    ] {
        let node = Node::scripted();
        let stage = one_at_a_time(&node, &format!(", source: {source}, queue: {{ max_waiting_per_source: 1 }}"));
        let mut in_flight = from(&stage, "203.0.113.1", "X-Key: z\r\nCookie: sid=z\r\n");
        let call = node.call();
        let mut first = from(&stage, one.0, one.1);
        wait_until("the first waits", || stage.waiting() == 1);
        let mut second = from(&stage, two.0, two.1);
        if alike {
            assert_eq!(second.answer().status, 503, "{source}: {one:?} and {two:?}");
        } else {
            wait_until("the second waits", || stage.waiting() == 2);
        }
        call.ok("");
        node.call().ok("");
        if !alike {
            node.call().ok("");
            assert_eq!(second.answer().status, 200, "{source}: {one:?} and {two:?}");
        }
        assert_eq!((in_flight.answer().status, first.answer().status), (200, 200));
    }
}

#[test]
fn every_network_has_a_class_of_its_own() {
    let rest = "trusted_proxies: [127.0.0.1]\ndiscipline: none\n\
                classes: [{ name: network, per: { source: /24 } }, { name: other }]\n";
    let (_node, stage) = Stage::of(Node::answering(crate::stage::ok("x")), rest);
    for address in ["192.0.2.1", "192.0.2.200", "198.51.100.1", "2001:db8::1"] {
        assert_eq!(from(&stage, address, "").answer().status, 200);
    }
    let classes = stage.gateway.control().classes(weirgate_engine::ClassId(0), 10);
    let keys: Vec<_> = classes.iter().filter_map(|class| class.key.as_deref()).map(String::from_utf8_lossy).collect();
    assert_eq!(keys, ["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/56"]);
}

#[test]
fn a_source_beyond_its_rate_is_told_to_wait() {
    let rest = "trusted_proxies: [127.0.0.1]\ndiscipline: none\n\
                classes: [{ name: all, limit_per_source: 6/min, fallback: { body: never } }]\n";
    let (_node, stage) = Stage::of(Node::answering(crate::stage::ok("x")), rest);
    assert_eq!(from(&stage, "192.0.2.1", "").answer().status, 200);
    let answer = from(&stage, "192.0.2.1", "").answer();
    assert_eq!((answer.status, answer.text().as_str()), (429, "429 Too Many Requests: source_rate\n"));
    let wait: u64 = answer.header("retry-after").and_then(|text| text.parse().ok()).expect("a time");
    assert!((5..=10).contains(&wait), "{wait}");
    assert_eq!(
        answer.header("proxy-status").as_deref(),
        Some("weirgate; error=http_request_denied; details=\"source_rate\"")
    );
    assert_eq!(from(&stage, "192.0.2.2", "").answer().status, 200, "another source has its own rate");
}

#[test]
fn a_peer_beyond_its_connections_is_closed() {
    let rest = "discipline: none\nclasses: [{ name: all }]\nlimits: { connections_per_source: 3 }\n";
    let (_node, stage) = Stage::of(Node::answering(crate::stage::ok("x")), rest);
    let answers = |client: &mut Client| client.ask("/").status == 200;
    let mut first: Vec<Client> = (0..3).map(|_| stage.client()).collect();
    assert!(first.iter_mut().all(answers));
    assert!(stage.client().is_closed());
    assert_eq!(stage.gateway.counters().refused_connections.total(), 1);
    drop(first.pop());
    wait_until("there is room again", || {
        let mut client = stage.client();
        // The gateway may have closed it already.
        let _ = client.stream().write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.rest().starts_with(b"HTTP/1.1 200")
    });
}

/// One connection of a source in a minute. No test takes as long.
const RARELY: &str = "discipline: none\nclasses: [{ name: all }]\nlimits: { new_connections_per_source: 1/min }\n";

#[test]
fn a_peer_that_connects_too_fast_is_closed_before_tls() {
    let (pki, node) = (Pki::new(), Node::answering(crate::stage::ok("x")));
    let certificate = pki.certificate("a", &["a.test"]);
    let policy = |rest: &str| {
        let listen = format!("[127.0.0.1:0, {{ address: \"127.0.0.1:0\", tls: {{ certificates: {certificate} }} }}]");
        policy(&[&node], rest).replacen("127.0.0.1:0", &listen, 1)
    };
    let stage = Stage::open(&policy(RARELY));
    let (plain, secure) = (stage.gateway.addresses()[0], stage.gateway.addresses()[1]);
    let serves = |mut client: Client| client.ask("/").status == 200;
    assert!(serves(Client::connect(plain)));
    // Both listeners count, and a connection that has ended counts as well.
    assert!(Client::connect(plain).is_closed() && Client::connect(secure).is_closed());
    assert!(serves(Client::from_address([127, 0, 0, 2], plain)), "another source");
    let counters = stage.gateway.counters();
    let latest = counters.over_rate_connections.latest();
    assert_eq!((counters.over_rate_connections.total(), latest), (2, Some("127.0.0.1".parse().expect("an address"))));
    assert_eq!((counters.refused_connections.total(), counters.handshakes.failures().map(|(_, n)| n).sum()), (0, 0));
    let off = policy("discipline: none\nclasses: [{ name: all }]\n");
    stage.gateway.reload_site(site(&off), &off).expect("a good policy");
    assert!(serves(Client::connect(plain)));
}

#[test]
fn the_rate_of_connections_is_that_of_the_clients_behind_a_balancer() {
    let node = Node::answering(crate::stage::ok("x"));
    let listen = "{ address: \"127.0.0.1:0\", proxy_protocol: 127.0.0.1 }";
    let stage = Stage::open(&policy(&[&node], RARELY).replacen("127.0.0.1:0", listen, 1));
    let connect = |last: u8| {
        let mut client = stage.client();
        client.send(format!("PROXY TCP4 192.0.2.{last} 10.0.0.1 1 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        client
    };
    assert_eq!([connect(1), connect(2)].map(|mut client| client.answer().status), [200, 200]);
    assert!(connect(1).is_closed());
    assert_eq!(stage.gateway.counters().over_rate_connections.total(), 1);
}

#[test]
fn a_listed_proxy_has_no_limit_of_connections() {
    let rest = "trusted_proxies: [127.0.0.1]\ndiscipline: none\nclasses: [{ name: all }]\n\
                limits: { connections_per_source: 1, new_connections_per_source: 1/min }\n";
    let (_node, stage) = Stage::of(Node::answering(crate::stage::ok("x")), rest);
    let mut clients: Vec<Client> = (0..4).map(|_| stage.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("/").status, 200);
    }
}
