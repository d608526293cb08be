//! Log output about requests and about secrets: rows L1, L2, L3.

use crate::{Start, TOKEN, exchange, json_lines, node};

const LOGGED: &str = "access_log: { file: SCRATCH/access.log }\nclasses: [{ name: gold, match: { host: gold.test } }, { name: other }]\n";

#[test]
fn l1_whatever_is_requested_is_one_line_and_holds_no_credentials() {
    let running = Start { policy: LOGGED, ..Start::default() }.before(node());
    let requests: [&[u8]; 5] = [
        b"GET /a%0d%0a{%22class%22:%22x%22}%1b[2J HTTP/1.1\r\nHost: gold.test\r\nConnection: close\r\n\r\n",
        b"GET /?q=\"\\%00%0a HTTP/1.1\r\nHost: gold.test\r\nUser-Agent: \xff\xfe\x1b\r\nConnection: close\r\n\r\n",
        b"GET /secret HTTP/1.1\r\nHost: gold.test\r\nAuthorization: Basic c2VjcmV0\r\nCookie: s=hunter2\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\n\n",
        b"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
    ];
    let answers: Vec<u16> = requests.iter().map(|request| exchange(running.address(), request).status).collect();
    let log = running.scratch.path("access.log");
    // The gateway's threads deliver the last records when they end, and closing the log writes them.
    running.gateway.drain();
    running.gateway.join();
    running.log.close();
    let raw = std::fs::read_to_string(&log).expect("UTF-8");
    let lines = json_lines(&log);
    assert_eq!(lines.len(), requests.len(), "{raw}");
    assert!(raw.bytes().all(|b| b == b'\n' || (b >= 0x20 && b != 0x7f)), "{raw:?}");
    for secret in ["c2VjcmV0", "hunter2", "uthorization", "ookie"] {
        assert!(!raw.contains(secret), "{secret} in {raw}");
    }
    for status in answers {
        assert!(lines.iter().any(|line| line["status"] == status), "{status} in {raw}");
    }
}

#[test]
fn l1_a_trace_id_that_came_is_the_one_in_the_log() {
    let running = Start { policy: LOGGED, ..Start::default() }.before(node());
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = format!(
        "GET / HTTP/1.1\r\nHost: gold.test\r\ntraceparent: 00-{id}-00f067aa0ba902b7-01\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(exchange(running.address(), request.as_bytes()).status, 200);
    assert_eq!(exchange(running.address(), b"GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n").status, 200);
    running.gateway.drain();
    running.gateway.join();
    running.log.close();
    let lines = json_lines(&running.scratch.path("access.log"));
    assert_eq!((&lines[0]["trace_id"], &lines[0]["class"]), (&id.into(), &"gold".into()));
    let other = lines[1]["trace_id"].as_str().expect("an id");
    assert!(other.len() == 32 && other != id && other.bytes().all(|b| b.is_ascii_hexdigit()), "{other}");
}

#[test]
fn l2_a_log_that_cannot_be_written_costs_no_request() {
    let policy = LOGGED.replace("SCRATCH/access.log", "/dev/full");
    let running = Start { policy: &policy, ..Start::default() }.before(node());
    for _ in 0..20 {
        let answer = exchange(running.address(), b"GET / HTTP/1.1\r\nHost: gold.test\r\nConnection: close\r\n\r\n");
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    }
    running.gateway.drain();
    running.gateway.join();
    running.log.close();
    assert_eq!((running.log.written(), running.log.dropped()), (0, 20));
    let page = running.get("/metrics").body;
    assert!(page.contains("weirgate_access_log_dropped_total 20"), "{page}");
}

#[test]
fn l2_a_reader_of_the_log_that_has_stopped_costs_no_request() {
    let running = Start { policy: LOGGED, ..Start::default() }.before(node());
    // From now on the log is a pipe without a reader. Opening it blocks for ever.
    let fifo = running.scratch.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("every system has mkfifo");
    assert!(made.success());
    let text = std::fs::read_to_string(&running.file).expect("the policy").replace("access.log", "pipe");
    std::fs::write(&running.file, text).expect("a writable file");
    assert_eq!(running.post("/reload", &[]).status, 200);
    for _ in 0..20 {
        let answer = exchange(running.address(), b"GET / HTTP/1.1\r\nHost: gold.test\r\nConnection: close\r\n\r\n");
        assert_eq!(answer.status, 200);
    }
    assert_eq!(running.get("/metrics").status, 200);
    // Lines that came before the writer opened the pipe may be in the old file. The others wait, and the end does not.
}

#[test]
fn l3_secrets_are_nowhere() {
    let policy = "
classes:
  - { name: keyed, match: { header: { X-Api-Key: sesame-open } } }
  - { name: cookied, match: { cookie: { session: sesame-open } } }
  - { name: asked, match: { not: { query: { key: sesame-open } } } }
  - { name: other }
";
    let running = Start { policy, token: true, ..Start::default() }.before(node());
    let token = format!("Authorization: Bearer {TOKEN}");
    let mut said = String::new();
    for path in ["/", "/live", "/ready", "/metrics", "/policy", "/snapshot", "/nodes"] {
        let answer = running.ask("GET", path, &[&token]);
        assert_eq!(answer.status, 200, "{path}");
        said += &answer.head;
        said += &answer.body;
    }
    for headers in [&["Authorization: Bearer 00000000000000000000000000000000"][..], &[]] {
        let refused = running.post("/reload", headers);
        said += &format!("{refused:?}");
    }
    let file = running.file.clone();
    std::fs::write(&file, "classes: [").expect("a writable file");
    said += &format!("{:?}", running.post("/reload", &[&token]));
    for secret in [TOKEN, "sesame-open", running.scratch.path("token").to_str().expect("UTF-8")] {
        assert!(!said.contains(secret), "{secret}");
    }
    assert!(said.contains("X-Api-Key") || said.contains("x-api-key"), "names of headers are no secret");
}
