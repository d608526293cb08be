//! Requests and responses of real clients and servers, through the gateway and directly: both sides get the same bytes.
//!
//! The corpus in `as_sent/` is written after the documentation and the observed behaviour of the named programs. Of
//! each message the fields that concern one connection are compared apart, and the gateway's own fields come after all
//! others.

use crate::stage::{Client, Node, PLAIN, Stage, ok};

/// Reads the messages of a file, with their names. A line `== NAME` stands before each, and lines end with CR LF.
fn messages(file: &str) -> Vec<(&str, String)> {
    let parts = file.strip_prefix("== ").expect("a name").strip_suffix('\n').expect("a line").split("\n== ");
    let named = parts.map(|part| part.split_once('\n').expect("a message"));
    named.map(|(name, message)| (name, message.replace('\n', "\r\n"))).collect()
}

/// Fields that concern one connection, or that the gateway writes anew behind the others.
const NOT_COMPARED: [&str; 3] = ["proxy-connection:", "transfer-encoding:", "connection:"];

/// Returns the lines of a head that are compared. A repeated length counts once, as the gateway sends it.
fn lines(head: &str) -> Vec<&str> {
    let is = |line: &str, name: &str| line.to_ascii_lowercase().starts_with(name);
    let own = |line: &&str| !NOT_COMPARED.iter().any(|name| is(line, name));
    let mut lines: Vec<&str> = head.trim_end_matches("\r\n").split("\r\n").filter(own).collect();
    lines.dedup_by(|again, line| again == line && is(again, "content-length:"));
    lines
}

/// Checks that `through` is `direct` and after it only fields of `added`.
fn compare(name: &str, direct: &str, through: &str, added: &[&str]) {
    let (direct, through) = (lines(direct), lines(through));
    assert_eq!(through.get(..direct.len()), Some(&direct[..]), "{name}");
    for line in &through[direct.len()..] {
        assert!(added.iter().any(|name| line.starts_with(name)), "{name}: {line} is added");
    }
}

#[test]
fn nodes_get_what_clients_send() {
    let (node, stage) = Stage::of(Node::replying(|_, _| ok("x")), PLAIN);
    let added = ["x-forwarded-for:", "x-forwarded-proto:", "x-forwarded-host:", "forwarded:", "via:", "traceparent:"];
    for (name, message) in messages(include_str!("as_sent/requests.txt")) {
        let (head, body) = message.split_once("\r\n\r\n").unwrap_or((message.trim_end_matches("\r\n"), ""));
        let (line, fields) = head.split_once("\r\n").unwrap_or((head, ""));
        let end = if fields.is_empty() { "" } else { "\r\n" };
        let host = if fields.starts_with("Host:") { "" } else { "Host: a.test\r\n" };
        let request = format!("{line}\r\n{host}{fields}{end}\r\n{body}");
        let ask = |mut client: Client| {
            client.send(&request);
            let answer = if head.starts_with("HEAD") { client.head_answer() } else { client.answer() };
            (answer.status, node.calls().pop())
        };
        if line.contains('#') {
            // Readers disagree on the meaning of a fragment.
            assert_eq!(ask(stage.client()).0, 400, "{name}");
            continue;
        }
        let (direct, through) = (ask(Client::connect(node.address)), ask(stage.client()));
        assert_eq!((direct.0, through.0), (200, 200), "{name}");
        let (direct, through) = (direct.1.expect("a call"), through.1.expect("a call"));
        // An absolute target becomes a path, and its authority the host (RFC 9112 Sec. 3.2.2).
        let expected = direct.head.replace("GET http://a.test:80/", "GET /");
        if expected == direct.head {
            compare(name, &direct.head, &through.head, &added);
        } else {
            assert_eq!(through.line(), expected.lines().next().unwrap_or_default(), "{name}");
            assert_eq!(through.header("host").as_deref(), Some("a.test:80"), "{name}");
        }
        assert_eq!(direct.body, through.body, "{name}");
    }
}

#[test]
fn clients_get_what_nodes_send() {
    let fields: String = (0..150).map(|at| format!("X-Field-{at}: {at}\r\n")).collect();
    let many = ("150 fields", format!("HTTP/1.1 200 OK\r\nDate: x\r\n{fields}Content-Length: 3\r\n\r\nabc"));
    for (name, response) in messages(include_str!("as_sent/responses.txt")).into_iter().chain([many]) {
        // Text of the corpus beyond ASCII stands for single bytes.
        let bytes: Vec<u8> = response.chars().map(|c| c as u8).collect();
        let (node, stage) = Stage::of(Node::answering(bytes), PLAIN);
        // All heads up to the final one.
        let ask = |mut client: Client| {
            let mut answers = vec![client.ask("/")];
            while answers.last().is_some_and(|answer| answer.status < 200) {
                answers.push(client.answer());
            }
            answers
        };
        let (direct, through) = (ask(Client::connect(node.address)), ask(stage.client()));
        assert_eq!(direct.len(), through.len(), "{name}");
        for (direct, through) in direct.iter().zip(&through) {
            compare(name, &direct.head, &through.head, &["via:"]);
            assert_eq!(direct.body, through.body, "{name}");
        }
    }
}
