//! Tests of what an operator watches: `weirgate top`, and the live page in a real browser.
//!
//! Chromium is driven over WebDriver (W3C), which is JSON over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use weirgate_clock::becomes_true;
use weirgate_http_client::Request;

use crate::run::{Process, ask, get, node};
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
    let mut process = Process::of(&["run", file]);
    let (listen, admin) = (process.address("listening on"), process.address("admin API on"));
    process.line("ready");
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
    let mut process = Process::of(&["run", &file]);
    let (listen, admin) = (process.address("listening on"), process.address("admin API on"));
    process.line("ready");
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
    let mut process = Process::of(&["run", &file]);
    let (listen, admin) = (process.address("listening on"), process.address("admin API on"));
    process.line("ready");
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
    driver.run(
        "document.getElementById('secret').value = arguments[0]; document.querySelector('#token button').click();",
        &[token],
    );
    for text in [
        "No node of gone is usable",
        "gold",
        "guaranteed 5/s",
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
    let wide = driver.run("return document.documentElement.scrollWidth - window.innerWidth", &[]);
    assert!(wide.as_i64().is_some_and(|more| more <= 0), "the page is wider than the screen by {wide}");
    // A token that is not there yet is answered with 401, which the browser logs. Nothing else may be wrong.
    for entry in driver.log() {
        let text = entry["message"].as_str().unwrap_or_default();
        assert!(entry["level"] != "SEVERE" || text.contains("401"), "{entry}");
    }
}

/// A browser, driven by chromedriver. Both end with it.
struct Driver {
    process: Child,
    address: SocketAddr,
    session: String,
}

impl Driver {
    /// Starts the browser, or tells why the test is skipped.
    fn start() -> Option<Driver> {
        let started = Command::new("chromedriver").arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let Ok(mut process) = started else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: the live page in a browser: chromedriver is not installed");
            return None;
        };
        let out = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut driver = Driver { process, address: ([127, 0, 0, 1], 0).into(), session: String::new() };
        let port = out.lines().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        driver.address.set_port(port.expect("chromedriver says its port"));
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=375,800",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let begun = driver.call("/session", &wanted);
        driver.session = begun["sessionId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
        Some(driver)
    }

    /// Sends a command and returns its value.
    fn call(&self, path: &str, body: &Value) -> Value {
        let request = Request::post(&self.address.to_string(), path, body.to_string());
        let answer = ask(self.address, request.field("content-type", "application/json"));
        let value: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(answer.status, 200, "{path}: {value}");
        value["value"].clone()
    }

    fn open(&self, url: &str) {
        self.call(&format!("/session/{}/url", self.session), &json!({ "url": url }));
    }

    fn run(&self, script: &str, args: &[&str]) -> Value {
        self.call(&format!("/session/{}/execute/sync", self.session), &json!({ "script": script, "args": args }))
    }

    /// Waits until the page shows `text`.
    fn shows(&self, text: &str) {
        let body = || self.run("return document.body.innerText", &[]).as_str().unwrap_or_default().to_owned();
        assert!(becomes_true(PATIENCE, || body().contains(text)), "{text:?} is not on the page:\n{}", body());
    }

    /// Returns the messages of the browser.
    fn log(&self) -> Vec<Value> {
        let log = self.call(&format!("/session/{}/se/log", self.session), &json!({ "type": "browser" }));
        log.as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The browser ends with its session. An error leaves nothing else to do.
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let request = format!("DELETE /session/{} HTTP/1.1\r\nHost: {}\r\n\r\n", self.session, self.address);
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.read(&mut [0]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
