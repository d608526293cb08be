//! Tests of the client address that the gateway derives from proxy headers.

use crate::stage::{Node, Stage, ok};

const RULES: &str =
    "discipline: none\nclasses:\n  - { name: office, match: { source: 198.51.100.0/24 } }\n  - { name: others }\n";

fn class_of(trusted: &str, fields: &str) -> (String, String, String) {
    let (node, stage) = Stage::of(Node::answering(ok("")), &format!("{RULES}{trusted}"));
    let mut client = stage.client();
    assert_eq!(client.exchange(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).status, 200);
    let call = node.call();
    let record = stage.record();
    (record.class, record.client, call.header("x-forwarded-for").unwrap_or_default())
}

#[test]
fn a_claim_counts_only_from_a_listed_proxy() {
    let forged = "X-Forwarded-For: 198.51.100.7\r\nForwarded: for=198.51.100.7\r\nX-Real-IP: 198.51.100.7\r\n";
    assert_eq!(class_of("", forged), ("others".into(), "127.0.0.1".into(), "127.0.0.1".into()));
    let trusted = "trusted_proxies: [127.0.0.0/8]\n";
    assert_eq!(class_of(trusted, forged), ("office".into(), "198.51.100.7".into(), "198.51.100.7, 127.0.0.1".into()));
    // The rightmost hop that is no listed proxy counts, not its claims about other hops.
    assert_eq!(
        class_of(trusted, "X-Forwarded-For: 198.51.100.7, 203.0.113.9\r\n"),
        ("others".into(), "203.0.113.9".into(), "198.51.100.7, 203.0.113.9, 127.0.0.1".into())
    );
}

#[test]
fn a_claim_cannot_be_stripped_or_disguised() {
    let (node, stage) = Stage::of(Node::answering(ok("")), RULES);
    assert_eq!(
        stage
            .exchange("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Forwarded-For, Forwarded, Via, Host, close\r\n\r\n")
            .status,
        200
    );
    let call = node.call();
    assert_eq!(call.header("x-forwarded-for").as_deref(), Some("127.0.0.1"));
    assert!(call.header("forwarded").is_some() && call.header("via").is_some());
    assert_eq!(call.header("host").as_deref(), Some("a"));
    assert_eq!(stage.exchange("GET / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 198.51.100.7\r\n\r\n").status, 400);
}
