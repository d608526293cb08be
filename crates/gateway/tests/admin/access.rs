//! Access control: rows A1, A2, A3.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use weirgate_config::Admin;
use weirgate_gateway::admin::{AdminListener, AdminServer, Operations};
use weirgate_gateway::metrics::Metrics;
use weirgate_listening::{Address, FileAccess};

use crate::{Running, Start, TOKEN, exchange, node};

/// All requests that change something.
const CHANGES: [&str; 5] = ["/reload", "/rollout", "/drain", "/nodes/web/NODE/drain", "/nodes/web/NODE/undrain"];

#[test]
fn a1_an_address_open_to_others_without_trust_does_not_start() {
    let admin = |address: &str| Admin {
        address: Address::Tcp(address.parse().expect("an address")),
        file: FileAccess::OWNER,
        token_file: None,
        hosts: Vec::new(),
    };
    for token in [None, Some(TOKEN.to_owned())] {
        let error = AdminListener::open(admin("0.0.0.0:0"), token, false).expect_err("open to all").to_string();
        assert!(error.contains("could use the admin API") && error.contains("`weirgate pki`"), "{error}");
    }
    let open = AdminListener::open(admin("0.0.0.0:0"), Some(TOKEN.into()), true).expect("with TLS");
    assert!(open.has_token() && open.is_encrypted());
    let weak =
        AdminListener::open(admin("127.0.0.1:0"), Some("secret".into()), false).expect_err("too short").to_string();
    assert!(weak.contains("128 bits") && !weak.contains("secret"), "{weak}");
}

#[test]
fn a1_without_the_token_nothing_is_changed_or_shown() {
    let node = node();
    let running = Start { token: true, ..Start::default() }.before(node);
    for path in CHANGES {
        let answer = running.post(&path.replace("NODE", &node.to_string()), &[]);
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    for path in ["/metrics", "/policy", "/snapshot", "/events", "/stream"] {
        assert_eq!(running.get(path).status, 401, "{path}");
    }
    // The page itself is the same everywhere. It asks its reader for the token.
    assert!(!running.get("/").body.contains("gold"));
    assert_eq!((running.version(), running.get("/ready").status, running.get("/live").status), (1, 200, 200));
    let token = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(running.ask("GET", "/nodes", &[&token]).json()["nodes"][0]["state"], "up");
    assert_eq!(running.post("/reload", &[&token]).status, 200);
    assert_eq!(running.version(), 2);
}

#[test]
fn a2_after_many_wrong_tokens_tries_are_limited_and_the_right_one_still_passes() {
    let running = Start { token: true, ..Start::default() }.before(node());
    let statuses: Vec<u16> =
        (0..100).map(|i| running.ask("GET", "/policy", &[&format!("Authorization: Bearer {i:032x}")]).status).collect();
    assert!(statuses.iter().all(|s| matches!(s, 401 | 429)), "{statuses:?}");
    assert!(statuses.iter().take(10).all(|&s| s == 401) && statuses.contains(&429), "{statuses:?}");
    let limited = running.post("/reload", &["Authorization: Bearer x"]);
    if limited.status == 429 {
        assert_eq!(limited.header("retry-after"), Some("1"));
    }
    assert_eq!(running.ask("GET", "/policy", &[&format!("Authorization: bearer  {TOKEN}")]).status, 200);
}

#[test]
fn a3_what_a_browser_could_be_made_to_send_is_refused() {
    let running = Start { hosts: &["gate.test"], ..Start::default() }.before(node());
    for host in ["evil.test", "127.0.0.1.evil.test", "localhost.evil.test", "evil.test:80", "", "a b"] {
        let get = running.ask("GET", "/policy", &[&format!("Host: {host}")]);
        assert!(matches!(get.status, 400 | 403), "{host}: {}", get.status);
        assert!(!get.body.contains("checksum"));
        let post = running.post("/reload", &[&format!("Host: {host}")]);
        assert!(matches!(post.status, 400 | 403), "{host}: {}", post.status);
    }
    for host in ["localhost:9", "LOCALHOST", "127.0.0.1", "[::1]:9", "gate.test", &running.admin.to_string()] {
        assert_eq!(running.ask("GET", "/live", &[&format!("Host: {host}")]).status, 200, "{host}");
    }
    for origin in ["https://evil.test", "null", "http://localhost.evil.test", "file://localhost", ""] {
        let answer = running.post("/reload", &[&format!("Origin: {origin}")]);
        assert_eq!(answer.status, 403, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"] {
        let answer = running.ask("POST", "/reload", &[&format!("Content-Type: {kind}"), "Content-Length: 2"]);
        assert_eq!(answer.status, 415, "{kind}");
    }
    assert_eq!(running.ask("POST", "/reload", &["Content-Length: 0"]).status, 415);
    let asked = running.ask("OPTIONS", "/reload", &["Origin: http://localhost", "Access-Control-Request-Method: POST"]);
    assert!(asked.status >= 400 && asked.header("access-control-allow-origin").is_none(), "{asked:?}");
    assert_eq!(running.version(), 1);
    let own =
        running.post("/reload", &["Origin: http://localhost:9900", "Content-Type: application/json; charset=utf-8"]);
    assert_eq!(own.status, 415, "two types are none");
    assert_eq!(running.post("/reload", &["Origin: http://gate.test"]).status, 200);
}

#[test]
fn a3_get_changes_nothing() {
    let node = node();
    let running = Start::default().before(node);
    for path in CHANGES {
        let path = path.replace("NODE", &node.to_string());
        for method in ["GET", "HEAD", "PUT", "DELETE"] {
            let answer = running.ask(method, &path, &["Content-Type: application/json"]);
            assert_eq!(answer.status, 405, "{method} {path}");
        }
    }
    assert_eq!(running.version(), 1);
    assert_eq!(running.get("/ready").json()["phase"], "ready");
    assert_eq!(running.get("/nodes").json()["nodes"][0]["state"], "up");
}

#[test]
fn requests_that_two_readers_could_read_differently_are_refused() {
    let running = Start::default().before(node());
    for request in [
        "GET /live HTTP/1.1\nHost: localhost\n\n",
        "GET /live HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET /live HTTP/1.1\r\n\r\n",
        "GET /live HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        "GET /live HTTP/1.1\r\nHost : localhost\r\n\r\n",
        "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    ] {
        let answer = exchange(running.admin, request.as_bytes());
        assert_eq!(answer.status, 400, "{request:?}: {answer:?}");
    }
    assert_eq!(running.version(), 1);
}

/// Serves the admin API of a gateway on a Unix socket as well.
fn on_socket(running: &Running, path: &Path) -> AdminServer {
    let address = Address::Unix(path.to_owned());
    let config = Admin { address, file: FileAccess::OWNER, token_file: None, hosts: Vec::new() };
    let listener = AdminListener::open(config, None, false).expect("it opens");
    let operations =
        Operations::new(running.gateway.clone(), Arc::new(Metrics::new()), Arc::clone(&running.log), Arc::default());
    listener.serve(Arc::new(operations)).expect("it is served")
}

#[test]
fn a1_a_unix_socket_serves_its_owner_without_a_token() {
    let running = Start::default().before(node());
    let path = running.scratch.path("admin.sock");
    let server = on_socket(&running, &path);
    assert_eq!(std::fs::metadata(&path).expect("a socket").permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).expect("it accepts");
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"ready\":true"), "{answer}");
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_process_that_handed_over_leaves_the_file_of_its_admin_socket() {
    let running = Start::default().before(node());
    let path = running.scratch.path("admin.sock");
    // Its thread may see the hand-over and the end at the same time, in either order.
    for _ in 0..20 {
        let mut server = on_socket(&running, &path);
        server.release();
        drop(server);
        std::fs::remove_file(&path).expect("it is another process's now");
    }
}
