//! Discovered nodes: they get requests when they appear, finish them when they leave, and stay when their source fails.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use weirgate_wire::admin::Discovery;

use crate::stage::{Node, PLAIN, Stage, ok, site, wait_until};

/// A file that names nodes.
struct Listed {
    folder: tempfile::TempDir,
}

impl Listed {
    fn new() -> Listed {
        Listed { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("nodes.json")
    }

    /// Replaces the file, as programs should.
    fn write(&self, text: &str) {
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).expect("written");
        std::fs::rename(&new, self.path()).expect("replaced");
    }

    fn policy(&self, rest: &str) -> String {
        policy(&format!("file: {}, every: 100ms", self.path().display()), rest)
    }
}

fn policy(source: &str, rest: &str) -> String {
    format!("listen: 127.0.0.1:0\nadmin: off\nthreads: 2\nupstreams: {{ web: {{ discover: {{ {source} }} }} }}\n{rest}")
}

/// Returns a list of these addresses.
fn list(nodes: &[SocketAddr]) -> String {
    let targets: Vec<String> = nodes.iter().map(|address| format!("\"{address}\"")).collect();
    format!("[{{ \"targets\": [{}] }}]", targets.join(", "))
}

fn source(stage: &Stage) -> Discovery {
    stage.gateway.discovery().pop().expect("the upstream discovers its nodes")
}

/// Returns the names of the nodes in force.
fn names(stage: &Stage) -> Vec<String> {
    stage.gateway.control().snapshot().nodes.into_iter().map(|node| node.name).collect()
}

fn named(nodes: &[&Node]) -> Vec<String> {
    let mut names: Vec<String> = nodes.iter().map(|node| node.address.to_string()).collect();
    names.sort();
    names
}

#[test]
fn nodes_of_a_file_appear_and_leave() {
    let (listed, stays, leaves) = (Listed::new(), Node::scripted(), Node::scripted());
    listed.write(&list(&[leaves.address]));
    // The nodes are known before the first request.
    let stage = Stage::open(&listed.policy(PLAIN));
    assert_eq!(names(&stage), named(&[&leaves]));
    let mut in_flight = stage.client();
    in_flight.get("/in-flight");
    let call = leaves.call();
    listed.write(&list(&[stays.address]));
    wait_until("the other node has taken its place", || names(&stage) == named(&[&stays]));
    let mut client = stage.client();
    client.get("/new");
    stays.call().ok("from the new one");
    assert_eq!(client.answer().text(), "from the new one");
    // The request on the node that has left finishes.
    call.ok("from the old one");
    assert_eq!(in_flight.answer().text(), "from the old one");
    wait_until("all slots are free", || stage.is_empty());
    let source = source(&stage);
    assert_eq!((source.nodes, source.changes, source.failures), (1, 2, 0));
}

#[test]
fn a_file_that_fails_leaves_the_last_nodes() {
    let (listed, node) = (Listed::new(), Node::answering(ok("x")));
    listed.write(&list(&[node.address]));
    let stage = Stage::open(&listed.policy(PLAIN));
    for broken in ["[", "[]", "[{ \"targets\": [\"no port\"] }]"] {
        listed.write(broken);
        wait_until("the error is seen", || source(&stage).error.is_some());
        assert_eq!(names(&stage), named(&[&node]), "{broken}");
        assert_eq!(stage.ask("/").status, 200);
        listed.write(&list(&[node.address]));
        wait_until("the error is gone", || source(&stage).error.is_none());
    }
    std::fs::remove_file(listed.path()).expect("removed");
    wait_until("it is missed", || source(&stage).error.is_some_and(|error| error.contains("No such file")));
    assert_eq!(names(&stage), named(&[&node]));
    assert_eq!(stage.gateway.active_config().version, 2, "only the first list was a change");
}

#[test]
fn a_reload_keeps_discovered_nodes() {
    let (listed, node) = (Listed::new(), Node::answering(ok("x")));
    listed.write(&list(&[node.address]));
    let stage = Stage::open(&listed.policy(PLAIN));
    let mut client = stage.client();
    assert_eq!(client.ask("/").status, 200);
    // From now on the source says nothing more.
    std::fs::remove_file(listed.path()).expect("removed");
    let text = listed.policy("discipline: none\nclasses: [{ name: a, match: { path_prefix: /a } }, { name: all }]\n");
    let endpoint = stage.gateway.active_config().nodes[0].id;
    let active_config = stage.gateway.reload_site(site(&text), &text).expect("a good policy");
    assert_eq!(active_config.nodes[0].id, endpoint, "connections and counts stay");
    assert_eq!(client.ask("/a").status, 200);
    // A policy that names the nodes ends the discovery.
    let text = crate::stage::policy(&[&node], PLAIN);
    stage.gateway.reload_site(site(&text), &text).expect("a good policy");
    assert_eq!(stage.gateway.discovery(), []);
    assert_eq!(client.ask("/").status, 200);
    // And one without begins it. The nodes stay until the source has named others.
    let other = Node::answering(ok("y"));
    let text = listed.policy(PLAIN);
    stage.gateway.reload_site(site(&text), &text).expect("a good policy");
    wait_until("the file is missed", || source(&stage).error.is_some());
    assert_eq!(client.ask("/").text(), "x");
    listed.write(&list(&[other.address]));
    wait_until("it is found", || names(&stage) == named(&[&other]));
}

#[test]
fn a_gateway_without_nodes_refuses_requests_until_it_finds_some() {
    for rest in [PLAIN, "classes: [{ name: all }]\n"] {
        let (listed, node) = (Listed::new(), Node::answering(ok("x")));
        let stage = Stage::open(&listed.policy(rest));
        assert_eq!(names(&stage), Vec::<String>::new());
        assert_eq!(stage.ask("/").status, 503);
        listed.write(&list(&[node.address]));
        wait_until("it is found", || names(&stage) == named(&[&node]));
        assert_eq!(stage.ask("/").status, 200);
    }
}

#[test]
fn a_node_that_appears_later_starts_slowly() {
    let (listed, first, second) = (Listed::new(), Node::answering(ok("x")), Node::answering(ok("y")));
    listed.write(&list(&[first.address]));
    let text = listed.policy(PLAIN).replacen("web: {", "web: { slow_start: 1h,", 1);
    let stage = Stage::open(&text);
    let shares = || -> Vec<(String, f64)> {
        stage.gateway.control().snapshot().nodes.into_iter().map(|node| (node.name, node.share)).collect()
    };
    assert_eq!(shares(), [(first.address.to_string(), 1.0)], "the first nodes have all of their weight");
    listed.write(&list(&[first.address, second.address]));
    wait_until("the second is there", || shares().len() == 2);
    let mut expected = [(first.address.to_string(), 1.0), (second.address.to_string(), 0.1)];
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(shares(), expected);
}

#[test]
fn nodes_of_a_page_appear_and_stay_when_it_fails() {
    let page = Arc::new(Mutex::new(Vec::new()));
    let answer = Arc::clone(&page);
    let catalog = Node::replying(move |_, _| answer.lock().expect("no panic").clone());
    let say = |bytes: Vec<u8>| *page.lock().expect("no panic") = bytes;
    let (first, second) = (Node::answering(ok("x")), Node::answering(ok("y")));
    say(ok(&list(&[first.address])));
    let stage = Stage::open(&policy(&format!("http: \"http://{}/nodes?v=1\", every: 100ms", catalog.address), PLAIN));
    assert_eq!(names(&stage), named(&[&first]));
    assert!(catalog.call().line().starts_with("GET /nodes?v=1 HTTP/1.1"));
    say(ok(&list(&[first.address, second.address])));
    wait_until("both are there", || names(&stage) == named(&[&first, &second]));
    say(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec());
    wait_until("it fails", || source(&stage).error.as_deref() == Some("the status is 500, not 200"));
    assert_eq!(names(&stage), named(&[&first, &second]));
    say(ok(&list(&[second.address])));
    wait_until("the first has left", || names(&stage) == named(&[&second]));
    assert_eq!(stage.ask("/").text(), "y");
}
