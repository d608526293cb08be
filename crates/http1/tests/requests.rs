//! Requests that break a rule. Each input is split into pieces of several sizes.

use proptest::prelude::*;
use weirgate_http1::{Event, Fault, Limits, Name, Names, Requests, write};

const LIMITS: Limits = Limits { head_bytes: 4096, fields: 20 };

/// Result of an input: the bytes that were accepted, the number of heads, and the fault if there was one.
#[derive(Debug, PartialEq)]
struct Run {
    passed: Vec<u8>,
    heads: u64,
    fault: Option<Fault>,
    held: bool,
}

impl Run {
    fn refused(&self) -> Option<u16> {
        self.fault.map(Fault::status)
    }
}

/// Passes `input` in pieces of `piece` bytes.
fn run(input: &[u8], piece: usize) -> Run {
    let mut requests = Requests::new(LIMITS);
    let mut waiting = Vec::new();
    let mut out = Run { passed: Vec::new(), heads: 0, fault: None, held: false };
    for part in input.chunks(piece.max(1)) {
        waiting.extend_from_slice(part);
        loop {
            let between = requests.is_between();
            match requests.receive(&waiting) {
                Ok(Event::Skip(bytes)) if between => drop(waiting.drain(..bytes)),
                Ok(Event::Head(bytes)) => {
                    out.heads += 1;
                    out.passed.extend(waiting.drain(..bytes));
                }
                Ok(Event::Skip(bytes) | Event::End(bytes)) => out.passed.extend(waiting.drain(..bytes)),
                Ok(Event::Data { skip, data }) => out.passed.extend(waiting.drain(..skip + data)),
                Ok(Event::More) => break,
                Ok(Event::Hold) => {
                    out.held = true;
                    break;
                }
                Err(fault) => {
                    out.fault = Some(fault);
                    break;
                }
            }
        }
    }
    out
}

fn refused(input: &str) -> Option<u16> {
    let whole = run(input.as_bytes(), usize::MAX);
    // The result does not depend on how the input is split.
    for piece in [1, 2, 3, 7] {
        assert_eq!(run(input.as_bytes(), piece).fault, whole.fault, "{input:?} in pieces of {piece}");
    }
    whole.refused()
}

/// Reads the strings of a file, in lines between comments.
fn strings(file: &str) -> impl Iterator<Item = String> {
    file.lines().filter(|line| !line.starts_with('#')).map(|line| serde_json::from_str(line).expect("a string"))
}

fn chunked(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

#[test]
fn good_requests_pass_unchanged() {
    for input in [
        "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost:a:80\r\n\r\n",
        "GET http://a.test/x HTTP/1.1\r\nHost:\ta.test \r\nX: \u{e9}\r\nEmpty:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n00a;x;y=1;z=\"q;\\\"\"\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        for piece in [usize::MAX, 1, 2, 5, 11] {
            let run = run(input.as_bytes(), piece);
            assert_eq!(run.fault, None, "{input:?}");
            assert_eq!(run.passed, input.as_bytes(), "{input:?}");
        }
    }
}

#[test]
fn one_empty_line_before_a_request_is_thrown_away() {
    let out = run(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 1);
    assert_eq!(out.passed, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((out.heads, out.refused()), (2, None));
    assert_eq!(refused("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), Some(400));
}

#[test]
fn bad_heads_are_refused_before_a_byte_passes() {
    let with = |field: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
    let fields = strings(include_str!("refused/fields.txt")).map(|field| with(&field));
    for input in &strings(include_str!("refused/heads.txt")).chain(fields).collect::<Vec<_>>() {
        assert_eq!(refused(input), Some(400), "{input:?}");
        assert_eq!(run(input.as_bytes(), 1).passed, b"", "{input:?}");
    }
}

#[test]
fn large_heads_are_refused_with_their_own_status() {
    let long = "x".repeat(5000);
    assert_eq!(refused(&format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")), Some(414));
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n")), Some(431));
    // The refusal comes before the line ends.
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}")), Some(431));
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(20))), Some(431));
    assert_eq!(refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(19))), None);
}

#[test]
fn bad_chunked_bodies_are_refused() {
    for body in strings(include_str!("refused/bodies.txt")) {
        assert_eq!(refused(&chunked(&body)), Some(400), "{body:?}");
    }
    assert_eq!(refused(&chunked(&format!("5;{}\r\n", "x".repeat(5000)))), Some(400));
    assert_eq!(refused(&chunked(&format!("0\r\nX: {}\r\n\r\n", "x".repeat(5000)))), Some(431));
    // A name that only starts like a forbidden one is allowed.
    assert_eq!(refused(&chunked("0\r\nTransfer-Encodings: x\r\nContent-Lengthy: 1\r\n\r\n")), None);
}

#[test]
fn after_a_bad_request_nothing_passes() {
    let out = run(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nBAD\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", usize::MAX);
    assert_eq!((out.heads, out.refused()), (1, Some(400)));
    assert_eq!(out.passed, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[test]
fn what_follows_an_upgrade_is_held_until_it_is_declined() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    let mut input = head.to_vec();
    input.extend_from_slice(b"\x81\x05hello");
    let out = run(&input, 1);
    assert_eq!((out.passed.as_slice(), out.held, out.refused()), (head.as_slice(), true, None));

    let mut requests = Requests::new(LIMITS);
    assert_eq!(requests.receive(head), Ok(Event::Head(head.len())));
    let next = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(requests.receive(next), Ok(Event::End(0)));
    assert_eq!(requests.receive(next), Ok(Event::Hold));
    requests.resume();
    assert_eq!(requests.receive(next), Ok(Event::Head(next.len())));
}

proptest! {
    /// For any input in any pieces there is no panic and the result is the same.
    #[test]
    fn any_bytes_in_any_pieces_give_one_verdict(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
                Just("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()),
                Just("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd".to_owned()),
                Just("4\r\nabcd\r\n".to_owned()),
                Just("0\r\n\r\n".to_owned()),
                Just("\r\n".to_owned()),
                "[\\x00-\\x7f]{0,12}",
            ],
            0..8,
        ),
        piece in 1usize..40,
    ) {
        let input = parts.concat();
        let whole = run(input.as_bytes(), usize::MAX);
        prop_assert_eq!(run(input.as_bytes(), piece), whole);
    }
}

/// RFC 9110 Sec. 7.6.1, and a client must not be able to strip a field that the gateway relies on.
#[test]
fn fields_that_connection_names_are_found_under_no_name() {
    let input =
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Secret, cookie\r\nx-secret: 1\r\nCookie: a=b\r\n\
        Via: x\r\nconnection: Via\r\n\r\n";
    let mut requests = Requests::new(Limits { head_bytes: 4096, fields: 20 });
    assert_eq!(requests.receive(input), Ok(Event::Head(input.len())));
    let mut head = requests.take_head();
    head.drop_named(input, Names::of(&[Name::Host, Name::Via, Name::Connection]));
    assert_eq!(head.named(input, b"X-Secret").count(), 0);
    assert_eq!((head.get(input, Name::Cookie), head.get(input, Name::Via)), (None, Some(&b"x"[..])));
    assert!(!head.names().contains(Name::Cookie));
    let mut out = Vec::new();
    write::fields(&mut out, &head, input, |field| field.name() == Name::Dropped);
    assert_eq!(out, b"Host: a\r\nConnection: keep-alive, X-Secret, cookie\r\nVia: x\r\nconnection: Via\r\n");
}

/// A request of HTTP/1.0 needs no `Host`. The fields of the next one lie elsewhere, and its host is nowhere, as if it
/// had come first.
#[test]
fn a_repeated_head_without_host_has_the_same_index() {
    let (one, next) = (b"GET /long/path HTTP/1.0\r\nAccept: */*\r\n\r\n", b"GET / HTTP/1.0\r\nAccept: */*\r\n\r\n");
    let mut after = Requests::new(LIMITS);
    assert_eq!(after.receive(one), Ok(Event::Head(one.len())));
    let head = after.take_head();
    assert_eq!(after.receive(b""), Ok(Event::End(0)));
    after.keep_head(head);
    let mut fresh = Requests::new(LIMITS);
    assert_eq!(after.receive_after(one, next), fresh.receive(next));
    assert_eq!(after.head(), fresh.head());
}
