//! Header rules: what nodes and clients get, over every protocol, and with the gateway's own responses.

use std::io::{Read as _, Write as _};

use super::http2;
use super::pki::{Pki, connect};
use super::stage::{Node, Stage, ok, policy};

/// Rules as operators use them.
const RULES: &str = "
request_headers:
  remove: [X-Debug]
  set: { X-Real-IP: '${client}', X-Subject: '${client_certificate_subject}', Via: edge }
  add: { X-Note: ['${method} ${host} ${port}', 'class ${class}'] }
response_headers:
  remove: [Server, X-Powered-By]
  set: { Strict-Transport-Security: max-age=31536000, X-Frame-Options: DENY, X-Class: '${class}', X-Node: '${node}' }
discipline: none
classes:
  - name: images
    match: { path_prefix: /img }
    request_headers: { set: { Host: images.internal, X-Note: '${target}' } }
    response_headers: { remove: x_frame_options, add: { Set-Cookie: [a=1, b=2] } }
  - name: rest
";

const SERVED: &str = "HTTP/1.1 200 OK\r\nServer: x/1\r\nserver: y\r\nX-Frame-Options: SAMEORIGIN\r\nSet-Cookie: own\r\nContent-Length: 2\r\n\r\nok";

fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

#[test]
fn requests_reach_the_node_as_the_rules_say() {
    let (node, stage) = Stage::of(Node::answering(SERVED), RULES);
    let port = stage.address().port();
    let mut client = stage.client();
    client.send(
        "GET /a?q HTTP/1.1\r\nHost: a.test\r\nX-Debug: 1\r\nx_debug: 2\r\nX-Subject: CN=forged\r\nX-Note: own\r\n\
         X-Real-IP: 1.1.1.1\r\nConnection: x-note\r\n\r\n",
    );
    assert_eq!(client.answer().status, 200);
    let call = node.call();
    let head = &call.head;
    assert_eq!((values(head, "x-debug"), values(head, "x_debug")), (vec![], vec![]));
    // There is no certificate, so the header that claims one is gone.
    assert_eq!((values(head, "x-subject"), values(head, "x-real-ip")), (vec![], vec!["127.0.0.1"]));
    assert_eq!(values(head, "x-note"), [format!("GET a.test {port}"), "class rest".to_owned()]);
    assert_eq!((values(head, "via"), values(head, "host")), (vec!["edge"], vec!["a.test"]));

    client.get("/img/x?y=1");
    assert_eq!(client.answer().status, 200);
    let call = node.call();
    assert_eq!((call.line(), values(&call.head, "host")), ("GET /img/x?y=1 HTTP/1.1", vec!["images.internal"]));
    assert_eq!(values(&call.head, "x-forwarded-host"), ["a.test"]);
    assert_eq!(values(&call.head, "x-note"), ["/img/x?y=1"]);
}

#[test]
fn responses_reach_the_client_as_the_rules_say() {
    let (node, stage) = Stage::of(Node::answering(SERVED), RULES);
    let mut client = stage.client();
    let head = client.ask("/").head;
    assert_eq!((values(&head, "server"), values(&head, "x-frame-options")), (vec![], vec!["DENY"]));
    assert_eq!((values(&head, "x-class"), values(&head, "set-cookie")), (vec!["rest"], vec!["own"]));
    assert_eq!(values(&head, "x-node"), [node.address.to_string()]);
    assert_eq!(values(&head, "strict-transport-security"), [""; 0], "not without TLS");
    let head = client.ask("/img").head;
    assert_eq!((values(&head, "x-class"), values(&head, "x-frame-options")), (vec!["images"], vec![]));
    assert_eq!(values(&head, "set-cookie"), ["own", "a=1", "b=2"]);

    let mut client = http2::Client::connect(stage.address());
    let whole = client.ask(http2::get("/img")).expect("a response");
    assert_eq!(
        (whole.header("x-class"), whole.header("server"), whole.text()),
        (Some("images"), None, "ok".to_owned())
    );
    assert_eq!(whole.head.headers().get_all("set-cookie").iter().count(), 3);
}

#[test]
fn the_gateways_own_responses_follow_the_rules() {
    let (_node, stage) = Stage::of(Node::absent(), RULES);
    let mut client = stage.client();
    let answer = client.ask("/");
    assert_eq!((answer.status, answer.header("x-class").as_deref()), (502, Some("rest")));
    assert_eq!(answer.header("x-frame-options").as_deref(), Some("DENY"));
    // It has no class, and gets what the policy says of all.
    let answer = client.exchange("GET /%00 HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((answer.status, answer.header("x-class"), answer.header("x-node")), (400, None, None));
    assert_eq!(answer.header("x-frame-options").as_deref(), Some("DENY"));
    let answer = stage.exchange("nonsense\r\n\r\n");
    assert_eq!((answer.status, answer.header("x-frame-options").as_deref()), (400, Some("DENY")));
}

#[test]
fn facts_of_tls_and_of_listed_proxies_are_told() {
    let (pki, node) = (Pki::new(), Node::answering(ok("x")));
    let listen = format!(
        "listen: {{ address: \"127.0.0.1:0\", tls: {{ certificates: {}, client_certificates: {{ mode: optional, ca: {} }} }} }}",
        pki.certificate("a", &["a.test"]),
        pki.path("ca.pem").display()
    );
    let rules = "request_headers: { set: { X-Subject: '${client_certificate_subject}', X-Name: '${client_certificate_common_name}', X-Tls: '${tls_version} ${sni} ${scheme} ${protocol}' } }";
    let text = format!(
        "{listen}\nadmin: off\nthreads: 1\nupstreams: {{ web: {{ nodes: \"{}\" }} }}\n{rules}\n\
         response_headers: {{ set: {{ Strict-Transport-Security: max-age=1 }} }}\n\
         discipline: none\nclasses: [{{ name: all }}]\n",
        node.address
    );
    let stage = Stage::open(&text);
    let ask = |config| {
        let mut client = connect(config, stage.address(), "a.test");
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nX-Subject: CN=forged\r\nConnection: close\r\n\r\n")
            .expect("taken");
        let mut answer = String::new();
        // The end of the connection may come without an end of TLS.
        let _ = client.read_to_string(&mut answer);
        assert_eq!(values(&answer, "strict-transport-security"), ["max-age=1"], "{answer}");
        node.call().head.clone()
    };
    let head = ask(pki.known_client("alice", &[]));
    assert!(values(&head, "x-subject")[0].contains("CN=alice"), "{head}");
    assert_eq!((values(&head, "x-name"), values(&head, "x-tls")), (vec!["alice"], vec!["1.3 a.test https HTTP/1.1"]));
    let head = ask(pki.client());
    assert_eq!((values(&head, "x-subject"), values(&head, "x-name")), (vec![], vec![]));

    // Behind a proxy that ends TLS, its word counts.
    let behind = policy(&[&node], &format!("trusted_proxies: 127.0.0.1\n{RULES}"));
    let stage = Stage::open(&behind);
    let answer = stage
        .exchange("GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: https\r\n\r\n");
    assert_eq!(answer.header("strict-transport-security").as_deref(), Some("max-age=31536000"));
    assert_eq!(values(&node.call().head, "x-real-ip"), ["192.0.2.9"]);
}
