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
