//! Tests of `/tap`: requests as they end, for those who watch them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::{PATIENCE, Running, Start, TOKEN, exchange, node};

/// A response of `/tap` that goes on.
struct Tapped(BufReader<TcpStream>);

impl Tapped {
    /// Begins a response, and returns also the id of its viewer.
    fn begin(running: &Running, query: &str) -> (Tapped, String) {
        let mut stream = TcpStream::connect(running.admin).expect("a connection");
        let request = format!("GET /tap{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut tapped = Tapped(BufReader::new(stream));
        assert_eq!(tapped.line(), "HTTP/1.1 200 OK");
        let mut id = String::new();
        loop {
            let line = tapped.line();
            if let Some(value) = line.strip_prefix("weirgate-viewer: ") {
                value.clone_into(&mut id);
            }
            if line.is_empty() {
                return (tapped, id);
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).expect("the stream goes on") > 0, "the stream has ended");
        line.trim_end().to_owned()
    }

    /// Returns the next request. Sizes of chunks are skipped.
    fn request(&mut self) -> Value {
        loop {
            let line = self.line();
            if line.starts_with('{') {
                return serde_json::from_str(&line).expect("JSON");
            }
        }
    }
}

fn ask(running: &Running, host: &str, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    assert_eq!(exchange(running.address(), request.as_bytes()).status, 200);
}

#[test]
fn requests_are_shown_as_they_end_if_they_match() {
    let running = Start::default().before(node());
    ask(&running, "gold.test", "/before");
    let (mut gold, _) = Tapped::begin(&running, "?class=gold&path=/api/*&status=2xx&client=127.0.0.0/8");
    let (mut all, _) = Tapped::begin(&running, "");
    ask(&running, "gold.test", "/other");
    ask(&running, "b.test", "/api/1");
    ask(&running, "gold.test", "/api/2?q=1");
    let shown = gold.request();
    assert_eq!((&shown["class"], &shown["path"]), (&json!("gold"), &json!("/api/2?q=1")));
    assert_eq!(
        (&shown["ending"], &shown["status"], &shown["client"]),
        (&json!("served"), &json!(200), &json!("127.0.0.1"))
    );
    assert!(shown["node"].is_string() && shown["total_ms"].is_f64(), "{shown}");
    let paths = [all.request(), all.request(), all.request()].map(|request| request["path"].clone());
    assert_eq!(paths, ["/other", "/api/1", "/api/2?q=1"]);
}

#[test]
fn a_viewer_that_returns_misses_nothing_and_ends_its_response_before() {
    let running = Start::default().before(node());
    let (mut first, id) = Tapped::begin(&running, "?class=gold");
    ask(&running, "gold.test", "/1");
    assert_eq!(first.request()["path"], "/1");
    let (mut second, same) = Tapped::begin(&running, &format!("?viewer={id}"));
    assert_eq!(id, same);
    for path in ["/2", "/3"] {
        ask(&running, "gold.test", path);
        assert_eq!(second.request()["path"], path);
    }
    let mut rest = String::new();
    while first.0.read_line(&mut rest).is_ok_and(|read| read > 0) && !rest.ends_with("0\r\n") {}
    assert!(!rest.contains("/2"), "{rest}");
}

#[test]
fn mistakes_strangers_and_crowds_are_refused() {
    let running = Start { token: true, ..Start::default() }.before(node());
    assert_eq!(running.get("/tap").status, 401);
    let token = format!("Authorization: Bearer {TOKEN}");
    let get = |path: &str| running.ask("GET", path, &[&token]);
    for (query, says) in [("status=9xx", "status"), ("ending=dropped", "served"), ("klass=gold", "slower_than")] {
        let refused = get(&format!("/tap?{query}"));
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.body.contains(says), "{query}: {}", refused.body);
    }
    assert_eq!(get("/tap?viewer=0123456789abcdef").status, 404);
    assert_eq!(get("/tap?viewer=x").status, 404);
    let mut viewers: Vec<_> = (0..8).map(|_| Tapped::begin(&running, "")).collect();
    assert_eq!(get("/tap").status, 503);
    viewers.pop();
    // The place of a viewer that has left is free as soon as the gateway has noticed.
    let mut ninth = None;
    let free = weirgate_clock::becomes_true(PATIENCE, || {
        let mut stream = TcpStream::connect(running.admin).expect("a connection");
        let request = format!("GET /tap HTTP/1.1\r\nHost: localhost\r\n{token}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut line = String::new();
        BufReader::new(stream.try_clone().expect("the same stream")).read_line(&mut line).expect("an answer");
        ninth = Some(stream);
        line.contains("200")
    });
    assert!(free, "nobody else may watch");
}
