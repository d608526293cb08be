//! Heads drawn at random, with `httparse` as an independent oracle. The fuzzer `http1_messages` makes the same
//! comparison with any bytes.

mod against;

use proptest::prelude::*;
use weirgate_http1::{Event, Limits, Name, Requests, Responses, write};

const LIMITS: Limits = Limits { head_bytes: 64 * 1024, fields: 100 };

/// Lines that are often almost right.
fn line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("Host".to_owned()),
        Just("Content-Length".to_owned()),
        Just("Transfer-Encoding".to_owned()),
        Just("Connection".to_owned()),
        "[A-Za-z][A-Za-z0-9_-]{0,12}",
        "[!#$%&'*+.^_`|~0-9a-zA-Z:( ]{1,8}",
    ];
    let value = prop_oneof![
        Just("a.test".to_owned()),
        Just("chunked".to_owned()),
        "[0-9]{1,3}",
        "[ -~\t]{0,20}",
        "[\u{0}-\u{ff}]{0,6}",
    ];
    let colon = prop_oneof![8 => Just(":"), 8 => Just(": "), 1 => Just(" :"), 1 => Just("")];
    let end = prop_oneof![30 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r")];
    (name, colon, value, end).prop_map(|(name, colon, value, end)| format!("{name}{colon}{value}{end}"))
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![4 => Just("GET".to_owned()), 1 => "[A-Z!^~a-z]{1,6}", 1 => "[ -~]{0,4}"];
    let target = prop_oneof![4 => "/[!-~]{0,12}", 1 => "http://a.test/[a-z]{0,3}", 1 => "[ -~]{0,6}"];
    let version = prop_oneof![6 => Just("HTTP/1.1\r\n"), 1 => Just("HTTP/1.0\r\n"), 1 => Just("HTTP/1.1\n")];
    let lines = proptest::collection::vec(line(), 0..6);
    (method, target, version, lines, any::<bool>()).prop_map(|(method, target, version, lines, host)| {
        let host = if host { "Host: b.test\r\n" } else { "" };
        latin(&format!("{method} {target} {version}{host}{}\r\n", lines.concat()))
    })
}

fn response() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        4 => Just("HTTP/1.1 200 OK\r\n".to_owned()),
        1 => "HTTP/1.[01] [0-9]{3} [ -~]{0,6}\r\n",
        1 => "HTTP/1.1 [0-9]{2,4}\r\n",
    ];
    let lines = proptest::collection::vec(line(), 0..6);
    (first, lines).prop_map(|(first, lines)| latin(&format!("{first}{}\r\n", lines.concat())))
}

/// One byte for each character up to 255.
fn latin(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn requests_mean_the_same_to_the_oracle(input in request()) {
        against::request(&input, LIMITS);
    }

    #[test]
    fn responses_mean_the_same_to_the_oracle(input in response()) {
        against::response(&input, LIMITS);
    }

    /// A request that repeats the fields of the one before has the index that it would have alone.
    #[test]
    fn a_repeated_head_has_the_same_index(one in request(), other in request(), split: u8) {
        let mut alone = Requests::new(LIMITS);
        if alone.receive(&one) != Ok(Event::Head(one.len())) {
            return Ok(());
        }
        let fields = one.iter().position(|&b| b == b'\n').map_or(one.len(), |feed| feed + 1);
        let first = other.iter().position(|&b| b == b'\n').map_or(other.len(), |feed| feed + 1);
        let repeated = [&other[..first], &one[fields..]].concat();
        for next in [&one, &other, &repeated, &[&one[..], &one[..]].concat(), &[&repeated[..], b"x"].concat()] {
            let mut after = Requests::new(LIMITS);
            let mut fresh = Requests::new(LIMITS);
            prop_assert_eq!(after.receive(&one), Ok(Event::Head(one.len())));
            let head = after.take_head();
            // A body is not of interest here.
            if after.receive(b"") != Ok(Event::End(0)) {
                return Ok(());
            }
            after.keep_head(head);
            let part = &next[..next.len() * usize::from(split) / 255];
            for input in [part, next] {
                let event = fresh.receive(input);
                prop_assert_eq!(after.receive_after(&one, input), event);
                match event {
                    Ok(Event::More) => {}
                    Ok(Event::Head(_)) => prop_assert_eq!(after.head(), fresh.head()),
                    _ => break,
                }
            }
        }
    }

    /// A head that is written from the index of another one is accepted, and has its fields but those left out.
    #[test]
    fn a_written_head_has_the_fields_that_were_kept(input in response(), without: u8) {
        let mut responses = Responses::new(LIMITS);
        responses.expect("HEAD");
        let Ok(Event::Head(_)) = responses.receive(&input) else { return Ok(()) };
        let head = responses.head().clone();
        let mut index = 0;
        let mut kept = Vec::new();
        let mut out = Vec::new();
        write::status_line(&mut out, head.status(), head.reason(&input));
        write::fields(&mut out, &head, &input, |field| {
            let skip = without >> (index % 8) & 1 == 1 || field.name() == Name::ContentLength;
            index += 1;
            if !skip {
                kept.push((field.spelling(&input).to_vec(), field.value(&input).to_vec()));
            }
            skip
        });
        write::number(&mut out, b"content-length", 7);
        write::end(&mut out);
        kept.push((b"content-length".to_vec(), b"7".to_vec()));
        if kept.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"transfer-encoding")) {
            return Ok(());
        }

        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut oracle = httparse::Response::new(&mut headers);
        prop_assert_eq!(oracle.parse(&out), Ok(httparse::Status::Complete(out.len())));
        prop_assert_eq!(oracle.code, Some(head.status()));
        let theirs = oracle.headers.iter().map(|field| (field.name.as_bytes().to_vec(), field.value.to_vec()));
        prop_assert_eq!(theirs.collect::<Vec<_>>(), kept);
    }
}
