//! Dispatch by target: a repeated target goes to the same node as before.

use crate::stage::{Node, Stage, ok, policy};

/// Starts a gateway with two nodes that answer with their number, under `lard` with these settings.
fn stage(figures: &str) -> (Stage, [Node; 2]) {
    let nodes = [Node::answering(ok("0")), Node::answering(ok("1"))];
    let all: Vec<&Node> = nodes.iter().collect();
    let text = policy(&all, "discipline: none\nclasses: [{ name: all }]\n");
    let text = text.replace("web: { nodes", &format!("web: {{ dispatch: {{ lard: {{ {figures} }} }}, nodes"));
    (Stage::open(&text), nodes)
}

#[test]
fn host_and_path_are_the_target_and_the_query_is_not() {
    let (stage, _nodes) = stage("");
    let mut client = stage.client();
    let mut node =
        |host: &str, path: &str| client.exchange(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).text();
    let first: Vec<String> = (0..6).map(|n| node("a.test", &format!("/{n}"))).collect();
    assert_eq!(first, ["0", "1", "0", "1", "0", "1"], "new targets take turns");
    for round in 0..3 {
        for (n, first) in first.iter().enumerate().rev() {
            assert_eq!(node("A.test", &format!("//x/../{n}?round={round}")), *first, "the canonical path decides");
        }
    }
    // Another host's /0 is another target, and therefore goes to the next node in turn.
    assert_eq!((node("b.test", "/1"), node("c.test", "/1")), ("0".into(), "1".into()));
    let known = &stage.gateway.control().snapshot().localities[0];
    assert_eq!((known.keys, known.hits, known.moves, known.new), (8, 18, 0, 8));
}

#[test]
fn the_query_belongs_to_the_target_if_the_policy_says_so() {
    let (stage, _nodes) = stage("query: true, max_keys: 2");
    let mut client = stage.client();
    let mut node = |path: &str| client.ask(path).text();
    assert_eq!(["/?q=a", "/?q=b", "/?q=a", "/"].map(&mut node), ["0", "1", "0", "0"]);
    // Two targets are kept. `/?q=b` has been forgotten, and is new again.
    assert_eq!(node("/?q=b"), "1");
    let known = &stage.gateway.control().snapshot().localities[0];
    assert_eq!((known.keys, known.max, known.new), (2, 2, 4));
}
