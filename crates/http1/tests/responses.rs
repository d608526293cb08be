//! Responses of nodes: where they end, which slips are accepted, and which are faults.

use proptest::prelude::*;
use weirgate_http1::{Event, Fault, Length, Limits, Name, Responses};

const LIMITS: Limits = Limits { head_bytes: 4096, fields: 20 };

/// A response as the reader sees it.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    /// Status of each head, interim ones included.
    statuses: Vec<u16>,
    body: Vec<u8>,
    trailers: Vec<u8>,
    fault: Option<Fault>,
    /// Whether the end was seen.
    ended: bool,
    /// Number of bytes after the end.
    left: usize,
}

/// Reads the response to a request with `method`, in pieces of `piece` bytes, after which the node closes.
fn read(method: &str, input: &[u8], piece: usize) -> Seen {
    let mut responses = Responses::new(LIMITS);
    responses.expect(method);
    let (mut seen, mut waiting) = (Seen::default(), Vec::new());
    for part in input.chunks(piece.max(1)) {
        waiting.extend_from_slice(part);
        loop {
            match responses.receive(&waiting) {
                Ok(Event::More | Event::Hold) => break,
                Ok(Event::Skip(bytes)) => drop(waiting.drain(..bytes)),
                Ok(Event::Head(bytes)) => {
                    seen.statuses.push(responses.head().status());
                    drop(waiting.drain(..bytes));
                }
                Ok(Event::Data { skip, data }) => {
                    drop(waiting.drain(..skip));
                    seen.body.extend(waiting.drain(..data));
                }
                Ok(Event::End(bytes)) => {
                    drop(waiting.drain(..bytes));
                    seen.ended = true;
                    seen.trailers = responses.trailers().to_vec();
                }
                Err(fault) => {
                    seen.fault = Some(fault);
                    return seen;
                }
            }
        }
    }
    // A response without a body ends without another byte.
    if let Ok(Event::End(_)) = responses.receive(b"") {
        seen.ended = true;
    }
    seen.ended |= responses.close() && !seen.statuses.is_empty();
    seen.left = waiting.len();
    seen
}

fn whole(method: &str, input: &str) -> Seen {
    let whole = read(method, input.as_bytes(), usize::MAX);
    for piece in [1, 2, 3, 7] {
        assert_eq!(read(method, input.as_bytes(), piece), whole, "{input:?} in pieces of {piece}");
    }
    whole
}

#[test]
fn a_response_ends_where_its_head_says() {
    let get = |input: &str| {
        let seen = whole("GET", input);
        assert_eq!(seen.fault, None, "{input:?}");
        (String::from_utf8(seen.body).expect("text"), seen.ended, seen.left)
    };
    let of = |body: &str, ended, left| (body.to_owned(), ended, left);
    assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcde"), of("abc", true, 2));
    assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"), of("ab", false, 0));
    assert_eq!(get("HTTP/1.1 200 OK\r\n\r\nabc"), of("abc", true, 0));
    assert_eq!(get("HTTP/1.0 200 OK\r\n\r\n"), of("", true, 0));
    assert_eq!(get("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nabc"), of("", true, 3));
    assert_eq!(get("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"), of("", true, 0));
    assert_eq!(
        get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\nx"),
        of("abcde", true, 1)
    );
    assert_eq!(get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"), of("abc", false, 0));
    // A head that breaks off.
    assert_eq!(get("HTTP/1.1 200 OK\r\nContent-Le"), of("", false, 27));
}

#[test]
fn a_response_to_head_has_no_body() {
    let seen = whole("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
    assert_eq!((seen.ended, seen.body, seen.fault), (true, vec![], None));
    let seen = whole("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!((seen.ended, seen.body, seen.fault), (true, vec![], None));
}

#[test]
fn interim_responses_precede_the_final_one() {
    let seen = whole(
        "GET",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    );
    assert_eq!((seen.statuses.as_slice(), seen.body.as_slice(), seen.ended), (&[100, 103, 200][..], &b"x"[..], true));

    // After a change of protocol the bytes are not HTTP.
    let seen = whole("GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\u{1}\u{2}");
    assert_eq!((seen.statuses.as_slice(), seen.left), (&[101][..], 2));
}

#[test]
fn each_interim_head_has_its_own_fields() {
    let mut responses = Responses::new(LIMITS);
    responses.expect("GET");
    let interim = b"HTTP/1.1 103 Early Hints\r\nVia: 1.1 a\r\nLink: </a.css>\r\n\r\n";
    assert_eq!(responses.receive(interim), Ok(Event::Head(interim.len())));
    assert_eq!(responses.head().fields().len(), 2);
    let last = b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(responses.receive(&last[..20]), Ok(Event::More));
    assert_eq!(responses.receive(last), Ok(Event::Head(last.len())));
    let head = responses.head();
    assert_eq!((head.status(), head.fields().len(), head.get(last, Name::Via)), (200, 2, None));
    assert_eq!(head.get(last, Name::Date), Some(&b"now"[..]));
    assert_eq!(responses.length(), Length::Known(0));
    assert_eq!(responses.receive(b""), Ok(Event::End(0)));
    // Without another request there is no response.
    assert_eq!(responses.receive(b"HTTP/1.1 200 OK\r\n\r\n"), Ok(Event::Hold));
}

#[test]
fn slips_that_leave_no_doubt_are_accepted() {
    for input in [
        "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 Gr\u{fc}\u{df} dich\t!\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 999 Request denied\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
        "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent_Length: 7\r\nContent-Length: 1\r\n\r\nx",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let seen = whole("GET", input);
        assert_eq!((seen.fault, seen.body.as_slice(), seen.ended), (None, &b"x"[..], true), "{input:?}");
    }
}

#[test]
fn an_ambiguous_or_broken_response_is_a_fault() {
    let table: &[(&str, Fault)] = &[
        ("\u{16}\u{3}\u{1}", Fault::NotHttp),
        ("ICY 200 OK\r\n\r\n", Fault::NotHttp),
        ("HTTP/2.0 200 OK\r\n\r\n", Fault::Version),
        ("HTTP/1.1 \nContent-Length: 1\r\n\r\n", Fault::Version),
        ("HTTP/1.1  200 OK\r\n\r\n", Fault::Status),
        ("HTTP/1.1 20 OK\r\n\r\n", Fault::Status),
        ("HTTP/1.1 099 OK\r\n\r\n", Fault::Status),
        ("HTTP/1.1 2000 OK\r\n\r\n", Fault::Status),
        ("HTTP/1.1 200 O\0K\r\n\r\n", Fault::Status),
        ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", Fault::Folded),
        ("HTTP/1.1 200 OK\r\nX: a\0\r\n\r\n", Fault::FieldValue),
        ("HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\n\r\n", Fault::FieldValue),
        ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Fault::FieldName),
        ("HTTP/1.1 200 OK\r\n: a\r\n\r\n", Fault::NoName),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", Fault::TwoContentLengths),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n", Fault::TwoContentLengths),
        ("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", Fault::ContentLength),
        ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", Fault::ContentLength),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", Fault::TwoLengths),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Fault::TransferEncoding),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Fault::TransferEncodingIn10),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", Fault::ChunkSize),
    ];
    for (input, fault) in table {
        assert_eq!(whole("GET", input).fault, Some(*fault), "{input:?}");
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(21));
    assert_eq!(whole("GET", &many).fault, Some(Fault::TooManyFields));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(5000));
    assert_eq!(whole("GET", &long).fault, Some(Fault::HeadTooLarge));
}

#[test]
fn trailers_are_kept() {
    let seen =
        whole("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\nX-B:\r\n\r\n");
    assert_eq!(seen.trailers, b"X-Sum: 1\r\nX-B:\r\n");
}

proptest! {
    /// For any input in any pieces there is no panic and the result is the same.
    #[test]
    fn any_bytes_in_any_pieces_give_one_result(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("HTTP/1.1 200 OK\r\n".to_owned()),
                Just("HTTP/1.1 103 Early Hints\n\n".to_owned()),
                Just("Content-Length: 4\r\n".to_owned()),
                Just("Transfer-Encoding: chunked\r\n\r\n".to_owned()),
                Just("\r\n".to_owned()),
                Just("4\r\nabcd\r\n0\r\n".to_owned()),
                "[\\x00-\\x7f]{0,12}",
            ],
            0..8,
        ),
        piece in 1usize..40,
    ) {
        let input = parts.concat();
        prop_assert_eq!(read("GET", input.as_bytes(), piece), read("GET", input.as_bytes(), usize::MAX));
    }
}

/// Reads the heads of `responses`, whose bodies are empty, on one connection in pieces of `piece` bytes. Returns their
/// indices, or the fault that ends it.
fn indices(
    responses: &[String],
    piece: usize,
    one_connection: bool,
) -> Vec<Result<(Event, weirgate_http1::Head), Fault>> {
    let mut reader = Responses::new(LIMITS);
    let mut seen = Vec::new();
    for response in responses {
        if !one_connection {
            reader = Responses::new(LIMITS);
        }
        reader.expect("HEAD");
        let mut event = Ok(Event::More);
        let mut end = 0;
        while event == Ok(Event::More) && end < response.len() {
            end = (end + piece).min(response.len());
            event = reader.receive(&response.as_bytes()[..end]);
        }
        seen.push(event.map(|event| (event, reader.head().clone())));
        if seen.last().is_some_and(|last| !matches!(last, Ok((Event::Head(_), _)))) || reader.receive(b"").is_err() {
            break;
        }
        reader.drop_named(response.as_bytes(), weirgate_http1::Names::NONE);
    }
    seen
}

proptest! {
    /// A connection that remembers the head before reads the next one as a new connection does.
    #[test]
    fn heads_that_repeat_lines_are_read_like_others(
        heads in proptest::collection::vec(
            (prop_oneof![Just("200 OK"), Just("404 Not Found"), Just("200")], proptest::collection::vec(prop_oneof![
                4 => Just("Server: nginx"),
                4 => Just("Date: Sun, 29 Nov 2026 08:00:00 GMT"),
                2 => Just("Date: Sun, 29 Nov 2026 08:00:01 GMT"),
                3 => Just("Content-Type: text/html"),
                2 => Just("Content-Length: 1024"),
                2 => Just("Content-Length: 7"),
                2 => Just("Connection: keep-alive"),
                1 => Just("Connection: close, x-hop"),
                1 => Just("X-Hop: a"),
                1 => Just("Transfer-Encoding: chunked"),
                1 => Just("Set-Cookie : spaced=1"),
                1 => Just("ETag:   \"a\"  "),
                1 => Just("Bad\u{1}: x"),
                1 => Just(" folded"),
            ], 0..24), prop_oneof![3 => Just("\r\n"), 1 => Just("\n")]),
            1..6,
        ),
        piece in prop_oneof![Just(1usize), Just(17), Just(4096)],
    ) {
        let texts: Vec<String> = heads
            .iter()
            .map(|(status, lines, end)| {
                let lines: String = lines.iter().map(|line| format!("{line}{end}")).collect();
                format!("HTTP/1.1 {status}{end}{lines}{end}")
            })
            .collect();
        prop_assert_eq!(indices(&texts, piece, true), indices(&texts, piece, false));
    }
}
