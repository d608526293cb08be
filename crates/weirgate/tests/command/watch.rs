//! Tests of the views for operators: `weirgate top` and `tap`, and the live pages of gateway and coordinator in a real
//! browser.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use weirgate_clock::becomes_true;
use weirgate_http_client::Request;

use crate::browser::Driver;
use crate::run::{ask, get, node, process, serving};
use crate::spoken::Process;
use crate::{Scratch, run};

/// Time for a change to appear, far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a policy in which `gold` and `other` share an upstream, and `closed` has one of its own.
fn policy(node: SocketAddr, rest: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\nadmin: {{ address: 127.0.0.1:0{rest} }}\nthreads: 1\n\
         upstreams: {{ web: {{ nodes: [{node}] }}, gone: {{ nodes: [{node}] }} }}\n\
         classes:\n\
         \x20 - {{ name: gold, match: {{ host: gold.test }}, upstream: web, guarantee: {{ throughput: 5/s, response_time: {{ p95: 5s }} }} }}\n\
         \x20 - {{ name: closed, match: {{ host: closed.test }}, upstream: gone }}\n\
         \x20 - {{ name: other, upstream: web }}\n"
    )
}

/// Starts a gateway that serves `gold` and refuses `closed`, because its only node is drained. Returns the process and
/// the admin address.
fn gateway(file: &str, token: Option<&str>) -> (Process, SocketAddr) {
    let (process, listen, admin) = serving(file);
    let with = |request: Request| match token {
        Some(token) => request.authorization(&format!("Bearer {token}")),
        None => request,
    };
    let nodes: Value =
        serde_json::from_slice(&ask(admin, with(Request::get("localhost", "/nodes"))).body).expect("JSON");
    let name = nodes["nodes"].as_array().expect("nodes").iter().find(|node| node["pool"] == "gone").expect("the node");
    let path = format!("/nodes/gone/{}/drain", name["name"].as_str().expect("a name"));
    let drain = Request::post("localhost", &path, "{}").field("content-type", "application/json");
    assert_eq!(ask(admin, with(drain)).status, 200);
    assert_eq!(get(listen, "/").status, 200);
    assert_eq!(ask(listen, Request::get("gold.test", "/")).status, 200);
    // The events are compared with the look before, so a refusal is one only after the first look.
    let seen = becomes_true(PATIENCE, || {
        assert_eq!(ask(listen, Request::get("closed.test", "/")).status, 503);
        let events = ask(admin, with(Request::get("localhost", "/events"))).text();
        events.contains("class closed: requests are refused (no_node)")
    });
    assert!(seen, "refusals are an event");
    (process, admin)
}

#[test]
fn top_prints_the_figures_once_and_says_what_is_wrong() {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", &policy(node(), ""));
    let (_process, admin) = gateway(&file, None);
    let shown = run(&["top", "--once", &admin.to_string()]);
    assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""), "{shown:?}");
    for part in ["discipline weirgate", "gold", "held", "no node of the upstream is usable", "draining", "Changes"] {
        assert!(shown.out.contains(part), "{part:?} is missing:\n{}", shown.out);
    }
    assert_eq!(run(&["top", &format!("http://{admin}/")]).code, Some(0), "without a terminal it prints once");
    let wrong = run(&["top", "127.0.0.1:1"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(1), ""));
    assert!(wrong.err.contains("is this the admin API of a gateway"), "{}", wrong.err);
    assert!(run(&["top", "nowhere"]).err.contains("has no port"), "a hint");
}

/// Starts `tap` with further words, and returns a reader of its lines.
fn tap(admin: SocketAddr, more: &[&str]) -> (Tap, impl Iterator<Item = String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    command.args(["tap", "--gateway", &admin.to_string()]).args(more);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // It says so when the gateway has accepted it.
    let mut err = BufReader::new(process.stderr.take().expect("a pipe"));
    if !more.contains(&"json") {
        let mut line = String::new();
        err.read_line(&mut line).expect("a line");
        assert!(line.contains("requests are shown as they end"), "{line}");
    }
    let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    (Tap(process), lines)
}

struct Tap(Child);

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tap_shows_requests_as_they_end_and_why_they_were_refused() {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", &policy(node(), ""));
    let (_process, listen, admin) = serving(&file);
    let (mut served, mut lines) = tap(admin, &["--class", "go*", "--path", "/a*", "--status", "2xx", "--count", "2"]);
    for (host, path) in [("gold.test", "/a?x=1"), ("other.test", "/a"), ("gold.test", "/b"), ("gold.test", "/a/2")] {
        assert_eq!(ask(listen, Request::get(host, path)).status, 200);
    }
    let first = lines.next().expect("a line");
    assert!(first.contains(" gold GET /a?x=1 200 127.0.0.1: "), "{first}");
    assert!(first.contains("node ") && first.contains(" → total "), "{first}");
    assert!(lines.next().expect("a line").contains(" /a/2 "));
    assert_eq!(lines.next(), None);
    assert_eq!(served.0.wait().expect("it ends").code(), Some(0));

    // Requests are sent until one of them is shown: this command does not say when it has been accepted.
    let (_json, mut lines) = tap(admin, &["--format", "json"]);
    let (shown, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || shown.send(lines.next()));
    let mut line = None;
    let came = becomes_true(PATIENCE, || {
        assert_eq!(ask(listen, Request::get("gold.test", "/j")).status, 200);
        line = line.take().or_else(|| seen.try_recv().ok().flatten());
        line.is_some()
    });
    assert!(came, "no line");
    let line: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
    assert_eq!((&line["path"], &line["ending"], &line["status"]), (&json!("/j"), &json!("served"), &json!(200)));
}

#[test]
fn tap_says_why_a_request_was_refused_and_what_is_wrong_with_an_option() {
    let scratch = Scratch::new();
    let file = scratch.write("policy.yaml", &policy(node(), ""));
    let (_process, listen, admin) = serving(&file);
    let nodes: Value = serde_json::from_slice(&get(admin, "/nodes").body).expect("JSON");
    let gone = nodes["nodes"].as_array().expect("nodes").iter().find(|node| node["pool"] == "gone").expect("the node");
    let path = format!("/nodes/gone/{}/drain", gone["name"].as_str().expect("a name"));
    let drain = Request::post("localhost", &path, "{}").field("content-type", "application/json");
    assert_eq!(ask(admin, drain).status, 200);
    let (_tap, mut lines) = tap(admin, &["--ending", "shed,failed"]);
    assert_eq!(ask(listen, Request::get("gold.test", "/")).status, 200);
    assert_eq!(ask(listen, Request::get("closed.test", "/x")).status, 503);
    let line = lines.next().expect("a line");
    assert!(line.contains(" closed GET /x 503 "), "{line}");
    assert!(line.ends_with("shed: no node of the upstream was usable"), "{line}");

    let wrong = run(&["tap", "--slower-than", "200"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(2), ""));
    assert!(wrong.err.contains("--slower-than: ") && wrong.err.contains("`200ms`"), "{}", wrong.err);
    let nobody = run(&["tap", "--gateway", "127.0.0.1:1"]);
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.err.contains("is this the admin API of a gateway"), "{}", nobody.err);
}

#[test]
fn the_live_page_shows_classes_refusals_and_changes_in_a_browser() {
    let Some(driver) = Driver::start() else { return };
    let scratch = Scratch::new();
    let token = "9f86d081884c7d659a2feaa0c55ad015";
    let secret = scratch.write("token", token);
    let file = scratch.write("policy.yaml", &policy(node(), &format!(", token_file: {secret}")));
    let (_process, admin) = gateway(&file, Some(token));
    driver.open(&format!("http://{admin}/"));
    driver.shows("This gateway asks for its admin token");
    driver.enter(token);
    for text in [
        "No node of gone is usable",
        "gold",
        "guaranteed\u{a0}5/s",
        "best effort",
        "no node of the upstream is usable",
        "class closed: requests are refused (no_node)",
        "gone: drained",
        "of 2",
        "live",
    ] {
        driver.shows(text);
    }
    // The filter hides the rows of other classes.
    driver
        .run("const f = document.getElementById('filter'); f.value = 'gol'; f.dispatchEvent(new Event('input'));", &[]);
    let rows = "return [...document.querySelectorAll('#classes tbody tr')].filter(r => !r.hidden).length";
    assert_eq!(driver.run(rows, &[]), 1);
    driver.run("const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input'));", &[]);
    driver.looks_right();
    driver.complains_of_the_missing_token_alone();
}

#[test]
fn the_page_shows_the_first_classes_of_many_and_all_when_asked() {
    let Some(driver) = Driver::start() else { return };
    let scratch = Scratch::new();
    let classes: String = (1..=60).map(|n| format!("  - {{ name: class-{n}, match: {{ path: /{n} }} }}\n")).collect();
    let text = format!(
        "listen: 127.0.0.1:0\nadmin: {{ address: 127.0.0.1:0 }}\nthreads: 1\nupstreams: {{ web: {{ nodes: [{}] }} }}\n\
         classes:\n{classes}  - {{ name: other }}\n",
        node()
    );
    let (_process, _, admin) = serving(&scratch.write("policy.yaml", &text));
    driver.open(&format!("http://{admin}/"));
    driver.shows("Show all 61 classes");
    let rows = "return [...document.querySelectorAll('#classes tbody tr')].filter(r => !r.hidden).length";
    assert_eq!(driver.run(rows, &[]), 25);
    driver.run("document.getElementById('all').click();", &[]);
    driver.shows("Show the first 25 classes");
    assert_eq!(driver.run(rows, &[]), 61);
    driver.looks_right();
}

#[test]
fn the_page_of_the_coordinator_shows_nodes_shares_and_runs_in_a_browser() {
    let Some(driver) = Driver::start() else { return };
    let scratch = Scratch::new();
    let token = "9f86d081884c7d659a2feaa0c55ad015";
    let secret = scratch.write("token", token);
    let text = format!(
        "reserves:\n  listen: 127.0.0.1:0\n  admin: 127.0.0.1:0\n  admin_token_file: {secret}\n  nodes: [n1, n2]\n  classes:\n\
         \x20   - {{ name: gold, share: 50%, cgroup: gold.slice }}\n    - {{ name: rest, share: 25%, cgroup: rest.slice }}\n"
    );
    let mut process = process(&["coordinator", &scratch.write("policy.yaml", &text)]);
    let agents = process.next("agents connect to");
    let agents = agents.split(' ').find_map(|word| word.trim_end_matches(',').parse().ok()).expect("an address");
    let admin = process.next_address("page on");
    process.next("ready");
    driver.open(&format!("http://{admin}/"));
    driver.shows("This coordinator asks for its admin token");
    driver.enter(token);
    driver.shows("No node is up");
    driver.shows("promised 50 %");
    driver.looks_right();

    // An agent of one node reports once: `gold` uses all of its share.
    let to = |request: Request| ask(agents, request.field("content-type", "application/json"));
    let opened = to(Request::post("localhost", "/reserves/sessions", r#"{"version":2,"node":"n1"}"#));
    let session: Value = serde_json::from_slice(&opened.body).expect("JSON");
    let session = session["session"].as_str().expect("a session");
    let report = json!({
        "run": 0, "seconds": 0.25, "allocation": [60.0, 40.0], "usage": [60.0, 12.5], "sink": [true, false],
        "node": { "cpu": 75.0 },
    });
    let mut number = 0;
    let mut reports = || {
        number += 1;
        let path = format!("/reserves/sessions/{session}/reports/{number}");
        // The coordinator takes twenty reports a second of a node.
        assert!(matches!(to(Request::put("localhost", &path, report.to_string())).status, 204 | 429));
        driver.text()
    };
    // A node that is silent for a second is no longer up, so it reports until the page has seen it.
    let parts = ["1 of 2 nodes are up", "gold: 60 % of 60 %", "all of it", "CPU 75 %", "n1 came up", "down: its agent"];
    let seen = becomes_true(PATIENCE, || {
        let text = reports();
        parts.iter().all(|part| text.contains(part))
    });
    assert!(seen, "{}", driver.text());
    driver.looks_right();
    driver.complains_of_the_missing_token_alone();
}
